//! What a member of the cluster gets that has the key and keeps to no rule: it loses its connection or is told no, the
//! daemon lives, a client of the home is served all the while, and nobody reads or writes where he may not.

use super::unauthenticated_peer::{Home, Member, Seen, WHO};
use ddss_core::limits::{STAGING_BYTES, TRANSFER_BYTES_MAX, WAITERS_PER_SEGMENT_MAX};
use ddss_core::{
    ArenaRange, AtomicOp, Completion, Failure, LockRequest, LockToken, Message, Name, NodeId, OpenedSegment, Operation,
    Outcome, Payload, Principal, PutConditions, ReadOptions, RemoteWindow, Request, RequestId, SegmentId, Spec,
    Timestamp, Version,
};
use ddss_ipc::{AttachOptions, Attachment, Channel, SharedMemory, WaitClass, WaitOutcome};
use ddss_verbs::{Fabric, LocalRange, RegionId, RemoteRange, Trust, Work};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SECRET: [u8; 16] = *b"nobody sees this";
const SEGMENT_BYTES: u64 = 4096;
const TIMEOUT_US: u32 = 100_000;

/// What a lie comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Its connection is over.
    Cut,
    /// It is told no, or nothing, and is served as before.
    Served,
}

/// The attacked home, and what a good client has there.
struct Target<'home> {
    home: &'home Home,
    secret: SegmentId,
    /// Another segment, whose lock the good client holds.
    held: SegmentId,
    token: LockToken,
}

/// A member with memory of its own to read into.
struct Liar {
    member: Member,
    memory: SharedMemory,
    region: RegionId,
    step: u64,
}

fn fresh_run() -> u32 {
    static RUN: AtomicU32 = AtomicU32::new(1000);
    RUN.fetch_add(1, Ordering::Relaxed)
}

impl Liar {
    fn meet(home: &Home) -> Self {
        let mut member = Member::meet(home, fresh_run()).0;
        let memory = SharedMemory::create("ddss-liar", 1 << 20).unwrap();
        let fabric = &mut member.caller.fabric;
        let region = fabric.register(memory.descriptor(), Trust::Sealed, 0, 1 << 20).unwrap();
        Self { member, memory, region, step: 100 }
    }

    /// Asks for something, with a number of its own; what the home answers to it.
    fn ask(&mut self, message: impl FnOnce(u64) -> Message, tail: &[u8]) -> Option<Message> {
        self.step += 1;
        self.member.say(&message(self.step).encode(Timestamp::default(), tail));
        loop {
            let Some(Seen::Said(plain)) = self.member.hear() else { return None };
            let (answer, ..) = Message::decode(&plain).unwrap();
            match answer {
                Message::Ended { step, .. } | Message::Found { step, .. } if step == self.step => return Some(answer),
                _ => {}
            }
        }
    }

    fn outcome(&mut self, message: impl FnOnce(u64) -> Message, tail: &[u8]) -> Outcome {
        match self.ask(message, tail) {
            Some(Message::Ended { outcome, .. }) => outcome,
            other => panic!("{other:?} is no end"),
        }
    }

    fn denied(&mut self, message: impl FnOnce(u64) -> Message, tail: &[u8]) {
        let outcome = self.outcome(message, tail);
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    }

    /// Makes a segment at the home; its id and the window over it.
    fn make(&mut self, name: &str, spec: Spec, who: Principal) -> (SegmentId, RemoteWindow) {
        let name = Name::new(name).unwrap();
        match self.ask(|step| Message::Allocate { step, who, spec, name }, &[]) {
            Some(Message::Found { facts, window, .. }) => (facts.segment, window),
            other => panic!("{name:?} is not made: {other:?}"),
        }
    }

    fn post(&mut self, work: Work<'_>) {
        // What its own fabric refuses never reaches the home: that is no attack.
        self.member.caller.fabric.post(&[work]).unwrap();
    }

    fn read(&mut self, key: u32, address: u64, bytes: u64) {
        let (peer, local) = (self.member.peer, LocalRange { region: self.region, offset: 0, bytes });
        self.post(Work::Read { peer, tag: 1, local, remote: RemoteRange { key, address } });
    }

    fn write(&mut self, key: u32, address: u64, bytes: u64) {
        let (peer, local) = (self.member.peer, LocalRange { region: self.region, offset: 0, bytes });
        self.post(Work::Write { peer, tag: 1, local, remote: RemoteRange { key, address } });
    }

    /// Whether its connection ends, and nothing that it read came.
    fn ends(&mut self) -> bool {
        let ends = self.member.caller.ends(self.member.peer);
        let mut seen = vec![0; 1 << 20];
        self.memory.read(0, &mut seen).unwrap();
        assert!(!seen.windows(16).any(|part| part == SECRET), "a secret was read");
        ends
    }
}

