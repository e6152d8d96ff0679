//! Operations in flight on a queue pair, in order, with the memory that they use, until their result is known. Only
//! some of them request a completion.
//!
//! A completion says something about earlier operations. On InfiniBand and RoCE operations complete in order, so all
//! earlier ones succeeded (a failure is always reported). On iWARP a write completes when it was handed to TCP,
//! possibly before an older read was answered. There the completion of a write covers older writes only, and the
//! completion of a read covers all.

use std::collections::VecDeque;

/// Event that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An answer: reads and atomics.
    WithAnswer,
    /// Nothing, or an acknowledgement: writes and sends.
    OneWay,
}

/// Cause of a failure, as far as the adapter knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// Never posted to the adapter.
    NotPosted,
    /// The queue failed before the operation, or while it was in flight.
    Flushed,
    /// The peer refused the operation.
    Refused,
    /// The peer no longer answers.
    NoAnswer,
    /// Any other status, in the library's number.
    Other(i32),
    /// The queue was destroyed without a completion.
    NoCompletion,
}

/// An operation with a known result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedWork {
    pub(crate) token: u64,
    pub(crate) result: Result<(), FailureCause>,
}

struct PendingWork<H> {
    kind: Kind,
    token: u64,
    open: bool,
    /// Kept until the operation has completed.
    _held: Option<H>,
}

/// Operations in flight on one queue pair.
pub(super) struct InFlight<H> {
    entries: VecDeque<PendingWork<H>>,
    /// Number of the first entry.
    first: u64,
    /// Operations complete in the order of posting.
    in_order: bool,
}

impl<H> InFlight<H> {
    pub(super) fn new(in_order: bool, room: usize) -> Self {
        Self { entries: VecDeque::with_capacity(room), first: 0, in_order }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of the next operation.
    pub(super) fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    pub(super) fn push(&mut self, kind: Kind, token: u64, held: Option<H>) {
        self.entries.push_back(PendingWork { kind, token, open: true, _held: held });
    }

    /// Completes an operation by its number. A number that is not in flight has no effect.
    pub(super) fn end(&mut self, number: u64, result: Result<(), FailureCause>, completions: &mut Vec<FinishedWork>) {
        let Some(index) = number.checked_sub(self.first).map(|index| index as usize) else { return };
        let Some(entry) = self.entries.get(index) else { return };
        let list = self.in_order || (entry.kind == Kind::WithAnswer && result.is_ok());
        let one_way = entry.kind == Kind::OneWay && result.is_ok();
        for (at, entry) in self.entries.range_mut(..=index).enumerate() {
            let result = if at == index { result } else { Ok(()) };
            let has_private_data = at == index || list || (one_way && entry.kind == Kind::OneWay);
            if entry.open && has_private_data {
                entry.open = false;
                completions.push(FinishedWork { token: entry.token, result });
            }
        }
        while self.entries.front().is_some_and(|entry| !entry.open) {
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// Takes back the operations from `number` on, which were never posted to the adapter.
    pub(super) fn cancel_unposted(&mut self, number: u64, completions: &mut Vec<FinishedWork>) {
        let keep = number.saturating_sub(self.first) as usize;
        for entry in self.entries.drain(keep.min(self.entries.len())..) {
            completions.push(FinishedWork { token: entry.token, result: Err(FailureCause::NotPosted) });
        }
    }

    /// Completes the rest with an unknown result: the queue is gone.
    pub(super) fn abandon_pending(&mut self, completions: &mut Vec<FinishedWork>) {
        self.first = self.next();
        for entry in self.entries.drain(..).filter(|entry| entry.open) {
            completions.push(FinishedWork { token: entry.token, result: Err(FailureCause::NoCompletion) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use Kind::{OneWay, WithAnswer};

    fn flight(in_order: bool, kinds: &[Kind]) -> InFlight<Rc<()>> {
        let mut flight = InFlight::new(in_order, 8);
        for (token, kind) in kinds.iter().enumerate() {
            flight.push(*kind, token as u64, None);
        }
        flight
    }

    fn tokens(completions: &mut Vec<FinishedWork>) -> Vec<(u64, bool)> {
        completions.drain(..).map(|completions| (completions.token, completions.result.is_ok())).collect()
    }

    #[test]
    fn ordered_completion_covers_earlier_operations() {
        // If this failed, an operation would complete twice, never, or before its bytes were there.
        let mut completions = Vec::new();
        let mut ordered = flight(true, &[WithAnswer, OneWay, WithAnswer, OneWay]);
        ordered.end(1, Ok(()), &mut completions);
        assert_eq!(tokens(&mut completions), [(0, true), (1, true)]);
        ordered.end(1, Ok(()), &mut completions);
        assert_eq!(tokens(&mut completions), []);
        ordered.end(3, Err(FailureCause::Refused), &mut completions);
        assert_eq!(tokens(&mut completions), [(2, true), (3, false)]);
        assert_eq!(ordered.len(), 0);
    }

    #[test]
    fn iwarp_write_completion_does_not_cover_reads() {
        // If this failed, a get over an iWARP adapter would return memory before the answer arrived.
        let mut completions = Vec::new();
        let mut free = flight(false, &[OneWay, WithAnswer, OneWay, WithAnswer, OneWay]);
        free.end(2, Ok(()), &mut completions);
        assert_eq!(tokens(&mut completions), [(0, true), (2, true)]);
        free.end(3, Ok(()), &mut completions);
        assert_eq!(tokens(&mut completions), [(1, true), (3, true)]);
        assert_eq!(free.next(), 5);
        free.end(4, Ok(()), &mut completions);
        assert_eq!((tokens(&mut completions), free.len()), (vec![(4, true)], 0));

        let mut broken = flight(false, &[OneWay, WithAnswer, OneWay]);
        broken.end(1, Err(FailureCause::Flushed), &mut completions);
        assert_eq!(tokens(&mut completions), [(1, false)], "an unordered failure covers one operation");
        broken.abandon_pending(&mut completions);
        assert_eq!(tokens(&mut completions), [(0, false), (2, false)]);
    }

    #[test]
    fn unposted_operations_are_reported_as_not_posted() {
        // If this failed, an operation that certainly did nothing would be reported as indeterminate.
        let mut completions = Vec::new();
        let mut flight = flight(true, &[OneWay, OneWay, OneWay]);
        flight.cancel_unposted(1, &mut completions);
        assert_eq!(
            completions.drain(..).map(|completions| completions.result).collect::<Vec<_>>(),
            [Err(FailureCause::NotPosted); 2]
        );
        assert_eq!(flight.next(), 1);
        flight.end(7, Ok(()), &mut completions);
        flight.end(0, Ok(()), &mut completions);
        assert_eq!(tokens(&mut completions), [(0, true)]);
    }

    #[test]
    fn memory_is_held_until_its_operation_completes() {
        // If this failed, the adapter would write into memory that already has another owner.
        let memory = Rc::new(());
        let mut flight = InFlight::new(true, 8);
        flight.push(WithAnswer, 0, Some(Rc::clone(&memory)));
        flight.push(WithAnswer, 1, Some(Rc::clone(&memory)));
        let mut completions = Vec::new();
        flight.end(0, Ok(()), &mut completions);
        assert_eq!(Rc::strong_count(&memory), 2);
        flight.abandon_pending(&mut completions);
        assert_eq!(Rc::strong_count(&memory), 1);
    }
}
