//! Sealed frames: the bytes of a connection, sealed and opened in place, with keys of their own.
//!
//! ```text
//! keys of the handshake:   k1 initiator to responder,   k2 responder to initiator
//! key of the frames:       HMAC-BLAKE2s(k, "DDSS sealed frames")
//! nonce of a frame:        0 (4) | number of the frame in its direction, from 0 (8, big-endian)
//! each 2^22 frames:        key = AES-256-GCM(key, nonce 2^64 - 1, 32 zeros), without its tag
//! ```
//!
//! The number of a frame is not sent: a frame that is lost, repeated, moved, altered or of another connection does not open.

use crate::cipher::nonce;
use aes_gcm::aead::AeadInPlace;
use aes_gcm::{Aes256Gcm, KeyInit, Nonce};
use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use std::fmt;

/// A message or a frame does not open: it is not from the other end of this connection, or out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message does not open under the key of its connection")]
pub struct SealError;

/// Bytes of the tag of a frame.
pub const TAG_BYTES: usize = 16;
/// Tag of a frame.
pub type Tag = [u8; TAG_BYTES];

/// Frames under one key. With 64 KiB each, an attacker who has seen all of them has an advantage below 2^-60.
const FRAMES_PER_KEY: u64 = 1 << 22;
const LABEL: &[u8] = b"DDSS sealed frames";

/// Key of the frames in one direction.
struct FrameKey {
    cipher: Aes256Gcm,
    /// Number of the next frame.
    next: u64,
}

impl FrameKey {
    /// Derives the key of the frames from that of the channel in the same direction.
    fn derive(key: &[u8; 32]) -> Option<Self> {
        let mut derived = [0; 32];
        DefaultResolver.resolve_hash(&HashChoice::Blake2s)?.hmac(key, LABEL, &mut derived);
        Some(Self { cipher: Aes256Gcm::new(&derived.into()), next: 0 })
    }

    /// Returns the nonce of the next frame; no other frame has it under this key.
    fn next_nonce(&mut self) -> [u8; 12] {
        if self.next > 0 && self.next.is_multiple_of(FRAMES_PER_KEY) {
            let mut key = [0; 32];
            let sealed = self.cipher.encrypt_in_place_detached(Nonce::from_slice(&nonce(u64::MAX)), &[], &mut key);
            sealed.expect("32 bytes are shorter than 64 GiB");
            self.cipher = Aes256Gcm::new(&key.into());
        }
        let number = self.next;
        self.next = number.checked_add(1).expect("2^64 frames take centuries");
        nonce(number)
    }
}

/// Seals the frames that one end of a connection sends.
pub struct FrameSealer(FrameKey);

impl FrameSealer {
    /// Seals the next frame in place, and returns its tag. `clear` is proved by the tag and stays readable.
    pub fn seal(&mut self, clear: &[u8], body: &mut [u8]) -> Tag {
        let nonce = self.0.next_nonce();
        let tag = self.0.cipher.encrypt_in_place_detached(Nonce::from_slice(&nonce), clear, body);
        tag.expect("a frame is shorter than 64 GiB").into()
    }
}

/// Opens the frames that one end of a connection receives.
pub struct FrameOpener(FrameKey);

impl FrameOpener {
    /// Opens the next frame in place. Bytes that do not open stay sealed.
    ///
    /// # Errors
    /// The frame is not the next one of the other end. No later frame opens either.
    pub fn open(&mut self, clear: &[u8], body: &mut [u8], tag: &Tag) -> Result<(), SealError> {
        let nonce = self.0.next_nonce();
        let opened = self.0.cipher.decrypt_in_place_detached(Nonce::from_slice(&nonce), clear, body, tag.into());
        opened.map_err(|_| SealError)
    }
}

/// Keys of the channel, from which those of the frames are derived: of what this end sends, and of what it receives.
pub(crate) struct FrameSecrets {
    pub(crate) sending: [u8; 32],
    pub(crate) receiving: [u8; 32],
}

impl FrameSecrets {
    pub(crate) fn derive(&self) -> Option<(FrameSealer, FrameOpener)> {
        Some((FrameSealer(FrameKey::derive(&self.sending)?), FrameOpener(FrameKey::derive(&self.receiving)?)))
    }
}

