//! Joining a group: its table, a free place, the lock of that place.

use crate::directory::{
    GroupRow, MemberRow, NOTE_BYTES, Note, ROW_BYTES, RowError, lock_row_of, members_of, row_of, rows_of,
};
use crate::member::{Incarnation, MEMBERS_MAX, Member};
use crate::probe::{PROBE_MAX, Probe, free_min, is_taken};
use ddss::{Client, Error, ErrorKind, LockGuard, LockOptions, ReplicationInfo, Row, Spec, Table, Version};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Longest time in which members that make a group at the same time give way to each other.
const MAKE_MAX: Duration = Duration::from_secs(10);
/// Time between two attempts.
const MAKE_PAUSE: Duration = Duration::from_millis(2);
/// Time between two reads of the places.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Longest time in which a directory with two copies moves to its replica.
const MOVE_MAX: Duration = Duration::from_secs(30);

/// Options of [`Membership::join`](crate::Membership::join).
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct JoinOptions {
    pub(crate) members: u16,
    pub(crate) address: SocketAddr,
    pub(crate) number: Option<u16>,
    pub(crate) settings: Note,
    pub(crate) note: Note,
    pub(crate) lease: Duration,
    pub(crate) copies: u8,
    pub(crate) extra_rows: u16,
}

impl JoinOptions {
    /// Creates options for a group of so many members, and a process whose fabric listens at `address`.
    pub fn new(members: u16, address: SocketAddr) -> Self {
        let (settings, note, lease) = ([0; NOTE_BYTES], [0; NOTE_BYTES], Duration::from_secs(10));
        Self { members, address, number: None, settings, note, lease, copies: 1, extra_rows: 0 }
    }

    /// Asks for one place. Default: the first that is free.
    pub fn number(mut self, number: u16) -> Self {
        self.number = Some(number);
        self
    }

    /// Sets what all members have to agree on: the first one writes it, and others with other settings are refused.
    pub fn settings(mut self, settings: Note) -> Self {
        self.settings = settings;
        self
    }

    /// Sets what the other members learn of this one.
    pub fn note(mut self, note: Note) -> Self {
        self.note = note;
        self
    }

    /// Sets the lease of the place: a process that is stopped for longer is lost. Default 10 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the copies of the directory: with two, the group outlives the node of its directory, and a directory with one copy is
    /// refused.
    pub fn copies(mut self, copies: u8) -> Self {
        self.copies = copies;
        self
    }

    /// Sets the rows that members [publish](crate::GroupState::publish_row) besides their notes. Default: none.
    pub fn extra_rows(mut self, rows: u16) -> Self {
        self.extra_rows = rows;
        self
    }
}

/// Reason why a process cannot join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// A call of the client failed.
    #[error(transparent)]
    Client(#[from] Error),
    /// The directory has another format.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The other members cannot reach this address.
    #[error("cannot listen on {0}: name an address of this machine that the other members reach")]
    Address(IpAddr),
    /// The place that was asked for is taken.
    #[error("{member} of {group} is another process: wait for its end, or join with another number")]
    Taken {
        /// Name of the group.
        group: String,
        /// Place.
        member: Member,
    },
    /// All places are taken.
    #[error("all {members} places of {group} are taken")]
    Full {
        /// Name of the group.
        group: String,
        /// Places.
        members: u16,
    },
    /// The number of members, or the place, is none.
    #[error("{what} {value} is not allowed: it is {allowed}")]
    BadNumber {
        /// Argument.
        what: &'static str,
        /// Value.
        value: u16,
        /// Allowed values.
        allowed: String,
    },
    /// The group has another number of members.
    #[error(
        "{group} was made for {theirs} members, and this process wants {ours}: use one number, or remove the group"
    )]
    OtherMembers {
        /// Name of the group.
        group: String,
        /// Members of the group.
        theirs: u64,
        /// Members that this process wants.
        ours: u16,
    },
    /// The group has other settings; the caller knows what they mean.
    #[error("{group} was made with other settings: start all members with the same, or remove the group")]
    OtherSettings {
        /// Name of the group.
        group: String,
        /// Settings of the group.
        theirs: Box<Note>,
    },
    /// The directory has one copy, and this process wants more.
    #[error(
        "{group} is stored on one node, and this process wants {ours} copies: wait for the end of its members and release \
         it, or ask for one copy"
    )]
    OneCopy {
        /// Name of the group.
        group: String,
        /// Copies that this process wants.
        ours: u8,
    },
    /// A system call failed.
    #[error("the membership cannot start")]
    System(#[from] std::io::Error),
}

