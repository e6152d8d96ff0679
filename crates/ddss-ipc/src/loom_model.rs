//! The ring and the parking as the model checker sees them: small, and every interleaving.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ddss-ipc --release --test loom
//! ```

use std::collections::VecDeque;

use ddss_core::Entry;
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::client::call_table::{CallStatus, CallTable, Notify};
use crate::shm::ring::{Consumer, Kind, Producer, Slot, Slots};
use crate::shm::slot_bitmap::SlotBitmap;
use crate::sync::{AtomicU64, Ordering, order};
use crate::sys::{Combiner, TryLockPool};
use crate::wait::park;
use crate::wait::park::SleepMode;

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

/// Three messages through a ring of two slots, and their completions back in the same slots, as in `shm/ring.rs`.
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
        let sleeps = park::announce(&control, SleepMode::Futex, &mut reaped);
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

/// Two threads want the one place there is; what the first one wrote is there for the second one.
pub fn a_place_is_one_threads_at_a_time() {
    run(|| {
        let claims = Arc::new(TryLockPool::new([0u64]));
        let work =
            |claims: &TryLockPool<u64>| claims.claim(0).map(|mut place| place.with(|count| *count += 1)).is_some();
        let other = {
            let claims = Arc::clone(&claims);
            thread::spawn(move || work(&claims))
        };
        let worked = u64::from(work(&claims)) + u64::from(other.join().unwrap());
        let counted = claims.claim(0).map(|mut place| place.with(|count| *count));
        assert_eq!(counted, Some(worked), "a place was not given back, or what was done in it is lost");
        assert!(worked > 0, "both found it taken");
    });
}

/// Two threads have something to be done at a desk; whoever is there does it, and what was written before is there.
pub fn whatever_is_left_is_done() {
    run(|| {
        let desk = Arc::new((Combiner::new([0u64; 2]), [AtomicU64::new(0), AtomicU64::new(0)]));
        let come = |desk: &(Combiner<[u64; 2]>, [AtomicU64; 2]), who: usize| {
            desk.1[who].store(1, Ordering::Relaxed);
            desk.0.leave(1 << who, |done, left| {
                for (index, done) in done.iter_mut().enumerate().filter(|(index, _)| left >> index & 1 == 1) {
                    *done += desk.1[index].load(Ordering::Relaxed);
                }
            });
        };
        let other = {
            let desk = Arc::clone(&desk);
            thread::spawn(move || come(&desk, 1))
        };
        come(&desk, 0);
        other.join().unwrap();
        desk.0.leave(0, |done, _| assert_eq!(*done, [1, 1], "something was not done, or done before it was there"));
    });
}

/// A call is answered while its owner goes to sleep, and gives it up: one of the two frees it, an answer that is found is
/// whole, and who is to be woken has said how.
pub fn a_call_ends_once() {
    run(|| {
        let calls = Arc::new((CallTable::new(1), AtomicU64::new(0)));
        let id = calls.0.begin().unwrap();
        calls.0.submit(id, &entry(1), true);
        let service = {
            let calls = Arc::clone(&calls);
            thread::spawn(move || {
                let ended = calls.0.end(id, &entry(2));
                match ended {
                    Notify::Late => calls.0.free(id),
                    Notify::Dozes => assert_eq!(calls.1.load(Ordering::Relaxed), 1, "nobody knows how to wake it"),
                    Notify::Told | Notify::Stale => {}
                }
                ended
            })
        };
        calls.1.store(1, Ordering::Relaxed);
        let dozes = calls.0.doze(id) == CallStatus::Waiting;
        let found = calls.0.abandon(id);
        if let CallStatus::Done(completion) = found {
            check(completion, 2);
            calls.0.free(id);
        }
        let ended = service.join().unwrap();
        assert_eq!(ended == Notify::Late, found == CallStatus::Waiting, "freed by both, or by nobody");
        assert!(ended != Notify::Dozes || dozes, "woken, who did not sleep");
        assert!(calls.0.begin().is_some_and(|next| next != id), "the place was not given back");
    });
}

/// Two threads want two slots each, of three; what each does there is seen by who comes next.
pub fn a_slot_is_in_one_run_at_a_time() {
    run(|| {
        let slots = Arc::new(SlotBitmap::new(0, 3));
        let uses: Arc<[AtomicU64; 3]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        // Not one step: who does not see what was done before counts it away.
        let work = |slots: &SlotBitmap, uses: &[AtomicU64; 3]| {
            let Some(first) = slots.take(2) else { return 0 };
            for slot in &uses[first as usize..first as usize + 2] {
                let seen = slot.load(Ordering::Relaxed);
                slot.store(seen + 1, Ordering::Relaxed);
            }
            slots.give(first, 2);
            2
        };
        let other = {
            let (slots, uses) = (Arc::clone(&slots), Arc::clone(&uses));
            thread::spawn(move || work(&slots, &uses))
        };
        let used = work(&slots, &uses) + other.join().unwrap();
        let counted: u64 = uses.iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
        assert_eq!(counted, used, "a slot was in two runs at a time");
        assert_eq!(slots.take(3), Some(0), "a slot was not given back");
    });
}

/// `Rmq`: requests by the ring, replies by a queue of which the lane's share is one message. A reply that is held back
/// when the client takes the one before it is asked for.
pub fn replies_by_queue_come_or_are_asked_for() {
    run(|| {
        let ring = Ring::new();
        // The kernel's queue has a lock of its own.
        let queue = Arc::new(Mutex::new(VecDeque::new()));
        let words = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let service = {
            let mut taken = Consumer::new(ring.clone(), Kind::Request, 0);
            let (queue, words) = (Arc::clone(&queue), Arc::clone(&words));
            thread::spawn(move || {
                let (mut held, mut sent) = (VecDeque::new(), 0);
                for value in 1..=2 {
                    let found = loop {
                        match taken.take() {
                            Some(found) => break found,
                            None => thread::yield_now(),
                        }
                    };
                    check(found, value);
                    held.push_back(entry(value + 100));
                    send_held(&mut held, &mut sent, &queue, &words);
                }
                held.len()
            })
        };
        let mut submitted = Producer::new(ring, Kind::Request, 0);
        submitted.publish(&entry(1));
        submitted.publish(&entry(2));
        let found = loop {
            match queue.lock().unwrap().pop_front() {
                Some(found) => break found,
                None => thread::yield_now(),
            }
        };
        check(found, 101);
        words.0.store(1, Ordering::Relaxed);
        order::after_take();
        let rings = words.1.load(Ordering::Relaxed) != 0;
        let held = service.join().unwrap();
        assert!(held == 0 || rings, "a reply is held back and nobody asks for it");
        assert_eq!(queue.lock().unwrap().len() + held, 1, "the second reply is in one place");
    });
}

/// What `ServiceLane::send_held` does with a share of one message.
fn send_held(
    held: &mut VecDeque<Entry>,
    sent: &mut u64,
    queue: &Mutex<VecDeque<Entry>>,
    (taken, held_word): &(AtomicU64, AtomicU64),
) {
    let mut told = false;
    while let Some(entry) = held.front() {
        if *sent - taken.load(Ordering::Relaxed) < 1 {
            queue.lock().unwrap().push_back(*entry);
            held.pop_front();
            *sent += 1;
        } else if told {
            return;
        } else {
            told = true;
            held_word.store(1, Ordering::Relaxed);
            order::before_hold();
        }
    }
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
