//! The command `demo`: two nodes and their clients, each in its own process. It shows a local put and a remote get, the
//! latency of each strategy, the kill of a client and the kill of a daemon.
//!
//! - `script`: the steps in their order, and their output.
//! - `cluster`: starts the two nodes and their clients.
//! - `child`: a child process and its line protocol.
//! - `streams`: two unmodified programs, over TCP and through shared memory.
//! - `shared_pages` and `plate`: a stencil on shared pages, and each of its ranks.
//! - `data_flow` and `consumer`: messages for four processes, and each of them.
//! - `client`: the program in a client process. The nodes are `ddssd` processes.

mod child;
mod client;
mod cluster;
mod consumer;
mod data_flow;
mod plate;
mod script;
mod shared_pages;
mod streams;

pub(crate) use client::run as run_client;
pub(crate) use plate::run as run_rank;
pub(crate) use script::run;
