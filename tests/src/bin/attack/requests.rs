//! Attacks by the content of requests.

use crate::byzantine_client::{AttackResult, ByzantineClient, RCQ, Target, contains_secret, expect_failure};
use crate::entry_changes::{self, WrongChange};
use ddss_core::{
    ArenaRange, AtomicOp, ListQuery, LockRequest, LockToken, NodeId, OpenedSegment, Operation, Outcome, Payload,
    PermissionUpdate, PutConditions, Range, ReadOptions, Request, RequestId, SegmentId, Spec, Version,
};
use ddss_testkit::Random;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: ArenaRange = ArenaRange { slot: 0, bytes: 4096 };

/// Writes text into the first slot of the arena, and returns its location.
fn text(liar: &ByzantineClient, bytes: &[u8]) -> ArenaRange {
    liar.arena().write(0, bytes).expect("it fits");
    ArenaRange { slot: 0, bytes: bytes.len() as u32 }
}

/// Allocates a segment of the attacker's own.
pub(crate) fn make(liar: &mut ByzantineClient, name: &str, spec: Spec) -> Result<SegmentId, String> {
    let spec_and_name = text(liar, &[&spec.encode()[..], name.as_bytes()].concat());
    let made = liar.ask(Operation::Allocate { spec_and_name })?;
    expect_failure(&format!("{name} could not be made: {:?}", made.outcome), made.outcome != Outcome::Done)?;
    Ok(OpenedSegment::decode(&made.data).segment)
}

pub(crate) fn own_name(what: &str) -> String {
    format!("attack/{what}/{}", std::process::id())
}

pub(crate) fn sends_unknown_opcodes(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for op in (19..=23u64).chain(28..=255).chain([0]) {
        let entry = [op << 32, op, target.secret.to_bits(), 0, 64, 1000, 0, 0];
        let outcome = liar.ask_raw(&entry)?.outcome;
        expect_failure(&format!("operation {op} was done"), outcome == Outcome::Done)?;
    }
    liar.look_around()
}

pub(crate) fn sends_random_requests(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let mut random = Random::new(u64::from(std::process::id()));
    for _ in 0..5000 {
        let mut entry: [u64; 8] = std::array::from_fn(|_| random.word());
        // Mostly valid operations on a foreign segment, so that they pass the first checks. Allocations and waits are
        // left out: allocations would remain, and the attacker would wait for itself.
        let op = [1, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15][random.word() as usize % 12];
        entry[0] = (op | (random.word() % 12) << 8 | (random.word() % 64) << 16) << 32;
        entry[2] = if random.word() & 3 > 0 { target.secret.to_bits() } else { entry[2] };
        entry[4] &= random.word() >> (random.word() % 64);
        entry[5] = (entry[5] >> 32 & 0x3f) << 32 | 20_000;
        liar.ask_raw(&entry)?;
    }
    liar.look_around()
}

pub(crate) fn sends_huge_lengths(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for length in [64 << 10, 1 << 20, (1 << 20) + 1, 1 << 31, u64::from(u32::MAX), 1 << 32, 1 << 63, u64::MAX] {
        for op in [5u64, 6, 3, 2, 11, 12, 13] {
            let entry = [op << 32, 1, target.held.to_bits(), 0, length, 20_000, 0, 0];
            let outcome = liar.ask_raw(&entry)?.outcome;
            expect_failure(&format!("operation {op} of {length} bytes was done"), outcome == Outcome::Done)?;
        }
    }
    liar.look_around()
}

pub(crate) fn overflows_offset_plus_length(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for offset in [4096, 4089, 1 << 32, 1 << 48, u64::MAX - 7, u64::MAX] {
        let into = ArenaRange { slot: 0, bytes: 8 };
        let get = Operation::Get { segment: target.held, offset, into, inline: true, options: ReadOptions::default() };
        liar.is_denied(&format!("a get at {offset}"), get)?;
        let from = Payload::Arena(into);
        let put = Operation::Put { segment: target.held, offset, from, conditions: PutConditions::default() };
        liar.is_denied(&format!("a put at {offset}"), put)?;
        let change = AtomicOp::Add(1);
        let atomic = Operation::Atomic { segment: target.held, offset, change, token: None };
        liar.is_denied(&format!("an atomic at {offset}"), atomic)?;
    }
    liar.look_around()
}

