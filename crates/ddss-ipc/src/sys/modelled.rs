//! Of [`sys`](super), what loom looks at: memory that threads share, and no kernel.

mod claim;
mod desk;

pub(crate) use claim::Claims;
pub(crate) use desk::Desk;
