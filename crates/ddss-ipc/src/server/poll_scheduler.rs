//! Schedule of the channels to poll, and of the sleepers to wake.
//!
//! A channel with recent requests is *hot*: each sweep polls it. One with requests longer ago is *cold*: a sweep polls
//! a slice of those, a larger one when hot channels had nothing for a while. So a cold channel is found within a
//! bounded number of sweeps at little cost. One that never had a request is *fresh*, and its first request waits
//! longer: most clients attach with more channels than they have threads. No memory is shared between clients for this,
//! since a shared bitmap would let one client hide the requests of another. Before the service sleeps, it polls all
//! channels.
//!
//! When several users call, each has a share of a round over the hot channels ([`FairShare`]).

use std::collections::VecDeque;

use ddss_core::limits::CLIENTS_MAX;
use ddss_core::{ChannelId, ClientId, Entry};

use super::channel::{PollRate, ReplyOutcome, ServerChannel, WakeOutcome};
use super::fair_share::FairShare;
use super::protocol_violation::ProtocolViolation;
use super::request_handler::RequestHandler;
use super::steady_callers::SteadyCallers;
use crate::sync::order;
use crate::trace_sampling::TracedRequest;

/// Requests taken from one channel in one sweep, so that no batch delays the other channels for long.
const CHANNEL_BATCH_MAX: usize = 16;
/// Part of a budget that hot channels leave to others, so that an occasional caller is found beside clients that never
/// stop.
const RESERVED_FOR_COLD: usize = 32;
/// Polls of hot channels after which one of them without a request becomes cold. Counted in polls and not in sweeps, so
/// that it takes some 3 microseconds however many are hot. Of many threads that take turns, only the running one stays
/// hot, and its calls do not wait for polls of the others.
const HOT_POLLS: u32 = 512;
/// Cold channels polled in a sweep, in addition to half as many as there are hot channels, and fresh ones if those have their
/// turn. A poll takes as long as the rest of a sweep, and a client that calls again immediately waits for it.
const SLICE: usize = 1;
/// Sweeps in a row without a request after which no client calls again immediately.
const IDLE_SWEEPS_SHORT: u32 = 16;
/// Sweeps in a row without a request after which no user has to wait for earlier heavy requests. A call from another
/// core takes less.
const IDLE_SWEEPS_FREE: u32 = 64;
/// Cold channels polled in a sweep from then on, as there is time. Among clients that take turns on their cores the
/// next turn begins now, and should be found before its client has spun in vain.
const COLD_SLICE_IDLE: usize = 8;
/// Sweeps between two polls of fresh channels while there are requests.
const FRESH_EVERY: u32 = 16;
/// Violations that are kept until the owner of the server asks.
const VIOLATIONS_MAX: usize = 64;

/// Key of a channel in the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChannelKey(u32);

/// All channels of a server.
pub(crate) struct PollScheduler {
    channels: Vec<Option<ServerChannel>>,
    free: Vec<u32>,
    /// Channel keys by [`PollRate`].
    lists: [Vec<u32>; 3],
    /// Position of the next poll in each list.
    cursors: [usize; 3],
    unflushed: VecDeque<u32>,
    /// Sweeps in a row that found no request in a hot channel.
    idle_sweeps: u32,
    /// Cold channels to poll before the next wake-up.
    polls_before_wake: usize,
    /// Channels with deferred replies, since the client's queue is full.
    deferred: VecDeque<u32>,
    violations: VecDeque<ProtocolViolation>,
    shares: FairShare,
    pub(crate) steady_callers: SteadyCallers,
    /// Number of sweeps, which wraps.
    sweeps: u32,
}

/// Count and weight of requests taken from a channel.
#[derive(Clone, Copy, Default)]
struct TakenRequests {
    requests: usize,
    weight: usize,
}

impl TakenRequests {
    /// Counts requests of weight one.
    #[inline(always)]
    fn with_unit_weight(requests: usize) -> Self {
        Self { requests, weight: requests }
    }
}

