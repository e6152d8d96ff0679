//! Socket activation: a listening socket inherited as descriptor 3, by the protocol of systemd's `sd_listen_fds`.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// First descriptor that is passed.
const FIRST: i32 = 3;

/// A listening socket that a supervisor has created.
///
/// ```
/// // This example was started without a socket.
/// assert!(ddss_ipc::InheritedSocket::take()?.is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct InheritedSocket(pub(crate) OwnedFd);

impl InheritedSocket {
    /// Takes the socket that was passed to this process, if any; only the first call returns it. More than one socket
    /// is an error, since they could not be told apart.
    pub fn take() -> io::Result<Option<Self>> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let word = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u32>().ok());
        // The environment may be inherited from a parent that was socket-activated.
        if word("LISTEN_PID") != Some(std::process::id()) {
            return Ok(None);
        }
        match word("LISTEN_FDS") {
            None | Some(0) => return Ok(None),
            Some(1) => {}
            Some(count) => {
                let text = format!("got {count} inherited sockets (LISTEN_FDS), expected one");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        }
        if TAKEN.swap(true, Ordering::AcqRel) || !std::path::Path::new("/proc/self/fd/3").exists() {
            return Ok(None);
        }
        // SAFETY: the environment, checked to be meant for this process, states that the supervisor left this
        // descriptor open for it alone; `TAKEN` ensures that it is owned once.
        Ok(Some(Self(unsafe { OwnedFd::from_raw_fd(FIRST) })))
    }
}
