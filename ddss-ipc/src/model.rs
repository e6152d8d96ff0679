//! The ring and the parking as the model checker sees them: small, and every interleaving.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ddss-ipc --release --test loom
//! ```

use ddss_core::Entry;
use loom::sync::Arc;
use loom::thread;

use crate::park::{self, Sleep};
use crate::ring::{Consumer, Kind, Producer, Slot, Slots};
use crate::sync::{AtomicU64, Ordering, order};

/// Slots of a model's ring. Two, so that both "full" and "comes round" happen within three messages.
const SLOTS: usize = 2;

#[derive(Clone)]
struct Ring(Arc<[Slot; SLOTS]>);

impl Ring {
    fn new() -> Self {
        Self(Arc::new(std::array::from_fn(|_| Slot::empty())))
    }
}

impl Slots for Ring {
    fn slot(&self, position: u32) -> &Slot {
        &self.0[position as usize % SLOTS]
    }
}

/// An entry of which all words belong together.
fn entry(value: u64) -> Entry {
    std::array::from_fn(|index| if index == 0 { value << 32 } else { value * 10 + index as u64 })
}

fn check(found: Entry, value: u64) {
    let expected = entry(value);
    assert_eq!(found[0] >> 32, value, "another entry than the next one");
    assert_eq!(found[1..], expected[1..], "words of two entries in one");
}

fn run(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Three messages through a ring of two slots, and their completions back in the same slots, as in `ring.rs`.
pub fn entries_arrive_whole_and_in_order() {
    run(|| {
        let ring = Ring::new();
        let service = {
            let mut taken = Consumer::new(ring.clone(), Kind::Request, 0);
            let mut given = Producer::new(ring.clone(), Kind::Completion, 0);
            thread::spawn(move || {
                for value in 1..=3 {
                    let found = loop {
                        match taken.take() {
                            Some(found) => break found,
                            None => thread::yield_now(),
                        }
                    };
                    check(found, value);
                    given.publish(&entry(value + 100));
                }
            })
        };
        let mut submitted = Producer::new(ring.clone(), Kind::Request, 0);
        let mut reaped = Consumer::new(ring, Kind::Completion, 0);
        submitted.publish(&entry(1));
        submitted.publish(&entry(2));
        for value in 1..=3 {
            let found = loop {
                match reaped.take() {
                    Some(found) => break found,
                    None => thread::yield_now(),
                }
            };
            check(found, value + 100);
            if value == 1 {
                submitted.publish(&entry(3));
            }
        }
        service.join().unwrap();
    });
}

/// A client that says "I sleep" is either told that its completion is there, or the service sees that it sleeps.
pub fn a_sleeping_client_is_seen() {
    run(|| {
        let ring = Ring::new();
        let control = Arc::new(AtomicU64::new(0));
        let service = {
            let (mut given, control) = (Producer::new(ring.clone(), Kind::Completion, 0), Arc::clone(&control));
            thread::spawn(move || {
                given.publish(&entry(1));
                order::before_wake();
                park::sleeper(&control, given.published()).is_some()
            })
        };
        let mut reaped = Consumer::new(ring, Kind::Completion, 0);
        let sleeps = park::announce(&control, Sleep::Futex, &mut reaped);
        let woken = service.join().unwrap();
        assert!(!sleeps || woken, "the client sleeps and nobody wakes it");
    });
}

/// A service that says "I sleep" either sees the request in its last sweep, or the client sees that it sleeps.
pub fn a_resting_service_is_rung() {
    run(|| {
        let ring = Ring::new();
        let rest = Arc::new(AtomicU64::new(0));
        let client = {
            let (mut submitted, rest) = (Producer::new(ring.clone(), Kind::Request, 0), Arc::clone(&rest));
            thread::spawn(move || {
                submitted.publish(&entry(1));
                order::before_ring();
                rest.load(Ordering::Relaxed) != 0
            })
        };
        let taken = Consumer::new(ring, Kind::Request, 0);
        rest.store(1, Ordering::Relaxed);
        order::before_rest();
        let sleeps = !taken.is_ready();
        let rung = client.join().unwrap();
        assert!(!sleeps || rung, "the service sleeps and nobody rings");
    });
}

/// A client that has rung for this sleep does not ring again; what it submits then is seen by the sweep after it.
pub fn a_client_that_has_rung_is_swept() {
    run(|| {
        let ring = Ring::new();
        // The service sleeps, and the client has rung for that already.
        let rest = Arc::new(AtomicU64::new(1));
        let client = {
            let (mut submitted, rest) = (Producer::new(ring.clone(), Kind::Request, 0), Arc::clone(&rest));
            thread::spawn(move || {
                submitted.publish(&entry(1));
                order::before_ring();
                // Awake: it will sweep before it sleeps again. The same sleep: rung already.
                rest.load(Ordering::Relaxed) == 1
            })
        };
        let taken = Consumer::new(ring, Kind::Request, 0);
        rest.store(0, Ordering::Relaxed);
        order::after_rest();
        let swept = taken.is_ready();
        let relies_on_the_sweep = client.join().unwrap();
        assert!(!relies_on_the_sweep || swept, "the client counts on a sweep that has missed it");
    });
}

/// Two words of which each side writes one and then reads the other: at least one of them sees the other's.
fn one_sees_the_other(first: fn(), second: fn()) {
    run(move || {
        let words = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let other = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                words.1.store(1, Ordering::Relaxed);
                second();
                words.0.load(Ordering::Relaxed)
            })
        };
        words.0.store(1, Ordering::Relaxed);
        first();
        let seen = words.1.load(Ordering::Relaxed);
        assert!(seen + other.join().unwrap() > 0, "neither saw the other");
    });
}

/// A service that holds a reply back either sees what the client took, or the client sees that it holds something.
pub fn a_held_reply_is_asked_for() {
    one_sees_the_other(order::before_hold, order::after_take);
}

/// A watch that dozes either sees the deadline of a lane that blocks, or the lane sees that it dozes.
pub fn a_dozing_watch_is_kicked() {
    one_sees_the_other(order::before_doze, order::before_block);
}