/// A client of the home that keeps to the rules; each of its calls succeeds.
struct Good {
    _attachment: Attachment,
    lane: Channel,
    arena: SharedMemory,
}

impl Good {
    fn attach(home: &Home) -> Self {
        let attachment = Attachment::connect(home.socket(), &AttachOptions::default()).unwrap();
        let (lane, arena) = (attachment.take_channel().unwrap(), attachment.arena().clone());
        Self { _attachment: attachment, lane, arena }
    }

    fn ask(&mut self, operation: Operation) -> Completion {
        let request = Request { timeout_us: 20_000_000, ..Request::new(RequestId(1), operation) };
        self.lane.submit(request.encode()).unwrap();
        self.lane.ring_doorbell();
        let deadline = Instant::now() + Duration::from_secs(30);
        assert_eq!(self.lane.wait(WaitClass::Polling, deadline), WaitOutcome::Ready, "{operation:?}");
        let completion = Completion::decode(&self.lane.reap().unwrap());
        assert_eq!(completion.outcome, Outcome::Done, "{operation:?}");
        completion
    }

    fn make(&mut self, name: &str, mode: u16) -> SegmentId {
        let spec = Spec { mode, ..Spec::new(SEGMENT_BYTES) };
        let text = [&spec.encode()[..], name.as_bytes()].concat();
        self.arena.write(0, &text).unwrap();
        let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
        OpenedSegment::decode(&self.ask(Operation::Allocate { spec_and_name }).data).segment
    }

    fn get(&mut self, segment: SegmentId) -> Completion {
        let into = ArenaRange { slot: 1, bytes: 16 };
        self.ask(Operation::Get { segment, offset: 0, into, inline: true, look: ReadOptions::default() })
    }
}

fn put(segment: SegmentId, offset: u64, length: u32, staged: u64) -> impl FnOnce(u64) -> Message {
    let terms = PutConditions::default();
    move |step| Message::Put {
        step,
        who: WHO,
        segment,
        offset,
        length,
        staged,
        ranges: 0,
        terms,
        timeout_us: TIMEOUT_US,
    }
}

fn get(segment: SegmentId, offset: u64, length: u32) -> impl FnOnce(u64) -> Message {
    let (look, token) = (ReadOptions::default(), None);
    move |step| Message::Get { step, who: WHO, segment, offset, length, ranges: 0, look, token, timeout_us: TIMEOUT_US }
}

fn reads_with_a_guessed_key(liar: &mut Liar, _: &Target<'_>) {
    liar.read(0x1234_5678, 0, 64);
}

fn reads_beyond_its_window(liar: &mut Liar, _: &Target<'_>) {
    let (_, window) = liar.make("beyond", Spec::new(SEGMENT_BYTES), WHO);
    liar.read(window.key, window.base + window.bytes - 8, 4096);
}

fn reads_far_from_its_window(liar: &mut Liar, _: &Target<'_>) {
    let (_, window) = liar.make("far", Spec::new(SEGMENT_BYTES), WHO);
    liar.read(window.key, window.base + (1 << 40), 4096);
}

fn reads_where_addresses_wrap(liar: &mut Liar, _: &Target<'_>) {
    let (_, window) = liar.make("wraps", Spec::new(SEGMENT_BYTES), WHO);
    liar.read(window.key, u64::MAX - 64, 64);
}

fn reads_what_it_may_only_write(liar: &mut Liar, _: &Target<'_>) {
    let staging = liar.member.staging;
    liar.read(staging.key, staging.base, 4096);
}

fn writes_what_it_may_only_read(liar: &mut Liar, _: &Target<'_>) {
    let (_, window) = liar.make("written", Spec::new(SEGMENT_BYTES), WHO);
    liar.write(window.key, window.base, 64);
}

fn writes_beyond_its_staging_memory(liar: &mut Liar, _: &Target<'_>) {
    let staging = liar.member.staging;
    liar.write(staging.key, staging.base + staging.bytes - 8, 4096);
}

fn changes_words_of_a_window(liar: &mut Liar, _: &Target<'_>) {
    let (_, window) = liar.make("words", Spec::new(SEGMENT_BYTES), WHO);
    let remote = RemoteRange { key: window.key, address: window.base };
    liar.post(Work::FetchAdd { peer: liar.member.peer, tag: 1, remote, add: 2 });
}

