//! Loom models of the ring, the parking protocol and the lock-free structures: small, with every interleaving.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ddss-ipc --target-dir target/loom --test loom
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

/// Slots of a model's ring. With two, "full" and "wraps around" both happen within three messages.
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

/// Returns an entry whose words all belong together.
fn entry(value: u64) -> Entry {
    std::array::from_fn(|index| if index == 0 { value << 32 } else { value * 10 + index as u64 })
}

fn check(found: Entry, value: u64) {
    let expected = entry(value);
    assert_eq!(found[0] >> 32, value, "not the next entry");
    assert_eq!(found[1..], expected[1..], "words of two entries are mixed");
}

fn run(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Sends three messages through a ring of two slots, and their completions back in the same slots, as in `shm/ring.rs`.
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

/// Checks the client's sleep: the client sees its completion, or the service sees the sleeper.
pub fn sleeping_client_is_woken() {
    run(|| {
        let ring = Ring::new();
        let control = Arc::new(AtomicU64::new(0));
        let service = {
            let (mut given, control) = (Producer::new(ring.clone(), Kind::Completion, 0), Arc::clone(&control));
            thread::spawn(move || {
                given.publish(&entry(1));
                order::before_wake();
                park::find_sleeper(&control, given.published()).is_some()
            })
        };
        let mut reaped = Consumer::new(ring, Kind::Completion, 0);
        let sleeps = park::announce_sleep(&control, SleepMode::Futex, &mut reaped);
        let woken = service.join().unwrap();
        assert!(!sleeps || woken, "the client sleeps and is not woken");
    });
}

/// Checks the service's sleep: the service sees the request in its last sweep, or the client sees the sleep.
pub fn sleeping_service_is_woken() {
    run(|| {
        let ring = Ring::new();
        let sleep_id = Arc::new(AtomicU64::new(0));
        let client = {
            let (mut submitted, sleep_id) = (Producer::new(ring.clone(), Kind::Request, 0), Arc::clone(&sleep_id));
            thread::spawn(move || {
                submitted.publish(&entry(1));
                order::before_doorbell();
                sleep_id.load(Ordering::Relaxed) != 0
            })
        };
        let taken = Consumer::new(ring, Kind::Request, 0);
        sleep_id.store(1, Ordering::Relaxed);
        order::before_service_sleep();
        let sleeps = !taken.is_ready();
        let rung_for = client.join().unwrap();
        assert!(!sleeps || rung_for, "the service sleeps and is not woken");
    });
}

/// Checks a request after the doorbell: a client does not ring twice for one sleep, so the next sweep must see the
/// request.
pub fn request_after_doorbell_is_polled() {
    run(|| {
        let ring = Ring::new();
        // The service sleeps, and the client has already rung for this sleep.
        let sleep_id = Arc::new(AtomicU64::new(1));
        let client = {
            let (mut submitted, sleep_id) = (Producer::new(ring.clone(), Kind::Request, 0), Arc::clone(&sleep_id));
            thread::spawn(move || {
                submitted.publish(&entry(1));
                order::before_doorbell();
                // Zero: the service is awake and will sweep before it sleeps again. One: the same sleep, already rung
                // for.
                sleep_id.load(Ordering::Relaxed) == 1
            })
        };
        let taken = Consumer::new(ring, Kind::Request, 0);
        sleep_id.store(0, Ordering::Relaxed);
        order::after_service_sleep();
        let swept = taken.is_ready();
        let relies_on_the_sweep = client.join().unwrap();
        assert!(!relies_on_the_sweep || swept, "the sweep has missed the request");
    });
}

/// Lets two threads compete for one pool slot: the second sees the writes of the first.
pub fn pool_slot_has_one_owner() {
    run(|| {
        let pool = Arc::new(TryLockPool::new([0u64]));
        let work =
            |pool: &TryLockPool<u64>| pool.try_acquire(0).map(|mut place| place.with(|count| *count += 1)).is_some();
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || work(&pool))
        };
        let worked = u64::from(work(&pool)) + u64::from(other.join().unwrap());
        let counted = pool.try_acquire(0).map(|mut place| place.with(|count| *count));
        assert_eq!(counted, Some(worked), "a slot was not released, or a write is lost");
        assert!(worked > 0, "both threads found the slot taken");
    });
}

/// Lets two threads submit requests to a combiner: the holder executes both and sees the writes before each.
pub fn combiner_executes_every_request() {
    run(|| {
        let combiner = Arc::new((Combiner::new([0u64; 2]), [AtomicU64::new(0), AtomicU64::new(0)]));
        let submit = |combiner: &(Combiner<[u64; 2]>, [AtomicU64; 2]), thread: usize| {
            combiner.1[thread].store(1, Ordering::Relaxed);
            combiner.0.submit(1 << thread, |done, requests| {
                for (index, done) in done.iter_mut().enumerate().filter(|(index, _)| requests >> index & 1 == 1) {
                    *done += combiner.1[index].load(Ordering::Relaxed);
                }
            });
        };
        let other = {
            let combiner = Arc::clone(&combiner);
            thread::spawn(move || submit(&combiner, 1))
        };
        submit(&combiner, 0);
        other.join().unwrap();
        combiner.0.submit(0, |done, _| assert_eq!(*done, [1, 1], "a request was lost, or executed too early"));
    });
}

