//! Connections: listen, connect, accept, reject, and end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::adapter_selection::{LISTENER, reads};
use super::config::Framing;
use super::fabric::Rdma;
use super::frame::{self, Preamble};
use super::peer::{Peer, Stage};
use super::peer_resources::{PeerResources, SlotLayout, explain_lock_limit};
use crate::events::{CloseReason, Events};
use crate::fabric::FabricError;
use crate::id::PeerId;
use crate::limits::HALF_OPEN_MAX;
use crate::sys::rdma_core::{CmEventKind, ConnectParameters, ConnectionEvent, Endpoint};
use crate::terminate_code::TerminateCode;

/// Connections that may wait at a listener.
const BACKLOG: i32 = 64;
/// Reject status of the InfiniBand connection manager without a listener; iWARP reports an errno.
const REJECT_NO_LISTENER: i32 = 8;

impl Rdma {
    fn connect_parameters<'a>(&self, hello: &'a [u8], theirs: (u8, u8)) -> ConnectParameters<'a> {
        ConnectParameters {
            hello,
            flow_control: true,
            reads_inbound: reads(self.config.reads_outstanding_max, self.attributes.reads_inbound_max).min(theirs.0),
            reads_outbound: reads(self.config.reads_outstanding_max, self.attributes.reads_outbound_max).min(theirs.1),
        }
    }

    pub(super) fn start_listening(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let mut listener = Endpoint::new(&self.cm_events, LISTENER)?;
        if address.port() != 0 {
            listener.reuse_address()?;
        }
        listener.bind(address)?;
        if !address.ip().is_unspecified() {
            if !listener.is_on(&self.adapter) {
                let device = self.adapter.name();
                return Err(io::Error::other(format!("{address} is not an address of rdma device {device}")));
            }
            self.source.get_or_insert(address.ip());
        }
        listener.listen(BACKLOG)?;
        let bound = SocketAddr::new(address.ip(), listener.local_port());
        self.listeners.push(listener);
        Ok(bound)
    }

    pub(super) fn start_connect(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError> {
        if hello.len() > self.hello_bytes_max() {
            return Err(FabricError::HelloTooLong(hello.len()));
        }
        let id = self.peers.next().ok_or(FabricError::Full("peer"))?;
        let refused = |what| move |error| FabricError::System(what, error);
        let mut endpoint = Endpoint::new(&self.cm_events, id.to_bits()).map_err(refused("create an endpoint"))?;
        let timeout_ms = self.config.handshake_timeout.as_millis().try_into().unwrap_or(i32::MAX);
        endpoint.resolve(self.source, address, timeout_ms).map_err(refused("resolve the address of the peer"))?;
        let now = Instant::now();
        let mut peer = Peer::new(id, address, Stage::Resolving, endpoint, self.kind(), now);
        peer.traffic.is_plain = self.config.framing == Framing::Plain;
        peer.hello = hello.to_vec();
        peer.deadline = Some(now + self.config.handshake_timeout);
        self.peers.insert(peer);
        Ok(id)
    }

    pub(super) fn accept_request(&mut self, id: PeerId, hello: &[u8]) -> Result<(), FabricError> {
        if hello.len() > self.hello_bytes_max() {
            return Err(FabricError::HelloTooLong(hello.len()));
        }
        let preamble = self.preamble();
        let in_order = !self.attributes.is_iwarp;
        let theirs = self.asked(id)?.reads;
        let connect_parameters = self.connect_parameters(&[], theirs);
        let channel = Arc::clone(&self.channel);
        let deadline = Instant::now() + self.config.handshake_timeout;
        let peer = self.asked(id)?;
        let words = if peer.traffic.is_plain { hello.to_vec() } else { preamble.encode(hello) };
        let resources = peer.resources.as_ref().ok_or(FabricError::WrongState(id))?;
        let made = resources.make_queue(&mut peer.endpoint, &channel, in_order);
        let accepted =
            made.and_then(|()| peer.endpoint.accept(ConnectParameters { hello: &words, ..connect_parameters }));
        if let Err(error) = accepted {
            // The owner receives *closed*, as for any other peer.
            peer.closing = true;
            self.closing.push(id);
            return Err(FabricError::System("accept the peer", explain_lock_limit(error)));
        }
        peer.stage = Stage::Accepting;
        peer.deadline = Some(deadline);
        self.half_open -= 1;
        Ok(())
    }

    pub(super) fn reject_request(&mut self, id: PeerId, reason: &[u8]) -> Result<(), FabricError> {
        // InfiniBand carries 148 bytes of reason; a longer reason is cut off.
        let reason = &reason[..reason.len().min(148 - frame::PREAMBLE_BYTES)];
        let preamble = self.preamble();
        let peer = self.asked(id)?;
        let words = if peer.traffic.is_plain { reason.to_vec() } else { preamble.encode(reason) };
        // If the reject fails, the peer sees the end of the connection.
        let _ = peer.endpoint.reject(&words);
        peer.closing = true;
        self.closing.push(id);
        Ok(())
    }

    fn asked(&mut self, id: PeerId) -> Result<&mut Peer, FabricError> {
        let peer = self.peers.get_mut(id).filter(|peer| !peer.closing).ok_or(FabricError::UnknownPeer(id))?;
        if peer.stage == Stage::AwaitAccept { Ok(peer) } else { Err(FabricError::WrongState(id)) }
    }

    /// Adds the peer of a connection request, or rejects it.
    fn take_connect_request(&mut self, event: ConnectionEvent, events: &mut Events, now: Instant) {
        let Some(mut endpoint) = event.endpoint else { return };
        let address = endpoint.peer_address();
        let is_iwarp = self.attributes.is_iwarp;
        let ours = match (self.config.framing, is_iwarp) {
            (Framing::Plain, _) => None,
            (Framing::Ddss, true) => frame::parse_preamble(&event.data),
            // Over InfiniBand the first frame carries the rest; the connecting side compares the limits.
            (Framing::Ddss, false) => {
                let hello = frame::parse_request(&event.data, event.flow_control);
                hello.map(|hello| (Preamble { adapter_atomics: false, ..self.preamble() }, hello))
            }
        };
        if ours.is_some_and(|(theirs, _)| theirs.message_bytes_max != self.config.message_bytes_max) {
            let _ = endpoint.reject(&self.preamble().encode(b"the limits of messages differ"));
            return;
        }
        let resources = self.new_resources();
        let (Some(id), Some(address), Ok(resources), true) =
            (self.peers.next(), address, resources, self.half_open < HALF_OPEN_MAX && endpoint.is_on(&self.adapter))
        else {
            tracing::debug!(?address, "rejected a connection: too many peers or no memory");
            let _ = endpoint.reject(&[]);
            return;
        };
        endpoint.set_token(id.to_bits());
        let _ = endpoint.set_ack_timeout(self.config.ack_timeout);
        let mut peer = Peer::new(id, address, Stage::AwaitAccept, endpoint, self.kind(), now);
        peer.traffic.is_plain = ours.is_none();
        // Without frames only the peer's adapter can change its words.
        peer.traffic.adapter_atomics = ours.map_or(self.attributes.has_atomics, |(theirs, _)| theirs.adapter_atomics);
        let hello = ours.map_or(&event.data[..], |(_, hello)| hello);
        peer.resources = Some(resources);
        // Over iWARP revision 1 the peer states no read limits.
        let unsaid = is_iwarp && event.reads == (0, 0);
        peer.reads = if unsaid { (u8::MAX, u8::MAX) } else { event.reads };
        peer.deadline = Some(now + self.config.handshake_timeout);
        self.half_open += 1;
        events.push_connect_request(id, address, hello);
        self.peers.insert(peer);
    }

    /// Processes an event of the connection manager.
    pub(super) fn take_connection_event(&mut self, event: ConnectionEvent, events: &mut Events, now: Instant) {
        if event.what == CmEventKind::ConnectRequest {
            return self.take_connect_request(event, events, now);
        }
        let id = PeerId::from_bits(event.token);
        let Some(peer) = self.peers.get_mut(id) else { return };
        let outcome = match (event.what, peer.stage) {
            (CmEventKind::AddressResolved, Stage::Resolving) => self.find_route(id),
            (CmEventKind::RouteResolved, Stage::Routing) => self.ask(id),
            (CmEventKind::Established, Stage::Connecting | Stage::Accepting) => {
                self.established(id, &event.data, events, now);
                Ok(())
            }
            (CmEventKind::Rejected, Stage::Connecting) => return self.rejected_by_peer(id, &event, events, now),
            (CmEventKind::Unreachable, stage) if !matches!(stage, Stage::Ending(_)) => {
                Err(io::Error::from_raw_os_error(event.status.wrapping_abs()))
            }
            (CmEventKind::Disconnected, Stage::Up) => {
                let reason = self.peers.get_mut(id).map_or(CloseReason::ClosedByPeer, Peer::disconnect_reason);
                return self.start_ending(id, reason, events, now);
            }
            (CmEventKind::Disconnected | CmEventKind::Rejected, Stage::Accepting | Stage::AwaitAccept) => {
                return self.start_ending(id, CloseReason::ClosedByPeer, events, now);
            }
            (CmEventKind::DeviceRemoved, _) => {
                return self.start_ending(id, CloseReason::Lost(io::ErrorKind::NotConnected), events, now);
            }
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            tracing::debug!(peer = %id, error = %explain_lock_limit(error.kind().into()), "cannot connect");
            self.start_ending(id, CloseReason::Unreachable(error.kind()), events, now);
        }
    }

    fn find_route(&mut self, id: PeerId) -> io::Result<()> {
        let timeout_ms = self.config.handshake_timeout.as_millis().try_into().unwrap_or(i32::MAX);
        let Some(peer) = self.peers.get_mut(id) else { return Ok(()) };
        if !peer.endpoint.is_on(&self.adapter) {
            let device = self.adapter.name();
            tracing::warn!(address = %peer.address, device, "the route to this address does not use the adapter");
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        // Older kernels lack this option and wait longer.
        let _ = peer.endpoint.set_ack_timeout(self.config.ack_timeout);
        peer.stage = Stage::Routing;
        peer.endpoint.resolve_route(timeout_ms)
    }

    fn ask(&mut self, id: PeerId) -> io::Result<()> {
        let resources = self.new_resources()?;
        let connect_parameters = self.connect_parameters(&[], (u8::MAX, u8::MAX));
        let preamble = self.preamble();
        let Some(peer) = self.peers.get_mut(id) else { return Ok(()) };
        resources
            .make_queue(&mut peer.endpoint, &self.channel, !self.attributes.is_iwarp)
            .map_err(explain_lock_limit)?;
        peer.resources = Some(resources);
        peer.stage = Stage::Connecting;
        let hello = std::mem::take(&mut peer.hello);
        let (hello, flow_control) = match (peer.traffic.is_plain, self.attributes.is_iwarp) {
            (true, _) => (hello, true),
            (false, true) => (preamble.encode(&hello), true),
            (false, false) => frame::request(&hello),
        };
        peer.endpoint.connect(ConnectParameters { hello: &hello, flow_control, ..connect_parameters })
    }

    fn established(&mut self, id: PeerId, data: &[u8], events: &mut Events, now: Instant) {
        let message_bytes_max = self.config.message_bytes_max;
        let Some(peer) = self.peers.get_mut(id) else { return };
        let connected = peer.stage == Stage::Connecting;
        if connected
            && let Some((theirs, _)) = frame::parse_preamble(data)
            && theirs.message_bytes_max != message_bytes_max
        {
            // Slots and credits of the two sides would not match.
            return self.start_ending(id, CloseReason::ProtocolViolation(TerminateCode::DDP_TOO_LONG), events, now);
        }
        peer.stage = Stage::Up;
        peer.deadline = None;
        peer.progress_at = now;
        let mut hello: &[u8] = &[];
        if connected {
            let ours = frame::parse_preamble(data);
            // A peer that answers without the DDSS header gets plain messages.
            peer.traffic.is_plain |= ours.is_none();
            peer.traffic.adapter_atomics =
                ours.map_or(self.attributes.has_atomics, |(theirs, _)| theirs.adapter_atomics);
            hello = ours.map_or(data, |(_, hello)| hello);
        }
        // Over iWARP the connecting side has to send first, so it does on every adapter.
        peer.traffic.can_send_frames = connected || peer.traffic.is_plain;
        events.push_connected(id, hello);
        if connected && let (Some(queue), Some(resources)) = (peer.endpoint.queue(), &peer.resources) {
            peer.traffic.send_first_credits(queue, resources);
        }
    }

    fn rejected_by_peer(&mut self, id: PeerId, event: &ConnectionEvent, events: &mut Events, now: Instant) {
        let said = frame::parse_preamble(&event.data);
        let refused = if self.attributes.is_iwarp { -libc::ECONNREFUSED } else { REJECT_NO_LISTENER };
        let has_no_listener = said.is_none() && event.status == refused;
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.hello = said.map_or(&event.data[..], |(_, reason)| reason).to_vec();
        let reason = if has_no_listener {
            CloseReason::Unreachable(io::ErrorKind::ConnectionRefused)
        } else {
            CloseReason::Rejected
        };
        self.start_ending(id, reason, events, now);
    }

    fn kind(&self) -> (SlotLayout, bool, bool) {
        (self.slot_layout(), self.attributes.is_iwarp, self.adapter_atomics())
    }

    fn slot_layout(&self) -> SlotLayout {
        SlotLayout::new(self.config.message_bytes_max)
    }

    fn new_resources(&self) -> io::Result<PeerResources> {
        let (sinks, atomics) = (self.needs_remote_write_sinks(), self.adapter_atomics());
        PeerResources::new(&self.adapter, self.slot_layout(), sinks, atomics)
    }

    fn preamble(&self) -> Preamble {
        Preamble { adapter_atomics: self.adapter_atomics(), message_bytes_max: self.config.message_bytes_max }
    }

    /// Returns true if an iWARP adapter may require write access to read targets, as the standard allows. Soft-iWARP
    /// does not.
    fn needs_remote_write_sinks(&self) -> bool {
        self.attributes.is_iwarp && !self.attributes.is_software
    }

    /// Starts to end a peer: nothing more is sent, and operations in flight complete.
    pub(super) fn start_ending(&mut self, id: PeerId, reason: CloseReason, events: &mut Events, now: Instant) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let before = peer.stage;
        if matches!(before, Stage::Ending(_)) {
            return;
        }
        peer.stage = Stage::Ending(reason);
        peer.deadline = Some(now + self.config.drain_timeout);
        if reason != CloseReason::Rejected {
            peer.hello.clear();
        }
        peer.traffic.drop_backlog(events);
        if before == Stage::AwaitAccept {
            self.half_open -= 1;
            if !peer.closing {
                let _ = peer.endpoint.reject(&[]);
            }
        } else if before == Stage::Connecting && self.attributes.is_iwarp && !was_rejected(reason) {
            return self.drop_in_background(id, reason, events);
        } else if matches!(before, Stage::Up | Stage::Accepting | Stage::Connecting) {
            // If the peer disconnected first there is nothing left to end.
            let _ = peer.endpoint.disconnect();
        }
        if peer.endpoint.queue().is_none_or(|queue| queue.in_flight_count() == 0) {
            self.finish(id, reason, events);
        }
    }

    /// Ends a peer that did not answer a connection request, over iWARP. The kernel blocks the release of such a
    /// connection, its queue pair or its id until the answer (Soft-iWARP: ten seconds), so a separate thread does
    /// that.
    fn drop_in_background(&mut self, id: PeerId, reason: CloseReason, events: &mut Events) {
        let Some(mut peer) = self.peers.remove(id) else { return };
        peer.traffic.abandon_pending(events);
        events.push_closed(id, reason, &peer.hello);
        // Without a thread the peer is dropped here.
        let _ = std::thread::Builder::new().name("ddss-rdma-drop".to_owned()).spawn(move || drop(peer));
    }

    /// Removes a peer and reports *closed*.
    pub(super) fn finish(&mut self, id: PeerId, reason: CloseReason, events: &mut Events) {
        let Some(mut peer) = self.peers.remove(id) else { return };
        peer.endpoint.destroy_queue(&mut self.scratch.completions);
        if let Some(resources) = &peer.resources {
            peer.traffic.take_completions(resources, &mut self.scratch.completions, events);
        }
        peer.traffic.abandon_pending(events);
        events.push_closed(id, reason, &peer.hello);
    }
}

/// Returns true if the peer, or the path to it, rejected the connection.
fn was_rejected(reason: CloseReason) -> bool {
    matches!(reason, CloseReason::Rejected | CloseReason::Unreachable(_))
}
