//! Start frames of MPA, revision 1: each side says what it wants of the frames that it receives, and carries the hello.

use std::io;

use super::config::WireConfig;
use crate::limits::PRIVATE_DATA_MAX;

/// Bytes before the private data: key, flags, revision, length.
const FIXED_BYTES: usize = 20;
const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";
const MARKERS: u8 = 0x80;
const CHECKSUMS: u8 = 0x40;
const REJECT: u8 = 0x20;
const REVISION: u8 = 1;

/// A start frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StartFrame {
    /// True in the answer of the accepting side.
    pub(super) is_reply: bool,
    /// True if the sender wants markers in what it receives.
    pub(super) markers: bool,
    /// True if the sender wants checksums.
    pub(super) checksums: bool,
    /// Hello or its answer.
    pub(super) private: Vec<u8>,
}

impl StartFrame {
    /// Makes the frame of a side with these settings.
    pub(super) fn of(config: &WireConfig, is_reply: bool, private: Vec<u8>) -> Self {
        Self { is_reply, markers: config.markers, checksums: config.checksums, private }
    }

    /// Encodes the frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = if self.is_reply { REPLY_KEY.to_vec() } else { REQUEST_KEY.to_vec() };
        let flags = (u8::from(self.markers) * MARKERS) | (u8::from(self.checksums) * CHECKSUMS);
        bytes.extend_from_slice(&[flags, REVISION]);
        bytes.extend_from_slice(&(self.private.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&self.private);
        bytes
    }

    /// Returns the bytes that the frame has as far as its beginning shows: those before the private data, then all.
    pub(super) fn bytes(beginning: &[u8], is_reply: bool) -> io::Result<usize> {
        let key = if is_reply { REPLY_KEY } else { REQUEST_KEY };
        let known = beginning.len().min(key.len());
        if beginning[..known] != key[..known] {
            return Err(wrong("its first bytes are not those of MPA"));
        }
        let Some([flags, revision, high, low]) =
            beginning.get(key.len()..FIXED_BYTES).and_then(|fields| fields.first_chunk())
        else {
            return Ok(FIXED_BYTES);
        };
        if *revision != REVISION {
            return Err(wrong(&format!("revision {revision} instead of {REVISION}")));
        }
        if flags & REJECT != 0 {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the peer rejected the stream"));
        }
        let bytes = usize::from(u16::from_be_bytes([*high, *low]));
        if bytes > PRIVATE_DATA_MAX {
            return Err(wrong(&format!("{bytes} bytes of private data; at most {PRIVATE_DATA_MAX}")));
        }
        Ok(FIXED_BYTES + bytes)
    }

    /// Decodes a whole frame.
    pub(super) fn decode(frame: &[u8], is_reply: bool) -> io::Result<Self> {
        let bytes = Self::bytes(frame, is_reply)?;
        let (Some(flags), Some(private)) = (frame.get(REPLY_KEY.len()), frame.get(FIXED_BYTES..bytes)) else {
            return Err(wrong("its start frame is cut off"));
        };
        let [markers, checksums] = [MARKERS, CHECKSUMS].map(|flag| flags & flag != 0);
        Ok(Self { is_reply, markers, checksums, private: private.to_vec() })
    }
}

/// Returns true if the first bytes of a connection are a request, and false if they are none. `None`: there are too few.
pub fn is_request(beginning: &[u8]) -> Option<bool> {
    let known = beginning.len().min(REQUEST_KEY.len());
    let is_alike = beginning[..known] == REQUEST_KEY[..known];
    (!is_alike || known == REQUEST_KEY.len()).then_some(is_alike)
}

fn wrong(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the peer does not speak iWARP: {reason}"))
}