/// Completes a call while its caller parks and abandons it. Exactly one of the two frees it, a completion is whole, and
/// a parked caller has stored how to wake it.
pub fn call_completes_once() {
    run(|| {
        let calls = Arc::new((CallTable::new(1), AtomicU64::new(0)));
        let id = calls.0.begin().unwrap();
        calls.0.submit(id, &entry(1), true);
        let service = {
            let calls = Arc::clone(&calls);
            thread::spawn(move || {
                let ended = calls.0.complete(id, &entry(2));
                match ended {
                    Notify::Abandoned => calls.0.free(id),
                    Notify::Parked => {
                        assert_eq!(calls.1.load(Ordering::Relaxed), 1, "the caller has not stored how to wake it")
                    }
                    Notify::Polling | Notify::Stale => {}
                }
                ended
            })
        };
        calls.1.store(1, Ordering::Relaxed);
        let dozes = calls.0.park(id) == CallStatus::Waiting;
        let found = calls.0.abandon(id);
        if let CallStatus::Done(completion) = found {
            check(completion, 2);
            calls.0.free(id);
        }
        let ended = service.join().unwrap();
        assert_eq!(ended == Notify::Abandoned, found == CallStatus::Waiting, "freed twice, or not at all");
        assert!(ended != Notify::Parked || dozes, "woken without a sleep");
        assert!(calls.0.begin().is_some_and(|next| next != id), "the slot was not freed");
    });
}

/// Lets two threads allocate two of three slots each: the next owner of a slot sees the writes of the previous one.
pub fn slot_belongs_to_one_run() {
    run(|| {
        let slots = Arc::new(SlotBitmap::new(0, 3));
        let uses: Arc<[AtomicU64; 3]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        // Not one step: a thread that misses an earlier write loses that count.
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
        assert_eq!(slots.take(3), Some(0), "a slot was not freed");
    });
}

/// Models `Rmq`: requests by ring, replies by a queue in which the channel's share is one message. The client requests
/// a reply that is deferred while it takes the previous one.
pub fn queued_replies_arrive_or_are_requested() {
    run(|| {
        let ring = Ring::new();
        // The kernel's queue has its own lock.
        let queue = Arc::new(Mutex::new(VecDeque::new()));
        let words = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let service = {
            let mut taken = Consumer::new(ring.clone(), Kind::Request, 0);
            let (queue, words) = (Arc::clone(&queue), Arc::clone(&words));
            thread::spawn(move || {
                let (mut deferred, mut sent) = (VecDeque::new(), 0);
                for value in 1..=2 {
                    let found = loop {
                        match taken.take() {
                            Some(found) => break found,
                            None => thread::yield_now(),
                        }
                    };
                    check(found, value);
                    deferred.push_back(entry(value + 100));
                    send_deferred(&mut deferred, &mut sent, &queue, &words);
                }
                deferred.len()
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
        order::after_receive();
        let rings = words.1.load(Ordering::Relaxed) != 0;
        let deferred = service.join().unwrap();
        assert!(deferred == 0 || rings, "a deferred reply is never requested");
        assert_eq!(queue.lock().unwrap().len() + deferred, 1, "the second reply is in one place");
    });
}

/// Models `ServerChannel::send_deferred` with a share of one message.
fn send_deferred(
    deferred: &mut VecDeque<Entry>,
    sent: &mut u64,
    queue: &Mutex<VecDeque<Entry>>,
    (taken, deferred_word): &(AtomicU64, AtomicU64),
) {
    let mut is_announced = false;
    while let Some(entry) = deferred.front() {
        if *sent - taken.load(Ordering::Relaxed) < 1 {
            queue.lock().unwrap().push_back(*entry);
            deferred.pop_front();
            *sent += 1;
        } else if is_announced {
            return;
        } else {
            is_announced = true;
            deferred_word.store(1, Ordering::Relaxed);
            order::before_deferred_check();
        }
    }
}

/// Checks two words of which each side writes one and then reads the other: at least one side sees the other's write.
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
        assert!(seen + other.join().unwrap() > 0, "neither side saw the other's write");
    });
}

/// Checks deferred replies: the service sees that the client received, or the client sees that replies are deferred.
pub fn deferred_reply_is_requested() {
    one_sees_the_other(order::before_deferred_check, order::after_receive);
}

/// Checks the timeout thread: it sees the deadline of a blocking channel, or the channel sees that it sleeps.
pub fn sleeping_timeout_thread_is_kicked() {
    one_sees_the_other(order::before_timeout_sleep, order::before_block);
}
