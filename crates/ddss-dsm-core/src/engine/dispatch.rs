//! The engine: hands each event to its handler.

use super::accesses::{AccessLog, Accesses};
use super::action::{Action, Output};
use super::call::{CallId, Failure, Request};
use super::context::Context;
use super::event::Event;
use super::fault_injection::planted;
use super::memory::Memory;
use super::state::{HotPage, ServedRequest, State};
use super::statistics::Statistics;
use super::tag::Tag;
use super::{flush, page, sync};
use crate::message::Message;
use crate::model::{Access, Config, ConfigError, Homes, PageRange, Rank};
use std::ops::Range;

/// The engine of one rank.
#[derive(Clone, Debug)]
pub struct Engine {
    state: State,
}

impl Engine {
    /// Creates the engine of a rank. No page has a home, and no lock is held.
    ///
    /// # Errors
    /// A setting is outside its limits.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { state: State::new(config) })
    }

    /// Assigns the homes of a region. All ranks do so before any of them touches the region.
    ///
    /// # Errors
    /// The pages or the rank are outside the space.
    pub fn assign_homes(&mut self, range: PageRange, homes: Homes) -> Result<(), Failure> {
        let config = self.state.config;
        check_pages(&config, range)?;
        if let Homes::Rank(rank) = homes
            && rank.index() >= config.ranks
        {
            return Err(Failure::OutOfRange("rank", rank.index() as u64));
        }
        self.state.pages.table.assign_homes(range, homes);
        Ok(())
    }

    /// Handles an event. Appends to `out` what the driver has to do.
    pub fn handle(&mut self, event: Event<'_>, now_us: u64, memory: &mut dyn Memory, out: &mut Output) {
        let mut ctx = Context { state: &mut self.state, memory, out, now_us };
        if let Some(failure) = ctx.state.failure {
            if let Event::Call { call, .. } = event {
                ctx.out.push(Action::Complete { call, result: Err(failure) });
            }
            return;
        }
        let mut handled = handle_event(&mut ctx, event);
        while handled.is_ok() {
            sync::advance(&mut ctx);
            let Some(bytes) = ctx.state.loopback.pop_front() else { break };
            let own = ctx.rank();
            handled = handle_message(&mut ctx, own, &bytes);
        }
        let handled = handled.and(ctx.state.violation.map_or(Ok(()), Err));
        if let Err(failure) = handled {
            fail(&mut ctx, failure);
        }
    }

    /// Returns the time in microseconds at which [`Event::Tick`] is due. `None` once the space has ended.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.state.pages.fetches.next_deadline().filter(|_| self.state.failure.is_none())
    }

    /// Returns the counters of this rank.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics { pages: self.state.pages.table.mapped_count() as u64, ..self.state.statistics }
    }

    /// Records which bytes this rank reads and changes, from now on: see [`Accesses`].
    pub fn record_accesses(&mut self) {
        self.state.accesses = Some(AccessLog::default());
    }

    /// Adds reads to the open interval, before the call that ends it.
    pub fn add_reads(&mut self, reads: impl IntoIterator<Item = Range<u64>>) {
        if let Some(log) = &mut self.state.accesses {
            log.reads.extend(reads);
        }
    }

    /// Takes the accesses of the intervals that were closed since.
    pub fn take_accesses(&mut self) -> Vec<Accesses> {
        self.state.accesses.as_mut().map_or_else(Vec::new, |log| std::mem::take(&mut log.closed))
    }

    /// Returns the pages that this rank has fetched most often.
    #[must_use]
    pub fn fetched_most(&self) -> Vec<HotPage> {
        self.state.pages.hot.fetched.sorted()
    }

    /// Returns the pages that several ranks have written between two barriers most often. Coarse notices name no pages, and do
    /// not count.
    #[must_use]
    pub fn shared_most(&self) -> Vec<HotPage> {
        self.state.pages.hot.shared.sorted()
    }

    /// Returns the reason why the space has ended.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.state.failure
    }

    /// Gives the engine a bug.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: super::Bug) {
        self.state.bug = Some(bug);
    }
}

