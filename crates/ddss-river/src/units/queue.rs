//! A unit queue: its calls.

use super::options::UnitOptions;
use super::renewal::{Held, Work};
use super::rows::{QueueRow, STATE, UnitInfo, Writer};
use super::session::{Session, after};
use super::table::UnitTable;
use super::unit::Unit;
use crate::error::{QueueError, check_name, check_new_name};
use ddss::{Client, ErrorKind, ReplicationInfo, Table, Version};
use ddss_river_core::UnitAction;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two looks for a unit, in parts of a lease.
const LOOKS: u32 = 16;
/// Longest time between two looks.
const LOOK_MAX: Duration = Duration::from_millis(250);
/// Deadline of calls, unless the caller sets another.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A list of work units, in a table of the cluster. Workers on any node claim them one by one; the list needs no process.
///
/// ```no_run
/// use ddss_river::{UnitOptions, UnitQueue};
/// let client = ddss::Client::connect()?;
/// let units = UnitQueue::create(&client, "thumbnails", UnitOptions::new())?;
/// units.add(&["one.png", "two.png"])?;
/// while let Some(unit) = units.claim()? {
///     println!("{}", String::from_utf8_lossy(unit.bytes()));
///     unit.done(b"")?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct UnitQueue {
    session: Arc<Session>,
    timeout: Duration,
}

impl UnitQueue {
    /// Creates a queue, or opens the one that was created with the same options.
    ///
    /// # Errors
    /// An option is outside its limits, the queue has others or only one copy instead of two, or a call failed.
    pub fn create(client: &Client, name: &str, options: UnitOptions) -> Result<Self, QueueError> {
        check_new_name(name)?;
        Self::create_any(client, name, options)
    }

    /// Creates, or opens, a queue whose name may be one that users cannot choose.
    pub(crate) fn create_any(client: &Client, name: &str, options: UnitOptions) -> Result<Self, QueueError> {
        let spec = options.spec()?;
        let table = match client.table::<[u8]>(&table_name(name)).open_or_allocate(spec) {
            Err(error) if error.kind() == ErrorKind::WrongShape => {
                return Err(Self::other_shape(client, name, &options, error));
            }
            other => other?,
        };
        let ours = options.copies;
        if ours > 1 && table.segment().stat()?.replication == ReplicationInfo::None {
            let (queue, ours) = (name.to_owned(), ours.into());
            return Err(QueueError::OtherSetting { queue, setting: "copies", theirs: 1, ours });
        }
        // The process that allocated the table may have died before this step.
        if table.row(STATE).get()?.version() == Version(0) {
            match table.row(STATE).put_if(Version(0), &QueueRow::new(options.settings()).encode()) {
                Err(error) if error.kind() == ErrorKind::VersionMismatch => {}
                other => drop(other?),
            }
        }
        let queue = Self::of(client, name, table)?;
        match options.settings().difference(&queue.session.table.settings) {
            None => Ok(queue),
            Some((setting, ours, theirs)) => {
                Err(QueueError::OtherSetting { queue: name.to_owned(), setting, theirs, ours })
            }
        }
    }

    /// Names the setting that differs from that of a queue whose table has another shape.
    fn other_shape(client: &Client, name: &str, options: &UnitOptions, error: ddss::Error) -> QueueError {
        let queue = name.to_owned();
        let found = Self::open(client, name).ok();
        let difference = found.and_then(|found| {
            let capacity = UnitTable::capacity(&found.session.table.table);
            let settings = options.settings().difference(&found.session.table.settings);
            settings.or(Some(("capacity", options.capacity_of(), capacity)))
        });
        match difference {
            Some((setting, ours, theirs)) => QueueError::OtherSetting { queue, setting, theirs, ours },
            None => error.into(),
        }
    }

