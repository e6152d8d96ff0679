//! One end of a stream: from the first byte on TCP to the rings.
//!
//! ```text
//!             no library, refused, no memory, a call that the rings cannot carry out
//!  UNDECIDED ----------------------------------------------------------------------> PLAIN (for good)
//!      |  acceptor: sent an offer; connector: took it
//!      +-----------------------------------------------------------------------------> SHARED
//! ```
//!
//! UNDECIDED calls go to the kernel unchanged and are counted, because the ring of a direction begins at a byte position. An end decides
//! only while exactly one call and one process use it. In SHARED each writer changes to its ring on its own, and back to TCP
//! where the ring would hold it up.

mod control;
mod endpoint;
mod idle;
mod peek;
mod phases;
mod positions;
mod processes;
mod readiness;
mod row;
#[cfg(test)]
mod tests;
mod transfer;
mod undecided;
mod wait;

pub use endpoint::Endpoint;
pub(crate) use endpoint::{ACCEPTOR, FREE, SHARED, WIRE};
pub use idle::{after_idle_sleep, before_sleep};
pub use processes::{Inherited, InheritedKind};
pub use readiness::{Blocked, Latched, Ready};
pub(crate) use row::WireRow;
pub use undecided::{Decision, Native, set_offer_after};
pub use wait::{Spin, set_spin_max};
