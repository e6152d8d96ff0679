//! What simulated clients do, and what they must get back.

pub(crate) mod completions;
pub(crate) mod permission_oracle;
pub(crate) mod scenario;
pub(crate) mod workload;
