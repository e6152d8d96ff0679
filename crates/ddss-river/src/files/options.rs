//! Options of file servers and of their users.

use super::port::Port;
use crate::error::QueueError;
use ddss::Client;
use ddss_group::{Endpoint, JoinError, Membership, NOTE_BYTES, Note};
use ddss_verbs::{Fabric, IwarpConfig};
use std::net::IpAddr;
use std::time::Duration;

/// Table with the members.
pub(super) const GROUP: &str = "river/files";
/// First bytes of the settings in the directory, with the release of the messages between members.
const FORMAT: [u8; 4] = *b"FIL2";
/// Members of the group at most.
const MEMBERS: u16 = 64;

/// Options of [`FileServer::start`](crate::FileServer::start) and [`Files::join`](crate::Files::join).
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct FilesOptions {
    pub(super) endpoint: Endpoint,
    pub(super) copies: u8,
}

impl Default for FilesOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl FilesOptions {
    /// Creates options for processes on one machine.
    pub fn new() -> Self {
        Self { endpoint: Endpoint::default(), copies: 1 }
    }

    /// Sets the address at which the other processes reach this one. Default: the loopback address.
    pub fn listen(mut self, address: IpAddr) -> Self {
        self.endpoint.listen = address;
        self
    }

    /// Sets the longest wait for the next step of a transfer. Default: a minute.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.endpoint.timeout = timeout;
        self
    }

    /// Sets the time after which a process that is stopped is lost: the same for all servers and users. Default 10 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.endpoint.lease = lease;
        self
    }

    /// Sets the number of nodes that store the directory of the file servers, and the catalogue of a collection that is loaded.
    /// The first server decides: a user that wants two copies is refused if the directory has one. Default 1.
    pub fn copies(mut self, copies: u8) -> Self {
        self.copies = copies;
        self
    }

    /// Joins the group. `server` is the number of a file server, and 0 for a user.
    pub(super) fn join(&self, client: &Client, server: u64) -> Result<(Membership, Box<dyn Fabric>), QueueError> {
        let mut wire = IwarpConfig::default();
        wire.message_bytes_max = Port::MESSAGE_BYTES;
        // Chunks bring a checksum of their own.
        wire.crc = false;
        let (fabric, join) = self.endpoint.bind(wire, MEMBERS)?;
        let (mut settings, mut note): (Note, Note) = ([0; NOTE_BYTES], [0; NOTE_BYTES]);
        settings[..4].copy_from_slice(&FORMAT);
        // A process that joins leaves the place of a living one for a part of its lease.
        let lease_ms: u32 = self.endpoint.lease.as_millis().try_into().unwrap_or(u32::MAX);
        settings[4..8].copy_from_slice(&lease_ms.to_le_bytes());
        note[..8].copy_from_slice(&server.to_le_bytes());
        let join = join.settings(settings).note(note).copies(self.copies);
        let membership = Membership::join(client, GROUP, &join).map_err(|error| match error {
            JoinError::OtherSettings { theirs, .. } => difference(&settings, &theirs),
            other => other.into(),
        })?;
        Ok((membership, Box::new(fabric)))
    }
}

/// Returns the number of the file server that a member says it is. `None` for a user.
pub(super) fn server_of(note: &Note) -> Option<u64> {
    let number = note.first_chunk().copied().map(u64::from_le_bytes);
    number.filter(|number| *number != 0)
}

/// Names the first setting that differs.
fn difference(ours: &Note, theirs: &Note) -> QueueError {
    let word = |note: &Note, at: usize| u32::from_le_bytes([note[at], note[at + 1], note[at + 2], note[at + 3]]);
    let (setting, at) = if ours[..4] == theirs[..4] { ("lease in ms", 4) } else { ("format", 0) };
    let (theirs, ours) = (word(theirs, at).into(), word(ours, at).into());
    QueueError::OtherSetting { queue: GROUP.to_owned(), setting, theirs, ours }
}
