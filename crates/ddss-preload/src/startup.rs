//! Start of a program image: settings, and the streams that an earlier image left.

use std::os::fd::RawFd;

use ddss_stream::{Descriptor, Endpoint};

use crate::{descriptor_table, io_uring, rules, sys, wire};

/// Longest spin in microseconds.
const SPIN_VARIABLE: &str = "DDSS_STREAMS_SPIN_US";

/// Calls before an offer; tests set it to 1.
const OFFER_VARIABLE: &str = "DDSS_STREAMS_OFFER_AFTER";

/// Name of the pump that carries connections on the wire.
const PUMP_VARIABLE: &str = "DDSS_STREAMS_PUMP";

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Prepares the library. Runs before the program's `main`.
pub(crate) fn start() {
    sys::real::find_all();
    sys::install_handlers();
    if let Some(microseconds) = setting::<u64>(SPIN_VARIABLE) {
        ddss_stream::set_spin_max(microseconds.saturating_mul(1000));
    }
    if let Some(calls) = setting(OFFER_VARIABLE) {
        ddss_stream::set_offer_after(calls);
    }
    rules::load();
    if let Ok(name) = std::env::var(PUMP_VARIABLE) {
        wire::find_pump(&name);
    }
    adopt_inherited();
    if descriptor_table::has_streams() && io_uring::may_be_used() {
        sys::leave_streams_to_pumps();
    }
    ddss_stream::init();
}

/// Takes over streams whose memory was inherited. Most programs inherit none and are done after one folder.
fn adopt_inherited() {
    let (mut memories, mut sockets) = (Vec::new(), Vec::new());
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return };
    for entry in descriptors.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else { continue };
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy();
        if target.starts_with("/memfd:ddss-stream ") {
            memories.push(number);
        } else if target.starts_with("socket:")
            && let Ok(found) = rustix::fs::fstat(Descriptor(number))
        {
            sockets.push((number, found.st_ino));
        }
    }
    for memory in memories {
        let Some((endpoint, inode)) = Endpoint::inherited(memory, &sockets) else { continue };
        for (socket, _) in sockets.iter().filter(|(_, other)| *other == inode) {
            if let Some(copy) = Endpoint::acquire(endpoint.index()) {
                descriptor_table::insert_stream(*socket, copy);
            }
        }
    }
}
