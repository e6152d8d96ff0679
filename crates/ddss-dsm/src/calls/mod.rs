//! Calls that need regions or checkpoints: joining, leaving, and checkpoints.

mod checkpoint;
mod membership;
