//! A radix sort, as in Splash-2: each rank counts the digits of its keys, all ranks add up the counts, and each moves its keys to
//! their places.
//!
//! Ranks write into each other's pages wherever digits of two ranks meet: the program is known for false sharing.

use super::job::{Job, Size};
use super::part::own_part;
use crate::Error;
use ddss_dsm::{Homes, Space};
use ddss_testkit::Random;

/// Bits of a digit.
const DIGIT_BITS: u32 = 10;
const DIGITS: usize = 1 << DIGIT_BITS;
/// Bits of a key.
const KEY_BITS: u32 = 19;
const PASSES: u32 = KEY_BITS.div_ceil(DIGIT_BITS);

type Digits = [u32; DIGITS];

/// Sorts keys. Rank 0 returns their number, and a checksum of the result.
pub(super) fn run(space: &mut Space, job: Job) -> Result<Option<String>, Error> {
    let keys = match job.size {
        Size::Paper => 2_621_440,
        Size::Small => 1 << 16,
    };
    let arrays = [
        space.region::<u32>("keys", keys, Homes::FirstTouch)?,
        space.region::<u32>("moved keys", keys, Homes::FirstTouch)?,
    ];
    let counts = space.region::<Digits>("counts of digits", space.ranks().into(), Homes::FirstTouch)?;
    let own = own_part(space, keys);
    let made: Vec<u32> = own.clone().map(key_at).collect();
    job.elements.store(space, arrays[0], own.start, &made)?;
    space.barrier()?;
    for pass in 0..PASSES {
        let [from, to] = if pass % 2 == 0 { arrays } else { [arrays[1], arrays[0]] };
        let (grouped, found) = group(&job.elements.load(space, from, own.clone())?, pass);
        counts.put(space, space.rank().into(), found)?;
        space.barrier()?;
        let all = job.elements.load(space, counts, ..)?;
        let mut rest = &grouped[..];
        for (place, count) in places(&all, space.rank().into()).into_iter().zip(found) {
            let (keys, others) = rest.split_at(count as usize);
            if !keys.is_empty() {
                job.elements.store(space, to, place, keys)?;
            }
            rest = others;
        }
        drop(all);
        space.barrier()?;
    }
    if space.rank() > 0 {
        return Ok(None);
    }
    let sorted = arrays[PASSES as usize % 2].read(space, ..)?;
    let sum: u64 = sorted.iter().map(|key| u64::from(*key)).sum();
    if job.has_check {
        let mut expected: Vec<u32> = (0..keys).map(key_at).collect();
        expected.sort_unstable();
        if *expected != *sorted {
            return Err(Error::Wrong(format!("{keys} keys are not those that were made, in order")));
        }
    }
    let bytes = sorted.iter().fold(0, |checksum, key| crc32c::crc32c_append(checksum, &key.to_le_bytes()));
    Ok(Some(format!("{keys} keys are sorted; their sum is {sum}, their checksum {bytes:08x}")))
}

/// Returns the key that is first at a place.
fn key_at(at: usize) -> u32 {
    Random::new(at as u64).below(1 << KEY_BITS) as u32
}

fn digit(key: u32, pass: u32) -> usize {
    (key >> (pass * DIGIT_BITS)) as usize % DIGITS
}

/// Returns keys in the order of a digit, and how often each digit comes.
fn group(keys: &[u32], pass: u32) -> (Vec<u32>, Digits) {
    let mut counts = [0; DIGITS];
    for key in keys {
        counts[digit(*key, pass)] += 1;
    }
    let mut next = 0;
    let mut begins = counts.map(|count| {
        next += count;
        next - count
    });
    let mut grouped = vec![0; keys.len()];
    for key in keys {
        let begin = &mut begins[digit(*key, pass)];
        grouped[*begin as usize] = *key;
        *begin += 1;
    }
    (grouped, counts)
}

/// Returns the place of a rank's first key of each digit: behind all smaller digits, and the same digit of earlier ranks.
fn places(counts: &[Digits], rank: usize) -> Vec<usize> {
    let mut begin = 0;
    let place = |digit: usize| {
        let sum = |counts: &[Digits]| counts.iter().map(|counts| counts[digit] as usize).sum::<usize>();
        let place = begin + sum(&counts[..rank]);
        begin += sum(counts);
        place
    };
    (0..DIGITS).map(place).collect()
}
