//! What a fabric has to do, whatever it is made of.
#![allow(dead_code, unused_macros, reason = "each test binary uses its own part of this")]

/// Tests of one fabric, by name.
macro_rules! conformance {
    ($fabric:ident, $lab:expr, [$($test:ident),* $(,)?]) => {
        mod $fabric {
            use super::*;
            $(
                #[test]
                fn $test() {
                    suite::$test($lab);
                }
            )*
        }
    };
}

/// All of them.
macro_rules! every {
    ($fabric:ident, $lab:expr) => {
        conformance!(
            $fabric,
            $lab,
            [
                bytes_arrive_at_every_size_and_offset,
                messages_come_in_order_and_after_the_writes,
                atomics_are_exact,
                many_reads_are_under_way,
                a_bad_key_ends_the_connection_and_names_the_read,
                bounds_and_rights_hold,
                local_mistakes_are_refused_before_anything_goes_out,
                closing_ends_every_operation_once,
                a_rejected_peer_reads_why,
                both_sides_talk_at_once,
                an_abandoned_read_leaves_memory_alone,
                memory_outlives_its_deregistration_while_it_is_used,
                too_much_is_busy_and_nothing_is_lost,
            ]
        );
    };
}

use ddss_verbs::{
    CloseReason, Fabric, LocalRange, PeerId, PostErrorKind, RegionId, RemoteRange, Rights, SendMode, Window, Work,
    WorkError,
};

use crate::common::{ALL, Lab, Memory, Pair, Seen, pattern};

fn local(region: RegionId, offset: u64, bytes: u64) -> LocalRange {
    LocalRange { region, offset, bytes }
}

fn remote(window: &Window, offset: u64) -> RemoteRange {
    RemoteRange { key: window.key, address: window.base + offset }
}

fn send(peer: PeerId, tag: u64, message: &[u8]) -> Work<'_> {
    Work::Send { peer, tag, message, mode: SendMode::default() }
}

/// In revision 1 the connecting side has to speak first; so it always does.
fn greet<L: Lab>(pair: &mut Pair<L>, there: PeerId) {
    pair.a.fabric.post(&[send(there, 1 << 60, b"first")]).unwrap();
    assert_eq!(pair.a_done(1 << 60), Ok(0));
    assert_eq!(pair.wait("the greeting", |pair| pair.b.message()), b"first");
}

pub(crate) fn bytes_arrive_at_every_size_and_offset(lab: impl Lab) {
    // If this failed, a get or a put would return other bytes than were stored, or damage its neighbours.
    let mut pair = Pair::new(lab);
    let (there, here) = pair.connect();
    let size = 4 << 20;
    let (mine, theirs) = (Memory::new(size), Memory::new(size));
    let region = pair.a.register(&mine);
    let (_, window) = pair.open(&theirs, here, ALL);
    let cases = [
        (0, 0, 0),
        (0, 0, 1),
        (8, 16, 8),
        (3, 5, 7),
        (1, 0, 511),
        (0, 0, 512),
        (4096, 8, 4096),
        (4095, 9, 4097),
        (0, 64, 16384),
        (7, 1, 65535),
        (0, 0, 65536),
        (128, 4, 70001),
        (0, 0, 1 << 20),
        (33, 77, 3 << 20),
    ];
    // What lies around: other bytes for each case, but not made anew, which would take longer than to move them.
    let (noise, nothing) = (pattern(1, size as usize + cases.len()), vec![0; size as usize]);
    for (step, (near, far, bytes)) in cases.into_iter().enumerate() {
        let seed = step as u64 + 1;
        let (before, content) = (&noise[step..][..size as usize], pattern(seed ^ 77, bytes));
        theirs.set(0, before);
        mine.set(0, &nothing);
        mine.set(near, &content);
        let range = local(region, near, bytes as u64);
        let put = Work::Write { peer: there, tag: 1, local: range, remote: remote(&window, far) };
        pair.a.fabric.post(&[put, send(there, 2, b"look")]).unwrap();
        assert_eq!(pair.a_done(1), Ok(0));
        assert_eq!(pair.a_done(2), Ok(0));
        assert_eq!(pair.wait("the message", |pair| pair.b.message()), b"look");
        assert!(holds(&theirs, before, far, &content), "a write of {bytes} bytes from {near} to {far}");

        let fresh = pattern(seed ^ 1234, bytes);
        theirs.set(far, &fresh);
        mine.set(0, before);
        let get = Work::Read { peer: there, tag: 3, local: range, remote: remote(&window, far) };
        pair.a.fabric.post(&[get]).unwrap();
        assert_eq!(pair.a_done(3), Ok(0));
        assert!(holds(&mine, before, near, &fresh), "a read of {bytes} bytes from {far} to {near}");
    }
}

