//! HTTP endpoint for monitors: `/metrics` for Prometheus, `/health`, `/ready`, and a live page for browsers at `/`. Off until an
//! address is configured.
//!
//! `server.rs` reads the status page like any other reader, on a thread of its own. The progress thread and the
//! control plane do not take part, so that a hostile request can delay only this thread. `process.rs` asks the kernel.
//! `exposition.rs`, `health.rs` and `live.rs` produce the answers.

mod exposition;
mod health;
mod live;
mod process;
mod server;

pub(crate) use process::WatchedFolders;
pub(crate) use server::{Metrics, MetricsSources};
