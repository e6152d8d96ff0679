//! One-sided reads with a sliding window: a new read is posted for each that ends.

use std::cell::RefCell;
use std::rc::Rc;

use ddss_verbs::{Fabric, LocalRange, RemoteRange, Work};

use super::fabric::FabricPair;
use crate::harness::{Figure, RoundTrip};

struct Window {
    pair: Rc<RefCell<FabricPair>>,
    bytes: u64,
    outstanding: usize,
    under_way: usize,
    /// Reads that have ended, and the number expected at the end of this lap: a lap's surplus counts for the next one.
    ended: u64,
    goal: u64,
    next: u64,
    batch: Vec<Work<'static>>,
}

/// Reads of `size_bytes` with `outstanding` in flight at any time, over the path `path`.
pub fn read_window(pair: &Rc<RefCell<FabricPair>>, path: &str, size_bytes: usize, outstanding: usize) -> Figure {
    let (bytes, batch) = (size_bytes as u64, Vec::with_capacity(outstanding));
    let trip = Window { pair: Rc::clone(pair), bytes, outstanding, under_way: 0, ended: 0, goal: 0, next: 0, batch };
    Figure::new("ddss", "read_window", size_bytes, format!("{path}/spin/t1"), trip).outstanding(outstanding)
}

impl Window {
    /// Posts reads until the maximum number is in flight.
    fn post(&mut self, pair: &mut FabricPair) {
        self.batch.clear();
        while self.under_way < self.outstanding {
            let (tag, offset) = (self.next, self.next % self.outstanding as u64 * self.bytes);
            let local = LocalRange { region: pair.region, offset, bytes: self.bytes };
            let remote = RemoteRange { key: pair.window.key, address: pair.window.base + offset };
            self.batch.push(Work::Read { peer: pair.peer, tag, local, remote });
            self.next += 1;
            self.under_way += 1;
        }
        pair.fabric.post(&self.batch).expect("a window fits");
    }
}

impl RoundTrip for Window {
    fn once(&mut self) {
        let shared = Rc::clone(&self.pair);
        let mut pair = shared.borrow_mut();
        self.goal += self.outstanding as u64;
        while self.ended < self.goal {
            self.post(&mut pair);
            let (ended, _) = pair.some();
            self.under_way -= ended;
            self.ended += ended as u64;
        }
    }

    fn operations(&self) -> u64 {
        self.outstanding as u64
    }

    fn wake(&mut self) {
        self.pair.borrow().service.wake();
    }

    fn rest(&mut self) {
        let mut pair = self.pair.borrow_mut();
        pair.finish(self.under_way);
        self.under_way = 0;
        // The reads that ended here belong to no lap.
        self.goal = self.ended;
        pair.service.rest();
    }
}