pub(crate) fn names_memory_outside_the_arena(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for (slot, bytes) in [(16, 8), (15, 4097), (1 << 20, 64), (u32::MAX, 64), (u32::MAX, u32::MAX), (0, 65_537)] {
        let range = ArenaRange { slot, bytes };
        let get = Operation::Get {
            segment: target.held,
            offset: 0,
            into: range,
            inline: false,
            options: ReadOptions::default(),
        };
        liar.is_denied("a get", get)?;
        let from = Payload::Arena(range);
        liar.is_denied(
            "a put",
            Operation::Put { segment: target.held, offset: 0, from, conditions: PutConditions::default() },
        )?;
        liar.is_denied("an open", Operation::Open { name: range })?;
        liar.is_denied("an allocation", Operation::Allocate { spec_and_name: range })?;
        liar.is_denied("a list", Operation::List { node: NodeId(0), text: range })?;
        // A request may name the beginning of a page only.
        if slot > 15 {
            liar.is_denied("facts", Operation::Stat { segment: target.held, page: range })?;
        }
        let (list, options) = (range, ReadOptions::default());
        liar.is_denied("ranges", Operation::GetMany { segment: target.held, list, ranges: 1, options })?;
    }
    liar.look_around()
}

/// Returns all requests on a segment.
fn everything(segment: SegmentId, token: u64) -> [(&'static str, Operation); 15] {
    let (options, conditions, none) = (ReadOptions::default(), PutConditions::default(), None);
    let under = PutConditions { token: Some(LockToken(token)), ..conditions };
    let into = ArenaRange { slot: 1, bytes: 64 };
    let lock_request = LockRequest { shared: false, no_wait: true, lease_us: 1000, row_offset: None };
    let held = Payload::Inline { bytes: [7; 16], length: 8 };
    [
        ("a get", Operation::Get { segment, offset: 0, into, inline: false, options }),
        ("a get in the answer", Operation::Get { segment, offset: 0, into: PAGE, inline: true, options }),
        ("an older version", {
            let options = ReadOptions { version: Some(Version(1)), ..options };
            Operation::Get { segment, offset: 0, into, inline: false, options }
        }),
        (
            "a get of ranges",
            Operation::GetMany { segment, list: ArenaRange { slot: 2, bytes: 64 }, ranges: 1, options },
        ),
        ("a put", Operation::Put { segment, offset: 0, from: held, conditions }),
        ("a put under a token", Operation::Put { segment, offset: 0, from: Payload::Arena(into), conditions: under }),
        ("a change of an entry", {
            let good = entry_changes::good_change();
            entry_put(segment, &good, ArenaRange { slot: 1, bytes: good.payload.len() as u32 })
        }),
        ("an atomic", Operation::Atomic { segment, offset: 0, change: AtomicOp::Swap(0), token: none }),
        ("a lock", Operation::Lock { segment, lock_request }),
        ("an unlock", Operation::Unlock { segment, token: LockToken(token) }),
        ("a renewal", Operation::Renew { segment, token: LockToken(token), lease_us: 1 }),
        ("facts", Operation::Stat { segment, page: PAGE }),
        (
            "other permissions",
            Operation::Permit { segment, update: PermissionUpdate { mode: Some(0o666), owner: None } },
        ),
        (
            "another owner",
            Operation::Permit {
                segment,
                update: PermissionUpdate { mode: None, owner: Some(ddss_core::Principal { uid: 65534, gid: 65534 }) },
            },
        ),
        ("a release", Operation::Release { segment }),
    ]
}

pub(crate) fn uses_forbidden_segment(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for (what, operation) in everything(target.secret, target.token) {
        liar.is_denied(what, operation)?;
        liar.look_around()?;
    }
    Ok(())
}

pub(crate) fn guesses_segment_ids(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let (home, generation) = (target.secret.home(), target.secret.generation());
    for index in (0..32).chain([u32::MAX]) {
        for near in [0, 1, generation.wrapping_sub(1), generation.wrapping_add(1), u32::MAX] {
            let guess = SegmentId::new(home, index, near);
            if guess == target.held || guess == target.secret {
                continue;
            }
            for (what, operation) in everything(guess, 1) {
                liar.is_denied(&format!("{what} of {guess}"), operation)?;
            }
        }
    }
    liar.look_around()
}

pub(crate) fn uses_foreign_lock_token(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let token = LockToken(target.token);
    let segment = target.held;
    liar.is_denied("an unlock", Operation::Unlock { segment, token })?;
    liar.is_denied("a renewal", Operation::Renew { segment, token, lease_us: 1 })?;
    let conditions = PutConditions { token: Some(token), ..PutConditions::default() };
    let from = Payload::Arena(ArenaRange { slot: 0, bytes: 8 });
    liar.is_denied("a put", Operation::Put { segment, offset: 0, from, conditions })?;
    liar.is_denied(
        "an atomic",
        Operation::Atomic { segment, offset: 0, change: AtomicOp::Add(1), token: Some(token) },
    )?;
    // Neighbours of the token are guesses as well.
    for near in [target.token.wrapping_sub(1), target.token + 1, 0, u64::MAX] {
        liar.is_denied("a guessed unlock", Operation::Unlock { segment, token: LockToken(near) })?;
        liar.is_denied("a guessed renewal", Operation::Renew { segment, token: LockToken(near), lease_us: 1 })?;
    }
    Ok(())
}

pub(crate) fn uses_stale_generation(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let old = make(&mut liar, &own_name("stale"), Spec::new(4096))?;
    expect_failure("its own is not released", liar.ask(Operation::Release { segment: old })?.outcome != Outcome::Done)?;
    let new = make(&mut liar, &own_name("stale"), Spec::new(4096))?;
    for (what, operation) in everything(old, 1) {
        liar.is_denied(what, operation)?;
    }
    expect_failure("its own is gone", liar.ask(Operation::Release { segment: new })?.outcome != Outcome::Done)
}

pub(crate) fn releases_segment_in_use(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for turn in 0..20 {
        let segment = make(&mut liar, &own_name("used"), Spec::new(4096))?;
        let get = Operation::Get {
            segment,
            offset: 0,
            into: ArenaRange { slot: 1, bytes: 4096 },
            inline: false,
            options: ReadOptions::default(),
        };
        let mut last = 0;
        for id in 0..40 {
            let operation = if id == 20 { Operation::Release { segment } } else { get };
            last = liar.post(&Request::new(RequestId(turn * 100 + id), operation).encode());
        }
        liar.wait(last)?;
    }
    liar.look_around()
}

pub(crate) fn puts_under_expired_lease(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let segment = make(&mut liar, &own_name("lease"), Spec::new(64))?;
    let lock_request = LockRequest { shared: false, no_wait: true, lease_us: 1000, row_offset: None };
    let locked = liar.ask(Operation::Lock { segment, lock_request })?;
    expect_failure("no lock of its own", locked.outcome != Outcome::Done)?;
    let token = LockToken(u64::from_le_bytes(std::array::from_fn(|i| locked.data[i])));
    std::thread::sleep(std::time::Duration::from_millis(100));
    let conditions = PutConditions { token: Some(token), ..PutConditions::default() };
    let from = Payload::Arena(ArenaRange { slot: 0, bytes: 8 });
    liar.is_denied("a put under it", Operation::Put { segment, offset: 0, from, conditions })?;
    liar.ask(Operation::Release { segment }).map(drop)
}

pub(crate) fn sends_unaligned_atomics(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for offset in [1, 4, 7, 4091] {
        for change in [AtomicOp::Add(1), AtomicOp::Swap(1), AtomicOp::CompareSwap { expected: 0, new: 1 }] {
            let atomic = Operation::Atomic { segment: target.held, offset, change, token: None };
            liar.is_denied(&format!("at {offset}"), atomic)?;
        }
    }
    Ok(())
}

pub(crate) fn sends_malformed_names(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let long = [b'n'; 300];
    let names: [&[u8]; 8] = [b"", b"\xff\xfe\x00", b"a\nb", b"\0", &long[..129], &long, &[0xc3; 128], b"\x1b[2J"];
    for name in names {
        let range = text(&liar, name);
        liar.is_denied("an open", Operation::Open { name: range })?;
        let spec_and_name = text(&liar, &[&Spec::new(8).encode()[..], name].concat());
        liar.is_denied("an allocation", Operation::Allocate { spec_and_name })?;
    }
    for length in 0..Spec::ENCODED_BYTES {
        let spec_and_name = text(&liar, &Spec::new(8).encode()[..length]);
        liar.is_denied("a short allocation", Operation::Allocate { spec_and_name })?;
    }
    liar.look_around()
}

pub(crate) fn allocates_absurd_sizes(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let absurd = [
        Spec { bytes: 0, ..Spec::new(1) },
        Spec::new(u64::MAX),
        Spec::new(1 << 63),
        Spec::new(1 << 40),
        Spec::new((1 << 40) + 1),
        Spec::new(1 << 36),
        Spec { history: 1024, ..Spec::new(1 << 20) },
        Spec { history: u16::MAX, ..Spec::new(8) },
    ];
    for (turn, spec) in absurd.into_iter().enumerate() {
        let name = own_name(&format!("absurd{turn}"));
        let spec_and_name = text(&liar, &[&spec.encode()[..], name.as_bytes()].concat());
        liar.is_denied(&format!("{spec:?}"), Operation::Allocate { spec_and_name })?;
    }
    Ok(())
}

pub(crate) fn sends_invalid_range_tables(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let options = ReadOptions::default();
    let range = |offset, bytes| Range { offset, bytes };
    let tables: [&[Range]; 5] = [
        &[range(4096, 1)],
        &[range(u64::MAX, 8), range(0, 8)],
        &[range(0, u32::MAX)],
        &[range(0, 4096), range(1, 4096)],
        &[range(1 << 63, 1 << 20)],
    ];
    for table in tables {
        for ranges in [table.len() as u8, 0, 17, 255] {
            let mut bytes = Vec::new();
            for Range { offset, bytes: length } in table {
                bytes.extend(offset.to_le_bytes());
                bytes.extend(u64::from(*length).to_le_bytes());
            }
            liar.arena().write(0, &bytes).map_err(|error| error.to_string())?;
            let list = ArenaRange { slot: 0, bytes: 8192 };
            liar.is_denied("a get", Operation::GetMany { segment: target.held, list, ranges, options })?;
            liar.is_denied(
                "a put",
                Operation::PutMany { segment: target.held, list, ranges, conditions: PutConditions::default() },
            )?;
        }
    }
    liar.look_around()
}

fn entry_put(segment: SegmentId, wrong: &WrongChange, from: ArenaRange) -> Operation {
    let conditions = PutConditions { entry: Some(wrong.change), ..PutConditions::default() };
    Operation::Put { segment, offset: wrong.offset, from: Payload::Arena(from), conditions }
}

pub(crate) fn changes_entries_outside_of_buckets(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let map = make(&mut liar, &own_name("map"), entry_changes::map())?;
    for wrong in entry_changes::wrong_changes() {
        let from = text(&liar, &wrong.payload);
        liar.is_denied(wrong.what, entry_put(map, &wrong, from))?;
    }
    let good = entry_changes::good_change();
    let from = text(&liar, &good.payload);
    liar.is_denied("a plain segment", entry_put(target.held, &good, from))?;
    liar.is_denied("an arena that ends", entry_put(map, &good, ArenaRange { slot: u32::MAX, ..from }))?;
    let made = liar.ask(entry_put(map, &good, from))?;
    expect_failure("a good change is refused", made.outcome != Outcome::Done || made.version != Version(1))?;
    liar.look_around()?;
    liar.ask(Operation::Release { segment: map }).map(drop)
}

pub(crate) fn changes_payload_during_entry_change(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let map = make(&mut liar, &own_name("turning"), entry_changes::map())?;
    let (stop, arena, good) = (AtomicBool::new(false), liar.arena(), entry_changes::good_change());
    let from = text(&liar, &good.payload);
    let asked = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for word in [0, u64::MAX, 1 << 63, 7] {
                    let _ = arena.store(0, word, Ordering::Relaxed);
                    let _ = arena.store(8, word, Ordering::Relaxed);
                }
            }
        });
        let asked = (0..2000).try_for_each(|_| liar.ask(entry_put(map, &good, from)).map(drop));
        stop.store(true, Ordering::Relaxed);
        asked
    });
    asked?;
    liar.look_around()?;
    liar.ask(Operation::Release { segment: map }).map(drop)
}

