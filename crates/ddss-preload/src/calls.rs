//! Calls on streams, without their C types.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::RawFd;

use ddss_stream::{Decision, Descriptor, Endpoint, Native, Reason, UserMemory};
use rustix::io::Errno;
use rustix::net::{SocketType, ipproto, sockopt};

use crate::rules::{self, Choice, End};
use crate::sys::errno;
use crate::{descriptor_table, epoll, io_uring, wire};

/// Flags of `recv` and `send` that concern the kernel's own queues.
const KERNEL_ONLY: i32 = libc::MSG_OOB | libc::MSG_ERRQUEUE;

/// Reads: `native` is the same call of the kernel.
pub(crate) fn read(
    endpoint: &Endpoint,
    socket: RawFd,
    to: &UserMemory<'_>,
    flags: i32,
    mut native: impl FnMut() -> isize,
) -> isize {
    if flags & KERNEL_ONLY != 0 {
        return kernel_only(endpoint, socket, flags, native);
    }
    if endpoint.may_get_request()
        && let Some(result) = wire::refuse_request(socket, flags)
    {
        return result;
    }
    let kind = if flags & libc::MSG_PEEK != 0 { Native::Look } else { Native::Read };
    if let Some(result) = through_kernel(endpoint, socket, kind, &mut native) {
        return result;
    }
    let read = endpoint.read(Descriptor(socket), to, flags);
    if is_suspect(read) && descriptor_table::forget_replaced(socket) {
        return native();
    }
    result(read)
}

/// Returns true for a result that a file in the place of a closed stream may be the reason of: an end, or an error.
fn is_suspect(result: Result<usize, Errno>) -> bool {
    !matches!(result, Ok(1..) | Err(Errno::AGAIN | Errno::INTR))
}

/// Writes: `native` is the same call of the kernel.
pub(crate) fn write(
    endpoint: &Endpoint,
    socket: RawFd,
    from: &UserMemory<'_>,
    flags: i32,
    mut native: impl FnMut() -> isize,
) -> isize {
    if flags & KERNEL_ONLY != 0 {
        // Bytes of the ring come before urgent data, and all others after it.
        if flags & libc::MSG_OOB != 0 && endpoint.is_shared() && !endpoint.leave_ring() {
            return result(Err(Errno::AGAIN));
        }
        return kernel_only(endpoint, socket, flags, native);
    }
    if let Some(result) = through_kernel(endpoint, socket, Native::Write, &mut native) {
        return result;
    }
    let written = endpoint.write(Descriptor(socket), from, flags);
    if is_suspect(written) && descriptor_table::forget_replaced(socket) {
        return native();
    }
    if written == Err(Errno::PIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        crate::sys::raise_broken_pipe();
    }
    result(written)
}

/// Carries out a call while the stream is undecided or plain. `None`: the library has to.
pub(crate) fn through_kernel(
    endpoint: &Endpoint,
    socket: RawFd,
    kind: Native,
    native: &mut impl FnMut() -> isize,
) -> Option<isize> {
    match endpoint.native(Descriptor(socket), kind, &mut *native) {
        Some((result, decision)) => {
            follow(endpoint, socket, decision);
            Some(result)
        }
        None if endpoint.is_plain() => {
            if !endpoint.may_get_request() {
                descriptor_table::mark_plain(socket);
            }
            Some(native())
        }
        None => None,
    }
}

/// Adapts tables and epoll sets to a decision.
fn follow(endpoint: &Endpoint, socket: RawFd, decision: Decision) {
    match decision {
        Decision::None => (),
        Decision::Plain => descriptor_table::mark_plain(socket),
        Decision::Shared => epoll::convert(endpoint),
    }
}

/// Urgent data and the error queue stay the kernel's. Urgent data moves the byte position, so that an undecided stream stays on TCP.
fn kernel_only(endpoint: &Endpoint, socket: RawFd, flags: i32, mut native: impl FnMut() -> isize) -> isize {
    if flags & libc::MSG_OOB != 0 {
        stay_on_tcp(endpoint, socket);
    }
    native()
}

/// Keeps a stream on TCP. False: it uses shared memory already.
pub(crate) fn stay_on_tcp(endpoint: &Endpoint, socket: RawFd) -> bool {
    let is_plain = endpoint.stay_on_tcp(Reason::KernelCall);
    if is_plain {
        descriptor_table::mark_plain(socket);
    }
    is_plain
}

/// Keeps a stream on TCP. Otherwise the library takes over the low water mark that the program has just set, and returns true.
pub(crate) fn takes_low_water(socket: RawFd) -> bool {
    let Some(endpoint) = descriptor_table::stream(socket) else { return false };
    let is_shared = !stay_on_tcp(&endpoint, socket);
    if is_shared {
        endpoint.follow_low_water(Descriptor(socket));
    }
    is_shared
}

