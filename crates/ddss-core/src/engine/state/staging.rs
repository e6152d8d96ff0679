//! The part of a home's staging memory that it keeps for this node: a ring of runs, taken in order, given back in
//! any order.

use crate::limits::STAGING_BYTES;
use std::collections::VecDeque;

/// Runs under way in one peer's staging memory.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    runs: VecDeque<Run>,
    /// The number of the first run in `runs`.
    first: u64,
}

#[derive(Debug)]
struct Run {
    start: u64,
    bytes: u64,
    given_back: bool,
}

/// A run that was taken: where it is, and the number to give it back with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    pub(crate) at: u64,
    number: u64,
}

impl Ticket {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The ticket of that number, to give its run back: where the run was does not matter any more.
    pub(crate) fn of(number: u64) -> Self {
        Self { at: 0, number }
    }
}

impl Staging {
    /// Runs at the most.
    const RUNS_MAX: usize = 4096;

    /// Takes a run of that many bytes behind the last one, or says that there is no room yet.
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
        self.runs.push_back(Run { start: at, bytes, given_back: false });
        Some(Ticket { at, number: self.first + self.runs.len() as u64 - 1 })
    }

    /// The home is done with the run.
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
        fn no_two_puts_share_staging_bytes(turns in proptest::collection::vec((1..(1u32 << 20), any::<u16>()), 1..200)) {
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