/// Handler that adds up the weights of requests.
struct LoadMeter<'a, A> {
    handler: &'a mut A,
    weight: usize,
}

impl<A: RequestHandler> RequestHandler for LoadMeter<'_, A> {
    fn handle(&mut self, channel: ChannelId, request: &Entry, traced: Option<TracedRequest>) -> Option<Entry> {
        self.weight += self.handler.weight(request);
        self.handler.handle(channel, request, traced)
    }

    fn after_reply(&mut self, channel: ChannelId, request: &Entry, answer: &Entry, traced: Option<TracedRequest>) {
        self.handler.after_reply(channel, request, answer, traced);
    }
}

impl PollScheduler {
    pub(crate) fn new() -> Self {
        Self {
            channels: Vec::new(),
            free: Vec::new(),
            lists: Default::default(),
            cursors: [0; 3],
            unflushed: VecDeque::new(),
            idle_sweeps: 0,
            polls_before_wake: 0,
            deferred: VecDeque::new(),
            violations: VecDeque::with_capacity(VIOLATIONS_MAX),
            shares: FairShare::default(),
            steady_callers: SteadyCallers::default(),
            sweeps: 0,
        }
    }

    #[inline(always)]
    fn count(&self, poll_rate: PollRate) -> usize {
        self.lists[poll_rate as usize].len()
    }

    /// Adds a channel of a user, as fresh. All growth happens here and not on the data path.
    pub(crate) fn insert(&mut self, mut channel: ServerChannel, uid: u32) -> ChannelKey {
        let key = self.free.pop().unwrap_or_else(|| {
            self.channels.push(None);
            self.channels.len() as u32 - 1
        });
        for list in &mut self.lists {
            list.reserve(self.channels.len() - list.len());
        }
        self.unflushed.reserve(self.channels.len() - self.unflushed.len());
        self.deferred.reserve(self.channels.len() - self.deferred.len());
        channel.poll_rate = PollRate::Fresh;
        channel.list_index = self.count(PollRate::Fresh);
        channel.user = self.shares.add_channel(uid);
        self.lists[PollRate::Fresh as usize].push(key);
        self.channels[key as usize] = Some(channel);
        ChannelKey(key)
    }

    pub(crate) fn remove(&mut self, key: ChannelKey) {
        self.remove_from_list(key.0);
        if let Some(channel) = self.channels[key.0 as usize].take() {
            self.shares.remove_channel(channel.user);
        }
        self.unflushed.retain(|other| *other != key.0);
        self.deferred.retain(|other| *other != key.0);
        self.free.push(key.0);
    }

    /// Passes up to `budget` requests to `handler`, and publishes each reply immediately.
    #[inline]
    pub(crate) fn serve(&mut self, budget: usize, handler: &mut impl RequestHandler) -> usize {
        if self.shares.has_several_users() {
            return self.serve_several(budget, handler);
        }
        self.visit::<false>(budget, &mut |channel, most| TakenRequests::with_unit_weight(channel.serve(most, handler)))
    }

    /// Separate, so that the usual path stays short.
    #[cold]
    #[inline(never)]
    fn serve_several(&mut self, budget: usize, handler: &mut impl RequestHandler) -> usize {
        self.visit::<true>(budget, &mut |channel, most| {
            let mut taken = TakenRequests::default();
            while taken.weight < most {
                let mut meter = LoadMeter { handler, weight: 0 };
                let requests = channel.serve(1, &mut meter);
                if requests == 0 {
                    break;
                }
                taken.requests += requests;
                taken.weight += meter.weight;
            }
            taken
        })
    }

