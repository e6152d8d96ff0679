//! Which lanes are looked at, and how often.
//!
//! Every lane that had requests of late is *hot* and looked at in each sweep. One that had some long ago is *cold*: a
//! sweep looks at a slice of those, a larger one when the hot ones had nothing for a while, so a cold lane is found within a bounded
//! number of sweeps and costs next to nothing. One that never had any is *fresh*, and its first request waits longer: most
//! clients attach with more lanes than they have threads. No memory is shared between clients for that (a shared bitmap would let one client hide the
//! requests of another); and before the service sleeps, all lanes are looked at.
//!
//! Where several users call, each has his share of a go around the hot lanes ([`users`]).

use std::collections::VecDeque;

use ddss_core::limits::CLIENTS_MAX;
use ddss_core::{ChannelId, ClientId, Entry};

use super::active_threads::ActiveThreads;
use super::channel::{ReplyOutcome, ServerChannel, WakeOutcome};
use super::fair_share::FairShare;
use super::server::{ProtocolViolation, RequestHandler};
use crate::shm::service_page::place_of;
use crate::sync::order;
use crate::trace_sampling::TracedRequest;

/// Requests taken from one lane in one sweep: nobody's batch keeps the others waiting for long.
const LANE_BATCH_MAX: usize = 16;
/// Requests taken from all hot lanes in one go around them: where there are many, less is taken from each, so that a
/// client with a lane for every thread does not keep one with a single lane waiting for a thousand requests.
const TURN_MAX: usize = 256;
/// What hot lanes leave of a budget to the others, however much they have: whoever calls now and then is found while
/// somebody else never stops.
const LEFT_TO_OTHERS: usize = 32;
/// Looks at hot lanes without a request from one of them, after which that one goes cold. Looks and not sweeps, so that
/// it takes some 3 microseconds however many are hot: of a crowd in which each has its turn only the one whose it is stays hot,
/// and its calls do not wait for a sweep over those of the last turns.
const HOT_LOOKS: u32 = 512;
/// Cold lanes looked at in a sweep, beside half as many as there are hot ones. A look takes as long as all else in a sweep,
/// and whoever calls again at once waits for it.
const COLD_SLICE: usize = 1;
/// Sweeps in a row without a request after which nobody calls again at once.
const IDLE_SWEEPS_SHORT: u32 = 16;
/// The same, from which on nobody has to wait because of how much he has asked for before: a call from another core takes
/// less.
const IDLE_SWEEPS_FREE: u32 = 64;
/// Cold lanes looked at in a sweep from then on: there is time. In a crowd whose members take turns on their cores this is
/// when the next one begins, and it should be found before it has spun for nothing.
const COLD_SLICE_IDLE: usize = 8;
/// Fresh lanes looked at in a sweep.
const FRESH_SLICE: usize = 1;
/// Sweeps between two looks at fresh lanes while there are requests.
const FRESH_EVERY: u32 = 16;
/// Offences that are remembered until somebody asks.
const OFFENCES_MAX: usize = 64;

/// How often a lane is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PollRate {
    Hot,
    Cold,
    Fresh,
}

/// Names a lane inside a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChannelKey(u32);

/// All lanes of a station.
pub(crate) struct PollScheduler {
    lanes: Vec<Option<ServerChannel>>,
    free: Vec<u32>,
    /// By [`PollRate`].
    lists: [Vec<u32>; 3],
    /// Where the next look is in each of them.
    cursors: [usize; 3],
    unflushed: VecDeque<u32>,
    /// Sweeps in a row that found no request in a hot lane.
    idle_sweeps: u32,
    /// Cold lanes to be looked at before the next wake-up.
    looks_due: usize,
    /// Lanes of which replies are held back, since the client's queue is full.
    held: VecDeque<u32>,
    offences: VecDeque<ProtocolViolation>,
    /// Somebody yields on the service's core whose answer is out.
    owes_core: bool,
    /// Somebody was woken, or may have been.
    woke: bool,
    users: FairShare,
    pub(crate) callers: ActiveThreads,
}

/// What was taken from a lane.
#[derive(Clone, Copy, Default)]
struct TakenRequests {
    requests: usize,
    weight: usize,
}