/// Ends the space: all calls fail, and all peers learn the reason.
fn fail(ctx: &mut Context<'_>, failure: Failure) {
    ctx.state.failure = Some(failure);
    let (message, except) = match failure {
        Failure::Lost(rank) | Failure::Protocol(rank) => (Some(Message::Lost { rank }), Some(rank)),
        Failure::GaveUp { rank, missing } => (Some(Message::GaveUp { rank, missing }), None),
        _ => (None, None),
    };
    for to in ctx.state.config.peers().filter(|peer| Some(*peer) != except) {
        message.iter().for_each(|message| ctx.send(to, message));
    }
    if planted!(ctx.state, WaitOutlivesRank) {
        return;
    }
    for call in ctx.state.calls.take_all() {
        ctx.out.push(Action::Complete { call, result: Err(failure) });
    }
}

fn check_pages(config: &Config, range: PageRange) -> Result<(), Failure> {
    if range.is_within(config.pages) { Ok(()) } else { Err(Failure::OutOfRange("page", range.end().max(1) - 1)) }
}

fn handle_event(ctx: &mut Context<'_>, event: Event<'_>) -> Result<(), Failure> {
    match event {
        Event::Call { call, request } => {
            if let Err(failure) = ctx.state.calls.open(call) {
                ctx.out.push(Action::Complete { call, result: Err(failure) });
            } else if let Err(failure) = handle_call(ctx, call, request) {
                ctx.complete(call, Err(failure));
            }
            Ok(())
        }
        Event::Done { tag: Tag::Claim(slot), value } => page::on_claimed(ctx, slot, value),
        Event::Done { tag, .. } => {
            match tag {
                Tag::Line(slot) | Tag::Page(slot) => page::on_read(ctx, slot),
                Tag::Fence(id, home) => ctx.state.pages.placements.count_fence(id, home),
                Tag::Log => sync::on_log_read(ctx),
                Tag::Claim(_) => {}
            }
            Ok(())
        }
        Event::Message { from, bytes } => {
            ctx.state.statistics.handled += 1;
            handle_message(ctx, from, bytes)
        }
        Event::Tick => {
            page::resume_due(ctx);
            Ok(())
        }
        Event::Lost(rank) => Err(Failure::Lost(rank)),
    }
}

/// Fails if a call may close an interval, and no number is left for it.
fn check_intervals(state: &State, request: Request) -> Result<(), Failure> {
    let closes = !matches!(request, Request::Touch { .. } | Request::GiveUp);
    if closes && !state.sync.intervals.have_numbers() { Err(Failure::Full("intervals")) } else { Ok(()) }
}

fn handle_call(ctx: &mut Context<'_>, call: CallId, request: Request) -> Result<(), Failure> {
    check_intervals(ctx.state, request)?;
    match request {
        Request::Touch { pages, access } => {
            check_pages(&ctx.state.config, pages)?;
            page::touch(ctx, call, pages, access.max(Access::Read))
        }
        Request::Lock(index) => sync::call_lock(ctx, call, index),
        Request::Unlock(index) => sync::call_unlock(ctx, call, index),
        Request::Barrier(index) => sync::call_barrier(ctx, call, index),
        Request::Post(index) => sync::call_post(ctx, call, index),
        Request::Wait(index) => sync::call_wait(ctx, call, index),
        Request::GiveUp => {
            sync::call_give_up(ctx);
            Ok(())
        }
        Request::Add { counter, delta } => sync::call_add(ctx, call, counter, delta),
        Request::Place => {
            sync::call_place(ctx, call);
            Ok(())
        }
    }
}

