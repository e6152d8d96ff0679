//! Loom models of the cursors and of the sleep protocol: small, with every interleaving.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ddss-stream --target-dir target/loom --test loom
//! ```

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::cursors::Cursors;

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
        Arc::new(Self {
            cursors: Cursors::new(),
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
        let span = self.cursors.filled(head, CAPACITY);
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

/// Changes a writer from TCP to the ring: a reader that sees the change sees the end of the TCP bytes.
pub fn switch_position_is_whole() {
    loom::model(|| {
        let cursors = Arc::new(Cursors::new());
        let writer = {
            let cursors = Arc::clone(&cursors);
            thread::spawn(move || {
                cursors.switch(7);
                let _ = cursors.publish(1);
            })
        };
        if cursors.filled(0, CAPACITY).is_ok_and(|span| span.bytes == 1) {
            assert_eq!(cursors.tcp_end(), Some(7), "bytes in the ring, and no change to it");
        }
        assert!(writer.join().is_ok());
    });
}
