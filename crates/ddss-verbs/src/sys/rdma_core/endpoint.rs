//! One end of a connection, or a listener: an id of the connection manager, with its queue pair.

use std::ffi::c_void;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::abi;
use super::abi::{CmId, ConnectionParameters, QpCapabilities, QpInit, SocketAddress};
use super::adapter::Adapter;
use super::cm_event_channel::CmEventChannel;
use super::in_flight::FinishedWork;
use super::library::outcome;
use super::memory::{Domain, Registered};
use super::queue::{Completions, Queue, QueueDepths};

/// Parameters of a connect or accept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectParameters<'a> {
    pub(crate) hello: &'a [u8],
    /// One bit that a request carries to the peer; it means nothing to the adapters.
    pub(crate) flow_control: bool,
    /// Reads and atomics of the peer that may be in flight here.
    pub(crate) reads_inbound: u8,
    /// Local reads and atomics that may be in flight to the peer.
    pub(crate) reads_outbound: u8,
}

/// One end of a connection, or a listener. The queue pair is destroyed before the id, and both before the memory that
/// the queue keeps for the adapter.
pub(crate) struct Endpoint {
    id: NonNull<CmId>,
    queue: Option<Queue>,
    cm_events: Arc<CmEventChannel>,
}

// SAFETY: rdma-core's functions may be called from any thread.
unsafe impl Send for Endpoint {}

