//! The library's C side below its exported calls: the next library's symbols, signals, forks, and raw memory of the program.

mod array;
pub(crate) mod errno;
mod interrupts;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod raw_calls;
pub(crate) mod real;

pub(crate) use array::Array;
pub(crate) use errno::report;
pub(crate) use interrupts::{ForkGuard, ForkLock, install_handlers};
pub(crate) use process::{is_own_process, raise_broken_pipe};
pub(crate) use raw_calls::look as look_for_raw_calls;
