//! The adapters of this machine as data, for whoever wants to look or to choose.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use crate::sys::rdma_core::{Adapter, Unavailable};

/// An adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdapterInfo {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// Whether it speaks iWARP; else InfiniBand or RoCE.
    pub is_iwarp: bool,
    /// Whether it executes atomics.
    pub has_atomics: bool,
    /// Reads of one connection that it works on, and has under way, at the same time.
    pub reads_inbound_max: u32,
    /// The same in the other direction.
    pub reads_outbound_max: u32,
    /// Its ports.
    pub ports: Vec<PortInfo>,
}

/// A port of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortInfo {
    /// Its number, from 1.
    pub number: u8,
    /// Whether its link is up.
    pub is_active: bool,
    /// Whether that is Ethernet; else InfiniBand.
    pub is_ethernet: bool,
    /// Bytes of a packet's payload.
    pub mtu_bytes: u32,
    /// Bytes of the largest message.
    pub message_bytes_max: u32,
    /// Its addresses.
    pub gids: Vec<GidInfo>,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidInfo {
    /// Its place in the port's table.
    pub index: u32,
    /// The address; one of IPv4 is mapped.
    pub address: Ipv6Addr,
    /// `RoCE v2`, `IB/RoCE v1`.
    pub kind: String,
    /// The network device that it belongs to, if any.
    pub interface: String,
}

impl PortInfo {
    /// The entry that connections over IPv4 and RoCE v2 use. Its index depends on the order in which addresses came.
    #[must_use]
    pub fn ipv4_gid(&self) -> Option<&GidInfo> {
        self.gids.iter().find(|gid| gid.kind == "RoCE v2" && gid.address.to_ipv4_mapped().is_some())
    }
}

/// Every adapter that rdma-core knows.
///
/// # Errors
/// No library, or no device.
pub fn adapters() -> Result<Vec<AdapterInfo>, Unavailable> {
    Ok(Adapter::all()?.iter().filter_map(describe).collect())
}

fn describe(adapter: &Adapter) -> Option<AdapterInfo> {
    // One that cannot be asked has just been taken away.
    let facts = adapter.facts().ok()?;
    let name = adapter.name();
    let ports = (1..=facts.ports).filter_map(|number| {
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
        is_iwarp: facts.is_iwarp,
        has_atomics: facts.has_atomics,
        reads_inbound_max: facts.reads_inbound_max,
        reads_outbound_max: facts.reads_outbound_max,
        ports: ports.collect(),
        name,
    })
}

/// The port's table, as the kernel shows it; entries that are not in use cannot be read.
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
