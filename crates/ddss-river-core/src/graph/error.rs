//! Reasons why a graph cannot run.

/// Reason why a graph cannot run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The flow has as many as it may.
    #[error("no room for another of the {0}: a flow has at most {1}")]
    Full(&'static str, usize),
    /// The name of a module is empty or too long.
    #[error("cannot name a module {0:?}: use 1 to {1} bytes")]
    Name(String, usize),
    /// Two modules have the same name.
    #[error("cannot place two modules {0:?}: use another name")]
    Duplicate(String),
    /// The flow has no such module.
    #[error("cannot attach module {0}: it is not of this flow")]
    Unknown(u16),
    /// Two edges join the same modules.
    #[error("cannot attach {0:?} to {1:?} twice")]
    Attached(String, String),
    /// The flow has no module.
    #[error("cannot run a flow without modules: place one")]
    Empty,
    /// A module has no edge.
    #[error("cannot run a flow with the unattached module {0:?}: attach it, or do not place it")]
    Unattached(String),
    /// Bounded edges form a cycle: its modules could wait for one another for ever.
    #[error("cannot run a flow with the bounded cycle {}: use a unit queue for one of its edges", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// Another member has another graph.
    #[error(
        "cannot join the flow: its graph is {flow:016x} and this one {own:016x}; run the same program in all members"
    )]
    Different {
        /// Hash of the flow's graph.
        flow: u64,
        /// Hash of this member's graph.
        own: u64,
    },
}
