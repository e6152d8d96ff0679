//! End-to-end tests with real daemons and clients, on one node and between nodes.

mod examples;
mod files;
mod groups;
mod local_read;
mod locks;
mod models;
mod names;
mod nodes;
mod remote_get;
mod replicas;
mod same_core;
mod slices;
mod streams;
mod system_calls;
mod tables;
mod waits;
