//! The socket that whoever started this process listens on for it: descriptor 3, if the environment says so (the protocol of
//! systemd's `sd_listen_fds`).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that is passed.
const FIRST: i32 = 3;

/// A listening socket that somebody else has made.
///
/// ```
/// // Nobody has passed one to this example.
/// assert!(ddss_ipc::Inherited::take()?.is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct InheritedSocket(pub(crate) OwnedFd);

impl InheritedSocket {
    /// Takes the socket that was passed to this very process, if one was: once, whoever asks first. More than one is an
    /// error, since nobody could say which is which.
    pub fn take() -> io::Result<Option<Self>> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let word = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u32>().ok());
        // The environment may be that of a parent, which was started so.
        if word("LISTEN_PID") != Some(std::process::id()) {
            return Ok(None);
        }
        match word("LISTEN_FDS") {
            None | Some(0) => return Ok(None),
            Some(1) => {}
            Some(count) => {
                let text = format!("{count} sockets were passed (LISTEN_FDS) where one is used");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        }
        if TAKEN.swap(true, Ordering::AcqRel) || !std::path::Path::new("/proc/self/fd/3").exists() {
            return Ok(None);
        }
        // SAFETY: the environment, checked to be meant for this process, says that whoever started it left this descriptor
        // open for it alone; `TAKEN` sees that it is owned once.
        Ok(Some(Self(unsafe { OwnedFd::from_raw_fd(FIRST) })))
    }
}
