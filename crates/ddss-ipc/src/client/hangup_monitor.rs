//! Sees the daemon's end for a client that talks by rings: nothing else would tell it before its next call waits in
//! vain.
//!
//! One thread a client, asleep on the socket until it ends. (Under `Mq` and `Rmq` the [`watch`](crate::transport::sysv_timeout) does it.)

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::{fmt, io};

use rustix::event::{EventfdFlags, PollFd, PollFlags};

use super::connection::Connection;

/// The thread; ends when it is dropped.
pub(crate) struct HangupMonitor {
    kick: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for HangupMonitor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Sentry")
    }
}

impl HangupMonitor {
    /// What the thread needs is little.
    const STACK_BYTES: usize = 64 << 10;

    pub(crate) fn start(link: Arc<Connection>) -> io::Result<Self> {
        let kick = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let kicked = Arc::clone(&kick);
        let builder = std::thread::Builder::new().name("ddss-sentry".to_owned()).stack_size(Self::STACK_BYTES);
        let thread = builder.spawn(move || watch(&link, &kicked))?;
        Ok(Self { kick, thread: Some(thread) })
    }
}

fn watch(link: &Connection, kicked: &OwnedFd) {
    loop {
        // The end of the socket is told whatever is asked for; what comes over it is for others.
        let mut watched =
            [PollFd::from_borrowed_fd(link.socket(), PollFlags::empty()), PollFd::new(kicked, PollFlags::IN)];
        match rustix::event::poll(&mut watched, None) {
            Ok(_) if !watched[1].revents().is_empty() => return,
            Ok(_) if !watched[0].revents().is_empty() => return link.set_gone(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // Then the calls themselves see it, one deadline later.
            Err(_) => return,
        }
    }
}

impl Drop for HangupMonitor {
    fn drop(&mut self) {
        // The counter of an eventfd that is written once is never full.
        let _ = rustix::io::write(self.kick.as_fd(), &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
