//! The streams of other processes, for `ddss streams`.
//!
//! Each process that runs with the library has its table of streams in a memory file. This module finds these files through `/proc` and
//! copies them; it changes nothing.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::endpoint;
use crate::reason::Reason;
use crate::stream::Transport;
use crate::sys::{SLOTS, Shared};

/// Link text of a memory file with a table.
const TABLE_LINK: &str = "/memfd:ddss-streams";

/// One end of a connection that began with the library.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StreamRow {
    /// Process that accepted or connected.
    pub process: u32,
    /// True for the accepting end.
    pub is_acceptor: bool,
    /// Address of the connecting end.
    pub connector: SocketAddr,
    /// Address of the accepting end.
    pub acceptor: SocketAddr,
    /// Transport at this moment.
    pub transport: Transport,
    /// Reason for the transport.
    pub reason: Reason,
    /// Bytes received over TCP before the stream left it or stayed on it.
    pub tcp_read: u64,
    /// Bytes sent over TCP before the stream left it or stayed on it.
    pub tcp_written: u64,
}

/// Lists the streams of all processes that the caller may inspect.
pub fn list() -> Vec<StreamRow> {
    tables().iter().flat_map(|(_, path)| read_table(path)).collect()
}

/// Lists the processes that run with the library, among those that the caller may inspect. A forked child counts as its parent.
pub fn processes() -> Vec<u32> {
    tables().iter().map(|(process, _)| *process).collect()
}

/// Returns the first process with each table, and the table's place.
fn tables() -> Vec<(u32, PathBuf)> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let Ok(processes) = std::fs::read_dir("/proc") else { return found };
    for process in processes.flatten() {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            let path = descriptor.path();
            let is_table = std::fs::read_link(&path).is_ok_and(|link| link.to_string_lossy().starts_with(TABLE_LINK));
            // A forked child has its parent's table.
            if is_table && std::fs::metadata(&path).is_ok_and(|table| seen.insert(table.ino())) {
                found.push((number, path));
            }
        }
    }
    found
}

fn read_table(path: &Path) -> Vec<StreamRow> {
    let mut bytes = Vec::new();
    let limit = (SLOTS * size_of::<Shared>()) as u64;
    match File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
        Ok(_) => bytes.chunks_exact(size_of::<Shared>()).filter_map(row).collect(),
        Err(_) => Vec::new(),
    }
}

fn row(entry: &[u8]) -> Option<StreamRow> {
    let word = |offset: usize| entry.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let long = |offset: usize| entry.get(offset..offset + 8)?.try_into().ok().map(u64::from_ne_bytes);
    let state = word(offset_of!(Shared, state))?;
    if state == endpoint::FREE {
        return None;
    }
    let ports = word(offset_of!(Shared, ports))?;
    let address = |place: usize, port: u32| {
        let offset = offset_of!(Shared, addresses) + place * 16;
        let ip = Ipv6Addr::from(u128::from(long(offset)?) << 64 | u128::from(long(offset + 8)?));
        Some(SocketAddr::new(IpAddr::V6(ip).to_canonical(), port as u16))
    };
    Some(StreamRow {
        process: word(offset_of!(Shared, process))?,
        is_acceptor: word(offset_of!(Shared, side))? == endpoint::ACCEPTOR,
        connector: address(0, ports >> 16)?,
        acceptor: address(1, ports & 0xffff)?,
        transport: match state {
            endpoint::SHARED => Transport::SameNode,
            endpoint::WIRE => Transport::Wire,
            _ => Transport::Tcp,
        },
        reason: Reason::from_number(word(offset_of!(Shared, reason))?)?,
        tcp_read: long(offset_of!(Shared, tcp_read))?,
        tcp_written: long(offset_of!(Shared, tcp_written))?,
    })
}
