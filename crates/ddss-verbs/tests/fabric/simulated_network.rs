//! Properties of the simulated network: reproducible runs, torn transfers, cuts and kills.

use crate::common::{ALL, Memory, OwnedEvent, Pair, Simulated};
use ddss_verbs::{CloseReason, Fabric, LocalRange, RemoteRange, Work, WorkError};

fn pair(seed: u64) -> Pair<Simulated> {
    Pair::new(Simulated::new(seed))
}

/// Posts every kind of work, breaks the connection in the middle, and returns all events, with the time.
fn run(seed: u64, kill: bool) -> (Vec<OwnedEvent>, std::time::Duration, u64) {
    let mut pair = pair(seed);
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(1 << 16), Memory::new(1 << 16));
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, ALL);
    let local = LocalRange { region, offset: 0, bytes: 1 << 16 };
    let remote = RemoteRange { key: window.key, address: window.base };
    for tag in 0..20 {
        let work = match tag % 3 {
            0 => Work::Read { peer: there, tag, local, remote },
            1 => Work::Write { peer: there, tag, local, remote },
            _ => Work::FetchAdd { peer: there, tag, remote, add: 1 },
        };
        pair.a.fabric.post(&[work]).unwrap();
    }
    for _ in 0..8 {
        pair.step();
    }
    if kill {
        pair.factory.0.kill(&pair.b.fabric);
        while pair.a.closed(there).is_none() {
            pair.a.poll();
            assert!(pair.factory.0.advance_to_next() || !pair.a.seen.is_empty(), "the end arrives by itself");
        }
    } else {
        pair.factory.0.cut(&pair.a.fabric, &pair.b.fabric);
        let reason = pair.wait("the end", |pair| pair.a.closed(there));
        assert!(matches!(reason, CloseReason::Lost(_)));
        pair.wait("the other end", |pair| pair.b.closed(here));
    }
    let mut done: Vec<u64> = Vec::new();
    for seen in &pair.a.seen {
        match seen {
            OwnedEvent::Done { tag, outcome, .. } => {
                assert!(!matches!(outcome, Err(WorkError::Refused(_))), "{seen:?}");
                done.push(*tag);
            }
            other => panic!("{other:?}"),
        }
    }
    done.sort_unstable();
    assert_eq!(done, (0..20).collect::<Vec<_>>(), "each operation ends once");
    (pair.a.seen, pair.factory.0.now(), theirs.word(0))
}

#[test]
fn same_seed_gives_the_same_run() {
    // If this failed, a failure that the simulator found could not be reproduced.
    for seed in 0..20 {
        for kill in [false, true] {
            assert_eq!(run(seed, kill), run(seed, kill), "seed {seed}");
        }
    }
    assert_ne!(run(1, false).1, run(2, false).1, "another seed is another run");
}

#[test]
fn large_reads_are_torn_and_small_reads_are_not() {
    // If this failed, the engine's checks for torn values would never be exercised.
    let mut torn = 0;
    for (bytes, may_tear) in [(4096_u64, false), (32_768, true)] {
        for seed in 0..40 {
            let mut pair = pair(seed);
            let (there, here) = pair.connect();
            let (mine, theirs) = (Memory::new(bytes), Memory::new(bytes));
            let region = pair.a.register(&mine);
            let (_, window) = pair.expose(&theirs, here, ALL);
            let local = LocalRange { region, offset: 0, bytes };
            let remote = RemoteRange { key: window.key, address: window.base };
            pair.a.fabric.post(&[Work::Read { peer: there, tag: 1, local, remote }]).unwrap();
            let mut value = 0_u8;
            let outcome = pair.wait("the read", |pair| {
                value = value.wrapping_add(1);
                theirs.set(0, &vec![value; bytes as usize]);
                pair.a.done(1)
            });
            assert_eq!(outcome, Ok(0));
            let got = mine.get(0, bytes as usize);
            let whole = got.iter().all(|byte| *byte == got[0]);
            assert!(whole || may_tear, "{bytes} bytes with seed {seed}");
            assert!(got.chunks(8).all(|word| word.iter().all(|byte| *byte == word[0])), "words are whole");
            torn += usize::from(!whole);
        }
    }
    assert!(torn >= 5, "{torn} of 40 large reads were torn");
}

#[test]
fn connect_without_listener_is_refused() {
    // If this failed, the engine's retries would never be exercised.
    let mut pair = pair(3);
    let peer = pair.a.fabric.connect("10.0.0.9:7".parse().unwrap(), b"").unwrap();
    let reason = pair.wait("the refusal", |pair| pair.a.closed(peer));
    assert_eq!(reason, CloseReason::Unreachable(std::io::ErrorKind::ConnectionRefused));
}
