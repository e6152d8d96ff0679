//! Access rights of keys: range, operation, and owner.

use ddss_verbs::{
    CloseReason, Fabric, PostErrorKind, RegionId, RemoteRange, Rights, SendMode, TerminateCode, Window, Work, WorkError,
};

use super::{local, remote};
use crate::common::{ALL, FabricFactory, Memory, Pair, pattern};

pub(crate) fn bad_key_ends_the_connection_and_names_the_read(factory: impl FabricFactory) {
    // If this failed, a stale key would read another segment's bytes, or the wrong operation would fail.
    let mut pair = Pair::new(factory);
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(4096), Memory::new(4096));
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, ALL);
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
    let named = pair.reports_refusals();
    let refused = pair.a_done(2).unwrap_err();
    assert!(refused == WorkError::Indeterminate && !named || matches!(refused, WorkError::Refused(_)), "{refused:?}");
    let after = pair.a_done(3).unwrap_err();
    assert!(after.is_definite() || !named, "the peer stopped at the bad one: {after:?}");
    pair.assert_both_closed_for_cause(there, here, "a bad key");
    assert_eq!(mine.get(16, 16), [0; 16]);
    let late = pair.a.fabric.post(&[read(4, window.key)]).unwrap_err();
    assert_eq!((late.index, late.kind), (0, PostErrorKind::UnknownPeer));
}

pub(crate) fn bounds_and_rights_are_enforced(factory: impl FabricFactory) {
    // If this failed, a peer could access memory that was not exposed to it.
    let mut pair = Pair::new(factory);
    for case in 0..8 {
        if case == 4 && !pair.factory.checks_read_rights() || matches!(case, 5 | 6) && !pair.factory.has_extensions() {
            continue;
        }
        let (there, here) = pair.connect();
        let (mine, theirs) = (Memory::new(8192), Memory::new(8192));
        theirs.set(0, &[9; 8192]);
        let region = pair.a.register(&mine);
        let owner = pair.b.register(&theirs);
        let window = pair.b.fabric.expose(here, owner, 4096, 1024, Rights::READ).unwrap();
        let others = pair.b.fabric.expose(here, owner, 0, 512, Rights::WRITE.union(Rights::ATOMIC)).unwrap();
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
            let unnamed = !pair.reports_refusals() && outcome == Err(WorkError::Indeterminate);
            assert!(unnamed || matches!(outcome, Err(WorkError::Refused(_))), "case {case}: {outcome:?}");
        }
        pair.assert_both_closed_for_cause(there, here, &format!("case {case}"));
        assert_eq!(theirs.get(0, 8192), [9; 8192], "case {case}");
        assert_eq!(mine.get(0, 8192), [0; 8192], "case {case}");
    }
}

/// Use of a key that was given to another peer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Attempt {
    Read,
    Write,
    Atomic,
    /// An invalidation of the key.
    Withdraw,
}

pub(crate) fn key_is_valid_for_one_connection(factory: impl FabricFactory) {
    // If this failed, a key of one node would open the same memory to every other node, or to the next one that
    // connects, and access could never be revoked.
    let mut attempts = vec![Attempt::Read, Attempt::Write];
    if factory.has_extensions() {
        attempts.extend([Attempt::Atomic, Attempt::Withdraw]);
    }
    let mut pair = Pair::new(factory);
    let (mine, theirs) = (Memory::new(4096), Memory::new(4096));
    theirs.set(0, &pattern(1, 4096));
    let local_region = pair.a.register(&mine);
    let (there, here) = pair.connect();
    let (_, window) = pair.expose(&theirs, here, ALL);
    let own = |tag| Work::Read { peer: there, tag, local: local(local_region, 0, 8), remote: remote(&window, 0) };
    for attempt in &attempts {
        mine.set(0, &[0; 16]);
        is_refused(&mut pair, local_region, &window, *attempt);
        assert_eq!(mine.get(0, 16), [0; 16], "{attempt:?} by another peer");
        assert!(theirs.get(0, 4096) == pattern(1, 4096), "{attempt:?} by another peer");
        // The owner of the key is unaffected.
        pair.a.fabric.post(&[own(1)]).unwrap();
        assert_eq!(pair.a_done(1), Ok(0), "after {attempt:?} by another peer");
        assert_eq!(mine.get(0, 8), pattern(1, 8));
    }
    pair.a.fabric.close(there);
    pair.wait("a to be closed", |pair| pair.a.closed(there));
    pair.wait("b to be closed", |pair| pair.b.closed(here));
    for attempt in &attempts {
        mine.set(0, &[0; 16]);
        is_refused(&mut pair, local_region, &window, *attempt);
        assert_eq!(mine.get(0, 16), [0; 16], "{attempt:?} after its connection");
        assert!(theirs.get(0, 4096) == pattern(1, 4096), "{attempt:?} after its connection");
    }
    assert!(pair.a.seen.is_empty() && pair.b.seen.is_empty(), "{:?} and {:?}", pair.a.seen, pair.b.seen);
}

/// Checks an attempt of a connected peer with a foreign key: its connection ends, without any other effect.
fn is_refused<L: FabricFactory>(pair: &mut Pair<L>, local_region: RegionId, foreign: &Window, attempt: Attempt) {
    let (peer, here) = pair.connect();
    let others = Memory::new(4096);
    others.set(0, &pattern(2, 4096));
    let (remote_region, own) = pair.expose(&others, here, ALL);
    let tag = 7;
    let read =
        |window, offset| Work::Read { peer, tag, local: local(local_region, offset, 8), remote: remote(window, 0) };
    pair.a.fabric.post(&[read(&own, 4088)]).unwrap();
    assert_eq!(pair.a_done(tag), Ok(0), "a peer's own key is valid");
    let mode = SendMode { solicited: false, invalidate: Some(foreign.key) };
    let work = match attempt {
        Attempt::Read => read(foreign, 8),
        Attempt::Write => Work::Write { peer, tag, local: local(local_region, 0, 8), remote: remote(foreign, 0) },
        Attempt::Atomic => Work::FetchAdd { peer, tag, remote: remote(foreign, 0), add: 1 },
        Attempt::Withdraw => Work::Send { peer, tag, message: b"foreign", mode },
    };
    pair.a.fabric.post(&[work]).unwrap();
    let outcome = pair.a_done(tag);
    if matches!(attempt, Attempt::Read | Attempt::Atomic) {
        assert!(outcome.is_err(), "{attempt:?} with another peer's key: {outcome:?}");
    }
    if attempt == Attempt::Withdraw {
        let reason = pair.wait("b to be closed", |pair| pair.b.closed(here));
        assert_eq!(reason, CloseReason::ProtocolViolation(TerminateCode::RDMAP_INVALIDATE));
        pair.wait("a to be closed", |pair| pair.a.closed(peer));
    } else {
        pair.assert_both_closed_for_cause(peer, here, &format!("{attempt:?} with another peer's key"));
    }
    assert!(others.get(0, 4096) == pattern(2, 4096));
    pair.b.fabric.deregister(remote_region);
}