/// Whether all of `memory` is as `before`, save for `content` at `offset`.
fn holds(memory: &Memory, before: &[u8], offset: u64, content: &[u8]) -> bool {
    let (start, all) = (offset as usize, memory.get(0, before.len()));
    let end = start + content.len();
    all[..start] == before[..start] && all[start..end] == *content && all[end..] == before[end..]
}

pub(crate) fn messages_come_in_order_and_after_the_writes(lab: impl Lab) {
    // If this failed, "commit what I wrote" would reach the home before the bytes, and a torn value would be stored.
    let mut pair = Pair::new(lab);
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(1 << 20), Memory::new(1 << 20));
    let region = pair.a.register(&mine);
    let (_, window) = pair.open(&theirs, here, Rights::WRITE);
    let mut tag = 0;
    for round in 0..40_u64 {
        let bytes = [8, 100, 5000, 200_000][round as usize % 4];
        mine.set(0, &pattern(round, bytes as usize));
        let message = round.to_le_bytes();
        pair.a
            .fabric
            .post(&[
                Work::Write { peer: there, tag, local: local(region, 0, bytes), remote: remote(&window, 64) },
                send(there, tag + 1, &message),
                Work::Immediate { peer: there, tag: tag + 2, data: message, solicited: round % 2 == 0 },
                send(there, tag + 3, &pattern(round, 512)),
            ])
            .unwrap();
        assert_eq!(pair.wait("the commit", |pair| pair.b.message()), message);
        assert!(theirs.get(64, bytes as usize) == pattern(round, bytes as usize), "round {round}");
        let immediate = pair.wait("the immediate", |pair| pair.b.take(|seen| matches!(seen, Seen::Immediate { .. })));
        assert_eq!(immediate, Seen::Immediate { peer: here, data: message, solicited: round % 2 == 0 });
        assert_eq!(pair.wait("the long one", |pair| pair.b.message()), pattern(round, 512));
        for tag in tag..tag + 4 {
            assert_eq!(pair.a_done(tag), Ok(0));
        }
        tag += 4;
    }
    pair.a.fabric.post(&[send(there, tag, b"")]).unwrap();
    assert_eq!(pair.wait("the empty one", |pair| pair.b.message()), b"");
}

pub(crate) fn atomics_are_exact(lab: impl Lab) {
    // If this failed, two nodes could hold one lock, or an update would be lost.
    let mut pair = Pair::new(lab);
    let (there, here) = pair.connect();
    let theirs = Memory::new(4096);
    let (_, window) = pair.open(&theirs, here, Rights::ATOMIC);
    theirs.set(16, &41_u64.to_ne_bytes());
    let word = remote(&window, 16);
    let fabric = &mut pair.a.fabric;
    fabric
        .post(&[
            Work::FetchAdd { peer: there, tag: 1, remote: word, add: 1 },
            Work::CompareSwap { peer: there, tag: 2, remote: word, compare: 41, swap: 7 },
            Work::CompareSwap { peer: there, tag: 3, remote: word, compare: 42, swap: u64::MAX },
            Work::FetchAdd { peer: there, tag: 4, remote: word, add: 2 },
        ])
        .unwrap();
    assert_eq!([1, 2, 3, 4].map(|tag| pair.a_done(tag)), [Ok(41), Ok(42), Ok(42), Ok(u64::MAX)]);
    assert_eq!(theirs.word(16), 1);
    assert_eq!((theirs.word(8), theirs.word(24)), (0, 0));
    for tag in 0..500 {
        let add = Work::FetchAdd { peer: there, tag, remote: word, add: 3 };
        if pair.a.fabric.post(&[add]).is_err() {
            panic!("500 atomics fit into the queue");
        }
    }
    for tag in 0..500 {
        assert_eq!(pair.a_done(tag), Ok(1 + tag * 3), "atomics are worked on in order");
    }
    assert_eq!(theirs.word(16), 1501);
}

