//! Hostile peers: any bytes in any order end in an error of the space at worst. `fuzz/fuzz_targets/dsm_message.rs` plays the
//! same for longer.

mod play;

use ddss_dsm_core::limits::INTERVAL_MAX;
use ddss_dsm_core::message::{Codec, Message};
use ddss_dsm_core::{
    Access, Action, CallId, ChangedPages, Config, Engine, Event, Failure, Notice, Output, PageId, PageRange, Rank,
    RankSet, Request, Tag, VectorTime,
};
use proptest::prelude::*;

/// Kinds of messages with their lengths for three ranks, without lists.
const LENGTHS: [(u8, u8); 21] = [
    (1, 17),
    (2, 18),
    (3, 19),
    (4, 17),
    (5, 17),
    (6, 17),
    (7, 5),
    (8, 17),
    (9, 25),
    (10, 25),
    (11, 15),
    (12, 22),
    (13, 9),
    (14, 19),
    (15, 20),
    (16, 7),
    (17, 7),
    (18, 19),
    (19, 7),
    (20, 2),
    (21, 4),
];

/// Steps of `play` for a message of the first or second peer.
fn message_step(is_second: bool, bytes: &[u8]) -> Vec<u8> {
    let mut step = vec![if is_second { 131 } else { 3 }, bytes.len() as u8];
    step.extend(bytes);
    step
}

/// A grant of a lock with notices.
fn grant() -> impl Strategy<Value = Vec<u8>> {
    let notice = (0u8..8, proptest::option::of(proptest::collection::vec((0u32..6, 1u32..3), 0..3)));
    let fields = (any::<bool>(), 0u32..3, [0u8..6, 0u8..8, 0u8..8], proptest::collection::vec(notice, 0..4));
    fields.prop_map(|(is_second, lock, intervals, notices)| {
        let mut time = VectorTime::default();
        (0..).zip(intervals).for_each(|(index, value)| time.raise(rank(index), play::word(value)));
        let range = |(first, pages)| PageRange { first: PageId(first), pages };
        let notice = |(interval, ranges): (u8, Option<Vec<(u32, u32)>>)| Notice {
            interval: play::word(interval),
            pages: ranges
                .map_or(ChangedPages::Coarse, |ranges| ChangedPages::Exact(ranges.into_iter().map(range).collect())),
        };
        let notices = Some(notices.into_iter().map(notice).collect());
        let mut bytes = Vec::new();
        Codec::new(&play::config(0)).encode(&Message::LockGrant { lock, time, notices }, &mut bytes);
        message_step(is_second, &bytes)
    })
}

/// A step of `play`: a call, a completion, a tick, a change of memory, or a message of valid length. Its fields are small, or
/// the greatest numbers. Most steps are no messages: an unexpected one ends the space.
fn step() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![Just(0u8), Just(1), Just(2), Just(4), Just(5), Just(6)];
    let other = (kind, 0u8..32, any::<u8>()).prop_map(|(kind, detail, argument)| vec![kind | detail << 3, argument]);
    let message =
        (0usize..20, any::<bool>(), proptest::collection::vec(0u8..40, 7)).prop_map(|(at, second, fields)| {
            let (kind, length) = LENGTHS[at];
            // Most numbers are small: a message with a number outside the space ends the space.
            let number = |value: u8| if value < 32 { u32::from(value % 6) } else { play::word(value) };
            let fields = fields.into_iter().flat_map(|value| number(value).to_le_bytes());
            let bytes: Vec<u8> = std::iter::once(kind).chain(fields).take(length.into()).collect();
            message_step(second, &bytes)
        });
    prop_oneof![9 => other, 1 => message, 2 => grant()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // If this failed, one rank could end the process of another.
    #[test]
    fn valid_and_invalid_messages_in_any_order_cause_no_panic(
        flags in any::<u8>(),
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let mut input = vec![flags];
        steps.into_iter().for_each(|step| input.extend(step));
        play::play(&input);
    }
}

/// An engine of rank 0 of three, which manages the indices 0, 3, 6 and so on.
struct Victim {
    engine: Engine,
    memory: play::Bounded,
    codec: Codec,
}

impl Victim {
    fn new(flags: u8) -> Self {
        let config: Config = play::config(flags);
        let engine = Engine::new(config).expect("the settings are valid");
        Self { engine, memory: play::Bounded::new(), codec: Codec::new(&config) }
    }

