//! AES-256-GCM with a key that is expanded once for a connection. `snow`'s own cipher expands it for each message,
//! which takes longer than sealing a short one. `snow` provides everything else.

use aes_gcm::aead::AeadInPlace;
use aes_gcm::{Aes256Gcm, KeyInit, Nonce};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};

const TAG_BYTES: usize = 16;

/// Source of `snow`'s primitives.
pub(crate) struct Primitives;

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        DefaultResolver.resolve_rng()
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        match choice {
            CipherChoice::AESGCM => Some(Box::new(ExpandedKey(Aes256Gcm::new(&[0; 32].into())))),
            _ => None,
        }
    }
}

/// Expanded key; zeros until one is set, which is `snow`'s initial state.
struct ExpandedKey(Aes256Gcm);

/// Section 12.4 of the Noise specification: four zero bytes and the big-endian counter.
pub(crate) fn nonce(count: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&count.to_be_bytes());
    nonce
}

impl Cipher for ExpandedKey {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = Aes256Gcm::new(key.into());
    }

    fn encrypt(&self, count: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (sealed, rest) = out.split_at_mut(plaintext.len());
        sealed.copy_from_slice(plaintext);
        let nonce = nonce(count);
        let tag = self.0.encrypt_in_place_detached(Nonce::from_slice(&nonce), authtext, sealed);
        rest[..TAG_BYTES].copy_from_slice(&tag.expect("a message is shorter than 64 GiB"));
        plaintext.len() + TAG_BYTES
    }

    fn decrypt(&self, count: u64, authtext: &[u8], ciphertext: &[u8], out: &mut [u8]) -> Result<usize, snow::Error> {
        let length = ciphertext.len().checked_sub(TAG_BYTES).ok_or(snow::Error::Decrypt)?;
        let (sealed, tag) = ciphertext.split_at(length);
        let plain = out.get_mut(..length).ok_or(snow::Error::Decrypt)?;
        plain.copy_from_slice(sealed);
        let nonce = nonce(count);
        let opened = self.0.decrypt_in_place_detached(Nonce::from_slice(&nonce), authtext, plain, tag.into());
        if opened.is_err() {
            // Unauthenticated plaintext must not leave this function.
            plain.fill(0);
        }
        opened.map(|()| length).map_err(|_| snow::Error::Decrypt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, nodes of two releases could not talk to each other, or an altered message would open.
    #[test]
    fn cipher_matches_snow() {
        let both = || {
            let pair: [&dyn CryptoResolver; 2] = [&Primitives, &DefaultResolver];
            pair.map(|from| from.resolve_cipher(&CipherChoice::AESGCM).unwrap())
        };
        let [mut ours, mut theirs] = both();
        let text: Vec<u8> = (0..700_u32).map(|index| (index * 7 % 251) as u8).collect();
        for (round, length) in [0, 1, 15, 16, 17, 67, 480, 600].into_iter().enumerate() {
            let key = [round as u8 + 1; 32];
            ours.set(&key);
            theirs.set(&key);
            let (count, plain, named) = (u64::MAX / 3 + round as u64, &text[..length], &text[600..600 + length % 64]);
            let (mut sealed, mut expected) = ([0; 700], [0; 700]);
            assert_eq!(ours.encrypt(count, named, plain, &mut sealed), length + TAG_BYTES);
            assert_eq!(theirs.encrypt(count, named, plain, &mut expected), length + TAG_BYTES);
            assert_eq!(sealed, expected, "{length} bytes");
            let (mut message, mut opened) = (sealed[..length + TAG_BYTES].to_vec(), [0; 700]);
            assert_eq!(ours.decrypt(count, named, &message, &mut opened).unwrap(), length);
            assert_eq!(opened[..length], *plain);
            assert!(ours.decrypt(count + 1, named, &message, &mut opened).is_err(), "another place");
            message[length / 2] ^= 1;
            assert!(ours.decrypt(count, named, &message, &mut opened).is_err(), "altered");
            assert!(opened[..length].iter().all(|byte| *byte == 0), "nothing of it is seen");
        }
        assert!(ours.decrypt(0, &[], &[0; TAG_BYTES - 1], &mut [0; 700]).is_err(), "too short for a tag");
        assert!(ours.decrypt(0, &[], &[0; 64], &mut [0; 8]).is_err(), "no room");
    }
}
