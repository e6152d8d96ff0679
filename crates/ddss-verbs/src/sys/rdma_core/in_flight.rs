//! What was given to a queue pair and has not ended: kept in order, with the memory it uses, until it is known how it
//! ended. Only some of it is asked to say so.
//!
//! An end of one says something about those before it. On InfiniBand and RoCE work ends in order, so all of them have
//! ended well (what fails always says so). On iWARP a write ends when it was handed to TCP, which can be before an older
//! read was answered: there the end of a write speaks for older writes only, and the end of a read for all.

use std::collections::VecDeque;

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An answer: reads and atomics.
    Answered,
    /// Nothing, or a mere acknowledgement: writes and sends.
    OneWay,
}

/// Why an operation failed, as far as the adapter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// It was not given to the adapter at all.
    NotPosted,
    /// The queue was dead before its turn came, or while it was under way.
    Flushed,
    /// The peer said no.
    Refused,
    /// The peer answers no more.
    Unanswered,
    /// Anything else, in the library's number.
    Other(i32),
    /// The queue is gone and never said.
    Unsaid,
}

/// One operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedWork {
    pub(crate) token: u64,
    pub(crate) result: Result<(), FailureCause>,
}

struct Entry<H> {
    kind: Kind,
    token: u64,
    open: bool,
    /// Kept until the operation has ended.
    _held: Option<H>,
}

/// See the module.
pub(super) struct InFlight<H> {
    entries: VecDeque<Entry<H>>,
    /// The number of the first entry.
    first: u64,
    /// The ends come in the order of the beginnings.
    in_order: bool,
}

impl<H> InFlight<H> {
    pub(super) fn new(in_order: bool, room: usize) -> Self {
        Self { entries: VecDeque::with_capacity(room), first: 0, in_order }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number that the next one will have.
    pub(super) fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    pub(super) fn push(&mut self, kind: Kind, token: u64, held: Option<H>) {
        self.entries.push_back(Entry { kind, token, open: true, _held: held });
    }

    /// Number `number` ended. A number that is not under way says nothing.
    pub(super) fn end(&mut self, number: u64, result: Result<(), FailureCause>, ended: &mut Vec<FinishedWork>) {
        let Some(index) = number.checked_sub(self.first).map(|index| index as usize) else { return };
        let Some(entry) = self.entries.get(index) else { return };
        let all = self.in_order || (entry.kind == Kind::Answered && result.is_ok());
        let one_way = entry.kind == Kind::OneWay && result.is_ok();
        for (at, entry) in self.entries.range_mut(..=index).enumerate() {
            let result = if at == index { result } else { Ok(()) };
            let speaks = at == index || all || (one_way && entry.kind == Kind::OneWay);
            if entry.open && speaks {
                entry.open = false;
                ended.push(FinishedWork { token: entry.token, result });
            }
        }
        while self.entries.front().is_some_and(|entry| !entry.open) {
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// Those from `number` on were never given to the adapter.
    pub(super) fn take_back(&mut self, number: u64, ended: &mut Vec<FinishedWork>) {
        let keep = number.saturating_sub(self.first) as usize;
        for entry in self.entries.drain(keep.min(self.entries.len())..) {
            ended.push(FinishedWork { token: entry.token, result: Err(FailureCause::NotPosted) });
        }
    }

    /// The queue is gone: how the rest ended will not be known.
    pub(super) fn give_up(&mut self, ended: &mut Vec<FinishedWork>) {
        self.first = self.next();
        for entry in self.entries.drain(..).filter(|entry| entry.open) {
            ended.push(FinishedWork { token: entry.token, result: Err(FailureCause::Unsaid) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use Kind::{Answered, OneWay};

    fn flight(in_order: bool, kinds: &[Kind]) -> InFlight<Rc<()>> {
        let mut flight = InFlight::new(in_order, 8);
        for (token, kind) in kinds.iter().enumerate() {
            flight.push(*kind, token as u64, None);
        }
        flight
    }

    fn tokens(ended: &mut Vec<FinishedWork>) -> Vec<(u64, bool)> {
        ended.drain(..).map(|ended| (ended.token, ended.result.is_ok())).collect()
    }

    #[test]
    fn an_end_speaks_for_those_before_it_where_order_is_kept() {
        // If this failed, an operation would be told twice, never, or before its bytes were there.
        let mut ended = Vec::new();
        let mut ordered = flight(true, &[Answered, OneWay, Answered, OneWay]);
        ordered.end(1, Ok(()), &mut ended);
        assert_eq!(tokens(&mut ended), [(0, true), (1, true)]);
        ordered.end(1, Ok(()), &mut ended);
        assert_eq!(tokens(&mut ended), []);
        ordered.end(3, Err(FailureCause::Refused), &mut ended);
        assert_eq!(tokens(&mut ended), [(2, true), (3, false)]);
        assert_eq!(ordered.len(), 0);
    }

    #[test]
    fn on_iwarp_a_write_says_nothing_about_a_read() {
        // If this failed, a get over an iWARP adapter would return memory that the answer has not reached.
        let mut ended = Vec::new();
        let mut free = flight(false, &[OneWay, Answered, OneWay, Answered, OneWay]);
        free.end(2, Ok(()), &mut ended);
        assert_eq!(tokens(&mut ended), [(0, true), (2, true)]);
        free.end(3, Ok(()), &mut ended);
        assert_eq!(tokens(&mut ended), [(1, true), (3, true)]);
        assert_eq!(free.next(), 5);
        free.end(4, Ok(()), &mut ended);
        assert_eq!((tokens(&mut ended), free.len()), (vec![(4, true)], 0));

        let mut broken = flight(false, &[OneWay, Answered, OneWay]);
        broken.end(1, Err(FailureCause::Flushed), &mut ended);
        assert_eq!(tokens(&mut ended), [(1, false)], "a failure there speaks for itself only");
        broken.give_up(&mut ended);
        assert_eq!(tokens(&mut ended), [(0, false), (2, false)]);
    }

    #[test]
    fn what_was_never_posted_is_told_apart() {
        // If this failed, an operation that certainly did nothing would be called uncertain.
        let mut ended = Vec::new();
        let mut flight = flight(true, &[OneWay, OneWay, OneWay]);
        flight.take_back(1, &mut ended);
        assert_eq!(ended.drain(..).map(|ended| ended.result).collect::<Vec<_>>(), [Err(FailureCause::NotPosted); 2]);
        assert_eq!(flight.next(), 1);
        flight.end(7, Ok(()), &mut ended);
        flight.end(0, Ok(()), &mut ended);
        assert_eq!(tokens(&mut ended), [(0, true)]);
    }

    #[test]
    fn memory_is_held_until_its_operation_has_ended() {
        // If this failed, the adapter would write into memory that is already somebody else's.
        let memory = Rc::new(());
        let mut flight = InFlight::new(true, 8);
        flight.push(Answered, 0, Some(Rc::clone(&memory)));
        flight.push(Answered, 1, Some(Rc::clone(&memory)));
        let mut ended = Vec::new();
        flight.end(0, Ok(()), &mut ended);
        assert_eq!(Rc::strong_count(&memory), 2);
        flight.give_up(&mut ended);
        assert_eq!(Rc::strong_count(&memory), 1);
    }
}
