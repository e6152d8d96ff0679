//! Tests against a member that has the key and violates the protocol. It loses its connection or its requests fail,
//! the daemon survives, clients of the home are served all the while, and no byte is read or written without
//! permission.

use super::unauthenticated_peer::{Home, Member, PRINCIPAL, Seen};
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

const SECRET: [u8; 16] = *b"top secret bytes";
const SEGMENT_BYTES: u64 = 4096;
const TIMEOUT_US: u32 = 100_000;

/// Expected result of an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The home closes the connection.
    Cut,
    /// The requests fail, and later ones are served.
    Served,
}

/// The attacked home, and the segments of an honest client.
struct Target<'home> {
    home: &'home Home,
    secret: SegmentId,
    /// A segment that the honest client has locked.
    locked: SegmentId,
    token: LockToken,
}

/// A hostile member with memory to read into.
struct ByzantineMember {
    member: Member,
    memory: SharedMemory,
    region: RegionId,
    step: u64,
}

fn fresh_run() -> u32 {
    static RUN: AtomicU32 = AtomicU32::new(1000);
    RUN.fetch_add(1, Ordering::Relaxed)
}

impl ByzantineMember {
    fn meet(home: &Home) -> Self {
        let mut member = Member::meet(home, fresh_run()).0;
        let memory = SharedMemory::create("ddss-attacker", 1 << 20).unwrap();
        let fabric = &mut member.caller.fabric;
        let region = fabric.register(memory.descriptor(), Trust::Sealed, 0, 1 << 20).unwrap();
        Self { member, memory, region, step: 100 }
    }

    /// Sends a request with a fresh step number, and returns the home's reply.
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

    /// Allocates a segment at the home; returns its id and window.
    fn make(&mut self, name: &str, spec: Spec, principal: Principal) -> (SegmentId, RemoteWindow) {
        let name = Name::new(name).unwrap();
        match self.ask(|step| Message::Allocate { step, principal, spec, name }, &[]) {
            Some(Message::Found { info, window, .. }) => (info.segment, window),
            other => panic!("{name:?} is not made: {other:?}"),
        }
    }

    fn post(&mut self, work: Work<'_>) {
        // The attacker's own fabric must accept the work, or the attack never reaches the home.
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

    /// Returns true if the connection ends; checks that no secret was read.
    fn ends(&mut self) -> bool {
        let ends = self.member.caller.ends(self.member.peer);
        let mut seen = vec![0; 1 << 20];
        self.memory.read(0, &mut seen).unwrap();
        assert!(!seen.windows(16).any(|part| part == SECRET), "a secret was read");
        ends
    }
}

/// An honest client of the home; each of its calls succeeds.
struct HonestClient {
    _attachment: Attachment,
    channel: Channel,
    arena: SharedMemory,
}

impl HonestClient {
    fn attach(home: &Home) -> Self {
        let attachment = Attachment::connect(home.socket(), &AttachOptions::default()).unwrap();
        let (channel, arena) = (attachment.take_channel().unwrap(), attachment.arena().clone());
        Self { _attachment: attachment, channel, arena }
    }

