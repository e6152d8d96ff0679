//! The polling thread's end of the acceptor thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread::JoinHandle;

use crate::iwarp::peer::Peer;

/// The polling thread's end of the acceptor.
pub(super) struct Acceptor {
    pub(super) admitted: Receiver<Box<Peer>>,
    /// Eventfd that signals admitted peers to the fabric's epoll.
    pub(super) signal: Arc<OwnedFd>,
    pub(super) listeners: SyncSender<OwnedFd>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) wake: Arc<OwnedFd>,
    pub(super) thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Hands another listener to the acceptor thread.
    pub(super) fn watch(&self, listener: OwnedFd) -> io::Result<()> {
        let sent = self.listeners.try_send(listener);
        notify(&self.wake);
        sent.map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        notify(&self.wake);
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread already.
            let _ = thread.join();
        }
    }
}

/// Adds to an eventfd. Its counter never fills up, because the reader resets it.
pub(super) fn notify(signal: &OwnedFd) {
    let _ = rustix::io::write(signal, &1u64.to_ne_bytes());
}

pub(super) fn clear(signal: &OwnedFd) {
    let _ = rustix::io::read(signal, &mut [0; 8]);
}
