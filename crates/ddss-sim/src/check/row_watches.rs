//! Checks of watches of all rows of a table: a watcher is notified of each change, or that it missed some.
//!
//! A watcher records the versions of the rows of which it is notified, as a program does that reads them again. When
//! the faults have ended, it waits again until no notification is left. Then it knows the newest version of each row,
//! and the next change wakes it.

use crate::cluster::simulator::Simulator;
use crate::load::calls::{Content, Kind, Target};
use ddss_core::limits::ROW_CHANGES_MAX;
use ddss_core::{EntryChangeKind, Outcome};

impl Simulator {
    /// Time of the last wait of a watcher, and the part of it in which a change certainly reaches the watcher.
    const LAST_WAIT_US: u32 = 300_000;
    const WAKE_TIME_MAX_US: u64 = 100_000;

    /// Lets each watcher wait until no notification is left, and then checks the versions that it knows.
    pub(crate) fn check_row_watches(&mut self) {
        for node in 0..self.plan.nodes {
            for index in 0..self.plan.clients {
                if self.nodes[node].dead || !self.is_client_idle(node, index) {
                    continue;
                }
                if let Some(watch) = self.nodes[node].clients[index].watch {
                    self.check_row_watch(node, index, watch.target);
                }
            }
        }
    }

    fn is_client_idle(&self, node: usize, index: usize) -> bool {
        let client = &self.nodes[node].clients[index];
        client.asked.is_none() && client.lingering.is_none()
    }

    fn check_row_watch(&mut self, node: usize, index: usize, target: Target) {
        for _ in 0..=ROW_CHANGES_MAX {
            let Some(watch) = self.nodes[node].clients[index].watch.filter(|_| !self.is_gone(target.id)) else {
                return;
            };
            self.last = None;
            self.ask_for(node, index, Kind::AwaitAnyRow(watch.number), target, Self::LAST_WAIT_US);
            self.run_until_idle(node, index, Self::WAKE_TIME_MAX_US);
            if self.is_client_idle(node, index) {
                let done = self.last.is_some_and(|(_, completion, _)| completion.outcome == Outcome::Done);
                if done {
                    continue;
                }
                // The table is out of reach: a call would fail, too.
                return;
            }
            for row in 0..Target::ROWS {
                let (known, newest) = (watch.known[row as usize], self.newest(&target.with_row(row)));
                if known < newest {
                    self.violation(format!(
                        "row {row} has version {newest}, and its watcher knows of {known}: {watch:?}"
                    ));
                }
            }
            self.check_wake(node, index, target);
            return self.run_until_idle(node, index, 2 * u64::from(Self::LAST_WAIT_US));
        }
        self.violation(format!("a watcher is told of changes without end: {target:?}"));
    }

    /// Changes a row, and checks that the waiting watcher is notified.
    fn check_wake(&mut self, node: usize, index: usize, target: Target) {
        let others = (0..self.plan.nodes).flat_map(|node| (0..self.plan.clients).map(move |index| (node, index)));
        let mut others = others.filter(|&other| other != (node, index));
        let Some(other) = others.find(|&(node, index)| self.is_client_idle(node, index)) else { return };
        let (kind, target) = match target.content {
            Content::Bucket => (Kind::ChangeEntry(EntryChangeKind::Write, 0), target.with_row(1)),
            _ => (Kind::Add, target.with_row(0)),
        };
        let before = self.newest(&target);
        self.ask_for(other.0, other.1, kind, target, Self::LAST_WAIT_US);
        self.run_until_idle(other.0, other.1, 2 * u64::from(Self::LAST_WAIT_US));
        let is_changed = self.newest(&target) > before;
        self.run_until_idle(node, index, Self::WAKE_TIME_MAX_US / 2);
        if is_changed && !self.is_client_idle(node, index) {
            self.violation(format!("the watcher of all rows was not told of a change: {target:?}"));
        }
    }

    /// Runs until the call of a client has ended, or for a time.
    fn run_until_idle(&mut self, node: usize, index: usize, time_us: u64) {
        let end_us = self.now_us + time_us;
        while self.now_us < end_us && !self.is_client_idle(node, index) && self.step() {}
    }
}