    fn ask(&mut self, operation: Operation) -> Completion {
        let request = Request { timeout_us: 20_000_000, ..Request::new(RequestId(1), operation) };
        self.channel.submit(request.encode()).unwrap();
        self.channel.ring_doorbell();
        let deadline = Instant::now() + Duration::from_secs(30);
        assert_eq!(self.channel.wait(WaitClass::Polling, deadline), WaitOutcome::Ready, "{operation:?}");
        let completion = Completion::decode(&self.channel.reap().unwrap());
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
        self.ask(Operation::Get { segment, offset: 0, into, inline: true, options: ReadOptions::default() })
    }
}

fn put(segment: SegmentId, offset: u64, length: u32, staged: u64) -> impl FnOnce(u64) -> Message {
    let conditions = PutConditions::default();
    move |step| Message::Put {
        step,
        principal: PRINCIPAL,
        segment,
        offset,
        length,
        staged,
        ranges: 0,
        conditions,
        timeout_us: TIMEOUT_US,
    }
}

fn get(segment: SegmentId, offset: u64, length: u32) -> impl FnOnce(u64) -> Message {
    let (options, token) = (ReadOptions::default(), None);
    move |step| Message::Get {
        step,
        principal: PRINCIPAL,
        segment,
        offset,
        length,
        ranges: 0,
        options,
        token,
        timeout_us: TIMEOUT_US,
    }
}

fn reads_with_a_guessed_key(attacker: &mut ByzantineMember, _: &Target<'_>) {
    attacker.read(0x1234_5678, 0, 64);
}

fn reads_beyond_its_window(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let (_, window) = attacker.make("beyond", Spec::new(SEGMENT_BYTES), PRINCIPAL);
    attacker.read(window.key, window.base + window.bytes - 8, 4096);
}

fn reads_far_from_its_window(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let (_, window) = attacker.make("far", Spec::new(SEGMENT_BYTES), PRINCIPAL);
    attacker.read(window.key, window.base + (1 << 40), 4096);
}

fn reads_where_addresses_wrap(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let (_, window) = attacker.make("wraps", Spec::new(SEGMENT_BYTES), PRINCIPAL);
    attacker.read(window.key, u64::MAX - 64, 64);
}

fn reads_what_it_may_only_write(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let staging = attacker.member.staging;
    attacker.read(staging.key, staging.base, 4096);
}

fn writes_what_it_may_only_read(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let (_, window) = attacker.make("written", Spec::new(SEGMENT_BYTES), PRINCIPAL);
    attacker.write(window.key, window.base, 64);
}

fn writes_beyond_its_staging_memory(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let staging = attacker.member.staging;
    attacker.write(staging.key, staging.base + staging.bytes - 8, 4096);
}

fn uses_atomics_on_a_window(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let (_, window) = attacker.make("words", Spec::new(SEGMENT_BYTES), PRINCIPAL);
    let remote = RemoteRange { key: window.key, address: window.base };
    attacker.post(Work::FetchAdd { peer: attacker.member.peer, tag: 1, remote, add: 2 });
}

fn reads_a_segment_that_it_released(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let (segment, window) = attacker.make("released", Spec::new(SEGMENT_BYTES), PRINCIPAL);
    attacker.member.say(&Message::Release { step: 1, principal: PRINCIPAL, segment }.encode(Timestamp::default(), &[]));
    // It announces that it reads no more, and reads.
    attacker.member.say(&Message::Forgotten { segment }.encode(Timestamp::default(), &[]));
    assert!(attacker.member.is_still_served());
    attacker.read(window.key, window.base, 64);
}

fn uses_a_key_of_an_earlier_connection(attacker: &mut ByzantineMember, target: &Target<'_>) {
    let (_, window) = attacker.make("earlier", Spec::new(SEGMENT_BYTES), PRINCIPAL);
    *attacker = ByzantineMember::meet(target.home);
    attacker.read(window.key, window.base, 64);
}

fn puts_from_beyond_its_staging_memory(attacker: &mut ByzantineMember, target: &Target<'_>) {
    attacker.member.say(&put(target.locked, 0, 8, STAGING_BYTES as u64 - 4)(1).encode(Timestamp::default(), &[]));
}

fn puts_more_bytes_than_it_sent(attacker: &mut ByzantineMember, target: &Target<'_>) {
    attacker.member.say(&put(target.locked, 0, 400, Message::NOT_STAGED)(1).encode(Timestamp::default(), &[7; 16]));
}

fn welcomes_with_invalid_window(attacker: &mut ByzantineMember, target: &Target<'_>) {
    attacker.member = Member::greet(target.home, fresh_run()).0;
    let staging = RemoteWindow { key: 1, base: u64::MAX - 5, bytes: STAGING_BYTES as u64 };
    attacker.member.say(&Message::Welcome { staging }.encode(Timestamp::default(), &[]));
}

fn announces_segment_of_impossible_size(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let segment = SegmentId::new(NodeId(2), 0, 1);
    let permissions = ddss_core::Permissions { owner: PRINCIPAL, mode: 0o666 };
    let info = ddss_core::SegmentInfo {
        segment,
        bytes: 1 << 40,
        model: ddss_core::Model::Strict,
        permissions,
        history_len: u32::MAX,
        copies: 1,
        storage: ddss_core::Storage::Memory,
    };
    let window = RemoteWindow { key: 1, base: u64::MAX - 5, bytes: 1 << 50 };
    attacker.member.say(&Message::Found { step: 1, info, window }.encode(Timestamp::default(), &[]));
}

fn sends_random_bytes(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let mut state = u64::from(fresh_run()) | 1;
    // The first ones may be valid by chance, and harmless.
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..64)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        attacker.member.say(&bytes);
    }
}