    fn handle(&mut self, event: Event<'_>) -> Vec<Action> {
        let mut out = Output::default();
        self.engine.handle(event, 0, &mut self.memory, &mut out);
        out.actions().to_vec()
    }

    fn call(&mut self, call: u64, request: Request) -> Vec<Action> {
        self.handle(Event::Call { call: CallId(call), request })
    }

    fn receive(&mut self, from: usize, message: &Message<'_>) -> Vec<Action> {
        let mut bytes = Vec::new();
        self.codec.encode(message, &mut bytes);
        self.handle(Event::Message { from: rank(from), bytes: &bytes })
    }

    /// Returns the rank that broke the protocol.
    fn culprit(&self) -> Option<Rank> {
        self.engine.failure().map(|failure| match failure {
            Failure::Protocol(rank) => rank,
            other => panic!("another failure: {other}"),
        })
    }
}

fn rank(index: usize) -> Rank {
    Rank::new(index).expect("a rank of the space")
}

fn time(intervals: [u32; 3]) -> VectorTime {
    let mut time = VectorTime::default();
    (0..).zip(intervals).for_each(|(index, interval)| time.raise(rank(index), interval));
    time
}

fn touch(page: u32, access: Access) -> Request {
    Request::Touch { pages: PageRange::one(PageId(page)), access }
}

// If this failed, a peer could name as home of a page a rank that the space does not have.
#[test]
fn home_word_of_no_rank_ends_the_space() {
    for flags in 0..4 {
        let mut victim = Victim::new(flags);
        victim.memory.words[3] = 4;
        victim.call(1, touch(3, Access::Read));
        assert_eq!(victim.culprit(), Some(Rank::ZERO), "its own word");
        let mut victim = Victim::new(flags);
        victim.memory.words[3] = 4;
        victim.receive(1, &Message::PageRequest { page: PageId(3), slot: 0, needed: time([0; 3]) });
        assert_eq!(victim.culprit(), Some(Rank::ZERO), "for a peer");
    }
}

// If this failed, any peer could end a wait or an addition of another.
#[test]
fn only_the_manager_ends_waits_and_additions() {
    let grant = Message::SemaphoreGrant { semaphore: 1, time: time([0; 3]) };
    let value = Message::CounterValue { counter: 1, value: 7, time: time([0; 3]) };
    for (request, message) in [(Request::Wait(1), grant), (Request::Add { counter: 1, delta: 1 }, value)] {
        for (from, culprit) in [(1, None), (2, Some(rank(2)))] {
            let mut victim = Victim::new(3);
            victim.call(1, request);
            let actions = victim.receive(from, &message);
            assert_eq!(victim.culprit(), culprit);
            assert!(actions.iter().any(|action| matches!(action, Action::Complete { .. })));
        }
    }
}

// If this failed, the requests that a home keeps for one peer would be bounded by the pages of the space only.
#[test]
fn second_request_for_a_slot_is_refused() {
    let mut victim = Victim::new(0);
    for page in [0, 3] {
        victim.call(1 + u64::from(page), touch(page, Access::Read));
    }
    let request = |page, slot| Message::PageRequest { page: PageId(page), slot, needed: time([0, 0, 9]) };
    victim.receive(1, &request(0, 0));
    victim.receive(2, &request(3, 0));
    assert_eq!(victim.culprit(), None);
    victim.receive(1, &request(3, 0));
    assert_eq!(victim.culprit(), Some(rank(1)));
}

// If this failed, numbers behind the last interval would overflow.
#[test]
fn interval_behind_the_last_is_refused() {
    for (interval, culprit) in [(INTERVAL_MAX, None), (u32::MAX, Some(rank(1)))] {
        let mut victim = Victim::new(3);
        victim.call(1, Request::Wait(1));
        let actions = victim.receive(1, &Message::SemaphoreGrant { semaphore: 1, time: time([0, 1, interval]) });
        assert_eq!(victim.culprit(), culprit);
        let reads = actions.iter().filter(|action| matches!(action, Action::Read { tag: Tag::Log, .. })).count();
        assert_eq!(reads, if culprit.is_none() { 3 } else { 0 }, "one of a log, and two of a ring at its end");
    }
}

