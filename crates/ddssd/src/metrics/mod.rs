//! What a monitor asks over HTTP: `/metrics` for Prometheus, `/health`, `/ready`. Off until an address is named.
//!
//! It reads the status page as any other reader does, on a thread of its own: neither the progress thread nor the control
//! plane knows of it, and whatever somebody sends there can slow down only this thread.

mod exposition;
mod health;
mod server;

pub(crate) use server::Metrics;
