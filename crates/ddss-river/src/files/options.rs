//! Options of file servers and of their users.

use super::port::Port;
use crate::error::QueueError;
use ddss::Client;
use ddss_group::{Endpoint, Membership, NOTE_BYTES, Note};
use ddss_verbs::{Fabric, IwarpConfig};
use std::net::IpAddr;
use std::time::Duration;

/// Table with the members.
pub(super) const GROUP: &str = "river/files";
/// First bytes of the settings in the directory, with the release of the messages between members.
const FORMAT: [u8; 4] = *b"FIL1";
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

    /// Sets the time after which a process that is stopped is lost. Default 10 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.endpoint.lease = lease;
        self
    }

    /// Sets the number of nodes that store the catalogue of a collection that is loaded. Default 1.
    pub fn copies(mut self, copies: u8) -> Self {
        self.copies = copies;
        self
    }

    /// Joins the group.
    pub(super) fn join(&self, client: &Client) -> Result<(Membership, Box<dyn Fabric>), QueueError> {
        let mut wire = IwarpConfig::default();
        wire.message_bytes_max = Port::MESSAGE_BYTES;
        // Chunks bring a checksum of their own.
        wire.crc = false;
        let (fabric, join) = self.endpoint.bind(wire, MEMBERS)?;
        let mut settings: Note = [0; NOTE_BYTES];
        settings[..4].copy_from_slice(&FORMAT);
        Ok((Membership::join(client, GROUP, &join.settings(settings))?, Box::new(fabric)))
    }
}
