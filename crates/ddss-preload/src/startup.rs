//! Start of a program image: settings, and the streams that an earlier image left.

use std::os::fd::RawFd;

use ddss_stream::{Endpoint, Inherited, InheritedKind};

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
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return };
    let look = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse::<RawFd>().ok()?;
        Inherited::look(number, &std::fs::read_link(entry.path()).ok()?.to_string_lossy())
    };
    let found: Vec<Inherited> = descriptors.flatten().filter_map(look).collect();
    for own in found.iter().filter(|own| own.kind == InheritedKind::Own) {
        let Some((endpoint, inode)) = Endpoint::inherited(own.number, &found) else { continue };
        for socket in found.iter().filter(|other| other.kind == InheritedKind::Socket && other.inode == inode) {
            if let Some(copy) = Endpoint::acquire(endpoint.index()) {
                descriptor_table::insert_stream(socket.number, copy);
            }
        }
    }
}
