//! Entries of 64 bytes one way through a bare ring: the most that a pipelined client can submit.
//!
//! One producer, one consumer, two indexes on lines of their own, each side with its own copy of the other's.
//! A batch is published by one store.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::harness::{Cores, Figure, RoundTrip, Service, Spinner, Turn};

/// Entries of the ring, as many as a ring of a client has.
const SLOTS: u64 = 64;
/// Words of one entry.
const ENTRY_WORDS: usize = 8;
/// Entries that the consumer takes before it frees their slots. With more, the producer waits too long; with fewer, the
/// cache line of the index moves too often.
const CONSUMED_MAX: u64 = 16;
/// Polls of the consumer in one turn.
const LOOKS_PER_TURN: u32 = 1024;

#[repr(align(64))]
#[derive(Default)]
struct Slot([AtomicU64; ENTRY_WORDS]);

/// An index on two lines of its own, because the processor fetches lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Index(AtomicU64);

struct Ring {
    slots: Vec<Slot>,
    /// Entries ever written; only the producer stores it.
    written: Index,
    /// Entries ever read; only the consumer stores it.
    read: Index,
}

struct Stream {
    ring: Arc<Ring>,
    batch: u64,
    written: u64,
    read_seen: u64,
    service: Service,
    yields: bool,
}

/// Entries through a ring, `batch` (at most 64) at a time.
pub fn ring_stream(cores: Cores, batch: usize) -> Figure {
    let slots = (0..SLOTS).map(|_| Slot::default()).collect();
    let ring = Arc::new(Ring { slots, written: Index::default(), read: Index::default() });
    let (consumed, yields) = (Arc::clone(&ring), cores.is_shared());
    let mut read = 0;
    let service = Service::start(cores, move || {
        for _ in 0..LOOKS_PER_TURN {
            read = consumed.consume(read);
        }
        if yields {
            std::thread::yield_now();
        }
        Turn::Again
    });
    let batch_entries = batch as u64;
    assert!((1..=SLOTS).contains(&batch_entries), "a batch of {batch} does not fit into {SLOTS} slots");
    let trip = Stream { ring, batch: batch_entries, written: 0, read_seen: 0, service, yields };
    Figure::new("raw", "stream", ENTRY_WORDS * 8, "shm/spin/t1", trip).outstanding(batch)
}

impl Ring {
    /// Copies the entries written since `read`; returns the new read index.
    fn consume(&self, read: u64) -> u64 {
        // pairs with the Release in `Stream::once`
        let written = self.written.0.load(Ordering::Acquire);
        if written == read {
            return read;
        }
        let written = written.min(read + CONSUMED_MAX);
        for index in read..written {
            let slot = &self.slots[(index % SLOTS) as usize];
            let entry: [u64; ENTRY_WORDS] = std::array::from_fn(|word| slot.0[word].load(Ordering::Relaxed));
            black_box(&entry);
        }
        // pairs with the Acquire in `Stream::once`: the slots are free after the copies
        self.read.0.store(written, Ordering::Release);
        written
    }
}

impl RoundTrip for Stream {
    fn once(&mut self) {
        let until = self.written + self.batch;
        let mut spinner = Spinner::new(self.yields);
        while until - self.read_seen > SLOTS {
            // pairs with the Release in `Ring::consume`
            self.read_seen = self.ring.read.0.load(Ordering::Acquire);
            if until - self.read_seen > SLOTS {
                spinner.again();
            }
        }
        for index in self.written..until {
            for word in &self.ring.slots[(index % SLOTS) as usize].0 {
                word.store(index, Ordering::Relaxed);
            }
        }
        self.written = until;
        // pairs with the Acquire in `Ring::consume`
        self.ring.written.0.store(until, Ordering::Release);
    }

    fn operations(&self) -> u64 {
        self.batch
    }

    fn wake(&mut self) {
        self.service.wake();
    }

    fn rest(&mut self) {
        self.service.rest();
    }
}
