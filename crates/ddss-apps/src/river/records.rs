//! Records of 100 bytes: a key of ten printable bytes, a blank, a payload, and the end of a line, so that other programs sort and join
//! them.

use super::job::Keys;
use ddss_testkit::Random;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub(super) const RECORD_BYTES: usize = 100;
pub(super) const KEY_BYTES: usize = 10;
/// Printable bytes without the blank.
const FIRST: u8 = b'!';
pub(super) const DIGITS: u64 = 94;

/// Returns the key of a record or of a row.
pub(super) fn key(record: &[u8]) -> &[u8] {
    &record[..KEY_BYTES]
}

/// Returns the payload of a record.
pub(super) fn payload(record: &[u8]) -> &[u8] {
    &record[KEY_BYTES + 1..RECORD_BYTES - 1]
}

/// Numbers of keys, by their distribution.
pub(super) struct KeyNumbers {
    random: Random,
    /// Sums of the frequencies of all keys up to each, for Zipf.
    sums: Vec<f64>,
    keys: u64,
}

impl KeyNumbers {
    pub(super) fn new(seed: u64, distribution: Keys, keys: u64) -> Self {
        let harmonic = |sum: &mut f64, rank: u64| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        };
        let sums = match distribution {
            Keys::Even => Vec::new(),
            Keys::Zipf => (1..=keys).scan(0.0, harmonic).collect(),
        };
        Self { random: Random::new(seed), sums, keys }
    }

    pub(super) fn next(&mut self) -> u64 {
        match self.sums.last() {
            None => self.random.below(self.keys),
            Some(all) => {
                let at = self.random.unit() * all;
                self.sums.partition_point(|sum| *sum < at) as u64
            }
        }
    }
}

/// Writes records with these numbers of keys. `serial` makes the payloads of two files different.
pub(super) fn write(path: &Path, serial: u64, numbers: impl Iterator<Item = u64>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for (number, at) in numbers.zip(serial..) {
        // The key is a hash of its number: keys that are frequent are neighbours of none.
        file.write_all(&text(Random::new(number).word(), KEY_BYTES))?;
        file.write_all(format!(" {at:020}").as_bytes())?;
        let mut random = Random::new(at);
        for _ in 0..7 {
            file.write_all(&text(random.word(), 9))?;
        }
        file.write_all(b"-----\n")?;
    }
    file.flush()
}

/// Returns a number as printable bytes.
fn text(mut number: u64, length: usize) -> Vec<u8> {
    let mut digit = || {
        let digit = number % DIGITS;
        number /= DIGITS;
        FIRST + digit as u8
    };
    (0..length).map(|_| digit()).collect()
}

/// Returns the part of all keys, cut into equal ranges, in which a key is.
pub(super) fn range_of(key: &[u8], ranges: u16) -> u16 {
    // Bytes outside of the alphabet belong to the first or the last range.
    let digit = |byte: u8| u64::from(byte.saturating_sub(FIRST)).min(DIGITS - 1);
    ((digit(key[0]) * DIGITS + digit(key[1])) * u64::from(ranges) / (DIGITS * DIGITS)) as u16
}

/// Returns the part of all keys, spread by a hash, in which a key is.
pub(super) fn hash_of(key: &[u8], parts: u16) -> u16 {
    (crc32c::crc32c(key) % u32::from(parts)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a range would hold smaller keys than the one before, and the runs would not be in order.
    #[test]
    fn ranges_follow_the_order_of_keys() {
        let mut keys: Vec<Vec<u8>> = (0..10_000).map(|number| text(Random::new(number).word(), KEY_BYTES)).collect();
        keys.sort_unstable();
        let ranges: Vec<u16> = keys.iter().map(|key| range_of(key, 12)).collect();
        assert!(ranges.is_sorted());
        assert_eq!((ranges[0], ranges[9_999]), (0, 11));
    }

    // If this failed, the key of Zipf would be an even one under another name.
    #[test]
    fn first_key_of_zipf_is_twice_as_frequent_as_the_second() {
        let mut numbers = KeyNumbers::new(1, Keys::Zipf, 1000);
        let drawn: Vec<u64> = (0..100_000).map(|_| numbers.next()).collect();
        let count = |key| drawn.iter().filter(|drawn| **drawn == key).count() as f64;
        assert!((1.9..2.1).contains(&(count(0) / count(1))), "{} {}", count(0), count(1));
        assert!(drawn.iter().all(|drawn| *drawn < 1000));
    }
}
