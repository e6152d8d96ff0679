//! Encoder of iWARP start frames and frames, with valid or invalid fields (drawn in `docs/protocol.md`).

use super::target::{PATIENCE, send};
use crate::byzantine_client::{AttackResult, context};
use std::io::Read;
use std::net::TcpStream;

/// Start frame's flags.
pub(super) const MARKERS: u8 = 0x80;
pub(super) const CRC: u8 = 0x40;
pub(super) const REJECT: u8 = 0x20;
pub(super) const ENHANCED: u8 = 0x10;
/// Both limits of reads, with "peer to peer" and "ready by an empty write".
pub(super) const LIMITS: [u8; 4] = [0x80, 64, 0x80, 64];

/// A start frame with arbitrary fields.
pub(super) fn start(key: &[u8; 16], flags: u8, revision: u8, length: u16, private: &[u8]) -> Vec<u8> {
    let mut out = key.to_vec();
    out.extend([flags, revision]);
    out.extend(length.to_be_bytes());
    out.extend_from_slice(private);
    out
}

/// Encodes the start frame of a connecting node.
pub(super) fn request(hello: &[u8]) -> Vec<u8> {
    let private = [&LIMITS, hello].concat();
    start(b"MPA ID Req Frame", CRC | ENHANCED, 2, private.len() as u16, &private)
}

/// One frame around a ULPDU.
pub(super) fn frame(ulpdu: &[u8]) -> Vec<u8> {
    let mut out = (ulpdu.len() as u16).to_be_bytes().to_vec();
    out.extend_from_slice(ulpdu);
    out.resize(out.len().next_multiple_of(4), 0);
    let crc = crc32c::crc32c(&out);
    out.extend(crc.to_le_bytes());
    out
}

/// An untagged segment that is a whole message.
pub(super) fn untagged(opcode: u8, queue: u32, number: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x41, 0x40 | opcode, 0, 0, 0, 0];
    [queue, number, 0].iter().for_each(|word| out.extend(word.to_be_bytes()));
    out.extend_from_slice(payload);
    out
}

/// A tagged segment that is a whole message.
pub(super) fn tagged(opcode: u8, key: u32, address: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0xc1, 0x40 | opcode];
    out.extend(key.to_be_bytes());
    out.extend(address.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// Encodes a read request.
pub(super) fn read(number: u32, key: u32, address: u64, bytes: u32) -> Vec<u8> {
    let mut body = 0x5151_u32.to_be_bytes().to_vec();
    body.extend(0_u64.to_be_bytes());
    body.extend(bytes.to_be_bytes());
    body.extend(key.to_be_bytes());
    body.extend(address.to_be_bytes());
    frame(&untagged(1, 1, number, &body))
}

/// Encodes an atomic request that adds two to the word at this address.
pub(super) fn fetch_add(number: u32, key: u32, address: u64) -> Vec<u8> {
    let mut body = [0_u32, 1, key].map(u32::to_be_bytes).concat();
    [address, 2, 0, 0, 0].iter().for_each(|word| body.extend(word.to_be_bytes()));
    frame(&untagged(10, 1, number, &body))
}

/// Encodes a write.
pub(super) fn write(key: u32, address: u64, bytes: &[u8]) -> Vec<u8> {
    frame(&tagged(0, key, address, bytes))
}

/// First message of the connecting side: an empty write.
pub(super) fn ready() -> Vec<u8> {
    write(0, 0, &[])
}

/// Receives the reply to a request: true if it accepts, and its private data without the limits.
pub(super) fn hear_reply(stream: &mut TcpStream) -> Result<(bool, Vec<u8>), String> {
    let mut head = [0; 20];
    stream.read_exact(&mut head).map_err(context("no reply"))?;
    if &head[..16] != b"MPA ID Rep Frame" {
        return Err("that is no reply".to_owned());
    }
    let mut private = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
    stream.read_exact(&mut private).map_err(context("half a reply"))?;
    let limits = if head[16] & ENHANCED != 0 { LIMITS.len().min(private.len()) } else { 0 };
    Ok((head[16] & REJECT == 0, private.split_off(limits)))
}

/// Receives the next ULPDU; `None` if the connection has ended.
pub(super) fn receive_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let length = usize::from(u16::from_be_bytes(length));
    let mut rest = vec![0; (2 + length).next_multiple_of(4) - 2 + 4];
    stream.read_exact(&mut rest).ok()?;
    rest.truncate(length);
    Some(rest)
}

/// Sends a request with these bytes and expects a refusal.
pub(super) fn is_refused(mut stream: TcpStream, bytes: &[u8]) -> AttackResult {
    send(&mut stream, bytes);
    let said = super::target::read_until_close(&mut stream)?;
    match said.get(16) {
        // The connection ends without a message, or with a reset behind the reply.
        None => Ok(()),
        Some(flags) if flags & REJECT != 0 => Ok(()),
        Some(_) => Err(format!("it was let in (within {PATIENCE:?})")),
    }
}
