//! Counts of the threads of each user that recently had requests.
//!
//! Clients use the counts when they share a core: threads of one user yield it to each other. Other users are counted
//! in other buckets, so that no user can make another's threads yield by filling its own channels. Threads count, not
//! channels: a thread with two clients shares its core with no other thread.
//!
//! There are two counts. *Active* threads had requests in the current or the last short period, so that occasional
//! callers do not count as oversubscription. *Recent* threads had requests in a period long enough for each of many to
//! have had a turn: this count decides how long a turn may be.

use crate::shm::service_page::{ActiveThreadCounts, USER_BUCKETS};

/// Sweeps of a short period. It covers some turns of clients that share a core. It is not longer, because on an
/// oversubscribed machine no client spins for long operations.
const PERIOD_SWEEPS: u32 = 1 << 13;
/// Short periods in a long period: some hundred milliseconds.
const RECENT_PERIODS: u32 = 64;

/// Bits of the hash by which the threads of a bucket are told apart. Collisions merge some of many threads, and many
/// stay many.
const HASH_BITS: usize = 1024;

/// Threads of a bucket that were seen in a period, one bit each.
type ThreadBits = [u64; HASH_BITS / u64::BITS as usize];

/// Counts of the threads with requests in the current period and in the one before.
#[derive(Debug)]
struct ThreadCount {
    now: [u32; USER_BUCKETS],
    before: [u32; USER_BUCKETS],
    seen: Box<[ThreadBits; USER_BUCKETS]>,
}

impl ThreadCount {
    fn new() -> Self {
        Self { now: [0; USER_BUCKETS], before: [0; USER_BUCKETS], seen: Box::new([[0; _]; USER_BUCKETS]) }
    }

    /// Begins another period. Returns a bit for each bucket whose count falls.
    fn next_period(&mut self) -> u64 {
        let mut changed = 0;
        for (bucket, (before, now)) in self.before.iter_mut().zip(&mut self.now).enumerate() {
            changed |= u64::from(*now < *before) << bucket;
            if *now > 0 {
                self.seen[bucket] = [0; _];
            }
            (*before, *now) = (*now, 0);
        }
        changed
    }

    /// Records a thread. Returns true if the bucket's count rises.
    fn record(&mut self, bucket: usize, bit_index: usize) -> bool {
        let (word, bit) =
            (&mut self.seen[bucket][bit_index / u64::BITS as usize], 1 << (bit_index % u64::BITS as usize));
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.now[bucket] += 1;
        self.now[bucket] > self.before[bucket]
    }

    fn of(&self, bucket: usize) -> u32 {
        self.now[bucket].max(self.before[bucket])
    }
}

/// Threads with requests, over short and long periods.
#[derive(Debug)]
pub(crate) struct ActiveThreads {
    period: u32,
    sweeps: u32,
    active: ThreadCount,
    recent: ThreadCount,
    /// A bit for each bucket whose counts are to be published.
    changed: u64,
}

const _: () = assert!(USER_BUCKETS <= u64::BITS as usize);

impl Default for ActiveThreads {
    fn default() -> Self {
        Self { period: 0, sweeps: 0, active: ThreadCount::new(), recent: ThreadCount::new(), changed: 0 }
    }
}

impl ActiveThreads {
    /// Begins another sweep. Returns its number in the period.
    #[inline(always)]
    pub(crate) fn next_sweep(&mut self) -> u32 {
        self.sweeps += 1;
        if self.sweeps == PERIOD_SWEEPS {
            self.next_period();
        }
        self.sweeps
    }

    #[cold]
    fn next_period(&mut self) {
        self.sweeps = 0;
        self.period = self.period.wrapping_add(1);
        self.changed |= self.active.next_period();
        if self.period.is_multiple_of(RECENT_PERIODS) {
            self.changed |= self.recent.next_period();
        }
    }

    /// Returns true for the first requests of a channel in this period; `channel_period` is the period of its last
    /// request.
    #[inline(always)]
    pub(crate) fn is_first(&mut self, channel_period: &mut u32) -> bool {
        std::mem::replace(channel_period, self.period) != self.period
    }

