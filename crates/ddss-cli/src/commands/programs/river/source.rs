//! A file or standard input that is read until a signal comes.

use crate::error::CommandError;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file or standard input that is read until a signal comes: then reading fails. A second signal ends the process.
pub(super) struct Source {
    from: File,
    /// Readable once a signal has come.
    signals: UnixStream,
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
}

impl Source {
    pub(super) fn new(from: File) -> io::Result<Self> {
        let (signals, sender) = UnixStream::pair()?;
        let (interrupt, terminate) = (Arc::default(), Arc::default());
        for (signal, has_come) in [(SIGINT, &interrupt), (SIGTERM, &terminate)] {
            // In this order: the second signal finds the flag set.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(has_come))?;
            flag::register(signal, Arc::clone(has_come))?;
            low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { from, signals, interrupt, terminate })
    }

    /// Fails if a signal has come.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        let has_come = |(signal, flag): (i32, &AtomicBool)| flag.load(Ordering::Relaxed).then_some(signal);
        match [(SIGINT, &*self.interrupt), (SIGTERM, &*self.terminate)].into_iter().find_map(has_come) {
            Some(signal) => Err(CommandError::Unloaded { signal: signal as u8 }),
            None => Ok(()),
        }
    }
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut descriptors =
            [PollFd::new(&self.from, PollFlags::IN), PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
        poll(&mut descriptors, None)?;
        if descriptors[1].revents().is_empty() { self.from.read(into) } else { Err(io::Error::other("a signal came")) }
    }
}