    /// Visits the channels of several users (`SEVERAL`) or of one. `take` takes up to a number of requests from a
    /// channel and returns what it took.
    #[inline(always)]
    fn visit<const SEVERAL: bool>(
        &mut self,
        budget: usize,
        take: &mut impl FnMut(&mut ServerChannel, usize) -> TakenRequests,
    ) -> usize {
        if !self.deferred.is_empty() {
            self.send_deferred(1);
        }
        self.sweeps = self.sweeps.wrapping_add(1);
        let reserved = RESERVED_FOR_COLD.min(budget / 2);
        let mut remaining = budget - reserved;
        self.visit_hot::<SEVERAL>(budget, &mut remaining, take);
        remaining += reserved;
        self.idle_sweeps = if remaining == budget { self.idle_sweeps.saturating_add(1) } else { 0 };
        let long = self.idle_sweeps > IDLE_SWEEPS_SHORT;
        let slice = if long { COLD_SLICE_IDLE } else { SLICE } + self.count(PollRate::Hot) / 2;
        self.polls_before_wake = self.polls_before_wake.saturating_sub(slice);
        self.visit_cold::<SEVERAL>(PollRate::Cold, slice, &mut remaining, take);
        if long || self.sweeps.is_multiple_of(FRESH_EVERY) {
            self.visit_cold::<SEVERAL>(PollRate::Fresh, SLICE, &mut remaining, take);
        }
        budget - remaining
    }

    /// Polls the hot channels. The more they are, the fewer requests of the `budget` each gives, so that a client with a channel for
    /// every thread does not delay one with a single channel by a thousand requests.
    #[inline(always)]
    fn visit_hot<const SEVERAL: bool>(
        &mut self,
        budget: usize,
        remaining: &mut usize,
        take: &mut impl FnMut(&mut ServerChannel, usize) -> TakenRequests,
    ) {
        let hot = self.count(PollRate::Hot);
        // With few channels, the usual case, there is nothing to divide: a division takes as long as the poll itself.
        let batch = if hot <= budget / CHANNEL_BATCH_MAX { CHANNEL_BATCH_MAX } else { (budget / hot).max(1) };
        let first = self.cursors[PollRate::Hot as usize];
        if SEVERAL {
            self.shares.begin_round(self.idle_sweeps > IDLE_SWEEPS_FREE);
        }
        for _ in 0..self.count(PollRate::Hot) {
            if *remaining == 0 || self.count(PollRate::Hot) == 0 {
                return;
            }
            let key = self.next(PollRate::Hot);
            let Some(channel) = self.channels[key as usize].as_mut() else { return };
            let (user, mut most) = (channel.user, batch.min(*remaining));
            if SEVERAL {
                most = most.min(self.shares.remaining_share(user));
                if most == 0 {
                    self.cursors[PollRate::Hot as usize] += 1;
                    continue;
                }
            }
            let taken = take(channel, most);
            *remaining -= taken.requests;
            if SEVERAL {
                self.shares.charge(user, taken.weight);
            }
            if taken.requests > 0 {
                channel.idle_sweeps = 0;
                self.cursors[PollRate::Hot as usize] += 1;
                self.finish_visit(key, taken.requests);
                continue;
            }
            // Another channel moves to this index when the channel becomes cold, and then the cursor stays.
            self.cursors[PollRate::Hot as usize] += usize::from(!self.cool_down(key));
        }
        if SEVERAL {
            // The next round begins one channel further on, so that each of a user's channels comes first at some time.
            self.cursors[PollRate::Hot as usize] = if first < self.count(PollRate::Hot) { first + 1 } else { 1 };
        }
    }

    /// Returns the channel at the cursor of a non-empty list.
    #[inline(always)]
    fn next(&mut self, poll_rate: PollRate) -> u32 {
        let (list, cursor) = (&self.lists[poll_rate as usize], &mut self.cursors[poll_rate as usize]);
        if *cursor >= list.len() {
            *cursor = 0;
        }
        list[*cursor]
    }

    /// Records that a hot channel had no request. Returns true if it becomes cold.
    #[inline]
    fn cool_down(&mut self, key: u32) -> bool {
        let Some(channel) = self.channels[key as usize].as_mut() else { return false };
        if channel.has_violation()
            && let Some(violation) = channel.take_violation()
        {
            self.report_violation(violation);
            return false;
        }
        if channel.in_flight() > 0 {
            channel.idle_sweeps = 0;
            return false;
        }
        channel.idle_sweeps += 1;
        let cold = channel.idle_sweeps >= HOT_POLLS / self.count(PollRate::Hot) as u32;
        if cold {
            self.set_poll_rate(key, PollRate::Cold);
        }
        cold
    }

