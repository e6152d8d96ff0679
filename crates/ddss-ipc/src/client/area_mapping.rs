//! Read-only mapping of an area of the node's memory.
//!
//! A process that may read an area requests a read-only descriptor from the acceptor and maps it. Each area takes one
//! short connection, without a session or a ring.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::attachment::{AttachAttempt, AttachError};
use crate::client_handshake::{HandshakeReply, HandshakeRequest, Refusal};
use crate::socket;
use crate::sys::{Access, SharedMemory};

impl SharedMemory {
    /// Maps an area of the memory of the node whose socket is at `path`, read-only. `None` if the user may not read it.
    pub fn map_area(path: &Path, area: u32, timeout: Duration) -> Result<Option<SharedMemory>, AttachError> {
        let attempt = AttachAttempt { path, deadline: Instant::now() + timeout, timeout };
        let socket = attempt.connect()?;
        socket::send(socket.as_fd(), &HandshakeRequest::MapArea { area }.encode(), &[])
            .map_err(attempt.system("send the handshake to"))?;
        let (answer, descriptors) = attempt.answer(&socket)?;
        let descriptor = match (answer, <[OwnedFd; 1]>::try_from(descriptors)) {
            (HandshakeReply::Area, Ok([descriptor])) => descriptor,
            (HandshakeReply::Refusal { code, .. }, _) if code == Refusal::Forbidden as u32 => return Ok(None),
            (HandshakeReply::Refusal { text, .. }, _) => return Err(AttachError::Refused { text }),
            _ => return Err(attempt.malformed("the reply is not an area")),
        };
        let found = rustix::fs::fstat(&descriptor).map_err(attempt.system("measure the area of"))?;
        let bytes = usize::try_from(found.st_size).map_err(|_| attempt.malformed("the area is too large"))?;
        Ok(Some(SharedMemory::from_descriptor(descriptor, bytes, Access::ReadOnly)?))
    }
}
