//! Start of a program image: settings, and the streams that an earlier image left.

use std::os::fd::RawFd;

use ddss_stream::{Endpoint, Inherited, InheritedKind};

use super::image::leave_streams_to_pumps;
use crate::sys::{process, raw_calls};
use crate::{descriptor_table, epoll, io_uring, rules, sys, wire};

/// Longest spin in microseconds.
const SPIN_VARIABLE: &str = "DDSS_STREAMS_SPIN_US";

/// Calls before an offer; tests set it to 1.
const OFFER_VARIABLE: &str = "DDSS_STREAMS_OFFER_AFTER";

/// Name of the pump that carries connections on the wire.
const PUMP_VARIABLE: &str = "DDSS_STREAMS_PUMP";

/// Runs before the program's `main`.
extern "C" fn start() {
    process::name_owner();
    raw_calls::start();
    // Functions after a fork run in this order, and those before it in the opposite one. So the child is counted first; and the count
    // has ended when the signals come that waited for the locks: their handlers may fork.
    // SAFETY: the functions stay loaded as long as the program.
    unsafe { libc::pthread_atfork(None, Some(process::in_parent), Some(process::in_child)) };
    install_fork_functions();
    // SAFETY: as above.
    unsafe { libc::pthread_atfork(Some(process::before_fork), None, None) };
    prepare();
}

// SAFETY: the section holds functions without arguments, which the loader calls once.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start;

unsafe extern "C" fn before_fork() {
    Endpoint::finish_decisions();
    epoll::before_fork();
}

unsafe extern "C" fn after_fork() {
    epoll::after_fork();
}

/// Registers functions around each `fork`. Those that the program registers later run outside of them, so that they find no lock of the
/// library held.
fn install_fork_functions() {
    epoll::start();
    // SAFETY: the functions stay as long as the process: nobody unloads a preloaded library.
    let failed = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    if failed != 0 {
        sys::report("ddss-preload: no memory for the functions around fork\n");
    }
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Prepares the library for the program's calls.
fn prepare() {
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
        leave_streams_to_pumps();
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
