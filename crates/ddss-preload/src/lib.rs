//! The preload library: libc's socket calls, carried out by `ddss-stream` for connections inside the node.
//!
//! `ddss run -- PROGRAM` sets `LD_PRELOAD` to this library. It maps descriptors to streams and calls to operations, and hands everything
//! else to the next library. A call that rings cannot carry out keeps its stream on TCP. Connections that a rule puts on the wire go to a
//! process of their own, the pump, and the program gets a Unix socket of the kernel.

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

mod calls;
mod descriptor_table;
mod epoll;
mod image;
mod interpose;
mod io_uring;
mod polling;
mod rules;
mod set_counts;
mod sys;
mod wire;
