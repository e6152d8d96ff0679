//! End-to-end tests with real daemons and clients, on one node and between nodes.

mod cluster;
mod examples;
mod fabrics;
mod files;
mod identity;
mod local_read;
mod locks;
mod membership;
mod models;
mod remote_get;
mod replicas;
mod same_core;
mod shards;
mod slices;
mod system_calls;
mod waits;
