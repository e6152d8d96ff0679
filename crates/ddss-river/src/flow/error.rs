//! Errors of a flow.

use crate::error::QueueError;
use ddss::ErrorKind;
use ddss_group::JoinError;
use ddss_river_core::GraphError;
use std::io;
use std::time::Duration;

/// Error that a module returns. It ends the flow.
pub type ModuleError = Box<dyn std::error::Error + Send + Sync>;

/// Error of a flow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The graph cannot run, or another member has another one.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A queue of the flow failed.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// A call of the client failed.
    #[error(transparent)]
    Client(#[from] ddss::Error),
    /// The directory of the flow cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The flow began with another setting.
    #[error("flow {flow} has {setting} {theirs}, and this process wants {ours}: use the same in all processes")]
    OtherSetting {
        /// Name of the flow.
        flow: String,
        /// Setting.
        setting: &'static str,
        /// Value of the flow.
        theirs: u64,
        /// Value that this process wants.
        ours: u64,
    },
    /// A module failed, or was lost with its member.
    #[error("flow {flow} has ended: module {module} of member {member} on node {node} {reason}")]
    Module {
        /// Name of the flow.
        flow: String,
        /// Name of the module.
        module: String,
        /// Number of the member.
        member: u16,
        /// Node of the member.
        node: u16,
        /// Reason.
        reason: String,
    },
    /// The graph cannot run with the members that have joined.
    #[error("flow {flow} cannot begin: {reason}")]
    Refused {
        /// Name of the flow.
        flow: String,
        /// Reason.
        reason: String,
    },
    /// A user has cancelled the flow.
    #[error("flow {flow} was cancelled")]
    Cancelled {
        /// Name of the flow.
        flow: String,
    },
    /// The flow has ended before this process joined.
    #[error(
        "flow {flow} has ended: `ddss river cancel {flow}` removes it, `ddss river run {flow} --resume` repeats it"
    )]
    Over {
        /// Name of the flow.
        flow: String,
    },
    /// The other members have lost this process: it was stopped for longer than its lease.
    #[error("flow {flow} goes on without this process, which was stopped for too long")]
    Fenced {
        /// Name of the flow.
        flow: String,
    },
    /// The tables of the flow are gone.
    #[error("flow {flow} is gone: it has ended without this process, was removed, or lost with the node of its tables")]
    Removed {
        /// Name of the flow.
        flow: String,
    },
    /// A call that the member repeats while its tables are away fails for another reason, or for too long.
    #[error("flow {flow} goes on without this process, whose calls of its tables fail: {reason}")]
    Tables {
        /// Name of the flow.
        flow: String,
        /// Reason.
        reason: String,
    },
    /// Not all processes that begin the flow have joined.
    #[error("{joined} of {wanted} processes of flow {flow} have joined within {waited:?}")]
    TooFew {
        /// Name of the flow.
        flow: String,
        /// Processes that have joined.
        joined: u16,
        /// Processes that begin the flow.
        wanted: u16,
        /// Time of the wait.
        waited: Duration,
    },
    /// Messages of this process failed: three consumers were lost with each of them or dropped it. The rest of the flow has
    /// ended in order.
    #[error("{messages} messages that this process put into flow {flow} were not processed")]
    Unprocessed {
        /// Name of the flow.
        flow: String,
        /// Messages.
        messages: u64,
    },
    /// A module has no edge to or from that module.
    #[error("module {module} has no edge {direction} {other}")]
    NoEdge {
        /// Name of the module.
        module: String,
        /// `to` or `from`.
        direction: &'static str,
        /// Name of the other module.
        other: String,
    },
    /// A module has several outputs, or none.
    #[error("module {module} has {outputs} outputs: name the module that gets the message with put_to")]
    Outputs {
        /// Name of the module.
        module: String,
        /// Outputs.
        outputs: usize,
    },
    /// The flow is about to end: [`Running::wait`](crate::flow::Running::wait) has the reason.
    #[error("flow {flow} ends")]
    Ending {
        /// Name of the flow.
        flow: String,
    },
    /// Members of the flow live.
    #[error("flow {flow} has {members} living members: cancel it, and wait until they have left")]
    Living {
        /// Name of the flow.
        flow: String,
        /// Members.
        members: usize,
    },
    /// There is no flow of this name.
    #[error("there is no flow {flow}: `ddss river ls` lists them")]
    Unknown {
        /// Name of the flow.
        flow: String,
    },
    /// A row of the flow is of another release, or damaged.
    #[error("row {row} of flow {flow} is of another release: use one release in all its processes")]
    Row {
        /// Name of the flow.
        flow: String,
        /// Row.
        row: u64,
    },
    /// A variable of the environment is none that `ddss river run` sets.
    #[error("{name} is {value}, which `ddss river run` does not set")]
    Environment {
        /// Name of the variable.
        name: &'static str,
        /// Value.
        value: String,
    },
    /// A system call failed.
    #[error("a system call failed")]
    System(#[from] io::Error),
}

impl FlowError {
    /// Returns the error of the client in it.
    fn client(&self) -> Option<&ddss::Error> {
        match self {
            Self::Client(error) | Self::Join(JoinError::Client(error)) => Some(error),
            _ => None,
        }
    }

    /// Returns true if a table of the flow does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        self.client().is_some_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Returns true if the same call may succeed later: a daemon or a node is away.
    pub(super) fn is_passing(&self) -> bool {
        self.client().is_some_and(|error| error.is_retryable() || error.is_indeterminate())
    }
}
