//! Simulated clients. `scenario` configures a run, `segments` specifies its permanent segments, `calls` defines clients and
//! calls, `workload` chooses the calls, `completions` checks the replies, and `permission_oracle` predicts which calls are
//! permitted.

pub(crate) mod calls;
pub(crate) mod completions;
pub(crate) mod permission_oracle;
pub(crate) mod scenario;
pub(crate) mod segments;
pub(crate) mod workload;
