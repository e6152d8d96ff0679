//! Environment of tests and benches: the servers with which DDSS is compared, each in its namespace.
//!
//! [`ddss_testkit`] has the daemons, and [`NetworkNamespaces`](ddss_testkit::NetworkNamespaces), a small network of
//! namespaces. This module adds [`NfsServer`], [`RedisServer`], and [`enter`], which moves the calling thread into a
//! namespace.

mod namespace;
mod servers;

pub use namespace::enter;
pub use servers::{NFS_EXPORT, NfsServer, RedisServer, Site};