    /// Opens a queue.
    ///
    /// # Errors
    /// There is none of this name, it is of another release, or a call failed.
    pub fn open(client: &Client, name: &str) -> Result<Self, QueueError> {
        check_name(name)?;
        match client.table::<[u8]>(&table_name(name)).open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(QueueError::UnknownUnits { queue: name.to_owned() })
            }
            other => Self::of(client, name, other?),
        }
    }

    fn of(client: &Client, name: &str, table: Table) -> Result<Self, QueueError> {
        let wrong = || QueueError::Row { queue: name.to_owned(), row: STATE };
        let row = table.row(STATE).get()?;
        // Its creator is about to write the row, or was killed before.
        if row.version() == Version(0) {
            return Err(QueueError::UnknownUnits { queue: name.to_owned() });
        }
        let state = QueueRow::decode(&row, UnitTable::capacity(&table)).ok_or_else(wrong)?;
        if u64::from(state.settings.row_bytes()) != table.row_len() {
            return Err(wrong());
        }
        let writer = Writer { process: std::process::id(), node: client.node().0 };
        let table = UnitTable { name: name.to_owned(), table, settings: state.settings, writer };
        Ok(Self { session: Arc::new(Session::new(table)), timeout: TIMEOUT })
    }

    /// Sets the deadline of each call, in which daemons may restart and homes move: a minute, unless it is set.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Adds units, all of them or none, and returns their numbers.
    ///
    /// # Errors
    /// A unit is too long, there is no room for all, or a call failed: then they may have been added.
    pub fn add<B: AsRef<[u8]>>(&self, units: &[B]) -> Result<Range<u32>, QueueError> {
        let UnitTable { name, settings, .. } = &self.session.table;
        let (units, max): (Vec<&[u8]>, _) =
            (units.iter().map(AsRef::as_ref).collect(), settings.unit_bytes_max as usize);
        if let Some(unit) = units.iter().find(|unit| unit.len() > max) {
            return Err(QueueError::UnitTooLong { queue: name.clone(), bytes: unit.len(), max });
        }
        let first = self.session.table.add(&units, self.deadline())?;
        Ok(first..first + units.len() as u32)
    }

    /// Claims a unit: the next one, or one that another worker gave back, or whose worker is dead. Waits up to the deadline while
    /// the last ones are with other workers. `None` means that each is done or failed.
    ///
    /// # Errors
    /// [`QueueError::TimedOut`]: all units that are left are with other workers. Or a call failed.
    pub fn claim(&self) -> Result<Option<Unit>, QueueError> {
        self.claim_within(self.timeout)
    }

    /// Claims a unit as [`claim`](Self::claim) does, but waits no longer than this for those of other workers. The claim of a dead
    /// worker expires while a call waits, within a quarter more than the lease. Calls that wait for less find it expired too,
    /// the ninth at the latest, if they are calls of one value or its clones.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    pub fn claim_within(&self, wait: Duration) -> Result<Option<Unit>, QueueError> {
        let Session { table, .. } = &*self.session;
        let end = after(wait);
        let pause = (Duration::from_millis(table.settings.lease_ms.into()) / LOOKS).min(LOOK_MAX);
        let mut search = None;
        loop {
            let deadline = self.deadline();
            let state = table.state(deadline)?;
            let mut found = match search.take() {
                Some(search) => search,
                None => self.session.search(&state)?,
            };
            match found.claim(table, &state, deadline)? {
                UnitAction::Claimed(claim) => return self.unit(Work { search: found, claim }, deadline).map(Some),
                UnitAction::Ended => {
                    self.session.keep(found);
                    return Ok(None);
                }
                _ => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.session.keep(found);
                let what = "all open units are with other workers, and none was given back";
                return Err(QueueError::TimedOut { queue: table.name.clone(), what, waited: wait });
            }
            search = Some(found);
            std::thread::sleep(pause.min(left));
        }
    }

    /// Returns a claimed unit with its bytes.
    fn unit(&self, work: Work, deadline: Instant) -> Result<Unit, QueueError> {
        let (session, number, attempt) = (self.session.clone(), work.claim.unit.number, work.claim.row.claims);
        let bytes = session.table.unit(number, deadline)?.0.unit;
        let held = Arc::new(Held::new(work));
        let key = session.renewals.add(&session.table, held.clone())?;
        Ok(Unit { session, held, key, number, attempt, bytes, timeout: self.timeout })
    }

    /// Lists the units in the order of their numbers. It is no snapshot.
    ///
    /// # Errors
    /// A call failed; the same of each unit.
    pub fn list(&self) -> Result<impl Iterator<Item = Result<UnitInfo, QueueError>> + use<>, QueueError> {
        let (session, deadline) = (self.session.clone(), self.deadline());
        let count = session.table.state(deadline)?.count;
        Ok((0..count).map(move |number| Ok(UnitInfo::new(number, session.table.unit(number, deadline)?.0))))
    }

    /// Returns the number of units.
    ///
    /// # Errors
    /// A call failed.
    pub fn count(&self) -> Result<u32, QueueError> {
        Ok(self.session.table.state(self.deadline())?.count)
    }

    /// Opens failed units again, with as many attempts as new ones. Returns their number.
    ///
    /// # Errors
    /// A call failed: then some may be open.
    pub fn retry(&self) -> Result<u32, QueueError> {
        self.session.table.reopen(self.deadline())
    }

    fn deadline(&self) -> Instant {
        after(self.timeout)
    }
}

fn table_name(name: &str) -> String {
    format!("river/{name}/units")
}
