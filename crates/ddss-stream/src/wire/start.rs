//! Start frames of MPA, revision 1: each side says what it wants of the frames that it receives, and carries the hello.

use std::io::{self, Read};

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
    /// Encodes the frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = if self.is_reply { REPLY_KEY.to_vec() } else { REQUEST_KEY.to_vec() };
        let flags = (u8::from(self.markers) * MARKERS) | (u8::from(self.checksums) * CHECKSUMS);
        bytes.extend_from_slice(&[flags, REVISION]);
        bytes.extend_from_slice(&(self.private.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&self.private);
        bytes
    }

    /// Reads a frame. Reads no byte behind it.
    pub(super) fn read(from: &mut impl Read, is_reply: bool) -> io::Result<Self> {
        let wrong =
            |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the peer does not speak iWARP: {what}"));
        let mut fixed = [0; FIXED_BYTES];
        from.read_exact(&mut fixed)?;
        let (key, [flags, revision, high, low]) = fixed.split_last_chunk().ok_or_else(|| wrong("no start frame"))?;
        if key != if is_reply { REPLY_KEY } else { REQUEST_KEY } {
            return Err(wrong("its first bytes are not those of MPA"));
        }
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
        let mut private = vec![0; bytes];
        from.read_exact(&mut private)?;
        Ok(Self { is_reply, markers: flags & MARKERS != 0, checksums: flags & CHECKSUMS != 0, private })
    }
}