// If this failed, a granter could leave intervals out, or name one that never comes: its pages could not be fetched.
#[test]
fn incomplete_notices_are_read_from_the_log() {
    let log_reads = |intervals: &[u32]| {
        let mut victim = Victim::new(3);
        victim.call(1, Request::Lock(1));
        let pages = || ChangedPages::Exact(vec![PageRange::one(PageId(2))]);
        let notices = intervals.iter().map(|interval| Notice { interval: *interval, pages: pages() }).collect();
        let grant = Message::LockGrant { lock: 1, time: time([0, 2, 0]), notices: Some(notices) };
        let actions = victim.receive(1, &grant);
        assert_eq!(victim.culprit(), None);
        let is_read = |action: &&Action| matches!(action, Action::Read { tag: Tag::Log, from, .. } if *from == rank(1));
        actions.iter().filter(is_read).count()
    };
    assert_eq!(log_reads(&[1, 2]), 0, "complete");
    for incomplete in [&[][..], &[2], &[1], &[2, 1], &[1, 1, 2], &[1, 2, 3], &[1, INTERVAL_MAX]] {
        assert_eq!(log_reads(incomplete), 2, "{incomplete:?}");
    }
}

// If this failed, the driver of an ended space would never sleep again.
#[test]
fn ended_space_has_no_deadline() {
    let mut victim = Victim::new(3);
    victim.call(1, Request::Lock(1));
    let notices = Some(vec![Notice { interval: 1, pages: ChangedPages::Exact(vec![PageRange::one(PageId(1))]) }]);
    victim.receive(1, &Message::LockGrant { lock: 1, time: time([0, 1, 0]), notices });
    victim.call(2, touch(1, Access::Read));
    victim.handle(Event::Done { tag: Tag::Claim(0), value: rank(1).home_word() });
    for tag in [Tag::Line(0), Tag::Page(0)] {
        victim.handle(Event::Done { tag, value: 0 });
    }
    assert!(victim.engine.next_deadline().is_some(), "the version line is old: it is read again");
    victim.handle(Event::Lost(rank(1)));
    assert_eq!(victim.engine.next_deadline(), None);
}

/// Handles an event; returns the messages that go out, with their receivers.
fn handled(engine: &mut Engine, event: Event<'_>) -> Vec<(usize, Vec<u8>)> {
    let mut out = Output::default();
    engine.handle(event, 0, &mut play::Bounded::new(), &mut out);
    let sent = out.actions().iter().filter_map(|action| match action {
        Action::Send { to, message } => Some((to.index(), out.payload(message).to_vec())),
        _ => None,
    });
    sent.collect()
}

// If this failed, the survivors would look for a crash of the rank that waited, and not for the one that was late.
#[test]
fn rank_0_names_the_ranks_that_are_missing_when_another_one_gives_up() {
    let codec = Codec::new(&play::config(0));
    let encoded = |message: &Message<'_>| {
        let mut bytes = Vec::new();
        codec.encode(message, &mut bytes);
        bytes
    };
    let call = |call, request| Event::Call { call: CallId(call), request };
    let config = Config { rank: rank(1), ..play::config(0) };
    let mut waiting = Engine::new(config).unwrap();
    let arrives = handled(&mut waiting, call(1, Request::Barrier(4)));
    let asks = handled(&mut waiting, call(2, Request::GiveUp));
    assert_eq!((asks.len(), asks[0].0, waiting.failure()), (1, 0, None), "rank 0 decides");
    let mut first = Engine::new(play::config(0)).unwrap();
    let mut told = Vec::new();
    for (_, bytes) in arrives.iter().chain(&asks) {
        told = handled(&mut first, Event::Message { from: rank(1), bytes });
    }
    let mut missing = RankSet::default();
    assert!([0, 2].into_iter().all(|index| missing.insert(rank(index))));
    let failure = Failure::GaveUp { rank: rank(1), missing };
    let message = encoded(&Message::GaveUp { rank: rank(1), missing });
    assert_eq!(told, [(1, message.clone()), (2, message)]);
    assert_eq!(first.failure(), Some(failure));
    let mut alone = waiting.clone();
    handled(&mut waiting, Event::Message { from: rank(0), bytes: &told[0].1 });
    assert_eq!(waiting.failure(), Some(failure));
    assert!(failure.to_string().contains("rank 0, rank 2 did not come to its barrier"), "{failure}");
    // Without an answer of rank 0.
    assert_eq!(handled(&mut alone, call(3, Request::GiveUp)).len(), 2);
    assert_eq!(alone.failure(), Some(Failure::GaveUp { rank: rank(1), missing: RankSet::default() }));
}
