//! Detects the end of the daemon for a client that uses rings.
//!
//! Without it, only the next call would notice, by waiting in vain. One thread a client sleeps on the socket until that
//! ends. Under `Mq` and `Rmq` the [timeout thread](crate::transport::sysv_timeout) does this.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::{fmt, io};

use rustix::event::{EventfdFlags, PollFd, PollFlags};

use crate::connection::Connection;
use crate::sys::LentThread;

/// Handle of the monitor thread, which ends when this is dropped.
pub(crate) struct HangupMonitor(LentThread<Watched>);

/// Descriptors that the thread sleeps on.
struct Watched {
    connection: Arc<Connection>,
    stop: OwnedFd,
}

impl fmt::Debug for HangupMonitor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("HangupMonitor")
    }
}

impl HangupMonitor {
    /// Stack size of the thread, which calls little.
    const STACK_BYTES: usize = 64 << 10;

    pub(crate) fn start(connection: Arc<Connection>) -> io::Result<Self> {
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let builder = std::thread::Builder::new().name("ddss-hangup".to_owned()).stack_size(Self::STACK_BYTES);
        LentThread::start(builder, Watched { connection, stop }, |watched, _| run(watched)).map(Self)
    }
}

fn run(Watched { connection, stop }: &Watched) {
    loop {
        // Poll reports a hang-up whatever events are requested. Data on the socket is for other readers.
        let mut watched =
            [PollFd::from_borrowed_fd(connection.socket(), PollFlags::empty()), PollFd::new(stop, PollFlags::IN)];
        match rustix::event::poll(&mut watched, None) {
            Ok(_) if !watched[1].revents().is_empty() => return,
            Ok(_) if !watched[0].revents().is_empty() => return connection.set_gone(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // The calls then detect the hang-up themselves, one deadline later.
            Err(_) => return,
        }
    }
}

impl Drop for HangupMonitor {
    fn drop(&mut self) {
        if let Some(thread) = self.0.end() {
            // The counter of an eventfd that is written once is never full.
            let _ = rustix::io::write(self.0.value().stop.as_fd(), &1_u64.to_ne_bytes());
            let _ = thread.join();
        }
    }
}
