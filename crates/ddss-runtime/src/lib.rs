//! The pinned progress thread: it polls what it was given, and when there is nothing it spins, then yields, then
//! parks.
//!
//! *The stop before:* `ddssd` says what there is to poll. *The stop after:* nothing; this crate only keeps the pace
//! and does not know what DDSS is.
//!
//! ```
//! use ddss_runtime::{Pace, ProgressThread, Work};
//! use std::os::fd::BorrowedFd;
//!
//! struct Countdown(u32);
//! impl Work for Countdown {
//!     fn poll(&mut self) -> usize {
//!         self.0 = self.0.saturating_sub(1);
//!         usize::from(self.0 > 0)
//!     }
//!     fn arm(&mut self) -> bool {
//!         self.0 == 0
//!     }
//!     fn disarm(&mut self) {}
//!     fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>])) {
//!         wait(&[])
//!     }
//! }
//!
//! let thread = ProgressThread::start("example", None, Pace::default(), || std::io::Result::Ok(Countdown(1000)))?;
//! thread.stop()?;
//! # Ok::<(), ddss_runtime::RuntimeError>(())
//! ```
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "where a thread's memory comes from is said by a bare system call")]
mod affinity;
mod idle_strategy;
mod progress;
mod topology;

pub use affinity::{allowed_cores, choose_core, current_core, pin_to, prefer_memory_of};
pub use idle_strategy::{IdleConfig, YieldTo};
pub use progress::{ProgressThread, RuntimeError, Stopper, Work};
pub use topology::{MemoryNode, Topology};
