//! The engine of one node: events in, [actions](Action) out. It decides everything and touches nothing.
//!
//! ```text
//!   client's request ──► Engine::request ──┐
//!   peer's message   ──► Engine::message ──┼──► next_action ──► Copy, Commit  (this node's memory)
//!   fetch finished   ──► Engine::fetched ──┤                    Fetch, Stage  (another node's memory)
//!   time             ──► Engine::tick    ──┘                    Send          (another node's engine)
//!                                                               Reply         (a client's ring)
//! ```
//!
//! | file | what it decides |
//! | --- | --- |
//! | `core.rs` | clients, peers, time, and which of the next three a request goes to |
//! | `near.rs` | what is asked of a segment whose home is here, by a client or by another node |
//! | `guard.rs` | who holds a segment's lock, and who waits for it or for a newer version |
//! | `far.rs` | a request for a segment whose home is elsewhere |
//! | `home.rs` | what another node's engine asks of this one |
//! | `directory.rs` | names, when they are the whole cluster's |
//! | `held.rs` | which locks of other homes the clients of this node hold |
//! | `segments.rs`, `blocks.rs` | the segments at home here and the memory they have |
//! | `operations.rs`, `staging.rs`, `peers.rs` | what is under way, and the bounds on it |

mod action;
mod areas;
mod birth;
mod blocks;
mod core;
mod directory;
mod far;
mod guard;
mod held;
mod home;
mod kept;
mod near;
mod operations;
mod peers;
mod segments;
mod staging;

pub use action::{Action, Source};
pub use areas::{area_of, offset_of};
pub use core::{Counters, Engine, EngineConfig, Now};
pub use directory::ClaimId;
pub use kept::KeptId;
pub use operations::StepId;
