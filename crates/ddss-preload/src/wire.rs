//! Connections that a rule puts on the wire: the pump gets the TCP socket, and the program a Unix socket in its place.
//!
//! From then on the descriptor is the kernel's alone, also after `fork`, `exec`, `dup` and in the hands of another process.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ddss_stream::limits::PUMP_DIAL_MAX;
use ddss_stream::pump::{PumpClient, SocketNames};
use ddss_stream::wire::is_request;
use ddss_stream::{Descriptor, Endpoint, Reason};
use libc::pollfd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt;

use crate::rules::End;
use crate::sys::errno;
use crate::sys::kernel::{kernel_peek, kernel_poll, replace_descriptor};
use crate::{descriptor_table, epoll};

/// Bytes by which a request of the wire is known.
const REQUEST_BYTES: usize = 16;

static PUMP: OnceLock<PumpClient> = OnceLock::new();
/// True if this image was started with a pump: it may hold sockets of one, its own or inherited.
static MAY_HAVE_SOCKETS: AtomicBool = AtomicBool::new(false);

/// Connects to the pump, which lives as long as a program image has such a connection.
pub(crate) fn find_pump(name: &str) {
    MAY_HAVE_SOCKETS.store(true, Ordering::Relaxed);
    if let Some(pump) = PumpClient::connect(name) {
        let _ = PUMP.set(pump);
    }
}

/// Hands a connected socket to the pump. A socket that cannot be handed over stays on TCP, and `ddss streams` shows why.
pub(crate) fn carry(socket: RawFd, end: End) {
    let is_acceptor = end == End::Listen;
    let handed_over = PUMP.get().ok_or(Errno::NOENT).and_then(|pump| pump.hand_over(Descriptor(socket), is_acceptor));
    let Ok(programs) = handed_over else {
        if let Some(endpoint) = Endpoint::on_tcp(Descriptor(socket), is_acceptor, Reason::NoPump)
            && descriptor_table::insert_stream(socket, endpoint)
            && !is_acceptor
        {
            descriptor_table::mark_plain(socket);
        }
        return;
    };
    let registrations = epoll::take_registrations(socket);
    replace_descriptor(programs.as_raw_fd(), socket);
    for (set, number, event) in registrations.iter() {
        // A set without room loses the registration, as a full kernel would refuse it.
        let _ = set.control(*number, libc::EPOLL_CTL_ADD, socket, Some(*event));
    }
}

/// Looks at the first bytes of an accepted connection that no pump took. A request of the wire is none of the program's bytes: the connection
/// is reset, and the peer comes again without one. `None`: the program reads.
pub(crate) fn refuse_request(socket: RawFd, flags: c_int) -> Option<isize> {
    let mut first = [0; REQUEST_BYTES];
    match kernel_peek(socket, &mut first, flags) {
        found if found < 0 => return Some(found),
        // The request comes in one piece.
        found if is_request(&first[..found as usize]) == Some(true) => {}
        _ => {
            descriptor_table::mark_plain(socket);
            return None;
        }
    }
    // A failure means that there is no connection any more.
    let _ = rustix::net::connect_unspec(Descriptor(socket));
    descriptor_table::mark_plain(socket);
    errno::set(libc::ECONNRESET);
    Some(-1)
}

/// Connects by the program's own call, `native`, and hands the connection over.
pub(crate) fn connect(socket: RawFd, native: impl FnOnce() -> c_int) -> c_int {
    let result = native();
    let error = errno::get();
    let is_there = result == 0 || error == libc::EINPROGRESS && is_nonblocking(socket) && wait_for_connection(socket);
    if !is_there {
        errno::set(error);
        return result;
    }
    match sockopt::socket_error(Descriptor(socket)) {
        Ok(Ok(())) => {
            carry(socket, End::Connect);
            0
        }
        Ok(Err(error)) | Err(error) => {
            errno::set(error.raw_os_error());
            -1
        }
    }
}

fn is_nonblocking(socket: RawFd) -> bool {
    rustix::fs::fcntl_getfl(Descriptor(socket)).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Waits for a connection that the kernel makes, so that the descriptor changes before the program watches it.
fn wait_for_connection(socket: RawFd) -> bool {
    let deadline = Instant::now() + PUMP_DIAL_MAX;
    let mut list = [pollfd { fd: socket, events: libc::POLLOUT, revents: 0 }];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match kernel_poll(&mut list, Some(left), std::ptr::null()) {
            Ok(found) => return found > 0,
            Err(libc::EINTR) if left > Duration::ZERO => (),
            Err(_) => return false,
        }
    }
}

/// Returns the names of a connection that a pump carries.
pub(crate) fn names(socket: RawFd) -> Option<SocketNames> {
    let is_unix = || sockopt::socket_domain(Descriptor(socket)) == Ok(AddressFamily::UNIX);
    (MAY_HAVE_SOCKETS.load(Ordering::Relaxed) && is_unix()).then(|| SocketNames::of(Descriptor(socket))).flatten()
}

/// Returns true if a call asks for urgent data, which a stream on the wire does not carry.
pub(crate) fn is_urgent(socket: RawFd, flags: c_int) -> bool {
    let is_urgent = flags & libc::MSG_OOB != 0 && names(socket).is_some();
    if is_urgent {
        errno::set(libc::EOPNOTSUPP);
    }
    is_urgent
}