fn asks_beyond_a_segment(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let (segment, _) = attacker.make("ranges", Spec::new(SEGMENT_BYTES), PRINCIPAL);
    for (offset, length) in [(4090, 16), (u64::MAX, 1), (u64::MAX - 7, 16), (0, 4097), (0, u32::MAX), (1 << 63, 1)] {
        attacker.denied(get(segment, offset, length), &[]);
        let length = length.min(400);
        if offset > 0 {
            attacker.denied(put(segment, offset, length, Message::NOT_STAGED), &vec![7; length as usize]);
            attacker.denied(put(segment, offset, TRANSFER_BYTES_MAX as u32, 0), &[]);
        }
        let (change, token, timeout_us) = (AtomicOp::Swap(7), None, TIMEOUT_US);
        let offset = if offset == 0 { 4096 } else { offset };
        attacker.denied(
            |step| Message::Atomic { step, principal: PRINCIPAL, segment, offset, change, token, timeout_us },
            &[],
        );
    }
}

fn uses_lock_of_another_client(attacker: &mut ByzantineMember, target: &Target<'_>) {
    let Target { locked: segment, token, .. } = *target;
    attacker.denied(|step| Message::Unlock { step, segment, token }, &[]);
    let conditions = PutConditions { token: Some(token), ..PutConditions::default() };
    let (length, staged) = (8, Message::NOT_STAGED);
    let put = |step| Message::Put {
        step,
        principal: PRINCIPAL,
        segment,
        offset: 0,
        length,
        staged,
        ranges: 0,
        conditions,
        timeout_us: TIMEOUT_US,
    };
    attacker.denied(put, &[7; 8]);
}

fn asks_for_user_without_permission(attacker: &mut ByzantineMember, target: &Target<'_>) {
    let (segment, principal) = (target.secret, Principal { uid: 9, gid: 9 });
    attacker.denied(|step| Message::Describe { step, principal, segment }, &[]);
    attacker.denied(|step| Message::Release { step, principal, segment }, &[]);
    attacker.denied(|step| Message::Stat { step, principal, segment }, &[]);
    let (options, token, timeout_us) = (ReadOptions::default(), None, TIMEOUT_US);
    let get =
        |step| Message::Get { step, principal, segment, offset: 0, length: 64, ranges: 0, options, token, timeout_us };
    attacker.denied(get, &[]);
}

fn names_foreign_segments(attacker: &mut ByzantineMember, target: &Target<'_>) {
    let index = target.secret.index();
    for segment in [
        SegmentId::new(NodeId(2), index, target.secret.generation()),
        SegmentId::new(NodeId(1), index, target.secret.generation().wrapping_sub(1)),
        SegmentId::new(NodeId(1), u16::MAX, 1),
        SegmentId::from_bits(0),
        SegmentId::from_bits(u64::MAX),
    ] {
        attacker.denied(get(segment, 0, 8), &[]);
        attacker.denied(put(segment, 0, 8, Message::NOT_STAGED), &[7; 8]);
        attacker.denied(|step| Message::Describe { step, principal: PRINCIPAL, segment }, &[]);
        attacker.denied(|step| Message::Release { step, principal: PRINCIPAL, segment }, &[]);
    }
}

