//! Introduction of the two ends: the connector listens on a name that both ends of the TCP connection know, the acceptor calls.
//!
//! The name lives in the abstract socket namespace, which belongs to the same network namespace as the TCP ports. A refused call means
//! that no library is there, and the connection stays plain TCP for good. Nothing is sent to another user, unless the
//! administrator allowed it at both ends.

use std::fmt::Write as _;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::owner;

const DESCRIPTORS: usize = 1;
const ACCEPTOR: u32 = 0;
const CONNECTOR: u32 = 1;
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
/// Bytes of an offer: both addresses and ports.
const OFFER_BYTES: usize = 36;

/// Both ends of a TCP connection, as both of them see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    pub(crate) connector: SocketAddr,
    pub(crate) acceptor: SocketAddr,
}

/// Returns an address in the form that both ends see: no scope, an embedded IPv4 address as such, a wildcard as loopback.
pub(crate) fn normal(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl Ends {
    fn encode(&self) -> [u8; OFFER_BYTES] {
        let mut bytes = [0; OFFER_BYTES];
        for (part, end) in bytes.chunks_exact_mut(OFFER_BYTES / 2).zip([self.connector, self.acceptor]) {
            let ip = match end.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            part[..16].copy_from_slice(&ip.octets());
            part[16..].copy_from_slice(&end.port().to_be_bytes());
        }
        bytes
    }
}

/// A name without allocation.
struct Name {
    bytes: [u8; 96],
    length: usize,
}

impl std::fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let part = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(std::fmt::Error)?;
        part.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

fn address(connector_port: u16, acceptor: SocketAddr) -> Result<SocketAddrUnix, Errno> {
    let mut name = Name { bytes: [0; 96], length: 0 };
    write!(name, "ddss-stream/3/{connector_port}/{acceptor}").map_err(|_| Errno::NAMETOOLONG)?;
    SocketAddrUnix::new_abstract_name(&name.bytes[..name.length])
}

/// Other users with whom an end may share memory: those of accepting ends, then those of connecting ends.
static USERS: OnceLock<[Vec<u32>; 2]> = OnceLock::new();

/// Allows peers of other users, once in a process. Each end has to allow the user of the other one.
pub fn allow_users(of_acceptors: Vec<u32>, of_connectors: Vec<u32>) {
    let _ = USERS.set([of_acceptors, of_connectors]);
}

/// Returns true if the peer's user is that of this process, or is allowed and owns the peer's end of the connection. The kernel names the
/// user and the owner: an allowed user who takes the name of a connection of others gets nothing.
fn is_allowed(socket: impl AsFd, end: u32, ends: &Ends) -> bool {
    let Ok(peer) = sockopt::socket_peercred(socket) else { return false };
    let user = peer.uid.as_raw();
    let (own, others) = if end == ACCEPTOR { (ends.acceptor, ends.connector) } else { (ends.connector, ends.acceptor) };
    let is_allowed = || USERS.get().is_some_and(|users| users[end as usize].contains(&user));
    peer.uid == rustix::process::geteuid() || is_allowed() && owner::is_owner(user, others, own)
}

/// Listens for the acceptor's call. The connector does this before it connects.
pub(crate) fn listen(connector_port: u16, acceptor: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    rustix::net::bind(&socket, &address(connector_port, acceptor)?)?;
    rustix::net::listen(&socket, 1)?;
    Ok(socket)
}

/// Calls the connector. `None`: no library of this user, or of an allowed one, is there.
pub(crate) fn call(ends: &Ends) -> Option<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None).ok()?;
    rustix::net::connect(&socket, &address(ends.connector.port(), ends.acceptor).ok()?).ok()?;
    is_allowed(&socket, ACCEPTOR, ends).then_some(socket)
}

/// Takes the acceptor's call, if it came.
pub(crate) fn take_call(listener: impl AsFd, ends: &Ends) -> Option<OwnedFd> {
    let socket = rustix::net::accept_with(listener, FLAGS).ok()?;
    is_allowed(&socket, CONNECTOR, ends).then_some(socket)
}

/// Sends the common memory.
pub(crate) fn offer(control: impl AsFd, ends: &Ends, memory: impl AsFd) -> Result<(), Errno> {
    let borrowed = [memory.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    if !attached.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(Errno::NOBUFS);
    }
    let bytes = ends.encode();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match rustix::net::sendmsg(control, &[IoSlice::new(&bytes)], &mut attached, flags)? {
        OFFER_BYTES => Ok(()),
        _ => Err(Errno::NOBUFS),
    }
}

/// State of the offer, for the connector.
#[derive(Debug)]
pub(crate) enum Offer {
    NotYet,
    /// The acceptor closed the call, or said something else.
    Never,
    /// The common memory.
    Here(OwnedFd),
}

/// Looks for an offer that names exactly these ends.
pub(crate) fn take_offer(control: impl AsFd, ends: &Ends) -> Offer {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; OFFER_BYTES];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    match rustix::net::recvmsg(control, &mut [IoSliceMut::new(&mut bytes)], &mut attached, flags) {
        Err(Errno::AGAIN | Errno::INTR) => return Offer::NotYet,
        Ok(message) if message.bytes == OFFER_BYTES && bytes == ends.encode() => (),
        _ => return Offer::Never,
    }
    let sent = attached.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    sent.flatten().next().map_or(Offer::Never, Offer::Here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> Ends {
        Ends { connector: "127.0.0.1:1".parse().unwrap(), acceptor: "127.0.0.1:2".parse().unwrap() }
    }

    #[test]
    fn both_ends_see_the_same_address() {
        for (seen, expected) in
            [("[::ffff:127.0.0.1]:5", "127.0.0.1:5"), ("0.0.0.0:5", "127.0.0.1:5"), ("[::]:5", "[::1]:5")]
        {
            assert_eq!(normal(seen.parse().unwrap()), expected.parse().unwrap());
        }
    }

    #[test]
    fn offer_for_other_ends_is_refused() {
        // If this broke, an end could use the memory of another connection.
        let port = std::process::id() as u16;
        let ends = Ends { acceptor: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), ..ends() };
        let listener = listen(1, ends.acceptor).unwrap();
        let caller = call(&ends).unwrap();
        let answerer = take_call(&listener, &ends).unwrap();
        assert!(matches!(take_offer(&answerer, &ends), Offer::NotYet));
        let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        offer(&caller, &ends, &memory).unwrap();
        assert!(matches!(take_offer(&answerer, &ends), Offer::Here(_)));
        offer(&caller, &Ends { connector: "127.0.0.2:1".parse().unwrap(), ..ends }, &memory).unwrap();
        assert!(matches!(take_offer(&answerer, &ends), Offer::Never));
        drop(caller);
        assert!(matches!(take_offer(&answerer, &ends), Offer::Never));
    }

    #[test]
    fn call_without_listener_is_refused() {
        let acceptor = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), std::process::id() as u16);
        assert!(call(&Ends { connector: "127.0.0.1:3".parse().unwrap(), acceptor }).is_none());
    }
}
