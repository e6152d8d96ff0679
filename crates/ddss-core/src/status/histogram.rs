//! Histogram of durations with eight buckets for each power of two, so that the error of a percentile is at most an
//! eighth.
//!
//! ```text
//!   nanoseconds   0  1 .. 15   16,17  18,19 ..  30,31   32..35  ..           2^32 and above
//!   bucket        0  1 .. 15     16     17  ..    23      24    ..                239
//! ```

/// Buckets for each power of two, as a power of two.
const SUB_BITS: u32 = 3;
/// Limit below which each nanosecond has its own bucket.
const EXACT: u64 = 1 << (SUB_BITS + 1);

/// Distribution of durations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    counts: Box<[u64; Histogram::BUCKETS]>,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; Self::BUCKETS]), sum_ns: 0 }
    }
}

impl Histogram {
    /// Number of buckets.
    pub const BUCKETS: usize = 240;

    /// Returns the bucket of a duration.
    ///
    /// ```
    /// use ddss_core::status::Histogram;
    /// let bucket = Histogram::bucket_of(1_000);
    /// assert!((Histogram::from_ns(bucket)..Histogram::from_ns(bucket + 1)).contains(&1_000));
    /// ```
    #[inline]
    pub const fn bucket_of(ns: u64) -> usize {
        if ns < EXACT {
            return ns as usize;
        }
        let power = ns.ilog2();
        let sub = (ns >> (power - SUB_BITS)) & ((1 << SUB_BITS) - 1);
        let bucket = (((power - SUB_BITS) << SUB_BITS) as u64 + (1 << SUB_BITS) + sub) as usize;
        if bucket < Self::BUCKETS { bucket } else { Self::BUCKETS - 1 }
    }

    /// Returns the shortest duration of a bucket.
    pub const fn from_ns(bucket: usize) -> u64 {
        if (bucket as u64) < EXACT {
            return bucket as u64;
        }
        let (octave, sub) = (bucket >> SUB_BITS, bucket & ((1 << SUB_BITS) - 1));
        ((1 << SUB_BITS) + sub as u64) << (octave - 1)
    }

    /// Makes a histogram from bucket counts and the sum.
    pub(super) fn new(counts: Box<[u64; Self::BUCKETS]>, sum_ns: u64) -> Self {
        Self { counts, sum_ns }
    }

    /// Records one duration.
    pub fn note(&mut self, ns: u64) {
        self.counts[Self::bucket_of(ns)] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(ns);
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, &count| sum.saturating_add(count))
    }

    /// Returns the sum of all durations in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the number of durations in each bucket.
    pub fn counts(&self) -> &[u64] {
        &self.counts[..]
    }

    /// Returns the mean; `None` if empty.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// Returns the duration at that quantile (0.5, 0.99): the upper end of its bucket. `None` if empty.
    pub fn percentile_ns(&self, part: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * part.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count);
        let mut seen: u64 = 0;
        let bucket = self.counts.iter().position(|&count| {
            seen = seen.saturating_add(count);
            seen >= rank
        });
        bucket.map(|bucket| Self::from_ns(bucket + 1) - 1)
    }

    /// Returns the difference to an older snapshot; all of this one if the counts restarted in between.
    #[must_use]
    pub fn since(&self, older: &Self) -> Self {
        if self.counts.iter().zip(older.counts.iter()).any(|(now, then)| now < then) {
            return self.clone();
        }
        let mut fresh = self.clone();
        fresh.counts.iter_mut().zip(older.counts.iter()).for_each(|(now, then)| *now -= then);
        fresh.sum_ns = self.sum_ns.wrapping_sub(older.sum_ns);
        fresh
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(ours, theirs)| *ours = ours.saturating_add(*theirs));
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_contains_its_duration() {
        // If this broke, a percentile would be reported that was never measured.
        for bucket in 1..Histogram::BUCKETS {
            let (from, before) = (Histogram::from_ns(bucket), Histogram::from_ns(bucket - 1));
            assert!(from > before, "bucket {bucket}");
            assert_eq!(Histogram::bucket_of(from), bucket);
            assert_eq!(Histogram::bucket_of(from - 1), bucket - 1);
            assert!(from < 16 || (from - before) * 8 <= from, "bucket {bucket} is wide: {before} to {from}");
        }
        assert_eq!(Histogram::bucket_of(u64::MAX), Histogram::BUCKETS - 1);
        assert!(Histogram::from_ns(Histogram::BUCKETS - 1) > 4_000_000_000, "calls of four seconds are told apart");
    }

    #[test]
    fn percentiles_match_recorded_durations() {
        // If this broke, an operator would be alerted for a slow call that never happened, or miss one that did.
        let mut histogram = Histogram::default();
        assert_eq!((histogram.percentile_ns(0.5), histogram.mean_ns()), (None, None));
        (1..=1000).for_each(|index| histogram.note(index * 100));
        for (part, exact) in [(0.0, 100), (0.5, 50_000), (0.99, 99_000), (1.0, 100_000)] {
            let told = histogram.percentile_ns(part).unwrap();
            assert!(told >= exact && told <= exact + exact / 8, "{part}: {told}");
        }
        assert_eq!(histogram.mean_ns(), Some(50_050));
        let older = histogram.clone();
        histogram.note(7);
        assert_eq!((histogram.since(&older).count(), histogram.since(&older).sum_ns()), (1, 7));
        assert_eq!(older.since(&histogram), older, "it began anew");
    }
}
