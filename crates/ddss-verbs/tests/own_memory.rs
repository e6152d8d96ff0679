//! Memory that only the polling thread writes ([`Trust::Own`]) is summed where it lies and sent from there. It may change as
//! soon as a poll is over, and within one by the atomics of a peer; neither may be seen in what was summed before.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::{ALL, Loopback, Memory, Pair};
use ddss_verbs::{Fabric, LocalRange, RemoteRange, Work};

const READ_BYTES: u64 = 64 << 10;
/// A word in a part of it that is not copied.
const WORD: u64 = 1024;

#[test]
fn what_waits_for_a_full_socket_is_as_it_was() {
    // If this failed, a put beside many gets would make a sum wrong and cut two nodes from each other, or a get would
    // return bytes of two versions.
    let mut pair = Pair::new(Loopback::new(|_| {}).own());
    let (there, here) = pair.connect();
    assert!(pair.b.fabric.capabilities().snapshot_bytes >= READ_BYTES);
    // More than the two sockets take while nobody receives.
    let reads = 250;
    let (mine, theirs) = (Memory::new(reads * READ_BYTES), Memory::new(READ_BYTES));
    let region = pair.a.register(&mine);
    let (_, window) = pair.open(&theirs, here, ALL);
    theirs.set(0, &[1; READ_BYTES as usize]);
    let remote = RemoteRange { key: window.key, address: window.base };
    let local = |tag| LocalRange { region, offset: tag * READ_BYTES, bytes: READ_BYTES };
    let works: Vec<Work<'_>> =
        (0..reads).map(|tag| Work::Read { peer: there, tag, local: local(tag), remote }).collect();
    pair.a.fabric.post(&works).unwrap();
    pair.a.poll();
    let mut version = 1;
    for tag in 0..reads {
        // One side works on while the other one does not look; and what it sends changes after each poll.
        for _ in 0..3 {
            pair.b.poll();
            version += 1;
            theirs.set(0, &[version as u8; READ_BYTES as usize]);
        }
        assert_eq!(pair.a_done(tag), Ok(0));
    }
    let mut versions = Vec::new();
    for tag in 0..reads {
        let bytes = mine.get(tag * READ_BYTES, READ_BYTES as usize);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "read {tag} is of two moments");
        versions.push(bytes[0]);
    }
    versions.dedup();
    assert!(versions.len() > 2, "the socket took all of it at once, so nothing was tried: {versions:?}");
}

#[test]
fn an_atomic_comes_after_the_read_before_it() {
    // If this failed, an atomic right behind a large read would make the read's sum wrong.
    for crc in [true, false] {
        let mut pair = Pair::new(Loopback::new(|config| config.crc = crc).own());
        let (there, here) = pair.connect();
        let rounds = 40;
        let (mine, theirs) = (Memory::new(rounds * READ_BYTES), Memory::new(READ_BYTES));
        let region = pair.a.register(&mine);
        let (_, window) = pair.open(&theirs, here, ALL);
        let at = |address| RemoteRange { key: window.key, address: window.base + address };
        let mut works = Vec::new();
        for round in 0..rounds {
            let local = LocalRange { region, offset: round * READ_BYTES, bytes: READ_BYTES };
            works.push(Work::Read { peer: there, tag: 2 * round, local, remote: at(0) });
            works.push(Work::FetchAdd { peer: there, tag: 2 * round + 1, remote: at(WORD), add: 1 });
        }
        pair.a.fabric.post(&works).unwrap();
        for round in 0..rounds {
            assert_eq!(pair.a_done(2 * round), Ok(0));
            assert_eq!(pair.a_done(2 * round + 1), Ok(round));
            if crc {
                assert_eq!(mine.word(round * READ_BYTES + WORD), round, "what was there before the atomic");
            }
        }
    }
}
