//! Events of the connection manager.

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::abi;
use super::abi::CmEvent;
use super::cm_event_channel::CmEventChannel;
use super::endpoint::Endpoint;

/// Kind of a connection event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CmEventKind {
    AddressResolved,
    RouteResolved,
    ConnectRequest,
    Established,
    Rejected,
    Unreachable,
    Disconnected,
    DeviceRemoved,
    Other(c_int),
}

/// A connection event, copied from the library's memory.
pub(crate) struct ConnectionEvent {
    /// Token of the endpoint; for a connect request, of the listener.
    pub(crate) token: u64,
    pub(crate) what: CmEventKind,
    pub(crate) status: i32,
    pub(crate) data: Vec<u8>,
    pub(crate) flow_control: bool,
    /// Reads that the peer wants in flight here, and accepts from this node.
    pub(crate) reads: (u8, u8),
    /// New endpoint of a connect request.
    pub(crate) endpoint: Option<Endpoint>,
}

impl CmEventChannel {
    /// Returns the next event, if any.
    pub(crate) fn next(self: &Arc<Self>) -> Option<ConnectionEvent> {
        let mut found: *mut CmEvent = null_mut();
        // SAFETY: a live channel and room for the answer; the descriptor does not block.
        let answer = unsafe { (self.library().rdma_get_cm_event)(self.raw(), &raw mut found) };
        let found = NonNull::new(found).filter(|_| answer == 0)?;
        // SAFETY: the library's event is ours until it is acknowledged, below.
        let event = unsafe { found.as_ref() };
        let what = match event.event {
            abi::CM_ADDRESS_RESOLVED => CmEventKind::AddressResolved,
            abi::CM_ROUTE_RESOLVED => CmEventKind::RouteResolved,
            abi::CM_CONNECT_REQUEST => CmEventKind::ConnectRequest,
            abi::CM_ESTABLISHED => CmEventKind::Established,
            abi::CM_REJECTED => CmEventKind::Rejected,
            abi::CM_ADDRESS_ERROR | abi::CM_ROUTE_ERROR | abi::CM_CONNECT_ERROR | abi::CM_UNREACHABLE => {
                CmEventKind::Unreachable
            }
            abi::CM_DISCONNECTED => CmEventKind::Disconnected,
            abi::CM_DEVICE_REMOVAL => CmEventKind::DeviceRemoved,
            other => CmEventKind::Other(other),
        };
        let has_private_data =
            matches!(what, CmEventKind::ConnectRequest | CmEventKind::Established | CmEventKind::Rejected);
        let data = if has_private_data { private_data(event) } else { Vec::new() };
        let reads = (event.connection.responder_resources, event.connection.initiator_depth);
        let flow_control = event.connection.flow_control != 0;
        let status = event.status;
        let id = event.id;
        // SAFETY: an event names a live id of ours, or, for a connect request, a new one; both live until the event is
        // acknowledged, and only `Endpoint` writes the context.
        let mut token = unsafe { (*id).context } as u64;
        let mut endpoint = None;
        if what == CmEventKind::ConnectRequest {
            let listener = event.listen_id;
            if !listener.is_null() {
                // SAFETY: the listener is alive as long as its event is not acknowledged.
                token = unsafe { (*listener).context } as u64;
            }
            endpoint = NonNull::new(id).map(|id| Endpoint::adopt(self, id));
        }
        // SAFETY: the event that was just taken, acknowledged once; nothing of it is used from here on.
        unsafe { (self.library().rdma_ack_cm_event)(found.as_ptr()) };
        Some(ConnectionEvent { token, what, status, data, flow_control, reads, endpoint })
    }
}

fn private_data(event: &CmEvent) -> Vec<u8> {
    let (start, bytes) = (event.connection.private_data.cast::<u8>(), usize::from(event.connection.private_data_len));
    if start.is_null() || bytes == 0 {
        return Vec::new();
    }
    // SAFETY: with these events the library lends this many bytes until the event is acknowledged, and nothing writes
    // them.
    unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec()
}
