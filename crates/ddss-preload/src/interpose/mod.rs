//! The functions that the library exports in place of libc's and liburing's, and its start.

#[macro_use]
mod interpose;

mod descriptors;
mod epoll;
mod image;
mod io;
mod liburing;
mod polling;
mod sockets;
mod startup;
mod stdio;
mod syscall;
mod transfers;