/// Returns the low water mark of a stream that has left TCP, if the program has set one.
pub(crate) fn low_water(socket: RawFd) -> Option<usize> {
    descriptor_table::stream(socket).filter(Endpoint::is_shared).and_then(|endpoint| endpoint.low_water())
}

/// Dissolves a connection by the program's own call, `native`: the socket may get another one.
pub(crate) fn disconnect(socket: RawFd, native: impl FnOnce() -> i32) -> i32 {
    let result = native();
    if result == 0 {
        descriptor_table::remove(socket);
        for (set, number, event) in epoll::take_registrations(socket).iter() {
            // The kernel had room for it a moment ago.
            let _ = set.control(*number, libc::EPOLL_CTL_ADD, socket, Some(*event));
        }
    }
    result
}

/// Returns true for a TCP socket.
fn is_tcp(socket: Descriptor) -> bool {
    sockopt::socket_type(socket) == Ok(SocketType::STREAM) && sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP))
}

/// Prepares a connection before the kernel connects it.
pub(crate) fn before_connect(socket: RawFd, destination: SocketAddr) -> Preparation {
    let descriptor = Descriptor(socket);
    match rules::choice(End::Connect, destination) {
        Choice::Wire if is_tcp(descriptor) => return Preparation::Wire,
        Choice::SameNode if is_tcp(descriptor) && is_own_address(destination.ip()) && may_be_shared(socket) => {}
        _ => return Preparation::None,
    }
    if prepare_same_node(socket, destination) { Preparation::SameNode } else { Preparation::None }
}

/// Returns false for a descriptor that libc may replace by itself, as `daemon` does, and in programs with rings of io_uring.
fn may_be_shared(socket: RawFd) -> bool {
    socket > libc::STDERR_FILENO && !io_uring::may_be_used()
}

/// Preparation of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preparation {
    /// The connection is the kernel's.
    None,
    /// It may leave TCP for shared memory.
    SameNode,
    /// Once it is there, the pump carries it.
    Wire,
}

fn prepare_same_node(socket: RawFd, destination: SocketAddr) -> bool {
    let descriptor = Descriptor(socket);
    let Some(endpoint) = Endpoint::connecting(descriptor, destination) else { return false };
    epoll::learn(socket, &endpoint);
    descriptor_table::insert_stream(socket, endpoint)
}

/// Prepares an accepted connection.
pub(crate) fn after_accept(socket: RawFd) {
    let descriptor = Descriptor(socket);
    let own = rustix::net::getsockname(descriptor).ok().and_then(|own| SocketAddr::try_from(own).ok());
    match own.map(|own| rules::choice(End::Listen, own)) {
        Some(Choice::Wire) if is_tcp(descriptor) => wire::carry(socket, End::Listen),
        Some(Choice::SameNode) => {
            if let Some(endpoint) = Endpoint::accepted(descriptor).filter(|_| may_be_shared(socket)) {
                descriptor_table::insert_stream(socket, endpoint);
            }
        }
        _ => (),
    }
}

/// Closes a descriptor: the library forgets it before its number can be used again.
pub(crate) fn before_close(socket: RawFd) {
    if !descriptor_table::is_known(socket) || !crate::sys::is_own_process() {
        return;
    }
    if let Some(endpoint) = descriptor_table::stream(socket) {
        endpoint.before_close(Descriptor(socket));
    }
    descriptor_table::remove(socket);
}

/// Keeps a stream on TCP whose program asks for signals or for the place of urgent data. True: it has left TCP.
pub(crate) fn needs_socket(socket: RawFd) -> bool {
    descriptor_table::stream(socket).is_some_and(|endpoint| !stay_on_tcp(&endpoint, socket))
}

/// Returns a stream to TCP whose program has asked for signals, or has changed them.
pub(crate) fn after_signals(socket: RawFd, has_asked: bool) {
    let Some(endpoint) = descriptor_table::stream(socket).filter(Endpoint::is_shared) else { return };
    if (has_asked || endpoint.is_returning()) && !endpoint.return_to_tcp(Descriptor(socket)) {
        crate::sys::report("ddss-preload: a stream in shared memory sends no signals before its next write\n");
    }
}

/// Shuts the writing side after the kernel did.
pub(crate) fn shutdown(endpoint: &Endpoint, socket: RawFd, how: i32) {
    if !stay_on_tcp(endpoint, socket) && how != libc::SHUT_RD {
        endpoint.shut_writing();
    }
}

/// Returns true if the address belongs to this node: a socket can be bound to it.
fn is_own_address(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Converts a result to that of a C call.
pub(crate) fn result(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(bytes) => bytes as isize,
        Err(error) => {
            errno::set(error.raw_os_error());
            -1
        }
    }
}
