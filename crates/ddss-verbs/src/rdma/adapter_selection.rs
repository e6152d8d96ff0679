//! Choice of an adapter and of its limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::config::RdmaConfig;
use super::error::RdmaError;
use crate::sys::rdma_core::{Adapter, AdapterAttributes, CmEventChannel, Endpoint, PortState};

/// Token of a listener. Peers use the bits of their id, whose generation never grows this large.
pub(super) const LISTENER: u64 = u64::MAX;

/// Finds the adapter that the configuration selects.
pub(super) fn select_adapter(cm_events: &Arc<CmEventChannel>, config: &RdmaConfig) -> Result<Adapter, RdmaError> {
    let all = Adapter::list()?;
    let available = || all.iter().map(Adapter::name).collect::<Vec<_>>().join(", ");
    if let Some(wanted) = &config.device {
        let found = all.iter().find(|adapter| adapter.name() == *wanted);
        return found
            .cloned()
            .ok_or_else(|| RdmaError::NoSuchDevice { requested: wanted.clone(), available: available() });
    }
    if let Some(address) = config.address {
        let none = |source| RdmaError::NoSuchAddress { address, available: available(), source };
        let mut endpoint = Endpoint::new(cm_events, LISTENER).map_err(none)?;
        endpoint.bind(SocketAddr::new(address, 0)).map_err(none)?;
        let found = all.iter().find(|adapter| endpoint.is_on(adapter));
        return found.cloned().ok_or_else(|| none(io::ErrorKind::AddrNotAvailable.into()));
    }
    let up =
        |adapter: &&Adapter| adapter.attributes().is_ok_and(|attributes| active_port(adapter, &attributes).is_some());
    all.iter().find(up).cloned().ok_or_else(|| RdmaError::LinkDown(available()))
}

/// Returns the first port with an active link.
pub(super) fn active_port(adapter: &Adapter, attributes: &AdapterAttributes) -> Option<PortState> {
    (1..=attributes.ports).filter_map(|number| adapter.port(number).ok()).find(|port| port.is_active)
}

/// Returns the number of reads that may be in flight.
pub(super) fn reads(wanted: u8, adapter: u32) -> u8 {
    wanted.min(u8::try_from(adapter).unwrap_or(u8::MAX))
}
