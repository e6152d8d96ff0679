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
//! | `core.rs` | clients, peers, time |
//! | `dispatch.rs` | which of the next ones a request goes to |
//! | `near.rs`, `locks.rs` | what is asked of a segment whose home is here, by a client or by another node |
//! | `plain.rs` | the same, where nobody stands in the way: nearly every call |
//! | `small.rs` | the smallest of them, as their ring entry stands there |
//! | `guard.rs` | who holds a segment's lock, and who waits for it or for a newer version |
//! | `fetch.rs` | a get of a segment whose home is elsewhere: one-sided reads |
//! | `hand.rs` | such a get when its home carries it out |
//! | `copies.rs` | copies of remote Temporal segments for this node's readers |
//! | `far.rs` | everything else for a segment whose home is elsewhere |
//! | `home.rs` | what another node's engine asks of this one |
//! | `directory.rs` | names, when they are the whole cluster's |
//! | `quotas.rs` | what each user may have at home here |
//! | `facts.rs` | lists, facts and permissions |
//! | `held.rs`, `kept.rs` | locks of other homes that clients of this node hold; bytes kept for a while |
//! | `segments.rs`, `blocks.rs` | the segments at home here and the memory they have |
//! | `mirror.rs`, `duties.rs` | what a mirrored segment is here, by the word of the whole cluster |
//! | `forward.rs`, `copying.rs`, `mirror_copy.rs` | what a home sends to the mirror: puts, and the first copy; what the mirror does with it |
//! | `leaving.rs` | whom a node turns away that was told to stop |
//! | `planted.rs` | bugs for tests to find |
//! | `operations.rs`, `staging.rs`, `peers.rs` | what is under way, and the bounds on it |

mod action;
mod adopted;
mod areas;
mod at_once;
mod birth;
mod blocks;
mod busy;
mod cancel;
mod copies;
mod copying;
mod core;
mod directory;
mod dispatch;
mod duties;
mod facts;
mod far;
mod fetch;
mod forward;
mod guard;
mod hand;
mod held;
mod home;
mod kept;
mod leaving;
mod locks;
mod mirror;
mod mirror_copy;
mod near;
mod operations;
mod peers;
mod plain;
mod planted;
mod quotas;
mod segments;
mod small;
mod staging;

pub use action::{Action, Parts, Source, Tail, Target};
pub use areas::{OWN_AREA, area_of, offset_of};
pub use at_once::Commit;
pub use core::{Counters, Engine, EngineConfig, Now, Reply};
pub use directory::ClaimId;
pub use hand::HandId;
pub use kept::KeptId;
pub use mirror::{Decision, Duty, Word};
pub use operations::StepId;
#[cfg(feature = "planted")]
pub use planted::Bug;
pub use quotas::{Quota, Quotas, Usage};
pub use small::{Seen, SmallCommit};
