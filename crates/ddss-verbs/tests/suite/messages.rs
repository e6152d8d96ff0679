//! Messages and immediates: in order, with their mode, and bounded.

use ddss_verbs::{Fabric, PostErrorKind, Rights, SendMode, Work, WorkError};

use super::{greet, local, remote, send};
use crate::common::{FabricFactory, Memory, OwnedEvent, Pair, pattern};

pub(crate) fn messages_arrive_in_order_after_writes(factory: impl FabricFactory) {
    // If this failed, a commit message would reach the home before its bytes, and a torn value would be stored.
    let mut pair = Pair::new(factory);
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(1 << 20), Memory::new(1 << 20));
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, Rights::WRITE);
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
        let immediate =
            pair.wait("the immediate", |pair| pair.b.take(|seen| matches!(seen, OwnedEvent::Immediate { .. })));
        assert_eq!(immediate, OwnedEvent::Immediate { peer: here, data: message, solicited: round % 2 == 0 });
        assert_eq!(pair.wait("the long one", |pair| pair.b.message()), pattern(round, 512));
        for tag in tag..tag + 4 {
            assert_eq!(pair.a_done(tag), Ok(0));
        }
        tag += 4;
    }
    pair.a.fabric.post(&[send(there, tag, b"")]).unwrap();
    assert_eq!(pair.wait("the empty one", |pair| pair.b.message()), b"");
}

pub(crate) fn messages_carry_their_mode(factory: impl FabricFactory) {
    // If this failed, a node would sleep through a solicited message, or a peer could access memory that it has
    // returned.
    let mut pair = Pair::new(factory);
    for withdrawn in 0..2 {
        let (there, here) = pair.connect();
        let (mine, theirs) = (Memory::new(4096), Memory::new(4096));
        theirs.set(0, b"8 bytes!");
        let local_region = pair.a.register(&mine);
        let remote_region = pair.b.register(&theirs);
        let windows = [(); 3].map(|()| pair.b.fabric.expose(here, remote_region, 0, 4096, Rights::READ).unwrap());
        let read =
            |tag, window| Work::Read { peer: there, tag, local: local(local_region, 0, 8), remote: remote(window, 0) };
        for (tag, window) in windows.iter().enumerate() {
            pair.a.fabric.post(&[read(tag as u64, window)]).unwrap();
            assert_eq!(pair.a_done(tag as u64), Ok(0), "every window is open at first");
        }
        let modes = [(false, None), (true, None), (false, Some(windows[0].key)), (true, Some(windows[1].key))];
        let bodies = [0, 1, 2, 3].map(|index| pattern(index, index as usize * 100));
        // Some of the messages wait behind reads, of which only a few may be in flight.
        let mut works: Vec<Work<'_>> = (10..18).map(|tag| read(tag, &windows[2])).collect();
        works.extend(modes.iter().zip(&bodies).zip(20..).map(|((&(solicited, invalidate), message), tag)| {
            Work::Send { peer: there, tag, message, mode: SendMode { solicited, invalidate } }
        }));
        pair.a.fabric.post(&works).unwrap();
        for ((solicited, invalidated), bytes) in modes.into_iter().zip(bodies) {
            let seen = pair.wait("a message", |pair| pair.b.take(|seen| matches!(seen, OwnedEvent::Message { .. })));
            assert_eq!(seen, OwnedEvent::Message { peer: here, bytes, solicited, invalidated });
        }
        for tag in (10..18).chain(20..24) {
            assert_eq!(pair.a_done(tag), Ok(0));
        }
        pair.a.fabric.post(&[read(30, &windows[2])]).unwrap();
        assert_eq!(pair.a_done(30), Ok(0), "a window that no message named is still open");
        mine.set(0, &[0; 8]);
        pair.a.fabric.post(&[read(31, &windows[withdrawn])]).unwrap();
        let outcome = pair.a_done(31);
        let unnamed = !pair.reports_refusals() && outcome == Err(WorkError::Indeterminate);
        assert!(unnamed || matches!(outcome, Err(WorkError::Refused(_))), "window {withdrawn}: {outcome:?}");
        pair.assert_both_closed_for_cause(there, here, "a key that was withdrawn by a message");
        assert_eq!(mine.get(0, 8), [0; 8]);
    }
}

pub(crate) fn full_queue_is_busy_and_loses_nothing(factory: impl FabricFactory) {
    // If this failed, a slow peer would make the daemon's memory grow without bound, or messages would be lost.
    let mut pair = Pair::new(factory);
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
