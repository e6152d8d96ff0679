//! Inventory of this machine's adapters, for display and selection.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use crate::sys::rdma_core::{Adapter, Unavailable};

/// An RDMA adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdapterInfo {
    /// Device name, such as `mlx5_0`.
    pub name: String,
    /// True for iWARP; otherwise InfiniBand or RoCE.
    pub is_iwarp: bool,
    /// True if the adapter executes atomics.
    pub has_atomics: bool,
    /// Reads of a peer that the adapter executes at the same time, on one connection.
    pub reads_inbound_max: u32,
    /// Reads that the adapter may have in flight to a peer, on one connection.
    pub reads_outbound_max: u32,
    /// Ports.
    pub ports: Vec<PortInfo>,
}

/// Port of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortInfo {
    /// Port number, from 1.
    pub number: u8,
    /// True if the link is up.
    pub is_active: bool,
    /// True for Ethernet; otherwise InfiniBand.
    pub is_ethernet: bool,
    /// Payload bytes of a packet.
    pub mtu_bytes: u32,
    /// Bytes of the largest message.
    pub message_bytes_max: u32,
    /// Entries of the address table.
    pub gids: Vec<GidInfo>,
}

/// Address of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidInfo {
    /// Index in the port's table.
    pub index: u32,
    /// Address; an IPv4 address is mapped to IPv6.
    pub address: Ipv6Addr,
    /// Type: `RoCE v2`, `IB/RoCE v1`.
    pub kind: String,
    /// Network device of the address, if any.
    pub interface: String,
}

impl PortInfo {
    /// Returns the entry that connections over IPv4 and RoCE v2 use. Its index depends on the order in which addresses
    /// were assigned.
    #[must_use]
    pub fn ipv4_gid(&self) -> Option<&GidInfo> {
        self.gids.iter().find(|gid| gid.kind == "RoCE v2" && gid.address.to_ipv4_mapped().is_some())
    }
}

/// Lists every adapter that rdma-core knows.
///
/// # Errors
/// The library is missing, or there is no device.
pub fn adapters() -> Result<Vec<AdapterInfo>, Unavailable> {
    Ok(Adapter::list()?.iter().filter_map(describe).collect())
}

fn describe(adapter: &Adapter) -> Option<AdapterInfo> {
    // An adapter that cannot be queried has just been removed.
    let attributes = adapter.attributes().ok()?;
    let name = adapter.name();
    let ports = (1..=attributes.ports).filter_map(|number| {
        let port = adapter.port(number).ok()?;
        Some(PortInfo {
            number,
            is_active: port.is_active,
            is_ethernet: port.is_ethernet,
            mtu_bytes: port.mtu_bytes,
            message_bytes_max: port.message_bytes_max,
            gids: gids(&Path::new("/sys/class/infiniband").join(&name).join("ports").join(number.to_string())),
        })
    });
    Some(AdapterInfo {
        is_iwarp: attributes.is_iwarp,
        has_atomics: attributes.has_atomics,
        reads_inbound_max: attributes.reads_inbound_max,
        reads_outbound_max: attributes.reads_outbound_max,
        ports: ports.collect(),
        name,
    })
}

/// Reads the port's table from sysfs. Unused entries cannot be read.
fn gids(port: &Path) -> Vec<GidInfo> {
    let Ok(folder) = fs::read_dir(port.join("gids")) else { return Vec::new() };
    let mut found: Vec<GidInfo> = folder
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let read = |place: &str| fs::read_to_string(port.join(place).join(&name));
            let kind = read("gid_attrs/types").ok()?;
            let address: Ipv6Addr = read("gids").ok()?.trim().parse().ok()?;
            let interface = read("gid_attrs/ndevs").unwrap_or_default().trim().to_owned();
            let used = !address.is_unspecified();
            used.then(|| Some(GidInfo { index: name.parse().ok()?, address, kind: kind.trim().to_owned(), interface }))?
        })
        .collect();
    found.sort_by_key(|gid| gid.index);
    found
}
