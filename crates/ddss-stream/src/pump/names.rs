//! Names of a connection, kept by the kernel: the pump's end of the socket pair has them as its abstract address.
//!
//! A program that holds the other end learns them from the kernel alone, after `fork` and `exec` too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketAddrUnix};

const PREFIX: &[u8] = b"ddss-wire/1/";
/// Family, address, port, scope.
const NAME_BYTES: usize = 1 + 16 + 2 + 4;
/// Bytes that make two abstract addresses different.
const NONCE_BYTES: usize = 12;
const ADDRESS_BYTES: usize = PREFIX.len() + 2 * NAME_BYTES + NONCE_BYTES;

/// Addresses of a connection that a pump carries, as the kernel's TCP socket had them.
///
/// ```
/// use ddss_stream::pump::SocketNames;
///
/// let (socket, _) = std::os::unix::net::UnixStream::pair()?;
/// assert!(SocketNames::of(&socket).is_none(), "no pump has this socket");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SocketNames {
    /// Address of this program's end.
    pub own: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
}

impl SocketNames {
    /// Returns the names of a program's socket, if a pump carries its connection.
    #[must_use]
    pub fn of(socket: impl AsFd) -> Option<Self> {
        let name = SocketAddrUnix::try_from(rustix::net::getpeername(socket).ok()??).ok()?;
        Self::decode(name.abstract_name()?)
    }

    /// Returns the names of a TCP socket.
    pub(super) fn of_tcp(socket: impl AsFd) -> Result<Self, Errno> {
        let inet = |name: SocketAddrAny| SocketAddr::try_from(name).map_err(|_| Errno::AFNOSUPPORT);
        let own = inet(rustix::net::getsockname(&socket)?)?;
        let peer = inet(rustix::net::getpeername(&socket)?.ok_or(Errno::NOTCONN)?)?;
        Ok(Self { own, peer })
    }

    /// Gives the pump's end of a socket pair these names.
    pub(super) fn bind(&self, pumps: impl AsFd, nonce: [u8; NONCE_BYTES]) -> Result<(), Errno> {
        let mut bytes = [0; ADDRESS_BYTES];
        let (prefix, rest) = bytes.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX);
        for (part, name) in rest.chunks_mut(NAME_BYTES).zip([self.own, self.peer]) {
            part.copy_from_slice(&encode(name));
        }
        bytes[ADDRESS_BYTES - NONCE_BYTES..].copy_from_slice(&nonce);
        rustix::net::bind(pumps, &SocketAddrUnix::new_abstract_name(&bytes)?)
    }

    /// Reads an address that any process may have chosen.
    fn decode(name: &[u8]) -> Option<Self> {
        let rest = name.strip_prefix(PREFIX).filter(|rest| rest.len() == 2 * NAME_BYTES + NONCE_BYTES)?;
        let (own, rest) = rest.split_first_chunk::<NAME_BYTES>()?;
        let (peer, _) = rest.split_first_chunk::<NAME_BYTES>()?;
        Some(Self { own: decode(own)?, peer: decode(peer)? })
    }
}

fn encode(name: SocketAddr) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    let (family, ip, scope) = match name {
        SocketAddr::V4(name) => (4, name.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(name) => (6, *name.ip(), name.scope_id()),
    };
    bytes[0] = family;
    bytes[1..17].copy_from_slice(&ip.octets());
    bytes[17..19].copy_from_slice(&name.port().to_be_bytes());
    bytes[19..].copy_from_slice(&scope.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8; NAME_BYTES]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first()?;
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let (port, scope) = rest.split_first_chunk::<2>()?;
    let (ip, port) = (Ipv6Addr::from(*ip), u16::from_be_bytes(*port));
    match family {
        4 => Some(SocketAddr::new(IpAddr::V4(ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED)), port)),
        6 => Some(SocketAddrV6::new(ip, port, 0, u32::from_be_bytes(scope.try_into().ok()?)).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    // If this failed, a program would be told wrong addresses of its connection.
    #[test]
    fn names_come_back_from_the_kernel() {
        let names = [
            ("127.0.0.1:80", "10.1.2.3:65535"),
            ("[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.2]:2"),
            ("[fe80::1%3]:80", "[2001:db8::ffff:1]:9"),
        ];
        for (number, (own, peer)) in names.into_iter().enumerate() {
            let names = SocketNames { own: own.parse().unwrap(), peer: peer.parse().unwrap() };
            let (pumps, programs) = UnixStream::pair().unwrap();
            let mut nonce = [0; NONCE_BYTES];
            nonce[..4].copy_from_slice(&std::process::id().to_be_bytes());
            nonce[11] = number as u8;
            names.bind(&pumps, nonce).unwrap();
            assert_eq!(SocketNames::of(&programs), Some(names));
            assert_eq!(SocketNames::of(&pumps), None);
        }
    }

    // If this failed, an address that another process chose would end the program.
    #[test]
    fn addresses_of_strange_length_or_family_are_no_names() {
        for length in 0..ADDRESS_BYTES + 2 {
            let mut bytes = PREFIX.to_vec();
            bytes.resize(length.max(PREFIX.len()), 9);
            assert_eq!(SocketNames::decode(&bytes), None);
        }
    }
}
