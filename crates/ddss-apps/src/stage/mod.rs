//! What tests and benches need around DDSS: the servers that it is compared with, each in its place.
//!
//! [`ddss_testkit`] has the daemons, and [`Islands`](ddss_testkit::Islands), a small network of namespaces. Here are the others:
//! [`NfsServer`], [`RedisServer`], and [`enter`], which moves the calling thread into a namespace.

mod namespace;
mod servers;

pub use namespace::enter;
pub use servers::{NFS_EXPORT, NfsServer, RedisServer, Site};
