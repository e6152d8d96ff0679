//! Simulated clients. `scenario` configures a run, and `calls` defines clients and calls.

pub(crate) mod calls;
pub(crate) mod scenario;