impl fmt::Debug for FrameSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameSealer(..)")
    }
}

impl fmt::Debug for FrameOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameOpener(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: u8) -> (FrameSealer, FrameOpener) {
        let key = [key; 32];
        (FrameSealer(FrameKey::derive(&key).unwrap()), FrameOpener(FrameKey::derive(&key).unwrap()))
    }

    fn seal(sealer: &mut FrameSealer, text: &[u8]) -> (Vec<u8>, Tag) {
        let mut body = text.to_vec();
        let tag = sealer.seal(b"ab", &mut body);
        (body, tag)
    }

    #[test]
    fn frame_opens_once_in_its_place_and_unaltered() {
        // If this broke, an attacker on the path could alter, repeat, drop or move what nodes write to each other.
        let text: Vec<u8> = (0..2000_u32).map(|index| index as u8).collect();
        let frames = |from: &mut FrameSealer| [0, 1, 2].map(|length| seal(from, &text[..length * 999]));
        let (mut sealer, mut opener) = pair(1);
        for (length, (mut body, tag)) in frames(&mut sealer).into_iter().enumerate() {
            assert!(body.is_empty() || body != text[..length * 999], "sealed");
            opener.open(b"ab", &mut body, &tag).unwrap();
            assert_eq!(body, text[..length * 999]);
        }
        // Each case has the frames of a connection; its first frame does not open.
        type Change = fn(&mut [(Vec<u8>, Tag); 3]);
        let changes: [(&str, Change); 5] = [
            ("lost", |frames| frames[0] = frames[1].clone()),
            ("altered", |frames| frames[0].1[15] ^= 1),
            ("longer", |frames| frames[0].0.push(0)),
            ("of the other place", |frames| frames.swap(0, 2)),
            ("of another connection", |frames| frames[0] = seal(&mut pair(2).0, b"")),
        ];
        for (name, change) in changes {
            let (mut sealer, mut opener) = pair(1);
            let mut sent = frames(&mut sealer);
            change(&mut sent);
            let [(mut body, tag), ..] = sent;
            let before = body.clone();
            assert_eq!(opener.open(b"ab", &mut body, &tag), Err(SealError), "{name}");
            assert_eq!(body, before, "{name}: nothing of it is readable");
        }
        let (mut sealer, mut opener) = pair(1);
        let (body, tag) = seal(&mut sealer, &text);
        for bit in 0..body.len() * 8 {
            let (mut altered, mut again) = (body.clone(), pair(1).1);
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(again.open(b"ab", &mut altered, &tag), Err(SealError), "bit {bit}");
        }
        assert_eq!(opener.open(b"aB", &mut body.clone(), &tag), Err(SealError), "the clear part is proved too");
    }

    #[test]
    fn keys_change_on_both_sides_after_the_same_frame() {
        // If this broke, a busy connection would end after some minutes, or one key would seal too much.
        let (mut sealer, mut opener) = pair(3);
        (sealer.0.next, opener.0.next) = (FRAMES_PER_KEY - 1, FRAMES_PER_KEY - 1);
        let (_, mut old) = pair(3);
        for round in 0..3 {
            let (mut body, tag) = seal(&mut sealer, b"a frame");
            old.0.next = FRAMES_PER_KEY - 1 + round;
            let under_old_key = if round == 0 {
                old.open(b"ab", &mut body.clone(), &tag).is_ok()
            } else {
                let nonce = nonce(old.0.next);
                let (cipher, mut body) = (&old.0.cipher, body.clone());
                cipher.decrypt_in_place_detached(Nonce::from_slice(&nonce), b"ab", &mut body, &tag.into()).is_ok()
            };
            assert_eq!(under_old_key, round == 0, "frame {round}");
            opener.open(b"ab", &mut body, &tag).unwrap();
            assert_eq!(body, b"a frame");
        }
    }

    #[test]
    fn known_key_seals_known_bytes() {
        // If this broke, nodes of two builds of one protocol could not talk to each other.
        let (mut sealer, _) = pair(7);
        let (body, tag) = seal(&mut sealer, b"welcome");
        let hex: String = body.iter().chain(&tag).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "127a5cf9dde5a9cbfe0bdfaa2cd83549b29e23300555b0");
    }
}
