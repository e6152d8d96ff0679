//! The owner of a key.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Returns the instance that gets messages with a key, of so many: the same in all members and releases.
///
/// # Panics
/// If there is no instance.
#[must_use]
pub fn owner_of(key: &[u8], instances: u16) -> u16 {
    let mut hasher = SipHasher13::new();
    hasher.write(key);
    (hasher.finish() % u64::from(instances)) as u16
}
