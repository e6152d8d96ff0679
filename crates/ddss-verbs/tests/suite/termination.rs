//! Ends of connections, operations and memory: each once, without a waiting caller or access to released memory.

use ddss_verbs::{CloseReason, Fabric, PostErrorKind, Rights, Work, WorkError};

use super::{greet, local, remote, send};
use crate::common::{ALL, FabricFactory, Memory, OwnedEvent, Pair, pattern};

pub(crate) fn close_completes_every_operation_once(factory: impl FabricFactory) {
    // If this failed, a caller would wait forever after a node died, or receive two completions.
    let mut pair = Pair::new(factory);
    for closer in ["a", "b"] {
        let (there, here) = pair.connect();
        greet(&mut pair, there);
        let (mine, theirs) = (Memory::new(1 << 20), Memory::new(1 << 20));
        let region = pair.a.register(&mine);
        let (_, window) = pair.expose(&theirs, here, ALL);
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
            assert!(matches!(seen, CloseReason::ClosedByPeer | CloseReason::Lost(_)), "{seen:?}");
            (seen, seen)
        };
        assert_eq!(reason, expected);
        let mut tags: Vec<u64> = Vec::new();
        while let Some(OwnedEvent::Done { tag, .. }) = pair.a.take(|seen| matches!(seen, OwnedEvent::Done { .. })) {
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

pub(crate) fn rejected_peer_receives_the_reason(factory: impl FabricFactory) {
    // If this failed, a node with the wrong version or secret would retry forever without a reason in its log.
    let mut pair = Pair::new(factory);
    let address = pair.address;
    let longest = pair.a.fabric.capabilities().hello_bytes_max;
    let long = vec![7; longest.min(pair.b.fabric.capabilities().hello_bytes_max)];
    let there = pair.a.fabric.connect(address, &long).unwrap();
    let asked = pair.wait("being asked", |pair| pair.b.take(|seen| matches!(seen, OwnedEvent::ConnectRequest { .. })));
    let OwnedEvent::ConnectRequest { peer: here, hello } = asked else { unreachable!() };
    assert_eq!(hello, long);
    assert!(pair.a.fabric.post(&[send(there, 1, b"too early")]).is_err());
    pair.b.fabric.reject(here, b"wrong cluster").unwrap();
    let closed = pair.wait("the rejection", |pair| pair.a.take(|seen| matches!(seen, OwnedEvent::Closed { .. })));
    let expected = OwnedEvent::Closed { peer: there, reason: CloseReason::Rejected, hello: b"wrong cluster".to_vec() };
    assert_eq!(closed, expected);
    assert_eq!(pair.wait("b's end of it", |pair| pair.b.closed(here)), CloseReason::Local);
    assert!(pair.b.fabric.accept(here, b"").is_err());
    assert!(pair.a.fabric.connect(address, &vec![0; longest + 1]).is_err());
}

pub(crate) fn abandoned_read_leaves_memory_alone(factory: impl FabricFactory) {
    // If this failed, a late answer would be written into the memory of a client that has reused it.
    let mut pair = Pair::new(factory);
    let (there, here) = pair.connect();
    greet(&mut pair, there);
    if !pair.a.fabric.capabilities().can_abandon_reads {
        assert!(!pair.a.fabric.abandon(there, 1));
        return;
    }
    let size = 1 << 20;
    let (mine, theirs) = (Memory::new(size), Memory::new(size));
    theirs.set(0, &pattern(3, size as usize));
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, Rights::READ);
    let read =
        |tag, at, bytes| Work::Read { peer: there, tag, local: local(region, at, bytes), remote: remote(&window, at) };
    // One read in flight, one behind it, and one that stays.
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

pub(crate) fn deregistered_memory_stays_mapped_while_in_use(factory: impl FabricFactory) {
    // If this failed, a client that detaches during a get would end the daemon with a SIGSEGV.
    let mut pair = Pair::new(factory);
    let (there, here) = pair.connect();
    let size = 2 << 20;
    let (mine, theirs) = (Memory::new(size), Memory::new(size));
    theirs.set(0, &pattern(4, size as usize));
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, ALL);
    let get = Work::Read { peer: there, tag: 1, local: local(region, 0, size), remote: remote(&window, 0) };
    let put = Work::Write { peer: there, tag: 2, local: local(region, 0, size), remote: remote(&window, 0) };
    pair.a.fabric.post(&[get]).unwrap();
    pair.a.fabric.deregister(region);
    let error = pair.a.fabric.post(&[put]).unwrap_err();
    assert_eq!(error.kind, PostErrorKind::UnknownRegion);
    assert_eq!(pair.a_done(1), Ok(0));
    assert!(mine.get(0, size as usize) == pattern(4, size as usize));
}
