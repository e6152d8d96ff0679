//! Errors of a queue.

use ddss_group::JoinError;
use ddss_ipc::MemoryError;
use ddss_river_core::ConfigError;
use ddss_runtime::RuntimeError;
use std::io;
use std::time::Duration;

/// Error of a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The directory of the queue cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A call of the client failed.
    #[error(transparent)]
    Client(#[from] ddss::Error),
    /// The queue does not exist.
    #[error("there is no queue {queue}: open it without `existing` to create it")]
    Unknown {
        /// Name of the queue.
        queue: String,
    },
    /// The name is that of a queue, if it is to be one of a flow; or that of the group of file servers, or begins like that of a
    /// collection; or it is one of those that flows and lists of work give to their own tables.
    #[error(
        "cannot use the name {queue}: it is that of a queue, or reserved; river/files and what is below it belong to the file \
         servers, and river/NAME/flow, what is below it, and river/NAME/units to flows and lists of work"
    )]
    ReservedName {
        /// Name of the queue.
        queue: String,
    },
    /// The queue takes no more messages.
    #[error("queue {queue} is closed: it takes no more messages")]
    Closed {
        /// Name of the queue.
        queue: String,
    },
    /// The queue was created with another setting.
    #[error("queue {queue} has {setting} {theirs}, and this process wants {ours}: use the same in all processes")]
    OtherSetting {
        /// Name of the queue.
        queue: String,
        /// Setting.
        setting: &'static str,
        /// Value of the queue.
        theirs: u64,
        /// Value that this process wants.
        ours: u64,
    },
    /// A setting is outside its limits.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The message is above the limit of the queue. It was not put.
    #[error("a message of {bytes} bytes is above message_bytes_max of queue {queue}, which is {max}")]
    TooLong {
        /// Name of the queue.
        queue: String,
        /// Bytes of the message.
        bytes: usize,
        /// Bytes at most.
        max: u32,
    },
    /// The deadline has passed. The call did nothing.
    #[error("{what} of queue {queue} within {waited:?}")]
    TimedOut {
        /// Name of the queue.
        queue: String,
        /// Event that did not happen.
        what: &'static str,
        /// Time of the wait.
        waited: Duration,
    },
    /// The other members have lost this process: it was stopped for longer than its lease. They have its messages. Or its table was
    /// released or lost, and no member is left.
    #[error(
        "queue {queue} goes on without this process, which was stopped for too long, or was released: open the queue again"
    )]
    Fenced {
        /// Name of the queue.
        queue: String,
    },
    /// A member is lost, and the queue is fail-stop.
    #[error("queue {queue} has ended: member {member} is lost")]
    Lost {
        /// Name of the queue.
        queue: String,
        /// Number of the member.
        member: u16,
    },
    /// Another process reports that a member is lost, and the queue is fail-stop.
    #[error("queue {queue} has ended: another process has lost a member")]
    Ended {
        /// Name of the queue.
        queue: String,
    },
    /// Messages failed: three consumers were lost with each of them or dropped it. Or, at most once, they were dropped.
    #[error("{messages} messages of queue {queue} were not processed: see Queue::failed")]
    Unprocessed {
        /// Name of the queue.
        queue: String,
        /// Messages since the last report.
        messages: u64,
    },
    /// The home of a unit queue has not answered up to the deadline. The call may have been executed.
    #[error("the node of unit queue {queue} does not answer, and the call may have been executed: list the units")]
    Unreachable {
        /// Name of the queue.
        queue: String,
    },
    /// There is no unit queue of this name.
    #[error("there is no unit queue {queue}: create it")]
    UnknownUnits {
        /// Name of the queue.
        queue: String,
    },
    /// A unit is above the limit of the queue. None was added.
    #[error("a unit of {bytes} bytes is above unit_bytes_max of queue {queue}, which is {max}")]
    UnitTooLong {
        /// Name of the queue.
        queue: String,
        /// Bytes of the unit.
        bytes: usize,
        /// Bytes at most.
        max: usize,
    },
    /// A result is above the limit of the queue. The unit goes on.
    #[error("a result of {bytes} bytes is above result_bytes_max of queue {queue}, which is {max}")]
    ResultTooLong {
        /// Name of the queue.
        queue: String,
        /// Bytes of the result.
        bytes: usize,
        /// Bytes at most.
        max: usize,
    },
    /// There is no room for the units. None was added.
    #[error("queue {queue} has {count} units, and is for {capacity}: use another queue, or release this one")]
    Full {
        /// Name of the queue.
        queue: String,
        /// Units at most.
        capacity: u64,
        /// Units of the queue.
        count: u32,
    },
    /// Another worker has the unit: this process was stopped, or cut off from the queue, for longer than its lease. Nothing has
    /// changed.
    #[error("unit {unit} of queue {queue} was given to another worker: this one was stopped, or cut off, for too long")]
    UnitFenced {
        /// Name of the queue.
        queue: String,
        /// Number of the unit.
        unit: u32,
    },
    /// The unit was ended before.
    #[error("unit {unit} of queue {queue} has ended: claim another one")]
    UnitEnded {
        /// Name of the queue.
        queue: String,
        /// Number of the unit.
        unit: u32,
    },
    /// There is no collection of this name.
    #[error("there is no collection {collection}: load it")]
    UnknownCollection {
        /// Name of the collection.
        collection: String,
    },
    /// The collection is loaded at the moment, or its loading was interrupted.
    #[error(
        "collection {collection} is not complete: wait for its loader; if that was killed, release river/files/{collection} and \
         load it again"
    )]
    Incomplete {
        /// Name of the collection.
        collection: String,
    },
    /// The source has more bytes than a collection may have. Nothing is loaded.
    #[error("the source of collection {collection} has more than {bytes_max} bytes: load it as several collections")]
    CollectionTooLong {
        /// Name of the collection.
        collection: String,
        /// Bytes at most.
        bytes_max: u64,
    },
    /// The name is taken: by a collection, or by one whose loading was interrupted.
    #[error("collection {collection} exists: release river/files/{collection} before you load it again")]
    CollectionExists {
        /// Name of the collection.
        collection: String,
    },
    /// A file server is lost, or cannot write: its disk is full, for instance.
    #[error("file server {server:016x} is lost, or cannot write")]
    ServerLost {
        /// Number of the server.
        server: u64,
    },
    /// Both mirrors have lost a chunk, or it is damaged there.
    #[error("chunk {chunk} of part {part} of collection {collection} is lost on file servers {:016x} and {:016x}", servers[0], servers[1])]
    ChunkLost {
        /// Name of the collection.
        collection: String,
        /// Number of the part.
        part: u32,
        /// Number of the chunk.
        chunk: u32,
        /// Numbers of the servers.
        servers: [u64; 2],
    },
    /// No file server that is connected has a chunk, and others did not come in time.
    #[error(
        "chunk {chunk} of part {part} of collection {collection} did not come within {waited:?}: {}",
        absence(absent, *damaged)
    )]
    ChunkAway {
        /// Name of the collection.
        collection: String,
        /// Number of the part.
        part: u32,
        /// Number of the chunk.
        chunk: u32,
        /// File servers with the part that are not connected.
        absent: Vec<u64>,
        /// File server where the chunk is damaged or missing.
        damaged: Option<u64>,
        /// Time of the wait.
        waited: Duration,
    },
    /// A row of a unit queue is of another release, or damaged.
    #[error(
        "row {row} of unit queue {queue} is of another release: use one release in all its processes, or release it"
    )]
    Row {
        /// Name of the queue.
        queue: String,
        /// Row.
        row: u64,
    },
    /// The service thread has ended.
    #[error("the service thread of queue {queue} has ended: see the message of its panic")]
    Stopped {
        /// Name of the queue.
        queue: String,
    },
    /// The service thread cannot start.
    #[error(transparent)]
    Thread(#[from] RuntimeError),
    /// The memory of the queue cannot be created.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A system call failed.
    #[error("a system call failed")]
    System(#[from] io::Error),
}

/// Says why no mirror has delivered a chunk.
fn absence(absent: &[u64], damaged: Option<u64>) -> String {
    let damaged = damaged.map(|server| format!("it is damaged or missing on file server {server:016x}"));
    let absent = absent.iter().map(|server| format!("file server {server:016x} is not connected"));
    let reasons: Vec<String> = damaged.into_iter().chain(absent).collect();
    if reasons.is_empty() { "its file servers do not answer".to_owned() } else { reasons.join(", ") }
}

/// Refuses the names that belong to the file servers.
pub(crate) fn check_name(queue: &str) -> Result<(), QueueError> {
    match queue.strip_prefix("files") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            Err(QueueError::ReservedName { queue: queue.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Refuses the names that a user cannot choose: those of the file servers, and those of tables that belong to another name.
pub(crate) fn check_new_name(queue: &str) -> Result<(), QueueError> {
    check_name(queue)?;
    let words = queue.split('/').skip(1);
    match words.clone().any(|word| word == "flow") || words.last() == Some("units") {
        true => Err(QueueError::ReservedName { queue: queue.to_owned() }),
        false => Ok(()),
    }
}
