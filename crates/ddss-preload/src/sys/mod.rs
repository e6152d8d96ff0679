//! The library's C side: exported symbols, the next library's symbols, and raw memory of the program.

mod descriptors;
mod epoll;
pub(crate) mod errno;
mod faults;
mod image;
mod io;
pub(crate) mod kernel;
mod memory;
mod polling;
mod raw_calls;
pub(crate) mod real;
mod sockets;
mod stdio;
mod syscall;
mod transfers;
mod uring;

pub(crate) use errno::report;
pub(crate) use faults::install as install_fault_handler;
pub(crate) use image::{is_own_process, raise_broken_pipe};
pub(crate) use raw_calls::look as look_for_raw_calls;
