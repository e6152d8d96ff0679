//! Entries of the table for connections that this library does not carry itself.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use super::endpoint::{ACCEPTOR, CONNECTOR, Endpoint, PLAIN, WIRE};
use crate::reason::Reason;
use crate::rendezvous::{Ends, normal};
use crate::sys::Descriptor;

/// Entry of a connection that a pump carries for another process.
#[derive(Debug)]
pub(crate) struct WireRow(Endpoint);

impl WireRow {
    /// Shows the transport and its reason.
    pub(crate) fn show(&self, reason: Reason) {
        let shared = self.0.shared();
        shared.reason.store(reason as u32, Ordering::Relaxed);
        shared.state.store(if reason == Reason::WireRule { WIRE } else { PLAIN }, Ordering::Release);
    }

    /// Counts bytes that came from the peer.
    pub(crate) fn add_read(&self, bytes: usize) {
        self.0.shared().tcp_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that the peer gets.
    pub(crate) fn add_written(&self, bytes: usize) {
        self.0.shared().tcp_written.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Endpoint {
    /// Returns true for an accepted connection that a rule puts on the wire, although no pump took it: its peer may begin with a request.
    #[must_use]
    pub fn may_get_request(&self) -> bool {
        if self.is_shared() {
            return false;
        }
        let shared = self.shared();
        shared.state.load(Ordering::Acquire) == PLAIN
            && shared.side.load(Ordering::Relaxed) == ACCEPTOR
            && shared.reason.load(Ordering::Relaxed) == Reason::NoPump as u32
    }

    /// Makes the entry of a process's connection, in the table of its pump.
    pub(crate) fn of_pump(is_acceptor: bool, process: u32, own: SocketAddr, peer: SocketAddr) -> Option<WireRow> {
        let (own, peer) = (normal(own), normal(peer));
        let endpoint = Self::allocate(if is_acceptor { ACCEPTOR } else { CONNECTOR })?;
        let (connector, acceptor) = if is_acceptor { (peer, own) } else { (own, peer) };
        endpoint.set_ends(&Ends { connector, acceptor });
        endpoint.shared().process.store(process, Ordering::Relaxed);
        Some(WireRow(endpoint))
    }

    /// Makes the entry of a connection that stays on TCP for this reason.
    pub fn on_tcp(socket: Descriptor, is_acceptor: bool, reason: Reason) -> Option<Self> {
        let endpoint = Self::allocate(if is_acceptor { ACCEPTOR } else { CONNECTOR })?;
        // A connection that was reset has none, and may have a request to refuse all the same.
        let none = SocketAddr::from(([0; 4], 0));
        endpoint.set_ends(&endpoint.ends(socket).unwrap_or(Ends { connector: none, acceptor: none }));
        endpoint.shared().reason.store(reason as u32, Ordering::Relaxed);
        endpoint.shared().state.store(PLAIN, Ordering::Release);
        Some(endpoint)
    }
}