pub(crate) fn many_reads_are_under_way(lab: impl Lab) {
    // If this failed, a busy client would get another operation's bytes, or wait for ever.
    let mut pair = Pair::new(lab);
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(1 << 20), Memory::new(1 << 20));
    let region = pair.a.register(&mine);
    let (_, window) = pair.open(&theirs, here, Rights::READ);
    let content = pattern(5, 1 << 20);
    theirs.set(0, &content);
    let reads: Vec<Work<'_>> = (0..600)
        .map(|tag| {
            let at = tag * 1024;
            let bytes = if tag % 7 == 0 { 1024 } else { 8 };
            Work::Read { peer: there, tag, local: local(region, at, bytes), remote: remote(&window, at) }
        })
        .collect();
    pair.a.fabric.post(&reads).unwrap();
    for tag in 0..600 {
        assert_eq!(pair.a_done(tag), Ok(0));
        let at = tag as usize * 1024;
        let bytes = if tag % 7 == 0 { 1024 } else { 8 };
        assert_eq!(mine.get(at as u64, bytes), content[at..at + bytes]);
    }
    assert_eq!(pair.a.seen, [], "each completion comes once");
}

pub(crate) fn a_bad_key_ends_the_connection_and_names_the_read(lab: impl Lab) {
    // If this failed, a stale key would read another segment's bytes, or the wrong operation would be called failed.
    let mut pair = Pair::new(lab);
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(4096), Memory::new(4096));
    let region = pair.a.register(&mine);
    let (_, window) = pair.open(&theirs, here, ALL);
    theirs.set(0, b"a secret");
    let read = |tag, key| Work::Read {
        peer: there,
        tag,
        local: local(region, tag * 8, 8),
        remote: RemoteRange { key, address: window.base },
    };
    pair.a.fabric.post(&[read(1, window.key), read(2, window.key ^ 1), read(3, window.key)]).unwrap();
    assert_eq!(pair.a_done(1), Ok(0));
    assert_eq!(mine.get(8, 8), b"a secret");
    let named = pair.names_refusals();
    let refused = pair.a_done(2).unwrap_err();
    assert!(refused == WorkError::Unknown && !named || matches!(refused, WorkError::Refused(_)), "{refused:?}");
    let after = pair.a_done(3).unwrap_err();
    assert!(after.certain() || !named, "the peer stopped at the bad one: {after:?}");
    pair.both_closed_for_cause(there, here, "a bad key");
    assert_eq!(mine.get(16, 16), [0; 16]);
    let late = pair.a.fabric.post(&[read(4, window.key)]).unwrap_err();
    assert_eq!((late.index, late.kind), (0, PostErrorKind::UnknownPeer));
}

pub(crate) fn bounds_and_rights_hold(lab: impl Lab) {
    // If this failed, a peer could reach memory that it was never given.
    let mut pair = Pair::new(lab);
    for case in 0..8 {
        if case == 4 && !pair.lab.checks_reads() || matches!(case, 5 | 6) && !pair.lab.has_extensions() {
            continue;
        }
        let (there, here) = pair.connect();
        let (mine, theirs) = (Memory::new(8192), Memory::new(8192));
        theirs.set(0, &[9; 8192]);
        let region = pair.a.register(&mine);
        let owner = pair.b.register(&theirs);
        let window = pair.b.fabric.expose(here, owner, 4096, 1024, Rights::READ).unwrap();
        let others = pair.b.fabric.expose(here, owner, 0, 512, Rights::WRITE.and(Rights::ATOMIC)).unwrap();
        let (peer, tag) = (there, 1);
        let work = match case {
            0 => Work::Read { peer, tag, local: local(region, 0, 8), remote: remote(&window, 1017) },
            1 => Work::Read { peer, tag, local: local(region, 0, 1025), remote: remote(&window, 0) },
            2 => Work::Write { peer, tag, local: local(region, 0, 8), remote: remote(&window, 0) },
            3 => Work::Write { peer, tag, local: local(region, 0, 8), remote: remote(&others, 505) },
            4 => Work::Read { peer, tag, local: local(region, 0, 8), remote: remote(&others, 0) },
            5 => Work::FetchAdd { peer, tag, remote: remote(&window, 0), add: 1 },
            6 => Work::FetchAdd { peer, tag, remote: remote(&others, 512), add: 1 },
            _ => {
                pair.b.fabric.withdraw(here, window.key);
                Work::Read { peer, tag, local: local(region, 0, 8), remote: remote(&window, 0) }
            }
        };
        pair.a.fabric.post(&[work]).unwrap();
        let outcome = pair.a_done(1);
        if !matches!(work, Work::Write { .. }) {
            let unnamed = !pair.names_refusals() && outcome == Err(WorkError::Unknown);
            assert!(unnamed || matches!(outcome, Err(WorkError::Refused(_))), "case {case}: {outcome:?}");
        }
        pair.both_closed_for_cause(there, here, &format!("case {case}"));
        assert_eq!(theirs.get(0, 8192), [9; 8192], "case {case}");
        assert_eq!(mine.get(0, 8192), [0; 8192], "case {case}");
    }
}

