//! Errors of a queue.

use ddss_group::JoinError;
use ddss_ipc::MemoryError;
use ddss_river_core::ConfigError;
use ddss_runtime::RuntimeError;
use std::io;
use std::net::IpAddr;
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
    /// The other members cannot reach this address.
    #[error("cannot listen on {0}: name an address of this machine that the other members reach")]
    Address(IpAddr),
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
    /// The other members have lost this process: it was stopped for longer than its lease. They have its messages.
    #[error("queue {queue} goes on without this process, which was stopped for too long: open the queue again")]
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
