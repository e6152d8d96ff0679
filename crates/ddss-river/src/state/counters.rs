//! Counts of a member, which it publishes in its row of the directory.

use super::occupancy::Occupancy;
use ddss_group::{NOTE_BYTES, Note};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// First bytes of the note, with the release of their format. New words stand behind the old ones: commands and programs of two
/// releases read each other.
const FORMAT: [u8; 4] = *b"QLD1";

/// Counts since this process joined.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    put: AtomicU64,
    put_bytes: AtomicU64,
    taken: AtomicU64,
    /// Messages that were taken and are acknowledged or given back.
    finished: AtomicU64,
    /// Calls that wait for room.
    pub(crate) blocked: Occupancy,
    /// Calls that wait for a message.
    pub(crate) idle: Occupancy,
    /// Messages in work.
    busy: Occupancy,
    send_slots: u32,
}

impl Counters {
    pub(crate) fn new(send_slots: u16) -> Self {
        Self { send_slots: send_slots.into(), ..Self::default() }
    }

    pub(crate) fn count_put(&self, bytes: usize) {
        self.put.fetch_add(1, Ordering::Relaxed);
        self.put_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.busy.begin();
    }

    pub(crate) fn count_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.busy.end();
    }

    /// Returns the load now. `before` is that of a time ago, for the rates.
    pub(crate) fn load(&self, held: usize, before: &MemberLoad, time: Duration) -> MemberLoad {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (put, taken) = (count(&self.put), count(&self.taken));
        let rate = |now: u64, then: u64| {
            let millis = u128::from(now.saturating_sub(then)) * 1_000_000_000 / time.as_micros().max(1);
            u32::try_from(millis).unwrap_or(u32::MAX)
        };
        MemberLoad {
            held: held as u32,
            send_slots: self.send_slots,
            busy_milli: self.busy.take_milli(time),
            blocked_milli: self.blocked.take_milli(time),
            idle_milli: self.idle.take_milli(time),
            put_rate_milli: rate(put, before.put),
            take_rate_milli: rate(taken, before.taken),
            put,
            put_bytes: count(&self.put_bytes),
            taken,
            finished: count(&self.finished),
        }
    }
}

/// Load of a member, as it publishes it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct MemberLoad {
    /// Messages in its send slots.
    pub(crate) held: u32,
    /// Messages that it puts in a thousand seconds.
    pub(crate) put_rate_milli: u32,
    pub(crate) take_rate_milli: u32,
    pub(crate) put: u64,
    pub(crate) put_bytes: u64,
    pub(crate) taken: u64,
    pub(crate) finished: u64,
    /// Messages in work, and calls that wait for room and for a message, on average since the load before, in thousandths.
    pub(crate) busy_milli: u32,
    pub(crate) blocked_milli: u32,
    pub(crate) idle_milli: u32,
    /// At least 1; 0 of a release that publishes none of the last four.
    pub(crate) send_slots: u32,
}

impl MemberLoad {
    pub(crate) fn encode(&self) -> Note {
        let mut note = [0; NOTE_BYTES];
        note[..4].copy_from_slice(&FORMAT);
        let words = [self.held, self.put_rate_milli, self.take_rate_milli];
        note[4..16].chunks_exact_mut(4).zip(words).for_each(|(part, word)| part.copy_from_slice(&word.to_le_bytes()));
        let longs = [self.put, self.put_bytes, self.taken, self.finished];
        let more = [self.busy_milli, self.blocked_milli, self.idle_milli, self.send_slots];
        note[48..64].chunks_exact_mut(4).zip(more).for_each(|(part, word)| part.copy_from_slice(&word.to_le_bytes()));
        note[16..48].chunks_exact_mut(8).zip(longs).for_each(|(part, long)| part.copy_from_slice(&long.to_le_bytes()));
        note
    }

    /// Decodes a note. A member that has published nothing yet has no load.
    pub(crate) fn decode(note: &Note) -> Self {
        if note[..4] != FORMAT {
            return Self::default();
        }
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| note[at + byte]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| note[at + byte]));
        Self {
            held: word(4),
            put_rate_milli: word(8),
            take_rate_milli: word(12),
            put: long(16),
            put_bytes: long(24),
            taken: long(32),
            finished: long(40),
            busy_milli: word(48),
            blocked_milli: word(52),
            idle_milli: word(56),
            send_slots: word(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_round_trips_and_has_rates_of_the_time_before() {
        // If this broke, `ddss river show` would name the wrong member as the slowest.
        let counters = Counters::default();
        (0..30).for_each(|_| counters.count_put(10));
        (0..5).for_each(|_| counters.count_taken());
        (0..3).for_each(|_| counters.count_finished());
        let before = MemberLoad { put: 10, taken: 4, ..MemberLoad::default() };
        let load = counters.load(3, &before, Duration::from_secs(2));
        assert_eq!((load.put_rate_milli, load.take_rate_milli, load.put_bytes), (10_000, 500, 300));
        assert_eq!(MemberLoad::decode(&load.encode()), load);
        assert_eq!(MemberLoad::decode(&[7; NOTE_BYTES]), MemberLoad::default());
    }

    #[test]
    fn load_of_the_release_before_is_read() {
        // If this broke, working queues would look idle while a cluster is upgraded.
        let mut note = [0; NOTE_BYTES];
        note[..4].copy_from_slice(b"QLD1");
        (note[4], note[8], note[16], note[24], note[32], note[40]) = (1, 2, 3, 4, 5, 6);
        let load = MemberLoad {
            held: 1,
            put_rate_milli: 2,
            put: 3,
            put_bytes: 4,
            taken: 5,
            finished: 6,
            ..MemberLoad::default()
        };
        assert_eq!(MemberLoad::decode(&note), load);
        // And the other way: that release compares the first four bytes.
        assert_eq!(load.encode()[..4], note[..4]);
    }
}