fn reads_a_segment_that_it_released(liar: &mut Liar, _: &Target<'_>) {
    let (segment, window) = liar.make("released", Spec::new(SEGMENT_BYTES), WHO);
    liar.member.say(&Message::Release { step: 1, who: WHO, segment }.encode(Timestamp::default(), &[]));
    // It says that it reads no more, and does.
    liar.member.say(&Message::Forgotten { segment }.encode(Timestamp::default(), &[]));
    assert!(liar.member.is_served_after_all());
    liar.read(window.key, window.base, 64);
}

fn uses_a_key_of_an_earlier_connection(liar: &mut Liar, target: &Target<'_>) {
    let (_, window) = liar.make("earlier", Spec::new(SEGMENT_BYTES), WHO);
    *liar = Liar::meet(target.home);
    liar.read(window.key, window.base, 64);
}

fn puts_from_beyond_its_staging_memory(liar: &mut Liar, target: &Target<'_>) {
    liar.member.say(&put(target.held, 0, 8, STAGING_BYTES as u64 - 4)(1).encode(Timestamp::default(), &[]));
}

fn puts_bytes_that_it_did_not_send(liar: &mut Liar, target: &Target<'_>) {
    liar.member.say(&put(target.held, 0, 400, Message::NOT_STAGED)(1).encode(Timestamp::default(), &[7; 16]));
}

fn welcomes_to_a_window_that_is_nowhere(liar: &mut Liar, target: &Target<'_>) {
    liar.member = Member::greet(target.home, fresh_run()).0;
    let staging = RemoteWindow { key: 1, base: u64::MAX - 5, bytes: STAGING_BYTES as u64 };
    liar.member.say(&Message::Welcome { staging }.encode(Timestamp::default(), &[]));
}

fn tells_of_a_segment_without_end(liar: &mut Liar, _: &Target<'_>) {
    let segment = SegmentId::new(NodeId(2), 0, 1);
    let permissions = ddss_core::Permissions { owner: WHO, mode: 0o666 };
    let facts = ddss_core::SegmentInfo {
        segment,
        bytes: 1 << 40,
        model: ddss_core::Model::Strict,
        permissions,
        keeps: u32::MAX,
        copies: 1,
        storage: ddss_core::Storage::Memory,
    };
    let window = RemoteWindow { key: 1, base: u64::MAX - 5, bytes: 1 << 50 };
    liar.member.say(&Message::Found { step: 1, facts, window }.encode(Timestamp::default(), &[]));
}

fn random_words(liar: &mut Liar, _: &Target<'_>) {
    let mut state = u64::from(fresh_run()) | 1;
    // The first ones may mean something by chance, and none of them does harm.
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..64)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        liar.member.say(&bytes);
    }
}

fn asks_beyond_a_segment(liar: &mut Liar, _: &Target<'_>) {
    let (segment, _) = liar.make("ranges", Spec::new(SEGMENT_BYTES), WHO);
    for (offset, length) in [(4090, 16), (u64::MAX, 1), (u64::MAX - 7, 16), (0, 4097), (0, u32::MAX), (1 << 63, 1)] {
        liar.denied(get(segment, offset, length), &[]);
        let length = length.min(400);
        if offset > 0 {
            liar.denied(put(segment, offset, length, Message::NOT_STAGED), &vec![7; length as usize]);
            liar.denied(put(segment, offset, TRANSFER_BYTES_MAX as u32, 0), &[]);
        }
        let (change, token, timeout_us) = (AtomicOp::Swap(7), None, TIMEOUT_US);
        let offset = if offset == 0 { 4096 } else { offset };
        liar.denied(|step| Message::Atomic { step, who: WHO, segment, offset, change, token, timeout_us }, &[]);
    }
}

fn uses_somebody_elses_lock(liar: &mut Liar, target: &Target<'_>) {
    let Target { held: segment, token, .. } = *target;
    liar.denied(|step| Message::Unlock { step, segment, token }, &[]);
    let terms = PutConditions { token: Some(token), ..PutConditions::default() };
    let (length, staged) = (8, Message::NOT_STAGED);
    let put = |step| Message::Put {
        step,
        who: WHO,
        segment,
        offset: 0,
        length,
        staged,
        ranges: 0,
        terms,
        timeout_us: TIMEOUT_US,
    };
    liar.denied(put, &[7; 8]);
}

fn asks_for_somebody_who_may_not(liar: &mut Liar, target: &Target<'_>) {
    let (segment, who) = (target.secret, Principal { uid: 9, gid: 9 });
    liar.denied(|step| Message::Describe { step, who, segment }, &[]);
    liar.denied(|step| Message::Release { step, who, segment }, &[]);
    liar.denied(|step| Message::Stat { step, who, segment }, &[]);
    let (look, token, timeout_us) = (ReadOptions::default(), None, TIMEOUT_US);
    let get = |step| Message::Get { step, who, segment, offset: 0, length: 64, ranges: 0, look, token, timeout_us };
    liar.denied(get, &[]);
}