impl TakenRequests {
    /// So many that ask for little.
    #[inline(always)]
    fn light(requests: usize) -> Self {
        Self { requests, weight: requests }
    }
}

/// Notes how much is asked for.
struct LoadMeter<'a, A> {
    answerer: &'a mut A,
    weight: usize,
}

impl<A: RequestHandler> RequestHandler for LoadMeter<'_, A> {
    fn answer(&mut self, lane: ChannelId, request: &Entry, followed: Option<TracedRequest>) -> Option<Entry> {
        self.weight += self.answerer.weight(request);
        self.answerer.answer(lane, request, followed)
    }

    fn answered(&mut self, lane: ChannelId, request: &Entry, answer: &Entry, followed: Option<TracedRequest>) {
        self.answerer.answered(lane, request, answer, followed);
    }
}

impl PollScheduler {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Vec::new(),
            free: Vec::new(),
            lists: Default::default(),
            cursors: [0; 3],
            unflushed: VecDeque::new(),
            idle_sweeps: 0,
            looks_due: 0,
            held: VecDeque::new(),
            offences: VecDeque::with_capacity(OFFENCES_MAX),
            owes_core: false,
            woke: false,
            users: FairShare::default(),
            callers: ActiveThreads::default(),
        }
    }

    #[inline(always)]
    fn count(&self, heat: PollRate) -> usize {
        self.lists[heat as usize].len()
    }

    /// Takes a lane of that user in, fresh. Everything that grows, grows here and not on the data path.
    pub(crate) fn insert(&mut self, mut lane: ServerChannel, uid: u32) -> ChannelKey {
        let key = self.free.pop().unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() as u32 - 1
        });
        for list in &mut self.lists {
            list.reserve(self.lanes.len() - list.len());
        }
        self.unflushed.reserve(self.lanes.len() - self.unflushed.len());
        self.held.reserve(self.lanes.len() - self.held.len());
        lane.heat = PollRate::Fresh;
        lane.place = self.count(PollRate::Fresh);
        lane.user = self.users.enter(uid);
        lane.counted_at = place_of(uid);
        self.lists[PollRate::Fresh as usize].push(key);
        self.lanes[key as usize] = Some(lane);
        ChannelKey(key)
    }

    pub(crate) fn remove(&mut self, key: ChannelKey) {
        self.unlist(key.0);
        if let Some(lane) = self.lanes[key.0 as usize].take() {
            self.users.leave(lane.user);
        }
        self.unflushed.retain(|other| *other != key.0);
        self.held.retain(|other| *other != key.0);
        self.free.push(key.0);
    }

    /// Copies up to `budget` requests out.
    #[inline]
    pub(crate) fn poll(&mut self, budget: usize, into: &mut Vec<(ChannelId, Entry)>) -> usize {
        if self.users.are_several() {
            return self.visit::<true>(budget, &mut |lane, most| TakenRequests::light(lane.take(most, into)));
        }
        self.visit::<false>(budget, &mut |lane, most| TakenRequests::light(lane.take(most, into)))
    }

    /// Passes up to `budget` requests to `answerer`, and publishes what it answers at once.
    #[inline]
    pub(crate) fn serve(&mut self, budget: usize, answerer: &mut impl RequestHandler) -> usize {
        if self.users.are_several() {
            return self.serve_several(budget, answerer);
        }
        self.visit::<false>(budget, &mut |lane, most| TakenRequests::light(lane.serve(most, answerer)))
    }

    /// Apart, so that the usual way stays as short as it is.
    #[cold]
    #[inline(never)]
    fn serve_several(&mut self, budget: usize, answerer: &mut impl RequestHandler) -> usize {
        self.visit::<true>(budget, &mut |lane, most| {
            let mut taken = TakenRequests::default();
            while taken.weight < most {
                let mut weighing = LoadMeter { answerer, weight: 0 };
                let requests = lane.serve(1, &mut weighing);
                if requests == 0 {
                    break;
                }
                taken.requests += requests;
                taken.weight += weighing.weight;
            }
            taken
        })
    }

    /// Goes over the lanes, of `SEVERAL` users or of one; `take` takes up to so many requests from one and says what it took.
    #[inline(always)]
    fn visit<const SEVERAL: bool>(
        &mut self,
        budget: usize,
        take: &mut impl FnMut(&mut ServerChannel, usize) -> TakenRequests,
    ) -> usize {
        if !self.held.is_empty() {
            self.send_held(1);
        }
        let sweep = self.callers.next_sweep();
        let to_others = LEFT_TO_OTHERS.min(budget / 2);
        let mut left = budget - to_others;
        self.visit_hot::<SEVERAL>(&mut left, take);
        left += to_others;
        self.idle_sweeps = if left == budget { self.idle_sweeps.saturating_add(1) } else { 0 };
        let long = self.idle_sweeps > IDLE_SWEEPS_SHORT;
        let slice = if long { COLD_SLICE_IDLE } else { COLD_SLICE } + self.count(PollRate::Hot) / 2;
        self.looks_due = self.looks_due.saturating_sub(slice);
        self.visit_waiting::<SEVERAL>(PollRate::Cold, slice, &mut left, take);
        if long || sweep.is_multiple_of(FRESH_EVERY) {
            self.visit_waiting::<SEVERAL>(PollRate::Fresh, FRESH_SLICE, &mut left, take);
        }
        budget - left
    }

    #[inline(always)]
    fn visit_hot<const SEVERAL: bool>(
        &mut self,
        left: &mut usize,
        take: &mut impl FnMut(&mut ServerChannel, usize) -> TakenRequests,
    ) {
        let hot = self.count(PollRate::Hot);
        // With few, as nearly always, there is nothing to divide: that would take as long as the look itself.
        let batch = if hot <= TURN_MAX / LANE_BATCH_MAX { LANE_BATCH_MAX } else { (TURN_MAX / hot).max(1) };
        let first = self.cursors[PollRate::Hot as usize];
        if SEVERAL {
            self.users.begin_turn(self.idle_sweeps > IDLE_SWEEPS_FREE);
        }
        for _ in 0..self.count(PollRate::Hot) {
            if *left == 0 || self.count(PollRate::Hot) == 0 {
                return;
            }
            let key = self.next(PollRate::Hot);
            let Some(lane) = self.lanes[key as usize].as_mut() else { return };
            let (user, mut most) = (lane.user, batch.min(*left));
            if SEVERAL {
                most = most.min(self.users.left(user));
                if most == 0 {
                    self.cursors[PollRate::Hot as usize] += 1;
                    continue;
                }
            }
            let taken = take(lane, most);
            *left -= taken.requests;
            if SEVERAL {
                self.users.took(user, taken.weight);
            }
            if taken.requests > 0 {
                lane.idle_sweeps = 0;
                self.cursors[PollRate::Hot as usize] += 1;
                self.note(key);
                continue;
            }
            // Another lane moves into this place when it goes cold, and then the cursor stays.
            self.cursors[PollRate::Hot as usize] += usize::from(!self.cool(key));
        }
        if SEVERAL {
            // The next go begins one lane further on, so that each of a user's lanes is the first one some time.
            self.cursors[PollRate::Hot as usize] = if first < self.count(PollRate::Hot) { first + 1 } else { 1 };
        }
    }

    /// The lane at the cursor of a list that is not empty.
    #[inline(always)]
    fn next(&mut self, heat: PollRate) -> u32 {
        let (list, cursor) = (&self.lists[heat as usize], &mut self.cursors[heat as usize]);
        if *cursor >= list.len() {
            *cursor = 0;
        }
        list[*cursor]
    }

    /// A hot lane had nothing. True when it went cold.
    #[inline]
    fn cool(&mut self, key: u32) -> bool {
        let Some(lane) = self.lanes[key as usize].as_mut() else { return false };
        if lane.is_guilty()
            && let Some(offence) = lane.offence()
        {
            self.accuse(offence);
            return false;
        }
        if lane.under_way() > 0 {
            lane.idle_sweeps = 0;
            return false;
        }
        lane.idle_sweeps += 1;
        let cold = lane.idle_sweeps >= HOT_LOOKS / self.count(PollRate::Hot) as u32;
        if cold {
            self.move_to(key, PollRate::Cold);
        }
        cold
    }

    /// Looks at some of the lanes that had no requests of late.
    #[inline(always)]
    fn visit_waiting<const SEVERAL: bool>(
        &mut self,
        heat: PollRate,
        slice: usize,
        left: &mut usize,
        take: &mut impl FnMut(&mut ServerChannel, usize) -> TakenRequests,
    ) {
        for _ in 0..slice.min(self.count(heat)) {
            if *left == 0 || self.count(heat) == 0 {
                return;
            }
            let key = self.next(heat);
            let Some(lane) = self.lanes[key as usize].as_mut() else { return };
            let (user, mut most) = (lane.user, LANE_BATCH_MAX.min(*left));
            if SEVERAL {
                if self.users.has_to_wait(user) {
                    self.cursors[heat as usize] += 1;
                    continue;
                }
                // One beyond his share: it makes the lane hot, and from then on it has its turns.
                most = most.min(self.users.left(user).max(1));
            }
            let taken = take(lane, most);
            if taken.requests > 0 {
                *left -= taken.requests;
                if SEVERAL {
                    self.users.took(user, taken.weight);
                }
                self.move_to(key, PollRate::Hot);
                self.note(key);
                continue;
            }
            self.cursors[heat as usize] += 1;
            if let Some(offence) = lane.offence() {
                self.accuse(offence);
            }
        }
    }

    /// Remembers what a visit has left to do for a lane.
    #[inline(always)]
    fn note(&mut self, key: u32) {
        let Some(lane) = self.lanes[key as usize].as_mut() else { return };
        if self.callers.is_first(&mut lane.period) {
            self.callers.count(lane.counted_at, lane.caller());
        }
        match std::mem::replace(&mut lane.replied, ReplyOutcome::Unasked) {
            ReplyOutcome::Unasked => {}
            ReplyOutcome::Out => self.note_unflushed(key),
            ReplyOutcome::Held => self.hold(key),
        }
    }

    /// How many lanes are looked at in each sweep.
    pub(crate) fn hot(&self) -> usize {
        self.count(PollRate::Hot)
    }

    /// Lanes whose clients have something to come, and the requests among that.
    pub(crate) fn owed(&self) -> (usize, usize) {
        let owed = self.lanes.iter().flatten().filter(|lane| lane.is_owed());
        owed.fold((0, 0), |(lanes, requests), lane| (lanes + 1, requests + lane.under_way()))
    }

    /// Whether any lane has a request that [`poll`](Self::poll) would take.
    pub(crate) fn has_requests(&self) -> bool {
        let mut lanes = self.lanes.iter().flatten();
        lanes.any(ServerChannel::has_request)
    }

    /// Makes every lane with a request hot, so that who woke the service up does not wait for the cold slice; and tries
    /// all that is held back.
    pub(crate) fn warm_all(&mut self) {
        self.send_held(self.held.len());
        for heat in [PollRate::Cold, PollRate::Fresh] {
            for index in (0..self.count(heat)).rev() {
                let key = self.lists[heat as usize][index];
                if self.lanes[key as usize].as_ref().is_some_and(ServerChannel::has_request) {
                    self.move_to(key, PollRate::Hot);
                }
            }
        }
    }

    /// Publishes a completion. False when the lane has no request under way.
    #[inline]
    pub(crate) fn reply(&mut self, key: ChannelKey, entry: &Entry) -> bool {
        let Some(lane) = self.lanes[key.0 as usize].as_mut() else { return false };
        match lane.reply(entry) {
            ReplyOutcome::Unasked => return false,
            ReplyOutcome::Held => self.hold(key.0),
            ReplyOutcome::Out => self.note_unflushed(key.0),
        }
        true
    }

    #[inline(always)]
    fn note_unflushed(&mut self, key: u32) {
        if let Some(lane) = self.lanes[key as usize].as_mut()
            && !lane.unflushed
        {
            lane.unflushed = true;
            self.unflushed.push_back(key);
        }
    }

    fn hold(&mut self, key: u32) {
        if !self.held.contains(&key) {
            self.held.push_back(key);
        }
    }

    /// Tries to send what is held back, for that many lanes; one failed try is one system call.
    fn send_held(&mut self, count: usize) {
        for _ in 0..count {
            let Some(key) = self.held.pop_front() else { return };
            let Some(lane) = self.lanes[key as usize].as_mut() else { continue };
            let client = lane.client();
            if !lane.send_held() {
                self.held.push_back(key);
            } else if !self.holds_for(client)
                && let Some(lane) = self.lanes[key as usize].as_ref()
            {
                lane.clear_held_word();
            }
            self.note_unflushed(key);
        }
    }

    fn holds_for(&self, client: ClientId) -> bool {
        self.held.iter().any(|key| self.lanes[*key as usize].as_ref().is_some_and(|lane| lane.client() == client))
    }

    fn accuse(&mut self, offence: ProtocolViolation) {
        if self.offences.len() < OFFENCES_MAX {
            self.offences.push_back(offence);
        }
    }

    /// Whether there are lanes whose clients may sleep although their completions are out.
    #[inline(always)]
    pub(crate) fn has_unflushed(&self) -> bool {
        !self.unflushed.is_empty()
    }

    /// Whether it is time for another wake-up.
    #[inline(always)]
    pub(crate) fn may_wake(&self) -> bool {
        self.looks_due == 0 && self.has_unflushed()
    }

    /// Wakes one who sleeps, after looking at those before it who do not; `send` wakes a task of that client through its
    /// socket. True if it woke somebody.
    ///
    /// One and not all, and between two of them each cold lane is looked at: a wake-up takes as long as thirty answers,
    /// and those who spin give up if they are not found meanwhile. Then they have to be woken as well, and a crowd ends
    /// up asleep.
    pub(crate) fn flush(&mut self, mut send: impl FnMut(ClientId)) -> bool {
        order::before_wake();
        while let Some(key) = self.unflushed.pop_front() {
            let Some(lane) = self.lanes[key as usize].as_mut() else { continue };
            lane.unflushed = false;
            match lane.wake() {
                WakeOutcome::Nobody => continue,
                WakeOutcome::Maybe => {
                    self.woke = true;
                    continue;
                }
                WakeOutcome::Beside => {
                    self.owes_core = true;
                    continue;
                }
                WakeOutcome::Thread => {}
                WakeOutcome::Task => send(lane.client()),
            }
            self.woke = true;
            self.looks_due = self.count(PollRate::Cold);
            return true;
        }
        false
    }

    /// Whether somebody who yields on the service's core has his answer since the last time.
    pub(crate) fn take_owed_core(&mut self) -> bool {
        std::mem::take(&mut self.owes_core)
    }

    /// Whether somebody was woken since the last time, or may have been.
    pub(crate) fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.woke)
    }

    /// Whether somebody with requests under way yields on the service's core.
    pub(crate) fn has_one_beside(&self) -> bool {
        let mut hot = self.lists[PollRate::Hot as usize].iter();
        hot.any(|key| self.lanes[*key as usize].as_ref().is_some_and(ServerChannel::waits_beside))
    }

    pub(crate) fn offence(&mut self) -> Option<ProtocolViolation> {
        self.offences.pop_front()
    }

    fn unlist(&mut self, key: u32) {
        let Some(lane) = self.lanes[key as usize].as_ref() else { return };
        let place = lane.place;
        if lane.heat == PollRate::Hot {
            self.users.cools(lane.user);
        }
        let list = &mut self.lists[lane.heat as usize];
        list.swap_remove(place);
        if let Some(&moved) = list.get(place)
            && let Some(moved) = self.lanes[moved as usize].as_mut()
        {
            moved.place = place;
        }
    }

    fn move_to(&mut self, key: u32, heat: PollRate) {
        self.unlist(key);
        let list = &mut self.lists[heat as usize];
        let place = list.len();
        list.push(key);
        if let Some(lane) = self.lanes[key as usize].as_mut() {
            lane.heat = heat;
            lane.place = place;
            lane.idle_sweeps = 0;
            if heat == PollRate::Hot {
                self.users.warms(lane.user);
            }
        }
    }
}

// Keys are 32 bits; so many lanes there are never.
const _: () = assert!(CLIENTS_MAX * ddss_core::limits::LANES_PER_CLIENT_MAX < u32::MAX as usize);
