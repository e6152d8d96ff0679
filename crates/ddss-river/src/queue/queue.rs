//! Opening and closing a queue.

use super::block_on::block_on;
use super::consumer::Consumer;
use super::inspect::{QueueInfo, inspect_queue};
use super::options::QueueOptions;
use super::producer::Producer;
use super::session::Session;
use crate::error::{QueueError, check_new_name};
use crate::link::{CLOSED, FAILED, Service, ServiceConfig};
use crate::state::{Counters, Ends, EndsError, Failure, Shared};
use ddss::{Client, ErrorKind};
use ddss_group::{Context, JoinError, Membership, Wake};
use ddss_runtime::{IdleConfig, ProgressThread};
use ddss_verbs::IwarpConfig;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Release of the messages between members.
const RELEASE: u8 = 1;

/// A queue that processes on several nodes share under a name.
///
/// Each process is a member, and may put and take messages. A message goes to a consumer that asks for one; its producer
/// keeps it until the consumer has acknowledged it.
#[derive(Clone, Debug)]
pub struct Queue {
    session: Arc<Session>,
}

impl Queue {
    /// Opens a queue by name, and creates it if it does not exist. The process is a member until the last handle and the last
    /// message of this queue are dropped.
    ///
    /// # Errors
    /// The directory cannot be joined, the queue has ended or has other settings, or the error of a system call.
    pub fn open(client: &Client, name: &str, options: QueueOptions) -> Result<Self, QueueError> {
        check_new_name(name)?;
        Self::open_any(client, name, options)
    }

    /// Opens a queue whose name may be one that users cannot choose.
    pub(crate) fn open_any(client: &Client, name: &str, options: QueueOptions) -> Result<Self, QueueError> {
        options.config.check()?;
        let table = format!("river/{name}");
        if options.is_existing {
            match client.table::<[u8]>(&table).open() {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(QueueError::Unknown { queue: name.to_owned() });
                }
                other => drop(other?),
            }
        }
        let mut wire = IwarpConfig::default();
        wire.message_bytes_max = Service::MESSAGE_BYTES;
        // Messages bring a checksum of their own.
        wire.crc = false;
        let (fabric, join) = options.endpoint.bind(wire, options.members)?;
        let join = join.settings(options.encode()).copies(options.copies);
        let membership = Membership::join(client, &table, &join).map_err(|error| match error {
            JoinError::OtherSettings { theirs, .. } => {
                let (setting, theirs, ours) = options.difference(&theirs);
                QueueError::OtherSetting { queue: name.to_owned(), setting, theirs, ours }
            }
            other => other.into(),
        })?;
        if membership.state() >= FAILED {
            return Err(QueueError::Ended { queue: name.to_owned() });
        }
        let was_closed = membership.state() >= CLOSED;
        let random = RandomState::new().hash_one(membership.ours().run);
        let ends = Ends::new(options.config, membership.ours().member, options.members, random)?;
        let wake = Arc::new(Wake::new()?);
        let shared = Arc::new(Shared::new(ends, wake.clone(), Counters::new(options.config.send_slots)));
        let state = membership.group_state();
        let config = ServiceConfig {
            shared: shared.clone(),
            wake,
            state: state.clone(),
            membership,
            fabric: Box::new(fabric),
            context: Context { name: *b"DDSS queue", release: RELEASE },
            lease: options.endpoint.lease,
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let idle = IdleConfig::for_cores(cores);
        let thread = ProgressThread::start("ddss-river", None, idle, move || Service::new(config))?;
        let session = Session {
            queue: name.to_owned(),
            message_bytes_max: options.config.message_bytes_max,
            timeout: options.endpoint.timeout,
            shared,
            state,
            has_told: AtomicBool::new(false),
            was_closed,
            _thread: thread,
        };
        Ok(Self { session: Arc::new(session) })
    }

    /// Reads what the directory of a queue says of it and its members, without a place in it. `None` if there is no queue of
    /// this name.
    ///
    /// # Errors
    /// The directory has another format, or the error of a call.
    pub fn inspect(client: &Client, name: &str) -> Result<Option<QueueInfo>, QueueError> {
        inspect_queue(client, &format!("river/{name}"))
    }

    /// Returns a producer. All producers of a process share its send slots.
    ///
    /// # Errors
    /// The queue is closed, or has failed.
    pub fn producer(&self) -> Result<Producer, QueueError> {
        self.session.check()?;
        if self.session.was_closed || self.session.shared.serve(|ends| ends.is_closed()) {
            return Err(self.session.closed());
        }
        Ok(Producer::new(self.session.clone()))
    }

    /// Returns a consumer. All consumers of a process share its rings: each message goes to one of them.
    ///
    /// # Errors
    /// The queue has failed.
    pub fn consumer(&self) -> Result<Consumer, QueueError> {
        self.session.check()?;
        Ok(Consumer::new(self.session.clone()))
    }

    /// Closes the queue for all processes: no message can be put any more. Consumers take those that are left, and then get
    /// `None`; a process may still open the queue to take them. Waits until the messages of this process are acknowledged.
    ///
    /// # Errors
    /// The directory cannot be written, messages failed or were not acknowledged in time, or the queue has failed.
    pub fn close(&self) -> Result<(), QueueError> {
        self.session.check()?;
        self.session.state.raise(CLOSED)?;
        self.session.shared.call(|ends| ends.close());
        block_on(self.session.flush())
    }

    /// Closes the queue for this process alone, and does not wait until its messages are acknowledged: each of the others does so
    /// too.
    pub(crate) fn close_here(&self) {
        self.session.shared.call(|ends| ends.close());
    }

    /// Ends all calls of this process with an error.
    pub(crate) fn abort(&self) {
        self.session.shared.call(|ends| ends.fail(Failure::Ended));
    }

    /// Returns the number of messages that wait for the consumers of this process and whose producers are dead: no other process
    /// has them. They are lost when this process leaves before it takes them.
    #[must_use]
    pub fn last_copies(&self) -> usize {
        self.session.shared.serve(|ends| ends.last_copies())
    }

    /// Takes the messages of this process that have failed: three consumers were lost with them or dropped them. The newest 64
    /// are kept.
    #[must_use]
    pub fn failed(&self) -> Vec<Vec<u8>> {
        self.session.shared.call(|ends| ends.take_failed())
    }
}

impl From<EndsError> for QueueError {
    fn from(error: EndsError) -> Self {
        match error {
            EndsError::Config(error) => error.into(),
            EndsError::Memory(error) => error.into(),
        }
    }
}
