//! Loom models of the cursors and of the sleep protocol: small, with every interleaving.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ddss-stream --target-dir target/loom --test loom
//! ```

use std::collections::VecDeque;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::cursors::{Cursors, is_of_ring};

/// Bytes of the model's ring: "full" and "wraps around" both happen within three bytes.
const CAPACITY: usize = 2;
const BYTES: u64 = 3;

/// A bell as an eventfd is one: it stays rung until a waiter silences it.
struct Bell {
    rung: Mutex<bool>,
    waiters: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self { rung: Mutex::new(false), waiters: Condvar::new() }
    }

    fn ring(&self) {
        if let Ok(mut rung) = self.rung.lock() {
            *rung = true;
            self.waiters.notify_all();
        }
    }

    fn silence(&self) {
        if let Ok(mut rung) = self.rung.lock() {
            *rung = false;
        }
    }

    fn sleep(&self) {
        let mut rung = self.rung.lock().ok();
        while rung.as_ref().is_some_and(|rung| !**rung) {
            rung = rung.and_then(|rung| self.waiters.wait(rung).ok());
        }
    }
}

struct Ring {
    cursors: Cursors,
    bytes: [UnsafeCell<u64>; CAPACITY],
    of_reader: Bell,
    of_writer: Bell,
}

impl Ring {
    fn new() -> Arc<Self> {
        let cursors = Cursors::new();
        cursors.begin(1, 0);
        Arc::new(Self {
            cursors,
            bytes: std::array::from_fn(|_| UnsafeCell::new(0)),
            of_reader: Bell::new(),
            of_writer: Bell::new(),
        })
    }

    fn space(&self, tail: u64) -> Option<u64> {
        let span = self.cursors.space(tail, CAPACITY);
        span.ok().filter(|span| span.bytes > 0).map(|span| span.position)
    }

    fn filled(&self, head: u64) -> Option<u64> {
        let span = self.cursors.filled(head, 1, CAPACITY);
        span.ok().filter(|span| span.bytes > 0).map(|span| span.position)
    }

    /// Writes the value at the writer's own cursor, which is one less than the value.
    fn write(&self, value: u64) {
        let tail = value - 1;
        let position = loop {
            if let Some(position) = self.space(tail) {
                break position;
            }
            // The order of `endpoint/wait.rs`: silence, announce, look, sleep.
            self.of_writer.silence();
            self.cursors.rest_for_space();
            if let Some(position) = self.space(tail) {
                break position;
            }
            self.of_writer.sleep();
        };
        self.bytes[position as usize % CAPACITY].with_mut(|byte| crate::loom_cell::store(byte, value));
        if self.cursors.publish(position + 1) {
            self.of_reader.ring();
        }
    }

    fn read(&self, head: u64) -> u64 {
        let position = loop {
            if let Some(position) = self.filled(head) {
                break position;
            }
            self.of_reader.silence();
            self.cursors.rest_for_data();
            if let Some(position) = self.filled(head) {
                break position;
            }
            self.of_reader.sleep();
        };
        let value = self.bytes[position as usize % CAPACITY].with(crate::loom_cell::load);
        if self.cursors.consume(position + 1, true) {
            self.of_writer.ring();
        }
        value
    }
}

/// Sends three values through a ring of two; both sides sleep when they must. A lost wake-up is a deadlock, which loom reports.
pub fn values_arrive_in_order_and_sleepers_are_woken() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let ring = Ring::new();
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || (1..=BYTES).for_each(|value| ring.write(value)))
        };
        for value in 1..=BYTES {
            assert_eq!(ring.read(value - 1), value, "a value is missing or out of order");
        }
        assert!(writer.join().is_ok());
    });
}

/// A direction whose writer changes between TCP and the ring. TCP is a queue behind a lock, as the kernel's is.
struct Direction {
    cursors: Cursors,
    tcp: Mutex<VecDeque<u64>>,
    ring: [UnsafeCell<u64>; CAPACITY],
}

impl Direction {
    fn send(&self, value: u64) {
        if let Ok(mut tcp) = self.tcp.lock() {
            tcp.push_back(value);
        }
    }

    fn put(&self, tail: u64, value: u64) {
        self.ring[tail as usize % CAPACITY].with_mut(|byte| crate::loom_cell::store(byte, value));
        let _ = self.cursors.publish(tail + 1);
    }

    /// Writes four values: by TCP, by the ring, by TCP, and by the ring if the reader follows.
    fn write_all(&self) {
        self.send(1);
        self.cursors.begin(1, 1);
        self.put(0, 2);
        self.cursors.begin(2, 1);
        self.send(3);
        if self.cursors.is_followed(2) {
            self.cursors.begin(3, 2);
            self.put(1, 4);
        } else {
            self.send(4);
        }
    }

    /// Takes the next value, by the steps of `endpoint/transfer.rs`.
    fn take(&self, phase: &mut u32, head: &mut u64, taken: &mut u64) -> Option<u64> {
        if is_of_ring(*phase) {
            let span = self.cursors.filled(*head, *phase, CAPACITY).ok()?;
            if span.bytes == 0 {
                if self.cursors.end(*phase) == Some(*head) {
                    *phase += 1;
                    self.cursors.follow(*phase);
                }
                return None;
            }
            let value = self.ring[*head as usize % CAPACITY].with(crate::loom_cell::load);
            *head += 1;
            let _ = self.cursors.consume(*head, false);
            return Some(value);
        }
        // First how many there are, then whether they belong to this phase.
        let count = self.tcp.lock().map_or(0, |tcp| tcp.len() as u64);
        match self.cursors.end(*phase).map_or(count, |end| end - *taken) {
            0 if self.cursors.end(*phase) == Some(*taken) => {
                *phase += 1;
                self.cursors.follow(*phase);
                None
            }
            0 => None,
            _ => {
                let value = self.tcp.lock().ok()?.pop_front()?;
                *taken += 1;
                Some(value)
            }
        }
    }
}

/// A reader gets the values of all phases in order.
pub fn values_of_all_phases_arrive_in_order() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let direction = Arc::new(Direction {
            cursors: Cursors::new(),
            tcp: Mutex::new(VecDeque::new()),
            ring: std::array::from_fn(|_| UnsafeCell::new(0)),
        });
        let writer = {
            let direction = Arc::clone(&direction);
            thread::spawn(move || direction.write_all())
        };
        let (mut phase, mut head, mut taken) = (0, 0, 0);
        for expected in 1..=4 {
            let value = loop {
                match direction.take(&mut phase, &mut head, &mut taken) {
                    Some(value) => break value,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(value, expected, "a value is missing or out of order");
        }
        assert!(writer.join().is_ok());
    });
}
