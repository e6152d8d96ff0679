//! Ports of a node, relative to the first shard's port.

use std::net::SocketAddr;

/// Returns the address of a node's control plane, from the address of its data plane.
pub(crate) fn control_address(data: SocketAddr) -> SocketAddr {
    SocketAddr::new(data.ip(), data.port().wrapping_add(1))
}

/// Returns the address of a shard, from the address of the first shard: the others follow the control plane.
pub(crate) fn shard_address(data: SocketAddr, shard: u8) -> SocketAddr {
    let behind = if shard == 0 { 0 } else { u16::from(shard) + 1 };
    SocketAddr::new(data.ip(), data.port().wrapping_add(behind))
}