fn names_segments_that_are_not_here(liar: &mut Liar, target: &Target<'_>) {
    let index = target.secret.index();
    for segment in [
        SegmentId::new(NodeId(2), index, target.secret.generation()),
        SegmentId::new(NodeId(1), index, target.secret.generation().wrapping_sub(1)),
        SegmentId::new(NodeId(1), u16::MAX, 1),
        SegmentId::from_bits(0),
        SegmentId::from_bits(u64::MAX),
    ] {
        liar.denied(get(segment, 0, 8), &[]);
        liar.denied(put(segment, 0, 8, Message::NOT_STAGED), &[7; 8]);
        liar.denied(|step| Message::Describe { step, who: WHO, segment }, &[]);
        liar.denied(|step| Message::Release { step, who: WHO, segment }, &[]);
    }
}

fn answers_what_nobody_asked(liar: &mut Liar, target: &Target<'_>) {
    let (version, timestamp) = (Version(9), Timestamp(9));
    for step in [0, 1, 1 << 20, u64::MAX] {
        let number = step;
        for message in [
            Message::Ended { step, outcome: Outcome::Done, version, timestamp, word: 7 },
            Message::Got { step, version, timestamp, length: 8, staged: 0, number },
            Message::Taken { number },
            Message::Listed { step, more: true },
            Message::Forget { segment: target.secret },
            Message::Forgotten { segment: target.secret },
        ] {
            liar.member.say(&message.encode(Timestamp::default(), &[]));
        }
    }
}

fn tells_of_a_far_future(liar: &mut Liar, _: &Target<'_>) {
    let (version, timestamp) = (Version(1), Timestamp(u64::MAX));
    liar.member.say(
        &Message::Ended { step: 1, outcome: Outcome::Done, version, timestamp, word: 0 }
            .encode(Timestamp::default(), &[]),
    );
    let (segment, _) = liar.make("future", Spec::new(8), WHO);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    match liar.ask(put(segment, 0, 8, Message::NOT_STAGED), &[7; 8]) {
        Some(Message::Ended { outcome: Outcome::Done, timestamp, .. }) => {
            assert!(timestamp.micros() < now + 60_000_000, "the clock runs ahead: {timestamp:?}");
        }
        other => panic!("{other:?}"),
    }
}

fn waits_in_masses(liar: &mut Liar, _: &Target<'_>) {
    let (segment, _) = liar.make("crowded", Spec::new(8), WHO);
    let wish = LockRequest { shared: false, no_wait: false, lease_us: 50_000 };
    let many = WAITERS_PER_SEGMENT_MAX as u64 + 200;
    for step in 0..many {
        let lock = Message::Lock { step: 1 << 40 | step, who: WHO, segment, wish, timeout_us: TIMEOUT_US };
        liar.say_patiently(&lock.encode(Timestamp::default(), &[]));
    }
    // Each of them ends, those for which there was no room at once.
    let mut busy = 0;
    for _ in 0..many {
        let Some(Seen::Said(plain)) = liar.member.hear() else { panic!("some never end") };
        let Ok((Message::Ended { outcome, .. }, ..)) = Message::decode(&plain) else { continue };
        busy += u64::from(outcome == Outcome::Failed(Failure::Busy));
    }
    assert!(busy > 0, "the line has no end");
}