    /// Polls some of the channels without recent requests.
    #[inline(always)]
    fn visit_cold<const SEVERAL: bool>(
        &mut self,
        poll_rate: PollRate,
        slice: usize,
        remaining: &mut usize,
        take: &mut impl FnMut(&mut ServerChannel, usize) -> TakenRequests,
    ) {
        for _ in 0..slice.min(self.count(poll_rate)) {
            if *remaining == 0 || self.count(poll_rate) == 0 {
                return;
            }
            let key = self.next(poll_rate);
            let Some(channel) = self.channels[key as usize].as_mut() else { return };
            let (user, mut most) = (channel.user, CHANNEL_BATCH_MAX.min(*remaining));
            if SEVERAL {
                if self.shares.has_to_wait(user) {
                    self.cursors[poll_rate as usize] += 1;
                    continue;
                }
                // One request beyond the user's share: it makes the channel hot, which then gets its turns.
                most = most.min(self.shares.remaining_share(user).max(1));
            }
            let taken = take(channel, most);
            if taken.requests > 0 {
                *remaining -= taken.requests;
                if SEVERAL {
                    self.shares.charge(user, taken.weight);
                }
                self.set_poll_rate(key, PollRate::Hot);
                self.finish_visit(key, taken.requests);
                continue;
            }
            self.cursors[poll_rate as usize] += 1;
            if let Some(violation) = channel.take_violation() {
                self.report_violation(violation);
            }
        }
    }

    /// Does the follow-up work of a visit that took requests.
    #[inline(always)]
    fn finish_visit(&mut self, key: u32, requests: usize) {
        let Some(channel) = self.channels[key as usize].as_mut() else { return };
        self.steady_callers.record(&mut channel.recent, requests);
        match std::mem::replace(&mut channel.replied, ReplyOutcome::Unsolicited) {
            ReplyOutcome::Unsolicited => {}
            ReplyOutcome::Sent => self.mark_unflushed(key),
            ReplyOutcome::Deferred => self.defer(key),
        }
    }

    /// Returns the number of channels that each sweep polls.
    pub(crate) fn hot_count(&self) -> usize {
        self.count(PollRate::Hot)
    }

    /// Counts the channels with pending requests or replies, and those requests.
    pub(crate) fn count_pending(&self) -> (usize, usize) {
        let pending = self.channels.iter().flatten().filter(|channel| channel.has_pending());
        pending.fold((0, 0), |(channels, requests), channel| (channels + 1, requests + channel.in_flight()))
    }

    /// Returns true if any channel has a request that [`serve`](Self::serve) would take.
    pub(crate) fn has_requests(&self) -> bool {
        let mut channels = self.channels.iter().flatten();
        channels.any(ServerChannel::has_request)
    }

    /// Makes every channel with a request hot, so that the client that woke the service does not wait for the cold
    /// slice. Retries all deferred replies.
    pub(crate) fn warm_ready_channels(&mut self) {
        self.send_deferred(self.deferred.len());
        for poll_rate in [PollRate::Cold, PollRate::Fresh] {
            for index in (0..self.count(poll_rate)).rev() {
                let key = self.lists[poll_rate as usize][index];
                if self.channels[key as usize].as_ref().is_some_and(ServerChannel::has_request) {
                    self.set_poll_rate(key, PollRate::Hot);
                }
            }
        }
    }

    /// Publishes a completion. Returns false if the channel has no request in flight.
    #[inline]
    pub(crate) fn reply(&mut self, key: ChannelKey, entry: &Entry) -> bool {
        let Some(channel) = self.channels[key.0 as usize].as_mut() else { return false };
        match channel.reply(entry) {
            ReplyOutcome::Unsolicited => return false,
            ReplyOutcome::Deferred => self.defer(key.0),
            ReplyOutcome::Sent => self.mark_unflushed(key.0),
        }
        true
    }