fn sends_unsolicited_replies(attacker: &mut ByzantineMember, target: &Target<'_>) {
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
            attacker.member.say(&message.encode(Timestamp::default(), &[]));
        }
    }
}

fn sends_timestamp_of_far_future(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let (version, timestamp) = (Version(1), Timestamp(u64::MAX));
    attacker.member.say(
        &Message::Ended { step: 1, outcome: Outcome::Done, version, timestamp, word: 0 }
            .encode(Timestamp::default(), &[]),
    );
    let (segment, _) = attacker.make("future", Spec::new(8), PRINCIPAL);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
    match attacker.ask(put(segment, 0, 8, Message::NOT_STAGED), &[7; 8]) {
        Some(Message::Ended { outcome: Outcome::Done, timestamp, .. }) => {
            assert!(timestamp.micros() < now + 60_000_000, "the clock runs ahead: {timestamp:?}");
        }
        other => panic!("{other:?}"),
    }
}

fn floods_lock_queue(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let (segment, _) = attacker.make("crowded", Spec::new(8), PRINCIPAL);
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 50_000 };
    let many = WAITERS_PER_SEGMENT_MAX as u64 + 200;
    for step in 0..many {
        let lock =
            Message::Lock { step: 1 << 40 | step, principal: PRINCIPAL, segment, lock_request, timeout_us: TIMEOUT_US };
        attacker.send_when_possible(&lock.encode(Timestamp::default(), &[]));
    }
    // Each of them ends, and those beyond the limit at once.
    let mut busy = 0;
    for _ in 0..many {
        let Some(Seen::Said(plain)) = attacker.member.hear() else { panic!("some never end") };
        let Ok((Message::Ended { outcome, .. }, ..)) = Message::decode(&plain) else { continue };
        busy += u64::from(outcome == Outcome::Failed(Failure::Busy));
    }
    assert!(busy > 0, "the line has no end");
}

