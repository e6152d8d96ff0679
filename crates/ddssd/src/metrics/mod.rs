//! HTTP endpoint for monitors: `/metrics` for Prometheus, `/health`, `/ready`. Off until an address is configured.
//!
//! `server.rs` reads the status page like any other reader, on a thread of its own. The progress thread and the
//! control plane do not take part, so that a hostile request can delay only this thread. `process.rs` asks the kernel.
//! `exposition.rs` and `health.rs` produce the answers.

mod exposition;
mod health;
mod process;
mod server;

pub(crate) use process::WatchedFolders;
pub(crate) use server::{Metrics, MetricsSources};