    #[inline(always)]
    fn mark_unflushed(&mut self, key: u32) {
        if let Some(channel) = self.channels[key as usize].as_mut()
            && !channel.unflushed
        {
            channel.unflushed = true;
            self.unflushed.push_back(key);
        }
    }

    fn defer(&mut self, key: u32) {
        if !self.deferred.contains(&key) {
            self.deferred.push_back(key);
        }
    }

    /// Retries the deferred replies of up to `count` channels. A failed try is one system call.
    fn send_deferred(&mut self, count: usize) {
        for _ in 0..count {
            let Some(key) = self.deferred.pop_front() else { return };
            let Some(channel) = self.channels[key as usize].as_mut() else { continue };
            let client = channel.client();
            if !channel.send_deferred() {
                self.deferred.push_back(key);
            } else if !self.has_deferred(client)
                && let Some(channel) = self.channels[key as usize].as_ref()
            {
                channel.clear_held_word();
            }
            self.mark_unflushed(key);
        }
    }

    fn has_deferred(&self, client: ClientId) -> bool {
        self.deferred
            .iter()
            .any(|key| self.channels[*key as usize].as_ref().is_some_and(|channel| channel.client() == client))
    }

    fn report_violation(&mut self, violation: ProtocolViolation) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push_back(violation);
        }
    }

    /// Returns true if there are channels whose clients may sleep although their completions are published.
    #[inline(always)]
    pub(crate) fn has_unflushed(&self) -> bool {
        !self.unflushed.is_empty()
    }

    /// Returns true if it is time for another wake-up.
    #[inline(always)]
    pub(crate) fn may_wake(&self) -> bool {
        self.polls_before_wake == 0 && self.has_unflushed()
    }

    /// Wakes one sleeping client, after checking those before it that do not sleep. `send` wakes a task of a client
    /// through its socket. Returns true if it woke one.
    ///
    /// One and not all, and all cold channels are polled between two wake-ups. A wake-up takes as long as thirty
    /// replies, and spinning clients park if they are not polled meanwhile. They would need a wake-up as well, until
    /// all clients sleep.
    pub(crate) fn flush(&mut self, mut send: impl FnMut(ClientId)) -> bool {
        order::before_wake();
        while let Some(key) = self.unflushed.pop_front() {
            let Some(channel) = self.channels[key as usize].as_mut() else { continue };
            channel.unflushed = false;
            match channel.wake() {
                WakeOutcome::Nothing => continue,
                WakeOutcome::Thread => {}
                WakeOutcome::Task => send(channel.client()),
            }
            self.polls_before_wake = self.count(PollRate::Cold);
            return true;
        }
        false
    }

    pub(crate) fn next_violation(&mut self) -> Option<ProtocolViolation> {
        self.violations.pop_front()
    }

    fn remove_from_list(&mut self, key: u32) {
        let Some(channel) = self.channels[key as usize].as_ref() else { return };
        let list_index = channel.list_index;
        if channel.poll_rate == PollRate::Hot {
            self.shares.remove_hot_channel(channel.user);
        }
        let list = &mut self.lists[channel.poll_rate as usize];
        list.swap_remove(list_index);
        if let Some(&moved) = list.get(list_index)
            && let Some(moved) = self.channels[moved as usize].as_mut()
        {
            moved.list_index = list_index;
        }
    }

    fn set_poll_rate(&mut self, key: u32, poll_rate: PollRate) {
        self.remove_from_list(key);
        let list = &mut self.lists[poll_rate as usize];
        let list_index = list.len();
        list.push(key);
        if let Some(channel) = self.channels[key as usize].as_mut() {
            channel.poll_rate = poll_rate;
            channel.list_index = list_index;
            channel.idle_sweeps = 0;
            if poll_rate == PollRate::Hot {
                self.shares.add_hot_channel(channel.user);
            }
        }
    }
}

// Keys have 32 bits, more than there are channels.
const _: () = assert!(CLIENTS_MAX * ddss_core::limits::CHANNELS_PER_CLIENT_MAX < u32::MAX as usize);