pub(crate) fn local_mistakes_are_refused_before_anything_goes_out(lab: impl Lab) {
    // If this failed, one bad length in the daemon would cost the connection to a whole node.
    let mut pair = Pair::new(lab);
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(4096), Memory::new(4096));
    let region = pair.a.register(&mine);
    let gone = pair.a.register(&mine);
    pair.a.fabric.deregister(gone);
    let (_, window) = pair.open(&theirs, here, ALL);
    let far = remote(&window, 0);
    let wrap = RemoteRange { key: window.key, address: u64::MAX - 3 };
    let odd = remote(&window, 4);
    let (peer, tag) = (there, 9);
    let nobody = PeerId::from_bits(there.to_bits() ^ (1 << 40));
    let cases = [
        (Work::Read { peer, tag, local: local(region, 4090, 8), remote: far }, PostErrorKind::OutOfBounds),
        (Work::Write { peer, tag, local: local(region, u64::MAX, 8), remote: far }, PostErrorKind::OutOfBounds),
        (Work::Read { peer, tag, local: local(region, 0, 8), remote: wrap }, PostErrorKind::OutOfBounds),
        (Work::Read { peer, tag, local: local(gone, 0, 8), remote: far }, PostErrorKind::UnknownRegion),
        (Work::FetchAdd { peer, tag, remote: odd, add: 1 }, PostErrorKind::Unaligned),
        (Work::CompareSwap { peer, tag, remote: odd, compare: 0, swap: 1 }, PostErrorKind::Unaligned),
        (send(peer, tag, &[0; 513]), PostErrorKind::TooLong),
        (send(nobody, tag, b""), PostErrorKind::UnknownPeer),
    ];
    for (work, kind) in cases {
        let good = send(there, 1, b"good");
        let error = pair.a.fabric.post(&[good, work, good]).unwrap_err();
        assert_eq!((error.index, error.kind), (1, kind), "{work:?}");
        assert_eq!(pair.a_done(1), Ok(0));
        assert_eq!(pair.wait("the good one", |pair| pair.b.message()), b"good");
    }
    assert!(pair.a.seen.is_empty() && pair.b.seen.is_empty());
}

