//! Looking at the node's memory without the daemon: a process that may read an area asks the door for a descriptor
//! that one can only read through, and maps it. One short connection for each area; no session, no ring.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::attachment::{AttachError, Attempt};
use crate::handshake::{HandshakeReply, HandshakeRequest};
use crate::server::session::Credentials;
use crate::socket;
use crate::sys::{Access, SharedMemory};

type Decide = dyn Fn(u32, &Credentials) -> Option<OwnedFd> + Send + Sync;

/// Decides at the door who may look at which area: gives a descriptor that can only be read through, or nothing.
#[derive(Clone)]
pub struct AreaAccess(Arc<Decide>);

impl AreaAccess {
    /// Asks `decide` each time that somebody wants to look. It runs on the reception's thread.
    pub fn new(decide: impl Fn(u32, &Credentials) -> Option<OwnedFd> + Send + Sync + 'static) -> Self {
        Self(Arc::new(decide))
    }

    /// Nobody may look at anything.
    pub(crate) fn none() -> Self {
        Self::new(|_, _| None)
    }

    pub(crate) fn decide(&self, area: u32, who: &Credentials) -> Option<OwnedFd> {
        (self.0)(area, who)
    }
}

impl fmt::Debug for AreaAccess {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Views")
    }
}

/// Maps an area of the memory of the node whose door is at `path`, to be read only.
pub fn view(path: &Path, area: u32, timeout: Duration) -> Result<SharedMemory, AttachError> {
    let attempt = Attempt { path, deadline: Instant::now() + timeout, timeout };
    let socket = attempt.connect()?;
    socket::send(socket.as_fd(), &HandshakeRequest::Look { area }.encode(), &[]).map_err(attempt.system("greet"))?;
    let (answer, descriptors) = attempt.answer(&socket)?;
    let (HandshakeReply::View, Ok([descriptor])) = (answer, <[OwnedFd; 1]>::try_from(descriptors)) else {
        return Err(attempt.malformed("it is no view"));
    };
    let found = rustix::fs::fstat(&descriptor).map_err(attempt.system("measure what came from"))?;
    let bytes = usize::try_from(found.st_size).map_err(|_| attempt.malformed("the view is too large"))?;
    Ok(SharedMemory::from_descriptor(descriptor, bytes, Access::ReadOnly)?)
}
