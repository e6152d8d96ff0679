//! Page-based shared memory for programs in C.
//!
//! `include/ddss_dsm.h` declares the calls, `include/Tmk.h` those of TreadMarks on top of them, and `include/parmacs.m4` the macros of
//! PARMACS. A process is one rank of one space, whose pages are at one address in all ranks: pointers into them mean the same
//! everywhere. Page faults fetch and notice everything.
//!
//! `process` is the space of this process, `heap` its allocator, `distribution` copies variables of the program to other ranks, `program`
//! starts functions on them. `ffi` has the functions that C calls, and everything unsafe: each checks its arguments, and ends panics.

mod distribution;
mod error;
mod ffi;
mod heap;
mod process;
mod program;
