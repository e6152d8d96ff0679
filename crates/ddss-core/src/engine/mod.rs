//! The engine of one node: events in, [actions](Action) out. It decides everything and touches nothing.
//!
//! ```text
//!   client's request ──► Engine::request ──┐
//!   peer's message   ──► Engine::message ──┼──► next_action ──► Copy, Commit  (this node's memory)
//!   fetch finished   ──► Engine::fetched ──┤                    Fetch, Stage, Hand (another node's memory)
//!   time             ──► Engine::tick    ──┘                    Send          (another node's engine)
//!                                                               Reply         (a client's ring)
//! ```
//!
//! | file | what it decides |
//! | --- | --- |
//! | `engine.rs` | clients, peers, time |
//! | `dispatch.rs` | which of the next ones a request goes to |
//! | `home/home_ops.rs`, `home/lock_ops.rs` | what is asked of a segment whose home is here, by a client or by another node |
//! | `home/fast_path.rs` | the same, where nobody stands in the way: nearly every call |
//! | `home/inline_path.rs` | the smallest of them, as their ring entry stands there |
//! | `state/lock_queue.rs` | who holds a segment's lock, and who waits for it or for a newer version |
//! | `remote/remote_get.rs` | a get of a segment whose home is elsewhere: one-sided reads |
//! | `remote/served_get.rs` | such a get when its home carries it out |
//! | `remote/read_cache.rs` | copies of remote Temporal segments for this node's readers |
//! | `remote/remote_ops.rs` | everything else for a segment whose home is elsewhere |
//! | `home/peer_messages.rs` | what another node's engine asks of this one |
//! | `remote/name_claims.rs` | names, when they are the whole cluster's |
//! | `state/quotas.rs` | what each user may have at home here |
//! | `home/metadata.rs` | lists, facts and permissions |
//! | `remote/remote_locks.rs`, `state/buffer_pool.rs` | locks of other homes that clients of this node hold; bytes kept for a while |
//! | `state/segments.rs`, `state/extent_allocator.rs` | the segments at home here and the memory they have |
//! | `replication/state.rs`, `replication/failover.rs` | what a mirrored segment is here, by the word of the whole cluster |
//! | `replication/forward.rs`, `replication/resync.rs`, `replication/replica.rs` | what a home sends to the mirror: puts, and the first copy; what the mirror does with it |
//! | `shutdown.rs` | whom a node turns away that was told to stop |
//! | `fault_injection.rs` | bugs for tests to find |
//! | `state/pending.rs`, `state/staging.rs`, `state/peers.rs` | what is under way, and the bounds on it |

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
