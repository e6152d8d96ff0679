//! The library's C side: exported symbols, the next library's symbols, and raw memory of the program.

mod descriptors;
mod epoll;
pub(crate) mod errno;
mod io;
pub(crate) mod kernel;
mod memory;
mod polling;
mod process;
pub(crate) mod real;
mod sockets;
mod transfers;

pub(crate) use errno::report;
pub(crate) use process::raise_broken_pipe;
