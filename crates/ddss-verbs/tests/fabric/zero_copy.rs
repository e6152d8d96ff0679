//! Without CRC, large payload is received in place.

use crate::common::{ALL, Loopback, Memory, Pair, pattern};
use ddss_verbs::{Fabric, LocalRange, RemoteRange, Work};

const WORKS: u64 = 32;

#[test]
fn large_payload_is_received_in_place() {
    // If this failed, each byte of a large get or put would be copied once more than necessary.
    for bytes in [64 << 10, 1 << 20_u64] {
        let mut pair = Pair::new(Loopback::new(|config| config.crc = false));
        let (there, here) = pair.connect();
        let (mine, theirs) = (Memory::new(WORKS * bytes), Memory::new(WORKS * bytes));
        let region = pair.a.register(&mine);
        let (_, window) = pair.expose(&theirs, here, ALL);
        let all = (WORKS * bytes) as usize;
        let at = |tag| (tag * bytes, RemoteRange { key: window.key, address: window.base + tag * bytes });
        let local = |offset| LocalRange { region, offset, bytes };
        theirs.set(0, &pattern(1, all));
        for tag in 0..WORKS {
            let (offset, remote) = at(tag);
            pair.a.fabric.post(&[Work::Read { peer: there, tag, local: local(offset), remote }]).unwrap();
        }
        (0..WORKS).for_each(|tag| assert_eq!(pair.a_done(tag), Ok(0)));
        assert!(mine.get(0, all) == pattern(1, all), "what was read");
        let in_place = pair.a.fabric.zero_copy_bytes();
        assert!(in_place >= WORKS * bytes / 10 * 9, "{in_place} of {all} bytes were read in place");

        mine.set(0, &pattern(2, all));
        let works = (WORKS..2 * WORKS).map(|tag| {
            let (offset, remote) = at(tag - WORKS);
            Work::Write { peer: there, tag, local: local(offset), remote }
        });
        pair.a.fabric.post(&works.collect::<Vec<_>>()).unwrap();
        (WORKS..2 * WORKS).for_each(|tag| assert_eq!(pair.a_done(tag), Ok(0)));
        // The atomic is answered when all earlier writes have been placed.
        pair.a.fabric.post(&[Work::FetchAdd { peer: there, tag: 99, remote: at(0).1, add: 0 }]).unwrap();
        pair.a_done(99).unwrap();
        assert!(theirs.get(0, all) == pattern(2, all), "what was written");
        let in_place = pair.b.fabric.zero_copy_bytes();
        assert!(in_place >= WORKS * bytes / 10 * 8, "{in_place} of {all} bytes were written in place");
    }
}
