//! What is refused where it is asked for, and what is promised to go.

use ddss_verbs::{Fabric, PeerId, PostErrorKind, RemoteRange, Work};

use super::{local, remote, send};
use crate::common::{ALL, Lab, Memory, Pair};

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
