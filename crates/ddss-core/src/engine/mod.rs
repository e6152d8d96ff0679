//! The engine of one node: events in, [actions](Action) out. It decides everything and touches no memory, socket or clock.
//!
//! ```text
//!   client's request ──► Engine::request ──┐
//!   peer's message   ──► Engine::message ──┼──► next_action ──► Copy, Commit  (this node's memory)
//!   fetch finished   ──► Engine::fetched ──┤                    Fetch, Stage, SendStaged (another node's memory)
//!   time             ──► Engine::tick    ──┘                    Send          (another node's engine)
//!                                                               Reply         (a client's ring)
//! ```
//!
//! | file or folder | content |
//! | --- | --- |
//! | `engine.rs` | the type [`Engine`]: clients, peers, time, the queue of actions |
//! | `action.rs` | [`Action`]: every effect that the engine may ask for |
//! | `dispatch.rs` | routes a client's request to the home or the remote side |
//! | `immediate.rs` | the shortest calls, without a pass through the action queue |
//! | `shutdown.rs` | answers waiting callers when the node is about to stop |
//! | `fault_injection.rs` | bugs that tests switch on and have to find |
//! | `home/` | operations on segments whose home is this node |
//! | `home/home_ops.rs`, `home/lock_ops.rs` | gets, puts, atomics and locks, from clients and from peers |
//! | `home/fast_path.rs`, `home/inline_path.rs` | the same for uncontended calls, and for calls that fit in a ring entry |
//! | `home/peer_messages.rs` | the entry point of messages from other engines |
//! | `home/lifecycle.rs`, `home/metadata.rs` | creation and release; lists, segment info and permissions |
//! | `remote/` | operations on segments whose home is another node |
//! | `remote/remote_get.rs` | gets by one-sided reads |
//! | `remote/served_get.rs` | gets that the home executes |
//! | `remote/read_cache.rs` | cached copies of remote Temporal segments |
//! | `remote/remote_ops.rs`, `remote/remote_locks.rs` | puts, atomics and locks; locks that local clients hold on other homes |
//! | `remote/name_claims.rs` | names that the whole cluster agrees on |
//! | `replication/` | replicas |
//! | `replication/state.rs`, `replication/failover.rs` | the role of this node for a segment, and decisions of the cluster |
//! | `replication/forward.rs`, `replication/resync.rs` | the home's side: forwarded puts, and the first copy |
//! | `replication/replica.rs` | the replica's side |
//! | `state/` | tables without behaviour: segments, lock queues, pending operations, buffers, peers, quotas |

mod action;
mod dispatch;
#[allow(clippy::module_inception, reason = "the file holds the type `Engine`")]
mod engine;
mod fault_injection;
mod home;
mod immediate;
mod remote;
mod replication;
mod shutdown;
mod state;

pub use action::{Action, CommitSource, FetchTarget, MessageBody, RangeSet};
pub use engine::{Counters, Engine, EngineConfig, Now, Reply};
#[cfg(feature = "planted")]
pub use fault_injection::Bug;
pub use home::inline_path::{InlineCommit, InlineResult};
pub use immediate::Commit;
pub use remote::name_claims::ClaimId;
pub use remote::served_get::ServedGetId;
pub use replication::state::{Proposal, ProposalKind, RoleAssignment};
pub use state::areas::{OWN_AREA, area_of, offset_of};
pub use state::buffer_pool::BufferId;
pub use state::pending::StepId;
pub use state::quotas::{Quota, Quotas, Usage};