pub(crate) fn changes_range_tables_during_read(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let segment = make(&mut liar, &own_name("table"), Spec::new(4096))?;
    let stop = AtomicBool::new(false);
    let arena = liar.arena();
    let asked = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for word in [0, 4000, 4095, u64::MAX, 1 << 40] {
                    let _ = arena.store(0, word, Ordering::Relaxed);
                    let _ = arena.store(8, 64 | word << 20, Ordering::Relaxed);
                }
            }
        });
        let asked = (0..2000).try_for_each(|turn| {
            let (list, ranges) = (ArenaRange { slot: 0, bytes: 4096 + 64 }, 1);
            let operation = match turn % 2 {
                0 => Operation::GetMany { segment, list, ranges, options: ReadOptions::default() },
                _ => Operation::PutMany { segment, list, ranges, conditions: PutConditions::default() },
            };
            liar.ask(operation).map(drop)
        });
        stop.store(true, Ordering::Relaxed);
        asked
    });
    asked?;
    liar.look_around()?;
    liar.ask(Operation::Release { segment }).map(drop)
}

pub(crate) fn lists_all_segments(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for prefix in ["", "s", "secret", "secret/"] {
        let query = ListQuery::new(prefix, "").map_err(|error| error.to_string())?.encode();
        let range = text(&liar, &query);
        liar.ask(Operation::List { node: NodeId(0), text: range })?;
        let mut page = vec![0; 4096];
        liar.arena().read(0, &mut page).map_err(|error| error.to_string())?;
        // Searches behind the attacker's own requests.
        let page = &page[query.len()..];
        expect_failure("the name of a closed segment is disclosed", page.windows(7).any(|part| part == b"secret/"))?;
        expect_failure("a list shows bytes", contains_secret(page))?;
    }
    liar.look_around()
}

pub(crate) fn floods_lock_queues(target: &Target) -> AttackResult {
    let (liar, _) = ByzantineClient::attach_as(target, RCQ, 64, 64 << 10)?;
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1000, row_offset: None };
    for channel in 0..64 {
        for slot in 0..64u32 {
            let operation = match slot % 2 {
                0 => Operation::Lock { segment: target.held, lock_request },
                _ => Operation::Await { segment: target.held, offset: 0, above: Version(u64::MAX) },
            };
            let request = Request { timeout_us: 300_000, ..Request::new(RequestId(slot.into()), operation) };
            liar.fill(channel, slot as usize, &request.encode(), slot + 1);
        }
    }
    liar.ring();
    std::thread::sleep(std::time::Duration::from_millis(600));
    Ok(())
}

pub(crate) fn fills_segment_memory(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let mut made = Vec::new();
    for turn in 0..10_000 {
        match make(&mut liar, &own_name(&format!("fill{turn}")), Spec::new(4 << 20)) {
            Ok(segment) => made.push(segment),
            Err(_) => break,
        }
    }
    expect_failure("the memory of a node has no end", made.len() == 10_000)?;
    for segment in made {
        liar.ask(Operation::Release { segment })?;
    }
    liar.look_around()
}
