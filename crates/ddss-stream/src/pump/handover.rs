//! Handover of a connection from a program to its pump.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::names::SocketNames;
use super::tcp_close::reset_on_close;
use crate::limits::{PUMP_SEND_BUFFER_BYTES, PUMP_SEND_BUFFER_MIN};
use crate::sys::{Descriptor, HiddenDescriptor};

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
const MAGIC: u32 = 0x4444_5001;
/// Magic, end of the connection, process.
const MESSAGE_BYTES: usize = 12;
const DESCRIPTORS: usize = 2;

/// Byte that stays unread in the pump's end until the stream ends in order.
const KEPT: &[u8] = &[0];

static HANDOVERS: AtomicU64 = AtomicU64::new(0);

/// A connection that a program hands over.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) is_acceptor: bool,
    pub(super) process: u32,
    pub(super) tcp: OwnedFd,
    pub(super) local: OwnedFd,
}

/// The program's side of its pump.
///
/// ```
/// use ddss_stream::pump::PumpClient;
///
/// assert!(PumpClient::connect("no-pump-has-this-name").is_none());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PumpClient {
    control: HiddenDescriptor,
}

impl PumpClient {
    /// Connects to the pump of this name. `None`: no pump of this user is there.
    #[must_use]
    pub fn connect(name: &str) -> Option<Self> {
        let control = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None).ok()?;
        rustix::net::connect(&control, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
        if !is_same_user(&control) {
            return None;
        }
        HiddenDescriptor::hide(control, true).ok().map(|control| Self { control })
    }

    /// Hands a connected TCP socket over. Returns the socket that takes its place, with its settings; until the place is taken nothing may
    /// read or write the TCP socket. After an error the TCP socket is as before.
    pub fn hand_over(&self, socket: Descriptor, is_acceptor: bool) -> Result<OwnedFd, Errno> {
        let names = SocketNames::of_tcp(socket)?;
        let (pumps, programs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        names.bind(&pumps, nonce())?;
        keep_byte(&programs)?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&programs, timeout, sockopt::socket_timeout(socket, timeout)?)?;
        }
        rustix::fs::fcntl_setfl(&programs, rustix::fs::fcntl_getfl(socket)?)?;
        let message = encode(is_acceptor, std::process::id());
        let sent = [socket.as_fd(), pumps.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        if !attached.push(SendAncillaryMessage::ScmRights(&sent)) {
            return Err(Errno::NOBUFS);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let linger = sockopt::socket_linger(socket)?;
        // Also on the way to the pump: if the pump dies, the kernel closes what waits for it.
        reset_on_close(socket)?;
        match rustix::net::sendmsg(self.control, &[IoSlice::new(&message)], &mut attached, flags) {
            Ok(_) => Ok(programs),
            Err(error) => {
                sockopt::set_socket_linger(socket, linger)?;
                Err(error)
            }
        }
    }
}

/// Leaves the byte in the pump's end whose loss resets the program's one.
pub(super) fn keep_byte(programs: impl AsFd) -> Result<(), Errno> {
    make_room(&programs)?;
    rustix::io::write(&programs, KEPT).map(|_| ())
}

/// Gives the program's end a send buffer of which the kept byte never fills a quarter: from there on the kernel calls it writable. The byte
/// keeps the whole piece of memory that it came in, which is one of up to 17 pages after `sendfile`.
fn make_room(programs: impl AsFd) -> Result<(), Errno> {
    // The kernel doubles the number, and cuts it to the administrator's limit.
    sockopt::set_socket_send_buffer_size(&programs, PUMP_SEND_BUFFER_BYTES)?;
    let is_enough = sockopt::socket_send_buffer_size(&programs)? >= PUMP_SEND_BUFFER_MIN;
    if is_enough { Ok(()) } else { Err(Errno::NOBUFS) }
}

fn nonce() -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&std::process::id().to_be_bytes());
    bytes[4..].copy_from_slice(&HANDOVERS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    bytes
}

fn encode(is_acceptor: bool, process: u32) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    for (part, word) in bytes.chunks_exact_mut(4).zip([MAGIC, is_acceptor.into(), process]) {
        part.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

pub(super) fn is_same_user(socket: impl AsFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Receives a handover. `Err(AGAIN)`: none is there. `Ok(None)`: the message is none, and its descriptors are closed.
pub(super) fn receive(control: impl AsFd) -> Result<Option<Handover>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = rustix::net::recvmsg(control, &mut [IoSliceMut::new(&mut bytes)], &mut attached, flags)?;
    let mut sent = attached.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = sent.by_ref().flatten().collect();
    if message.bytes == 0 && descriptors.is_empty() {
        return Err(Errno::PIPE);
    }
    let word = |place: usize| bytes[place * 4..].first_chunk().map_or(0, |part| u32::from_ne_bytes(*part));
    let Ok([tcp, local]) = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors) else { return Ok(None) };
    let is_stream = |socket: &OwnedFd| sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    let is_valid = message.bytes == MESSAGE_BYTES
        && word(0) == MAGIC
        && is_stream(&tcp)
        && is_stream(&local)
        && sockopt::socket_domain(&local) == Ok(AddressFamily::UNIX)
        && sockopt::socket_domain(&tcp)
            .is_ok_and(|family| [AddressFamily::INET, AddressFamily::INET6].contains(&family));
    Ok(is_valid.then(|| Handover { is_acceptor: word(1) != 0, process: word(2), tcp, local }))
}
