//! Nodes that found, join, leave or are removed from the cluster, and how each proves which node it is.

pub(crate) mod decommission;
pub(crate) mod founding;
pub(crate) mod identity;
pub(crate) mod incarnation;
pub(crate) mod registration;
pub(crate) mod removal;
