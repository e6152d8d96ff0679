//! Judges each message: lost, unexpected, doubled, out of order.

use ddss_river_core::{Guarantee, Header, Taken};
use std::collections::BTreeMap;

/// Returns the content of a message.
pub(crate) const fn content(producer: u16, index: u64) -> u64 {
    ((producer as u64) << 48 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Life of a message.
#[derive(Clone, Copy, Default, Debug)]
struct Record {
    taken: u32,
    taken_without_flag: u32,
    processed: u32,
    rejected: u32,
    has_failed: bool,
    is_dropped: bool,
}

impl Record {
    const fn is_settled(&self) -> bool {
        self.processed > 0 || self.has_failed || self.is_dropped
    }
}

/// Judges each message.
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    guarantee: Guarantee,
    records: BTreeMap<(u16, u64), Record>,
    /// The next index that a consumer may get from a producer without a flag.
    next: BTreeMap<(u16, u16), u64>,
    pub(crate) violations: Vec<String>,
    pub(crate) doubles: u64,
}

impl Checker {
    pub(crate) fn new(guarantee: Guarantee) -> Self {
        let (records, next, violations) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { guarantee, records, next, violations, doubles: 0 }
    }

    pub(crate) fn complain(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Notes a message that a program put.
    pub(crate) fn on_put(&mut self, producer: u16, index: u64) {
        if self.records.insert((producer, index), Record::default()).is_some() {
            self.complain(format!("doubled: message {index} of producer {producer} was put twice"));
        }
    }

    /// Judges a message that a program took.
    pub(crate) fn on_take(&mut self, consumer: u16, taken: &Taken, found: u64) {
        let Header { attempt, flags, .. } = taken.header;
        let (producer, index) = (taken.producer.0, attempt.index);
        let name = format!("message {index} of producer {producer} at consumer {consumer}");
        let Some(record) = self.records.get_mut(&(producer, index)) else {
            return self.complain(format!("unexpected: {name} was never put"));
        };
        let before = *record;
        record.taken += 1;
        record.taken_without_flag += u32::from(!flags.is_redelivered);
        let is_doubled_openly = record.taken_without_flag > 1;
        self.doubles += u64::from(before.taken > 0);
        if found != content(producer, index) {
            self.complain(format!("unexpected: {name} has other bytes"));
        }
        if is_doubled_openly {
            self.complain(format!("doubled: {name} was taken before, and has no flag"));
        }
        if before.taken > before.rejected && self.guarantee != Guarantee::AtLeastOnce {
            self.complain(format!("doubled: {name} was taken before, under {:?}", self.guarantee));
        }
        if !flags.is_redelivered && !flags.is_recalled {
            let next = self.next.entry((consumer, producer)).or_default();
            let is_late = index < *next;
            *next = index + 1;
            if is_late {
                self.complain(format!("out of order: {name} came behind a later one"));
            }
        }
    }

    /// Notes a message that a program has processed.
    pub(crate) fn on_processed(&mut self, producer: u16, index: u64) {
        if let Some(record) = self.records.get_mut(&(producer, index)) {
            record.processed += 1;
        }
    }

    /// Notes a message that a program rejected.
    pub(crate) fn on_rejected(&mut self, producer: u16, index: u64) {
        if let Some(record) = self.records.get_mut(&(producer, index)) {
            record.rejected += 1;
        }
    }

    /// Judges a message that its producer forgets.
    pub(crate) fn on_acknowledged(&mut self, producer: u16, index: u64) {
        if self.records.get(&(producer, index)).is_none_or(|record| record.processed == 0) {
            self.complain(format!("lost: message {index} of producer {producer} was acknowledged and not processed"));
        }
    }

    /// Judges a message that has failed. Its first consumer may not have begun it.
    pub(crate) fn on_failed(&mut self, producer: u16, index: u64) {
        let record = self.records.entry((producer, index)).or_default();
        record.has_failed = true;
        if record.taken < 2 {
            self.complain(format!("lost: message {index} of producer {producer} failed without three victims"));
        }
    }

    /// Judges a message that was dropped.
    pub(crate) fn on_dropped(&mut self, producer: u16, index: u64) {
        self.records.entry((producer, index)).or_default().is_dropped = true;
        if self.guarantee != Guarantee::AtMostOnce {
            self.complain(format!("lost: message {index} of producer {producer} was dropped"));
        }
    }

    /// Judges the end that a consumer, or the run, has reached: every message of these producers is settled.
    pub(crate) fn on_end(&mut self, name: &str, producers: impl Iterator<Item = u16>) {
        for producer in producers {
            let open = self.records.range((producer, 0)..(producer + 1, 0)).find(|(_, record)| !record.is_settled());
            if let Some((&(_, index), record)) = open {
                let what = format!("end: {name} ended before message {index} of producer {producer}: {record:?}");
                return self.complain(what);
            }
        }
    }
}
