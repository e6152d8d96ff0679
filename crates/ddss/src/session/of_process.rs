//! Values that belong to one process, so that a child of `fork` begins with fresh ones.
//!
//! Threads of the library may hold their locks at the moment of the `fork`. The child does not have these threads, and would
//! wait for ever.

use arc_swap::ArcSwapOption;
use ddss_ipc::lock_free::ProcessByte;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// A value of the process that has created it.
#[derive(Debug)]
pub(crate) struct OfProcess<T> {
    value: T,
    process: ProcessByte,
}

impl<T> Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Default> OfProcess<T> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { value: T::default(), process: ProcessByte::new(1)? })
    }
}

impl<T> OfProcess<T> {
    /// Returns true in a child of the process that has created it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_inherited()
    }
}

/// A place for the value of each process.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(ArcSwapOption<OfProcess<T>>);

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<T: Default> PerProcess<T> {
    /// Returns the value of this process, created at its first use.
    pub(crate) fn get(&self) -> io::Result<Arc<OfProcess<T>>> {
        loop {
            let found = self.0.load();
            match &*found {
                Some(mine) if !mine.is_inherited() => return Ok(Arc::clone(mine)),
                _ => drop(self.0.compare_and_swap(&found, Some(Arc::new(OfProcess::new()?)))),
            }
        }
    }
}
