//! A pinned progress thread: it polls its task; without work it spins, then yields, then parks.
//!
//! The crate drives any [`ProgressTask`] and knows nothing of DDSS; `ddssd` supplies the task of each shard. It is no
//! async runtime: one thread, one task, no scheduler.
//!
//! - [`ProgressThread`] starts, pins and stops the thread.
//! - [`IdleConfig`] configures the idle strategy.
//! - [`Topology`] lists cores and memory nodes.
//!
//! ```
//! use ddss_runtime::{IdleConfig, ProgressTask, ProgressThread};
//! use std::os::fd::BorrowedFd;
//!
//! struct Countdown(u32);
//! impl ProgressTask for Countdown {
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
//! let thread = ProgressThread::start("example", None, IdleConfig::default(), || std::io::Result::Ok(Countdown(1000)))?;
//! thread.stop()?;
//! # Ok::<(), ddss_runtime::RuntimeError>(())
//! ```
#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

#[allow(unsafe_code, reason = "the memory policy of a thread needs a bare system call")]
mod affinity;
mod idle_config;
mod idle_strategy;
mod progress;
mod topology;

pub use affinity::{allowed_cores, pin_to, prefer_memory_node};
pub use idle_config::IdleConfig;
pub use progress::{ProgressTask, ProgressThread, RuntimeError};
pub use topology::{MemoryNode, Topology};