pub(crate) fn closing_ends_every_operation_once(lab: impl Lab) {
    // If this failed, a caller would wait for ever after a node died, or be told twice.
    let mut pair = Pair::new(lab);
    for closer in ["a", "b"] {
        let (there, here) = pair.connect();
        greet(&mut pair, there);
        let (mine, theirs) = (Memory::new(1 << 20), Memory::new(1 << 20));
        let region = pair.a.register(&mine);
        let (_, window) = pair.open(&theirs, here, ALL);
        let reads: Vec<Work<'_>> = (0..300)
            .map(|tag| Work::Read { peer: there, tag, local: local(region, 0, 1 << 16), remote: remote(&window, 0) })
            .collect();
        pair.a.fabric.post(&reads).unwrap();
        pair.a.poll();
        let (reason, expected) = if closer == "a" {
            pair.a.fabric.close(there);
            (CloseReason::Local, pair.wait("a to be closed", |pair| pair.a.closed(there)))
        } else {
            pair.b.fabric.close(here);
            let reason = pair.wait("b to be closed", |pair| pair.b.closed(here));
            assert_eq!(reason, CloseReason::Local);
            let seen = pair.wait("a to be closed", |pair| pair.a.closed(there));
            assert!(matches!(seen, CloseReason::Gone | CloseReason::Lost(_)), "{seen:?}");
            (seen, seen)
        };
        assert_eq!(reason, expected);
        let mut tags: Vec<u64> = Vec::new();
        while let Some(Seen::Done { tag, .. }) = pair.a.take(|seen| matches!(seen, Seen::Done { .. })) {
            tags.push(tag);
        }
        tags.sort_unstable();
        assert_eq!(tags, (0..300).collect::<Vec<_>>(), "closed by {closer}");
        if closer == "a" {
            pair.wait("b to be closed", |pair| pair.b.closed(here));
        }
        pair.a.fabric.deregister(region);
        assert!(pair.a.seen.is_empty() && pair.b.seen.is_empty());
    }
}

pub(crate) fn a_rejected_peer_reads_why(lab: impl Lab) {
    // If this failed, a node with the wrong version or secret would retry for ever without a word in its log.
    let mut pair = Pair::new(lab);
    let address = pair.address;
    let longest = pair.a.fabric.capabilities().hello_bytes_max;
    let long = vec![7; longest.min(pair.b.fabric.capabilities().hello_bytes_max)];
    let there = pair.a.fabric.connect(address, &long).unwrap();
    let asked = pair.wait("being asked", |pair| pair.b.take(|seen| matches!(seen, Seen::Asked { .. })));
    let Seen::Asked { peer: here, hello } = asked else { unreachable!() };
    assert_eq!(hello, long);
    assert!(pair.a.fabric.post(&[send(there, 1, b"too early")]).is_err());
    pair.b.fabric.reject(here, b"wrong cluster").unwrap();
    let closed = pair.wait("the rejection", |pair| pair.a.take(|seen| matches!(seen, Seen::Closed { .. })));
    let expected = Seen::Closed { peer: there, reason: CloseReason::Rejected, hello: b"wrong cluster".to_vec() };
    assert_eq!(closed, expected);
    assert_eq!(pair.wait("b's end of it", |pair| pair.b.closed(here)), CloseReason::Local);
    assert!(pair.b.fabric.accept(here, b"").is_err());
    assert!(pair.a.fabric.connect(address, &vec![0; longest + 1]).is_err());
}

pub(crate) fn both_sides_talk_at_once(lab: impl Lab) {
    // If this failed, two nodes that get from each other at full speed would lock each other up.
    let mut pair = Pair::new(lab);
    let (there, here) = pair.connect();
    greet(&mut pair, there);
    let size = 8 << 20;
    let (mine, theirs) = (Memory::new(size), Memory::new(size));
    let half = size / 2;
    mine.set(0, &pattern(1, half as usize));
    theirs.set(0, &pattern(2, half as usize));
    let near = pair.a.register(&mine);
    let (far, window) = pair.open(&theirs, here, ALL);
    let back = pair.a.fabric.expose(there, near, 0, size, ALL).unwrap();
    let chunk = 256 << 10;
    let count = half / chunk;
    for index in 0..count {
        let (at, to) = (index * chunk, half + index * chunk);
        let tag = index;
        let get = Work::Read { peer: there, tag, local: local(near, to, chunk), remote: remote(&window, at) };
        pair.a.fabric.post(&[get]).unwrap();
        let get = Work::Read { peer: here, tag, local: local(far, to, chunk), remote: remote(&back, at) };
        pair.b.fabric.post(&[get]).unwrap();
    }
    for tag in 0..count {
        assert_eq!(pair.a_done(tag), Ok(0));
        assert_eq!(pair.b_done(tag), Ok(0));
    }
    assert!(mine.get(half, half as usize) == pattern(2, half as usize));
    assert!(theirs.get(half, half as usize) == pattern(1, half as usize));
}