fn fills_the_memory(attacker: &mut ByzantineMember, _: &Target<'_>) {
    let mut made = Vec::new();
    for turn in 0..200 {
        let name = Name::new(&format!("fill/{turn}")).unwrap();
        let spec = Spec::new(64 << 10);
        match attacker.ask(|step| Message::Allocate { step, principal: PRINCIPAL, spec, name }, &[]) {
            Some(Message::Found { info, .. }) => made.push(info.segment),
            Some(Message::Ended { outcome, .. }) => {
                assert_eq!(outcome, Outcome::Failed(Failure::NoSpace));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(!made.is_empty() && made.len() < 200, "the memory of a node has no end");
}

fn asks_and_never_reads_replies(attacker: &mut ByzantineMember, target: &Target<'_>) {
    // The replies fill the home's socket and then its outbox; the home buffers no more than that.
    let name = Name::new("nothing").unwrap();
    let end = Instant::now() + Duration::from_secs(1);
    let mut sealed = [0; 600];
    while Instant::now() < end {
        let lookup = Message::Lookup { step: 7, principal: PRINCIPAL, name }.encode(Timestamp::default(), &[]);
        let length = attacker.member.channel.seal(&lookup, &mut sealed).unwrap();
        let Member { caller, peer, .. } = &mut attacker.member;
        let message = &sealed[..length];
        let work = Work::Send { peer: *peer, tag: 0, message, mode: Default::default() };
        if caller.fabric.post(&[work]).is_err() {
            break;
        }
    }
    assert!(target.home.is_running());
    *attacker = ByzantineMember::meet(target.home);
}

impl ByzantineMember {
    /// Sends a message as soon as there is room for it.
    fn send_when_possible(&mut self, plain: &[u8]) {
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

type Attack = fn(&mut ByzantineMember, &Target<'_>);

const ATTACKS: &[(&str, Attack, End)] = &[
    ("reads_with_a_guessed_key", reads_with_a_guessed_key, End::Cut),
    ("reads_beyond_its_window", reads_beyond_its_window, End::Cut),
    ("reads_far_from_its_window", reads_far_from_its_window, End::Cut),
    ("reads_where_addresses_wrap", reads_where_addresses_wrap, End::Cut),
    ("reads_what_it_may_only_write", reads_what_it_may_only_write, End::Cut),
    ("writes_what_it_may_only_read", writes_what_it_may_only_read, End::Cut),
    ("writes_beyond_its_staging_memory", writes_beyond_its_staging_memory, End::Cut),
    ("uses_atomics_on_a_window", uses_atomics_on_a_window, End::Cut),
    ("reads_a_segment_that_it_released", reads_a_segment_that_it_released, End::Cut),
    ("uses_a_key_of_an_earlier_connection", uses_a_key_of_an_earlier_connection, End::Cut),
    ("puts_from_beyond_its_staging_memory", puts_from_beyond_its_staging_memory, End::Cut),
    ("puts_more_bytes_than_it_sent", puts_more_bytes_than_it_sent, End::Cut),
    ("welcomes_with_invalid_window", welcomes_with_invalid_window, End::Cut),
    ("announces_segment_of_impossible_size", announces_segment_of_impossible_size, End::Cut),
    ("sends_random_bytes", sends_random_bytes, End::Cut),
    ("asks_beyond_a_segment", asks_beyond_a_segment, End::Served),
    ("uses_lock_of_another_client", uses_lock_of_another_client, End::Served),
    ("asks_for_user_without_permission", asks_for_user_without_permission, End::Served),
    ("names_foreign_segments", names_foreign_segments, End::Served),
    ("sends_unsolicited_replies", sends_unsolicited_replies, End::Served),
    ("sends_timestamp_of_far_future", sends_timestamp_of_far_future, End::Served),
    ("floods_lock_queue", floods_lock_queue, End::Served),
    ("asks_and_never_reads_replies", asks_and_never_reads_replies, End::Served),
    ("fills_the_memory", fills_the_memory, End::Served),
];

#[test]
fn byzantine_member_harms_no_other_client() {
    // If this broke, one compromised node could stop the others, or read memory without permission.
    let home = Home::start("byzantine");
    let mut good = HonestClient::attach(&home);
    let secret = good.make("secret", 0o600);
    let from = Payload::inline(&SECRET).unwrap();
    good.ask(Operation::Put { segment: secret, offset: 0, from, conditions: PutConditions::default() });
    let held = good.make("held", 0o666);
    let lock_request = LockRequest { shared: false, no_wait: true, lease_us: 600_000_000 };
    let locked = good.ask(Operation::Lock { segment: held, lock_request });
    let token = LockToken(u64::from_le_bytes(std::array::from_fn(|i| locked.data[i])));
    let target = Target { home: &home, secret, locked: held, token };
    for &(name, attack, end) in ATTACKS {
        let mut attacker = ByzantineMember::meet(&home);
        attack(&mut attacker, &target);
        match end {
            End::Cut => assert!(attacker.ends(), "{name} is accepted"),
            End::Served => assert!(attacker.member.is_still_served(), "{name}: it is served no more"),
        }
        assert!(home.is_running(), "{name} ended the daemon");
        let got = good.get(secret);
        assert_eq!((got.version, &got.data[..16]), (Version(1), &SECRET[..]), "{name}");
    }
    // The honest client still owns the lock.
    good.ask(Operation::Unlock { segment: held, token });
}