    /// Records that a thread had requests on one of its channels.
    pub(crate) fn count(&mut self, bucket: u8, [process, thread]: [u32; 2]) {
        let bucket = usize::from(bucket) % USER_BUCKETS;
        // Threads of a process have consecutive ids: the highest bits of this product tell them apart.
        let mixed = (u64::from(process) << 32 | u64::from(thread)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let bit_index = (mixed >> (u64::BITS - HASH_BITS.ilog2())) as usize;
        let more = self.active.record(bucket, bit_index) | self.recent.record(bucket, bit_index);
        self.changed |= u64::from(more) << bucket;
    }

    /// Returns true if counts are to be published.
    #[inline(always)]
    pub(crate) fn has_changed(&self) -> bool {
        self.changed != 0
    }

    /// Returns the buckets that have changed, with their counts.
    pub(crate) fn changes(&mut self) -> impl Iterator<Item = (u8, ActiveThreadCounts)> {
        let changed = std::mem::take(&mut self.changed);
        let buckets = (0..USER_BUCKETS).filter(move |bucket| changed >> bucket & 1 == 1);
        buckets.map(|bucket| {
            (bucket as u8, ActiveThreadCounts { active: self.active.of(bucket), recent: self.recent.of(bucket) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweeps(active: &mut ActiveThreads, many: u32) {
        for _ in 0..many {
            active.next_sweep();
        }
    }

    #[test]
    fn threads_count_in_their_bucket_for_two_periods() {
        // If this failed, threads of one user would make another user's yield, oversubscription would never end, or one
        // thread with two clients would count as two.
        let mut active = ActiveThreads::default();
        let mut channels = [u32::MAX; 4];
        let note = |active: &mut ActiveThreads, channel: &mut u32, bucket, caller| {
            if active.is_first(channel) {
                active.count(bucket, caller);
            }
        };
        for (channel, (bucket, thread)) in channels.iter_mut().zip([(5, 8), (5, 9), (63, 8), (5, 8)]) {
            note(&mut active, channel, bucket, [7, thread]);
            note(&mut active, channel, bucket, [7, thread]);
        }
        let counts = |active: &mut ActiveThreads| {
            active.changes().map(|(bucket, active_threads)| (bucket, active_threads.active)).collect::<Vec<_>>()
        };
        assert_eq!(counts(&mut active), [(5, 2), (63, 1)]);
        assert!(!active.has_changed());
        let period = |active: &mut ActiveThreads| sweeps(active, PERIOD_SWEEPS);
        period(&mut active);
        note(&mut active, &mut channels[0], 5, [7, 8]);
        note(&mut active, &mut channels[3], 5, [7, 8]);
        assert_eq!(counts(&mut active), [], "the counts of the last period still apply");
        period(&mut active);
        assert_eq!(counts(&mut active), [(5, 1), (63, 0)]);
        period(&mut active);
        assert_eq!(counts(&mut active), [(5, 0)]);
    }

    #[test]
    fn many_threads_are_counted_as_many() {
        // If this failed, each of many threads would take itself for one of few, and keep its core too long.
        let mut active = ActiveThreads::default();
        (0..512).for_each(|thread| active.count(0, [1000, 1001 + thread]));
        let [(0, counts)] = active.changes().collect::<Vec<_>>()[..] else { panic!("one bucket changes") };
        assert!((300..=512).contains(&counts.active) && counts.recent == counts.active, "{counts:?}");
        (0..16).for_each(|process| active.count(1, [3000 + process, 3000 + process]));
        let [(1, counts)] = active.changes().collect::<Vec<_>>()[..] else { panic!("one bucket changes") };
        assert!((14..=16).contains(&counts.active), "{counts:?}");
    }

    #[test]
    fn alternating_threads_count_as_recent_but_not_active() {
        // If this failed, a hundred clients that share a core would take themselves for ten, and each turn would be too
        // long.
        let mut active = ActiveThreads::default();
        let mut counts = ActiveThreadCounts::default();
        for thread in 0..RECENT_PERIODS {
            sweeps(&mut active, PERIOD_SWEEPS);
            active.count(3, [1000, 1001 + thread]);
            active.changes().for_each(|(bucket, active_threads)| {
                if bucket == 3 {
                    counts = active_threads
                }
            });
        }
        assert!(counts.active <= 2 && (50..=64).contains(&counts.recent), "{counts:?}");
        sweeps(&mut active, 3 * RECENT_PERIODS * PERIOD_SWEEPS);
        assert_eq!(active.changes().last(), Some((3, ActiveThreadCounts::default())));
    }
}
