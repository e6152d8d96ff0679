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
    /// Edges form a cycle: each of its modules would wait for the end of the others.
    #[error(
        "cannot run a flow with the cycle {}: it never ends; add to a list of work outside of the flow", .0.join(" -> ")
    )]
    Cycle(Vec<String>),
    /// A list of work outside of the flow is not the beginning of an edge of units.
    #[error("cannot run a flow with the edge {0:?} to {1:?}: a list of work is at the beginning of an edge of units")]
    Outside(String, String),
    /// A module has more instances than a flow may have, or none.
    #[error("cannot run {1} instances of module {0:?}: a module has 1 to {2}")]
    Instances(String, u64, u16),
    /// The modules of a one-to-one edge have different numbers of instances.
    #[error("cannot join {from_count} instances of {from:?} one to one with {to_count} of {to:?}")]
    Unequal {
        /// Module at the beginning.
        from: String,
        /// Its instances.
        from_count: u16,
        /// Module at the end.
        to: String,
        /// Its instances.
        to_count: u16,
    },
    /// The bytes of a graph are of another release, or damaged.
    #[error("cannot read the graph of the flow: use one release in all members")]
    Bytes,
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
