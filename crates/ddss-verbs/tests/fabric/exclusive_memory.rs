//! Exclusive memory ([`Trust::Exclusive`]) is summed and sent in place. It may change after a poll, and within one by
//! the atomics of a peer; neither may affect payload that was summed before.

use crate::common::{ALL, Loopback, Memory, Pair};
use ddss_verbs::{Fabric, LocalRange, RemoteRange, Work};

const READ_BYTES: u64 = 64 << 10;
/// A word in a part that is not copied.
const WORD: u64 = 1024;

#[test]
fn payload_waiting_for_a_full_socket_does_not_change() {
    // If this failed, a put beside many gets would invalidate a checksum and separate two nodes, or a get would return
    // bytes of two versions.
    let mut pair = Pair::new(Loopback::new(|_| {}).exclusive());
    let (there, here) = pair.connect();
    assert!(pair.b.fabric.capabilities().snapshot_bytes >= READ_BYTES);
    // More than the two sockets accept while neither side receives.
    let reads = 250;
    let (mine, theirs) = (Memory::new(reads * READ_BYTES), Memory::new(READ_BYTES));
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, ALL);
    theirs.set(0, &[1; READ_BYTES as usize]);
    let remote = RemoteRange { key: window.key, address: window.base };
    let local = |tag| LocalRange { region, offset: tag * READ_BYTES, bytes: READ_BYTES };
    let works: Vec<Work<'_>> =
        (0..reads).map(|tag| Work::Read { peer: there, tag, local: local(tag), remote }).collect();
    pair.a.fabric.post(&works).unwrap();
    pair.a.poll();
    let mut version = 1;
    for tag in 0..reads {
        // One side continues while the other one does not poll; and the payload changes after each poll.
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
fn atomic_takes_effect_after_the_earlier_read() {
    // If this failed, an atomic after a large read would invalidate the read's checksum.
    for crc in [true, false] {
        let mut pair = Pair::new(Loopback::new(|config| config.crc = crc).exclusive());
        let (there, here) = pair.connect();
        let rounds = 40;
        let (mine, theirs) = (Memory::new(rounds * READ_BYTES), Memory::new(READ_BYTES));
        let region = pair.a.register(&mine);
        let (_, window) = pair.expose(&theirs, here, ALL);
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