fn fills_the_memory(liar: &mut Liar, _: &Target<'_>) {
    let mut made = Vec::new();
    for turn in 0..200 {
        let name = Name::new(&format!("fill/{turn}")).unwrap();
        let spec = Spec::new(64 << 10);
        match liar.ask(|step| Message::Allocate { step, who: WHO, spec, name }, &[]) {
            Some(Message::Found { facts, .. }) => made.push(facts.segment),
            Some(Message::Ended { outcome, .. }) => {
                assert_eq!(outcome, Outcome::Failed(Failure::NoSpace));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(!made.is_empty() && made.len() < 200, "the memory of a node has no end");
}

fn asks_and_never_listens(liar: &mut Liar, target: &Target<'_>) {
    // The answers fill the home's socket and then its outbox; it takes no more than that.
    let name = Name::new("nothing").unwrap();
    let end = Instant::now() + Duration::from_secs(1);
    let mut sealed = [0; 600];
    while Instant::now() < end {
        let lookup = Message::Lookup { step: 7, who: WHO, name }.encode(Timestamp::default(), &[]);
        let length = liar.member.channel.seal(&lookup, &mut sealed).unwrap();
        let Member { caller, peer, .. } = &mut liar.member;
        let message = &sealed[..length];
        let work = Work::Send { peer: *peer, tag: 0, message, mode: Default::default() };
        if caller.fabric.post(&[work]).is_err() {
            break;
        }
    }
    assert!(target.home.is_running());
    *liar = Liar::meet(target.home);
}

impl Liar {
    /// Says something as soon as there is room for it.
    fn say_patiently(&mut self, plain: &[u8]) {
        let mut sealed = [0; 600];
        let length = self.member.channel.seal(plain, &mut sealed).unwrap();
        let Member { caller, peer, .. } = &mut self.member;
        let message = &sealed[..length];
        let work = || Work::Send { peer: *peer, tag: 0, message, mode: Default::default() };
        while caller.fabric.post(&[work()]).is_err() {
            caller.look();
        }
    }
}

type Lie = fn(&mut Liar, &Target<'_>);

const LIES: &[(&str, Lie, End)] = &[
    ("reads_with_a_guessed_key", reads_with_a_guessed_key, End::Cut),
    ("reads_beyond_its_window", reads_beyond_its_window, End::Cut),
    ("reads_far_from_its_window", reads_far_from_its_window, End::Cut),
    ("reads_where_addresses_wrap", reads_where_addresses_wrap, End::Cut),
    ("reads_what_it_may_only_write", reads_what_it_may_only_write, End::Cut),
    ("writes_what_it_may_only_read", writes_what_it_may_only_read, End::Cut),
    ("writes_beyond_its_staging_memory", writes_beyond_its_staging_memory, End::Cut),
    ("changes_words_of_a_window", changes_words_of_a_window, End::Cut),
    ("reads_a_segment_that_it_released", reads_a_segment_that_it_released, End::Cut),
    ("uses_a_key_of_an_earlier_connection", uses_a_key_of_an_earlier_connection, End::Cut),
    ("puts_from_beyond_its_staging_memory", puts_from_beyond_its_staging_memory, End::Cut),
    ("puts_bytes_that_it_did_not_send", puts_bytes_that_it_did_not_send, End::Cut),
    ("welcomes_to_a_window_that_is_nowhere", welcomes_to_a_window_that_is_nowhere, End::Cut),
    ("tells_of_a_segment_without_end", tells_of_a_segment_without_end, End::Cut),
    ("random_words", random_words, End::Cut),
    ("asks_beyond_a_segment", asks_beyond_a_segment, End::Served),
    ("uses_somebody_elses_lock", uses_somebody_elses_lock, End::Served),
    ("asks_for_somebody_who_may_not", asks_for_somebody_who_may_not, End::Served),
    ("names_segments_that_are_not_here", names_segments_that_are_not_here, End::Served),
    ("answers_what_nobody_asked", answers_what_nobody_asked, End::Served),
    ("tells_of_a_far_future", tells_of_a_far_future, End::Served),
    ("waits_in_masses", waits_in_masses, End::Served),
    ("asks_and_never_listens", asks_and_never_listens, End::Served),
    ("fills_the_memory", fills_the_memory, End::Served),
];

#[test]
fn a_member_that_keeps_to_no_rule_harms_nobody_but_itself() {
    // If this broke, one node that is taken over could stop the others, or read memory that nobody opened to it.
    let home = Home::start("liars");
    let mut good = Good::attach(&home);
    let secret = good.make("secret", 0o600);
    let from = Payload::inline(&SECRET).unwrap();
    good.ask(Operation::Put { segment: secret, offset: 0, from, terms: PutConditions::default() });
    let held = good.make("held", 0o666);
    let wish = LockRequest { shared: false, no_wait: true, lease_us: 600_000_000 };
    let locked = good.ask(Operation::Lock { segment: held, wish });
    let token = LockToken(u64::from_le_bytes(std::array::from_fn(|i| locked.data[i])));
    let target = Target { home: &home, secret, held, token };
    for &(name, lie, end) in LIES {
        let mut liar = Liar::meet(&home);
        lie(&mut liar, &target);
        match end {
            End::Cut => assert!(liar.ends(), "{name} is believed"),
            End::Served => assert!(liar.member.is_served_after_all(), "{name}: it is served no more"),
        }
        assert!(home.is_running(), "{name} ended the daemon");
        let got = good.get(secret);
        assert_eq!((got.version, &got.data[..16]), (Version(1), &SECRET[..]), "{name}");
    }
    // The lock is still whose it was.
    good.ask(Operation::Unlock { segment: held, token });
}
