//! Hello and its answer. Both travel in the private data of the connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::codec::{Flags, HEADER_BYTES, Header, MessageKind};
use crate::error::SdpError;
use crate::limits::{MESSAGE_BYTES_MIN, PRIVATE_DATA_MAX};

/// Protocol version: major 2, minor 2.
pub const PROTOCOL_VERSION: u8 = 0x22;
/// Bytes of a hello. The last twelve are reserved.
pub const HELLO_BYTES: usize = 76;
/// Bytes of an answer.
pub const HELLO_ACK_BYTES: usize = 24;

/// Bytes of a hello that have a meaning.
const HELLO_FIELDS: usize = 64;
/// Capability bit of this implementation: the sender of the hello can do without credits.
const CAP_ENHANCED: u8 = 0x4;
const IPV4: u8 = 0x40;
const IPV6: u8 = 0x60;

/// Connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Receive buffers that the sender has posted: the first credits of the peer.
    pub bufs: u16,
    /// True if the sender offers the enhanced plan.
    pub enhanced: bool,
    /// Advertisements that may be outstanding.
    pub max_adverts: u8,
    /// Receive buffer that the sender would like the peer to have.
    pub desired_bytes: u32,
    /// Receive buffer of the sender, header included.
    pub receive_bytes: u32,
    /// Port of the sender.
    pub port: u16,
    /// Address of the sender.
    pub source: IpAddr,
    /// Address of the receiver.
    pub destination: IpAddr,
}

/// Answer to a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// Receive buffers that the sender has posted.
    pub bufs: u16,
    /// True if both sides use the enhanced plan.
    pub enhanced: bool,
    /// Receive buffer of the sender, header included.
    pub receive_bytes: u32,
}

impl Hello {
    /// Encodes the hello.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        let header = opening(MessageKind::Hello, self.bufs, HELLO_BYTES);
        out[..HEADER_BYTES].copy_from_slice(&header.encode());
        out[16] = PROTOCOL_VERSION;
        let version = if self.source.is_ipv4() { IPV4 } else { IPV6 };
        out[17] = version | if self.enhanced { CAP_ENHANCED } else { 0 };
        out[19] = self.max_adverts;
        out[20..24].copy_from_slice(&self.desired_bytes.to_be_bytes());
        out[24..28].copy_from_slice(&self.receive_bytes.to_be_bytes());
        out[28..30].copy_from_slice(&self.port.to_be_bytes());
        out[32..48].copy_from_slice(&address_bytes(self.source));
        out[48..64].copy_from_slice(&address_bytes(self.destination));
        out
    }

    /// Decodes the private data of a connection request.
    ///
    /// # Errors
    /// A field is missing or has a value that the protocol does not permit.
    pub fn decode(bytes: &[u8]) -> Result<Hello, SdpError> {
        let (header, fields) = open::<HELLO_FIELDS>(bytes, MessageKind::Hello)?;
        let max_adverts = fields[19];
        if max_adverts == 0 {
            return Err(SdpError::HelloField("max_adverts", 0));
        }
        let is_ipv4 = match fields[17] & 0xf0 {
            IPV4 => true,
            IPV6 => false,
            other => return Err(SdpError::HelloField("IP version", u32::from(other >> 4))),
        };
        Ok(Hello {
            bufs: header.bufs,
            enhanced: fields[17] & CAP_ENHANCED != 0,
            max_adverts,
            desired_bytes: word(fields, 20),
            receive_bytes: receive_bytes(word(fields, 24))?,
            port: u16::from_be_bytes([fields[28], fields[29]]),
            source: address(fields, 32, is_ipv4),
            destination: address(fields, 48, is_ipv4),
        })
    }
}

impl HelloAck {
    /// Encodes the answer.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_ACK_BYTES] {
        let mut out = [0; HELLO_ACK_BYTES];
        let header = opening(MessageKind::HelloAck, self.bufs, HELLO_ACK_BYTES);
        out[..HEADER_BYTES].copy_from_slice(&header.encode());
        out[16] = PROTOCOL_VERSION;
        out[17] = IPV4 | if self.enhanced { CAP_ENHANCED } else { 0 };
        out[19] = 1;
        out[20..24].copy_from_slice(&self.receive_bytes.to_be_bytes());
        out
    }

    /// Decodes the private data of an answer.
    ///
    /// # Errors
    /// A field is missing or has a value that the protocol does not permit.
    pub fn decode(bytes: &[u8]) -> Result<HelloAck, SdpError> {
        let (header, fields) = open::<HELLO_ACK_BYTES>(bytes, MessageKind::HelloAck)?;
        Ok(HelloAck {
            bufs: header.bufs,
            enhanced: fields[17] & CAP_ENHANCED != 0,
            receive_bytes: receive_bytes(word(fields, 20))?,
        })
    }
}

/// Returns the header of a hello or an answer.
fn opening(kind: MessageKind, bufs: u16, bytes: usize) -> Header {
    Header { kind, flags: Flags::default(), bufs, len: bytes as u32, mseq: 0, mseq_ack: 0 }
}

/// Checks the header and the version, and returns the fields.
fn open<const N: usize>(bytes: &[u8], kind: MessageKind) -> Result<(Header, &[u8; N]), SdpError> {
    let (Some(head), Some(fields)) = (bytes.first_chunk::<HEADER_BYTES>(), bytes.first_chunk::<N>()) else {
        return Err(SdpError::HelloLength(bytes.len()));
    };
    let header = Header::decode(head)?;
    if header.kind != kind {
        return Err(SdpError::UnexpectedMessage(header.kind.mid()));
    }
    let len = header.len as usize;
    if len < N || len > bytes.len() || bytes.len() > PRIVATE_DATA_MAX {
        return Err(SdpError::HelloLength(len));
    }
    if fields[HEADER_BYTES] != PROTOCOL_VERSION {
        return Err(SdpError::Version(fields[HEADER_BYTES]));
    }
    Ok((header, fields))
}

fn receive_bytes(bytes: u32) -> Result<u32, SdpError> {
    if bytes < MESSAGE_BYTES_MIN { Err(SdpError::HelloField("receive buffer", bytes)) } else { Ok(bytes) }
}

fn word(fields: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]])
}

/// Returns 16 bytes; an IPv4 address is in the last four.
fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut out = [0; 16];
            out[12..].copy_from_slice(&address.octets());
            out
        }
        IpAddr::V6(address) => address.octets(),
    }
}

fn address(fields: &[u8; HELLO_FIELDS], at: usize, is_ipv4: bool) -> IpAddr {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&fields[at..at + 16]);
    let [.., a, b, c, d] = bytes;
    if is_ipv4 { Ipv4Addr::new(a, b, c, d).into() } else { Ipv6Addr::from(bytes).into() }
}