impl From<rustix::io::Errno> for JoinError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(error.into())
    }
}

/// Place of a process in the directory.
pub(crate) struct DirectoryPlace {
    pub(crate) table: Table,
    pub(crate) guard: LockGuard<Row<'static>>,
    pub(crate) group: GroupRow,
    pub(crate) row: MemberRow,
    pub(crate) ours: Incarnation,
}

/// Takes a place in a group, and makes the group if it does not exist.
pub(crate) fn take_place(client: &Client, name: &str, options: &JoinOptions) -> Result<DirectoryPlace, JoinError> {
    let members = options.members;
    if !(1..=MEMBERS_MAX).contains(&members) {
        return Err(JoinError::BadNumber { what: "members", value: members, allowed: format!("1 to {MEMBERS_MAX}") });
    }
    if let Some(value) = options.number.filter(|number| *number >= members) {
        return Err(JoinError::BadNumber { what: "place", value, allowed: format!("0 to {}", members - 1) });
    }
    // The calls of a directory with two copies fail in passing while it moves to its replica.
    let end = Instant::now() + if options.copies > 1 { MOVE_MAX } else { Duration::ZERO };
    loop {
        match try_to_take_place(client, name, options) {
            Ok(Some(place)) => return Ok(place),
            Ok(None) => {}
            Err(JoinError::Client(error)) if is_passing(&error) && Instant::now() < end => {}
            Err(error) => return Err(error),
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Returns true if the same call may succeed once the directory has moved.
fn is_passing(error: &Error) -> bool {
    error.kind() != ErrorKind::NoDaemon && (error.is_retryable() || error.is_indeterminate())
}

/// Takes a place. Returns `None` if another process has taken it behind the lock: the lock ended with its home.
fn try_to_take_place(client: &Client, name: &str, options: &JoinOptions) -> Result<Option<DirectoryPlace>, JoinError> {
    let table = open(client, name, options)?;
    let group = agree(&table, name, options)?;
    let (member, guard, version) = lock_place(&table, name, options)?;
    let run = loop {
        let run = random_word()?;
        if run != 0 {
            break run;
        }
    };
    let row = MemberRow { run, process: std::process::id(), address: options.address, note: options.note };
    match table.row(row_of(member)).put_if(version, &row.encode()) {
        Err(error) if error.kind() == ErrorKind::VersionMismatch => return Ok(None),
        other => drop(other?),
    }
    // Behind the own row: whoever changes the state from now on sees this member afterwards.
    let state = GroupRow::decode(&table.row(0).get()?)?.ok_or(RowError { row: 0 })?.state;
    Ok(Some(DirectoryPlace {
        table,
        guard,
        group: GroupRow { state, ..group },
        row,
        ours: Incarnation { member, run },
    }))
}

fn open(client: &Client, name: &str, options: &JoinOptions) -> Result<Table, JoinError> {
    let members = options.members;
    let rows = rows_of(members) + u64::from(options.extra_rows);
    let spec = Spec::new(rows).row_len(ROW_BYTES as u32).copies(options.copies);
    let start = Instant::now();
    let table = loop {
        match client.table::<[u8]>(name).open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => break other?,
        }
        match client.table::<[u8]>(name).allocate(spec) {
            // Another member is first. On another node it may still be at work, or withdraw its claim of the name for ours.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && start.elapsed() < MAKE_MAX => {
                std::thread::sleep(MAKE_PAUSE);
            }
            other => break other?,
        }
    };
    if table.row_len() != ROW_BYTES as u64 {
        return Err(RowError { row: 0 }.into());
    }
    if table.len() != rows {
        // Another release has other rows besides those of the members.
        let theirs = members_of(table.len(), options.extra_rows).ok_or(RowError { row: 0 })?;
        return Err(JoinError::OtherMembers { group: name.to_owned(), theirs, ours: members });
    }
    Ok(table)
}

/// Reads row 0, or writes it with a new key.
fn agree(table: &Table, name: &str, options: &JoinOptions) -> Result<GroupRow, JoinError> {
    let mut found = table.row(0).get()?;
    if GroupRow::decode(&found)?.is_none() {
        let mut key = [0; ddss_auth::KEY_BYTES];
        getrandom::fill(&mut key).map_err(std::io::Error::other)?;
        let group = GroupRow { members: options.members, state: 0, key, settings: options.settings };
        match table.row(0).put_if(found.version(), &group.encode()) {
            Err(error) if error.kind() == ErrorKind::VersionMismatch => {}
            other => drop(other?),
        }
        found = table.row(0).get()?;
    }
    let group = GroupRow::decode(&found)?.ok_or(RowError { row: 0 })?;
    if group.members != options.members {
        let (theirs, ours) = (group.members.into(), options.members);
        return Err(JoinError::OtherMembers { group: name.to_owned(), theirs, ours });
    }
    if group.settings != options.settings {
        return Err(JoinError::OtherSettings { group: name.to_owned(), theirs: Box::new(group.settings) });
    }
    // Without the second copy the group would not outlive a node, though its user believes so.
    if options.copies > 1 && table.segment().stat()?.replication == ReplicationInfo::None {
        return Err(JoinError::OneCopy { group: name.to_owned(), ours: options.copies });
    }
    Ok(group)
}

/// Returns the version of the row of a place that is to be taken: it names no process, or a dead one. `None` if the place is
/// taken, or a living process may take its lock again.
fn find_free(
    probe: &mut Probe,
    table: &Table,
    member: Member,
    options: &JoinOptions,
) -> Result<Option<Version>, JoinError> {
    let row = table.row(row_of(member)).get()?;
    // The row of another release names a process too.
    let is_empty = MemberRow::decode(&row, row_of(member)).is_ok_and(|row| row.is_none());
    if is_empty {
        return Ok(Some(row.version()));
    }
    let is_lock_free = match probe.is_free(table, member, options.members) {
        // Nothing is known of the lock: the caller asks again.
        Err(error) if error.kind() == ErrorKind::TimedOut => false,
        other => other?,
    };
    Ok((is_lock_free && probe.is_dead(options.lease)).then(|| row.version()))
}

/// Locks the place that was asked for, or the first that is free. Returns the version of its row, too.
fn lock_place(
    table: &Table,
    name: &str,
    options: &JoinOptions,
) -> Result<(Member, LockGuard<Row<'static>>, Version), JoinError> {
    let (lock, start) = (LockOptions::new().lease(options.lease).keep_alive().timeout(Duration::ZERO), Instant::now());
    let (end, last) = (start + PROBE_MAX, start + 2 * free_min(options.lease) + PROBE_MAX);
    let numbers = options.number.map_or(0..options.members, |number| number..number + 1);
    let mut probes = vec![Probe::default(); usize::from(options.members)];
    loop {
        for number in numbers.clone() {
            let member = Member(number);
            if let Some(version) = find_free(&mut probes[usize::from(number)], table, member, options)? {
                match table.row(lock_row_of(member, options.members)).lock_with(lock) {
                    Ok(guard) => return Ok((member, guard, version)),
                    Err(error) if is_taken(&error) || error.kind() == ErrorKind::TimedOut => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let (now, is_pending) = (Instant::now(), probes.iter().any(Probe::has_been_free));
        if now >= last || now >= end && !is_pending {
            break;
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    let group = name.to_owned();
    Err(match options.number {
        Some(number) => JoinError::Taken { group, member: Member(number) },
        None => JoinError::Full { group, members: options.members },
    })
}

fn random_word() -> Result<u32, JoinError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(u32::from_le_bytes(bytes))
}