fn handle_message(ctx: &mut Context<'_>, from: Rank, bytes: &[u8]) -> Result<(), Failure> {
    let codec = ctx.state.codec;
    match codec.decode(bytes).map_err(|_| Failure::Protocol(from))? {
        Message::LockRequest { lock, time } => sync::on_request(ctx, from, lock, time),
        Message::LockForward { lock, requester, time } => sync::forward(ctx, from, lock, requester, time),
        Message::LockGrant { lock, time, notices } => sync::on_grant(ctx, from, lock, time, notices),
        Message::BarrierArrive { barrier, time } => sync::arrive(ctx, from, barrier, &time),
        Message::BarrierDepart { barrier, time } => sync::depart(ctx, from, barrier, time),
        Message::SemaphorePost { semaphore, time } => sync::on_post(ctx, from, semaphore, &time),
        Message::SemaphoreWait { semaphore } => sync::on_wait(ctx, from, semaphore),
        Message::SemaphoreGrant { semaphore, time } => sync::on_semaphore_grant(ctx, from, semaphore, time),
        Message::CounterAdd { counter, delta, time } => sync::add(ctx, from, counter, delta, &time),
        Message::CounterValue { counter, value, time } => sync::on_value(ctx, from, counter, value, time),
        Message::Lost { rank } => Err(Failure::Lost(rank)),
        Message::GaveUp { rank, missing } => {
            let missing = if ctx.rank() == Rank::ZERO { sync::missing_at(ctx, rank) } else { missing };
            Err(Failure::GaveUp { rank, missing })
        }
        message => handle_page_message(ctx, from, message),
    }
}

fn handle_page_message(ctx: &mut Context<'_>, from: Rank, message: Message<'_>) -> Result<(), Failure> {
    match message {
        Message::Stamp { interval, pages } => {
            flush::apply_stamp(ctx, from, interval, &pages)?;
            pages.iter().flat_map(|range| range.iter()).for_each(|page| page::resume_stamped(ctx, page));
            Ok(())
        }
        Message::Diff { page, interval, sequence, runs } => {
            flush::apply_diff(ctx, from, page, interval, sequence, runs)?;
            page::resume_stamped(ctx, page);
            Ok(())
        }
        Message::DiffAck { sequence } => {
            let page = flush::acknowledge(ctx, from, sequence)?;
            page::resume_unblocked(ctx, page);
            Ok(())
        }
        Message::PageRequest { page, slot, needed } => {
            page::forward_or_serve(ctx, page, ServedRequest { requester: from, slot, needed, sends_page: true })
        }
        Message::PageForward { page, requester, slot, needed } => {
            page::serve(ctx, from, page, ServedRequest { requester, slot, needed, sends_page: true })
        }
        Message::Await { page, slot, needed } => {
            page::serve(ctx, from, page, ServedRequest { requester: from, slot, needed, sends_page: false })
        }
        Message::PageWritten { page, slot } => page::on_written(ctx, from, page, slot),
        Message::Appointed { page, slot } => page::on_appointed(ctx, from, page, slot),
        Message::Reached { page, slot } => page::on_reached(ctx, from, page, slot),
        _ => Err(Failure::Protocol(from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::INTERVALS_END;
    use crate::model::{LogShape, Ordering, PageId, Protocol, Stamps, Tuning, VectorTime};

    // If this failed, a space would end with a panic after 2^32 intervals of one rank.
    #[test]
    fn calls_that_synchronise_fail_behind_the_last_interval() {
        let mut state = State::new(Config {
            rank: Rank::ZERO,
            ranks: 1,
            pages: 1,
            page_bytes: 16,
            message_bytes: 128,
            protocol: Protocol::NewGenDsm,
            ordering: Ordering::Stamped,
            stamps: Stamps::PerHome,
            log: LogShape::default(),
            tuning: Tuning::default(),
        });
        let mut time = VectorTime::default();
        for (closed, expected) in [(INTERVALS_END - 2, Ok(())), (INTERVALS_END - 1, Err(Failure::Full("intervals")))] {
            time.raise(Rank::ZERO, closed);
            state.sync.intervals.join(&time);
            assert_eq!(check_intervals(&state, Request::Lock(0)), expected);
            assert_eq!(check_intervals(&state, Request::Barrier(0)), expected);
            let touch = Request::Touch { pages: PageRange::one(PageId(0)), access: Access::Write };
            assert_eq!(check_intervals(&state, touch), Ok(()));
        }
    }
}
