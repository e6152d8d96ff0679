//! This node's part of a home's staging memory: a ring of runs, taken in order, freed in any order.

use ddss_core::limits::STAGING_BYTES;
use std::collections::VecDeque;

/// Runs in use in one peer's staging memory.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    runs: VecDeque<Run>,
    /// Number of the first run in `runs`.
    first: u64,
}

#[derive(Debug)]
struct Run {
    start: u64,
    bytes: u64,
    given_back: bool,
}

/// Allocated run: its offset, and the number to free it with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    pub(crate) at: u64,
    number: u64,
}

impl Ticket {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Makes a ticket to free the run of that number; its offset does not matter any more.
    pub(crate) fn of(number: u64) -> Self {
        Self { at: 0, number }
    }
}

impl Staging {
    /// Maximum number of runs.
    const RUNS_MAX: usize = 4096;

    /// Allocates a run behind the last one; `None` if there is no room yet.
    pub(crate) fn take(&mut self, bytes: u32) -> Option<Ticket> {
        let (bytes, limit) = (u64::from(bytes), STAGING_BYTES as u64);
        let at = match (self.runs.front(), self.runs.back()) {
            (Some(front), Some(back)) => {
                let next = back.start + back.bytes;
                if back.start < front.start {
                    (next + bytes <= front.start).then_some(next)?
                } else if next + bytes <= limit {
                    next
                } else {
                    (bytes <= front.start).then_some(0)?
                }
            }
            _ => (bytes <= limit).then_some(0)?,
        };
        if self.runs.len() == Self::RUNS_MAX || bytes == 0 {
            return None;
        }
        assert!(at + bytes <= limit, "a run lies inside the staging memory");
        self.runs.push_back(Run { start: at, bytes, given_back: false });
        Some(Ticket { at, number: self.first + self.runs.len() as u64 - 1 })
    }

    /// Frees a run that the home is done with.
    pub(crate) fn give(&mut self, ticket: Ticket) {
        let Some(index) = ticket.number.checked_sub(self.first) else { return };
        if let Some(run) = self.runs.get_mut(index as usize) {
            run.given_back = true;
        }
        while self.runs.front().is_some_and(|run| run.given_back) {
            self.runs.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn staging_runs_never_overlap(turns in proptest::collection::vec((1..(1u32 << 20), any::<u16>()), 1..200)) {
            // If this broke, one put would commit the bytes of another.
            let mut staging = Staging::default();
            let mut held: Vec<(Ticket, u64)> = Vec::new();
            for (bytes, choice) in turns {
                if let Some(ticket) = staging.take(bytes) {
                    let (start, end) = (ticket.at, ticket.at + u64::from(bytes));
                    prop_assert!(end <= STAGING_BYTES as u64);
                    for (other, length) in &held {
                        prop_assert!(start >= other.at + length || end <= other.at);
                    }
                    held.push((ticket, u64::from(bytes)));
                } else {
                    prop_assert!(!held.is_empty());
                    let (ticket, _) = held.remove(choice as usize % held.len());
                    staging.give(ticket);
                }
            }
            for (ticket, _) in held.drain(..) {
                staging.give(ticket);
            }
            prop_assert!(staging.take(STAGING_BYTES as u32).is_some());
        }
    }
}