pub(crate) fn an_abandoned_read_leaves_memory_alone(lab: impl Lab) {
    // If this failed, a late answer would be written into the memory of a client that has meanwhile reused it.
    let mut pair = Pair::new(lab);
    let (there, here) = pair.connect();
    greet(&mut pair, there);
    if !pair.a.fabric.capabilities().reads_abandonable {
        assert!(!pair.a.fabric.abandon(there, 1));
        return;
    }
    let size = 1 << 20;
    let (mine, theirs) = (Memory::new(size), Memory::new(size));
    theirs.set(0, &pattern(3, size as usize));
    let region = pair.a.register(&mine);
    let (_, window) = pair.open(&theirs, here, Rights::READ);
    let read =
        |tag, at, bytes| Work::Read { peer: there, tag, local: local(region, at, bytes), remote: remote(&window, at) };
    // One that is on its way, one behind it, and one that stays.
    pair.a.fabric.post(&[read(1, 0, size / 2), read(2, size / 2, 64), read(3, size - 64, 64)]).unwrap();
    pair.a.poll();
    assert!(pair.a.fabric.abandon(there, 1));
    assert!(pair.a.fabric.abandon(there, 2));
    assert!(!pair.a.fabric.abandon(there, 2));
    assert!(!pair.a.fabric.abandon(there, 99));
    let before = mine.get(0, (size / 2 + 64) as usize);
    assert_eq!(pair.a_done(3), Ok(0));
    assert_eq!(pair.a_done(1), Err(WorkError::Abandoned));
    assert_eq!(pair.a_done(2), Err(WorkError::Abandoned));
    assert!(mine.get(0, (size / 2 + 64) as usize) == before);
    assert_eq!(mine.get(size - 64, 64), theirs.get(size - 64, 64));
    assert!(pair.a.seen.is_empty(), "{:?}", pair.a.seen);
}

pub(crate) fn memory_outlives_its_deregistration_while_it_is_used(lab: impl Lab) {
    // If this failed, a client that detaches during a get would take the daemon with it, by a SIGSEGV.
    let mut pair = Pair::new(lab);
    let (there, here) = pair.connect();
    let size = 2 << 20;
    let (mine, theirs) = (Memory::new(size), Memory::new(size));
    theirs.set(0, &pattern(4, size as usize));
    let region = pair.a.register(&mine);
    let (_, window) = pair.open(&theirs, here, ALL);
    let get = Work::Read { peer: there, tag: 1, local: local(region, 0, size), remote: remote(&window, 0) };
    let put = Work::Write { peer: there, tag: 2, local: local(region, 0, size), remote: remote(&window, 0) };
    pair.a.fabric.post(&[get]).unwrap();
    pair.a.fabric.deregister(region);
    let error = pair.a.fabric.post(&[put]).unwrap_err();
    assert_eq!(error.kind, PostErrorKind::UnknownRegion);
    assert_eq!(pair.a_done(1), Ok(0));
    assert!(mine.get(0, size as usize) == pattern(4, size as usize));
}

pub(crate) fn too_much_is_busy_and_nothing_is_lost(lab: impl Lab) {
    // If this failed, a slow peer would make the daemon's memory grow without bound, or messages would vanish.
    let mut pair = Pair::new(lab);
    let (there, _here) = pair.connect();
    greet(&mut pair, there);
    let mut posted = 0_u64;
    let mut busy = false;
    let body = pattern(8, 500);
    for number in 0..200_000_u64 {
        let mut message = number.to_le_bytes().to_vec();
        message.extend_from_slice(&body);
        match pair.a.fabric.post(&[send(there, number, &message)]) {
            Ok(()) => posted += 1,
            Err(error) => {
                assert_eq!(error.kind, PostErrorKind::Busy);
                busy = true;
                break;
            }
        }
        if number % 64 == 0 {
            pair.a.poll();
        }
    }
    assert!(busy, "{posted} messages of 508 bytes are more than a peer that reads none of them may queue");
    for number in 0..posted {
        let message = pair.wait("a message", |pair| pair.b.message());
        assert_eq!(message[..8], number.to_le_bytes());
        assert_eq!(message[8..], body);
    }
    for number in 0..posted {
        assert_eq!(pair.a_done(number), Ok(0));
    }
    pair.a.fabric.post(&[send(there, posted, b"again")]).unwrap();
    assert_eq!(pair.wait("the next one", |pair| pair.b.message()), b"again");
}
