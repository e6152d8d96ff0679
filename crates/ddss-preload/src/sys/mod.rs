//! The library's C side: exported symbols, the next library's symbols, and raw memory of the program.

#[macro_use]
mod interpose;

mod array;
mod bypass;
mod descriptors;
mod epoll;
pub(crate) mod errno;
mod image;
mod interrupts;
mod io;
pub(crate) mod kernel;
mod memory;
mod polling;
pub(crate) mod real;
mod sockets;
mod stdio;
mod transfers;

pub(crate) use array::Array;
pub(crate) use bypass::look_for_raw_calls;
pub(crate) use errno::report;
pub(crate) use image::{is_own_process, leave_streams_to_pumps, raise_broken_pipe};
pub(crate) use interrupts::{ForkGuard, ForkLock, install_fork_functions, install_handlers};
