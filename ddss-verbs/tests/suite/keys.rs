//! What opens memory to a peer, how far, and for whom.

use ddss_verbs::{Fabric, PostErrorKind, RemoteRange, Rights, Work, WorkError};

use super::{local, remote};
use crate::common::{ALL, Lab, Memory, Pair};

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