impl Endpoint {
    pub(crate) fn new(cm_events: &Arc<CmEventChannel>, token: u64) -> io::Result<Self> {
        let mut id: *mut CmId = null_mut();
        // SAFETY: a live channel and room for the answer. The token is a number that only comes back in events.
        let answer = unsafe {
            (cm_events.library().rdma_create_id)(cm_events.raw(), &raw mut id, token as *mut c_void, abi::CM_SPACE_TCP)
        };
        outcome(answer)?;
        let id = NonNull::new(id).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { id, queue: None, cm_events: Arc::clone(cm_events) })
    }

    /// Wraps the id of a connect request.
    pub(super) fn adopt(cm_events: &Arc<CmEventChannel>, id: NonNull<CmId>) -> Self {
        Self { id, queue: None, cm_events: Arc::clone(cm_events) }
    }

    /// Sets the token that events of this endpoint carry.
    pub(crate) fn set_token(&mut self, token: u64) {
        // SAFETY: a live id; the field is the user's.
        unsafe { (*self.id.as_ptr()).context = token as *mut c_void };
    }

    /// Returns true if the connection manager has chosen this device for the endpoint.
    pub(crate) fn is_on(&self, adapter: &Adapter) -> bool {
        // SAFETY: a live id; the library sets the field when the device is chosen.
        let context = unsafe { (*self.id.as_ptr()).verbs };
        std::ptr::eq(context, adapter.context())
    }

    pub(crate) fn queue(&mut self) -> Option<&mut Queue> {
        self.queue.as_mut()
    }

    /// Binds to an address of this machine, and thereby to its device.
    pub(crate) fn bind(&mut self, address: SocketAddr) -> io::Result<()> {
        let mut address = encode(address);
        // SAFETY: a live id and a complete address, which is copied.
        outcome(unsafe { (self.cm_events.library().rdma_bind_addr)(self.id.as_ptr(), &raw mut address) })
    }

    /// Allows a port to be bound again soon after its release.
    pub(crate) fn reuse_address(&mut self) -> io::Result<()> {
        let mut yes: i32 = 1;
        self.option(abi::CM_OPTION_REUSE_ADDRESS, (&raw mut yes).cast(), 4)
    }

    /// Sets the retransmission timeout of the adapter: 4.096 µs × 2^`exponent`.
    pub(crate) fn set_ack_timeout(&mut self, exponent: u8) -> io::Result<()> {
        let mut exponent = exponent;
        self.option(abi::CM_OPTION_ACK_TIMEOUT, (&raw mut exponent).cast(), 1)
    }

    fn option(&mut self, name: i32, value: *mut c_void, bytes: usize) -> io::Result<()> {
        // SAFETY: a live id, and a local value with the length of this option, which is copied.
        let answer = unsafe {
            (self.cm_events.library().rdma_set_option)(self.id.as_ptr(), abi::CM_OPTION_LEVEL_ID, name, value, bytes)
        };
        outcome(answer)
    }

    pub(crate) fn listen(&mut self, backlog: i32) -> io::Result<()> {
        // SAFETY: a live id.
        outcome(unsafe { (self.cm_events.library().rdma_listen)(self.id.as_ptr(), backlog) })
    }

    pub(crate) fn local_port(&self) -> u16 {
        // SAFETY: a live id; the answer is in network order.
        u16::from_be(unsafe { (self.cm_events.library().rdma_get_src_port)(self.id.as_ptr()) })
    }

    /// Returns the peer's address.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: a live id, whose addresses the library set before its first event.
        let address = unsafe { (*self.id.as_ptr()).target };
        decode(&address)
    }

    /// Starts to resolve an address; an event reports the result.
    pub(crate) fn resolve(&mut self, source: Option<IpAddr>, address: SocketAddr, timeout_ms: i32) -> io::Result<()> {
        let mut source = source.map(|source| encode(SocketAddr::new(source, 0)));
        let mut address = encode(address);
        let from = source.as_mut().map_or(null_mut(), |source| source as *mut SocketAddress);
        // SAFETY: a live id and complete addresses, which are copied.
        let answer = unsafe {
            (self.cm_events.library().rdma_resolve_addr)(self.id.as_ptr(), from, &raw mut address, timeout_ms)
        };
        outcome(answer)
    }

    /// Starts to resolve the route, after the address.
    pub(crate) fn resolve_route(&mut self, timeout_ms: i32) -> io::Result<()> {
        // SAFETY: a live id.
        outcome(unsafe { (self.cm_events.library().rdma_resolve_route)(self.id.as_ptr(), timeout_ms) })
    }

    /// Creates the queue pair and posts its receive slots.
    pub(crate) fn make_queue(
        &mut self,
        domain: &Arc<Domain>,
        completions: Completions,
        depths: QueueDepths,
        slots: Arc<Registered>,
        in_order: bool,
    ) -> io::Result<()> {
        assert!(self.queue.is_none(), "an endpoint has one queue");
        assert!(self.is_on(domain.adapter()), "a queue and its endpoint share one device");
        let mut depths = depths;
        let mut answer = -1;
        // An adapter without that much inline data gets none.
        for inline_bytes in [depths.inline_bytes, 0] {
            let mut wanted = QpInit {
                qp_context: null_mut(),
                send_cq: completions.raw(),
                recv_cq: completions.raw(),
                srq: null_mut(),
                cap: QpCapabilities {
                    max_send_wr: depths.sends,
                    max_recv_wr: depths.receives,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline_bytes,
                },
                qp_type: abi::QP_CONNECTED,
                sq_sig_all: 0,
            };
            // SAFETY: a live id on the domain's device, a live domain and a live completion queue, both of which the
            // queue keeps until its queue pair is destroyed.
            answer =
                unsafe { (self.cm_events.library().rdma_create_qp)(self.id.as_ptr(), domain.raw(), &raw mut wanted) };
            if answer == 0 {
                depths.inline_bytes = inline_bytes;
                break;
            }
        }
        outcome(answer)?;
        // SAFETY: a live id, whose queue pair has just been created.
        let qp =
            NonNull::new(unsafe { (*self.id.as_ptr()).qp }).expect("the library sets the queue pair that it created");
        let queue = self.queue.insert(Queue::new(qp, domain, completions, depths, slots, in_order));
        queue.ring_receives()
    }

    /// Sends a connection request; an event reports the result.
    pub(crate) fn connect(&mut self, dial: ConnectParameters<'_>) -> io::Result<()> {
        let mut parameters = parameters(dial);
        // SAFETY: a live id with a queue pair; the private data is copied.
        outcome(unsafe { (self.cm_events.library().rdma_connect)(self.id.as_ptr(), &raw mut parameters) })
    }

    /// Accepts a connection request.
    pub(crate) fn accept(&mut self, dial: ConnectParameters<'_>) -> io::Result<()> {
        let mut parameters = parameters(dial);
        // SAFETY: as above.
        outcome(unsafe { (self.cm_events.library().rdma_accept)(self.id.as_ptr(), &raw mut parameters) })
    }

    /// Rejects a connection request, with a reason that the peer receives.
    pub(crate) fn reject(&mut self, reason: &[u8]) -> io::Result<()> {
        let bytes = u8::try_from(reason.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a live id; the reason is copied.
        outcome(unsafe { (self.cm_events.library().rdma_reject)(self.id.as_ptr(), reason.as_ptr().cast(), bytes) })
    }

    /// Ends the connection: operations in flight complete as flushed.
    pub(crate) fn disconnect(&mut self) -> io::Result<()> {
        // SAFETY: a live id.
        outcome(unsafe { (self.cm_events.library().rdma_disconnect)(self.id.as_ptr()) })
    }

    /// Reports to the connection manager that the first bytes are here, in case its own message was lost.
    pub(crate) fn notify_established(&mut self) -> io::Result<()> {
        // SAFETY: a live id.
        outcome(unsafe { (self.cm_events.library().rdma_notify)(self.id.as_ptr(), abi::ASYNC_ESTABLISHED) })
    }

    /// Destroys the queue pair and completes the operations in flight with an unknown result.
    pub(crate) fn destroy_queue(&mut self, completions: &mut Vec<FinishedWork>) {
        if let Some(mut queue) = self.queue.take() {
            // SAFETY: a live id with a queue pair, which nothing uses after this; `queue`, dropped below, keeps the
            // memory that the adapter still used.
            unsafe { (self.cm_events.library().rdma_destroy_qp)(self.id.as_ptr()) };
            let mut received = Vec::new();
            // Completions from before the destruction still count.
            let _ = queue.poll(completions, &mut received);
            queue.abandon_pending(completions);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.destroy_queue(&mut Vec::new());
        // SAFETY: created by the library and destroyed once; all its events are acknowledged when they are taken.
        let answer = unsafe { (self.cm_events.library().rdma_destroy_id)(self.id.as_ptr()) };
        if let Err(error) = outcome(answer) {
            tracing::warn!(%error, "cannot destroy a connection id");
        }
    }
}

fn parameters(dial: ConnectParameters<'_>) -> ConnectionParameters {
    ConnectionParameters {
        private_data: dial.hello.as_ptr().cast(),
        private_data_len: u8::try_from(dial.hello.len()).expect("the caller checks the length of a hello"),
        responder_resources: dial.reads_inbound,
        initiator_depth: dial.reads_outbound,
        flow_control: u8::from(dial.flow_control),
        retry_count: 7,
        // Unlimited: there are credits, and the deadline ends a peer that receives nothing.
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}

/// Encodes a `struct sockaddr_in` or `struct sockaddr_in6`.
fn encode(address: SocketAddr) -> SocketAddress {
    let mut bytes = [0; 128];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&address.ip().octets());
        }
        SocketAddr::V6(address) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&address.flowinfo().to_be_bytes());
            bytes[8..24].copy_from_slice(&address.ip().octets());
            bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
        }
    }
    SocketAddress { bytes }
}

fn decode(address: &SocketAddress) -> Option<SocketAddr> {
    let bytes = &address.bytes;
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes[4..8].try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(octets).into(), port))
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes[8..24].try_into().ok()?;
            Some(SocketAddr::new(Ipv6Addr::from(octets).into(), port))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_system_layout() {
        // If this failed, a node would connect to another address than the configured one.
        for text in ["10.9.0.2:7400", "127.0.0.1:1", "[fd00::9]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(decode(&encode(address)), Some(address));
        }
        assert_eq!(encode("1.2.3.4:258".parse().unwrap()).bytes[..8], [2, 0, 1, 2, 1, 2, 3, 4]);
        assert_eq!(decode(&SocketAddress { bytes: [0; 128] }), None);
    }
}
