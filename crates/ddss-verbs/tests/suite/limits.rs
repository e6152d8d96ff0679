//! What is refused where it is asked for, and what is promised to go.

use ddss_verbs::{Fabric, PeerId, PostErrorKind, RemoteRange, Work};

use super::{local, remote, send};
use crate::common::{ALL, Lab, Memory, Pair, pattern};

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
    let too_long = vec![0; pair.a.fabric.capabilities().message_bytes_max + 1];
    let cases = [
        (Work::Read { peer, tag, local: local(region, 4090, 8), remote: far }, PostErrorKind::OutOfBounds),
        (Work::Write { peer, tag, local: local(region, u64::MAX, 8), remote: far }, PostErrorKind::OutOfBounds),
        (Work::Read { peer, tag, local: local(region, 0, 8), remote: wrap }, PostErrorKind::OutOfBounds),
        (Work::Read { peer, tag, local: local(gone, 0, 8), remote: far }, PostErrorKind::UnknownRegion),
        (Work::FetchAdd { peer, tag, remote: odd, add: 1 }, PostErrorKind::Unaligned),
        (Work::CompareSwap { peer, tag, remote: odd, compare: 0, swap: 1 }, PostErrorKind::Unaligned),
        (send(peer, tag, &too_long), PostErrorKind::TooLong),
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

/// What is moved and compared at once of the longest.
const CHUNK_BYTES: usize = 1 << 20;

pub(crate) fn what_is_promised_is_carried_and_no_more(lab: impl Lab) {
    // If this failed, who goes by the capabilities would be turned away, or one length too much would cost the connection to
    // a whole node.
    let mut pair = Pair::new(lab);
    let (peer, here) = pair.connect();
    let promises = pair.a.fabric.capabilities();
    let longest = pattern(1, promises.message_bytes_max + 1);
    pair.a.fabric.post(&[send(peer, 1, &longest[1..])]).unwrap();
    assert_eq!(pair.wait("the longest message", |pair| pair.b.message()), longest[1..]);
    assert_eq!(pair.a_done(1), Ok(0));

    // Memory that has room for more, so that nothing but the length can be wrong.
    let most = promises.work_bytes_max;
    let room = (most + 1).next_multiple_of(4096);
    let (mine, theirs) = (Memory::new(room), Memory::new(room));
    let near = pair.a.register(&mine);
    let (_, window) = pair.open(&theirs, here, ALL);
    let write = |bytes| Work::Write { peer, tag: 2, local: local(near, 0, bytes), remote: remote(&window, 0) };
    let read = |bytes| Work::Read { peer, tag: 3, local: local(near, 0, bytes), remote: remote(&window, 0) };
    let (put, get) = (pattern(2, 2 * CHUNK_BYTES), pattern(3, 2 * CHUNK_BYTES));
    fill(&mine, &put, most);
    for work in [send(peer, 4, &longest), write(most + 1), read(most + 1)] {
        let error = pair.a.fabric.post(&[work]).unwrap_err();
        assert_eq!((error.index, error.kind), (0, PostErrorKind::TooLong), "{most} bytes and one more");
    }
    pair.a.fabric.post(&[write(most), send(peer, 5, b"look")]).unwrap();
    assert_eq!(pair.wait("the message", |pair| pair.b.message()), b"look");
    assert_eq!([2, 5].map(|tag| pair.a_done(tag)), [Ok(0); 2]);
    holds(&theirs, &put, most, room);
    fill(&theirs, &get, most);
    pair.a.fabric.post(&[read(most)]).unwrap();
    assert_eq!(pair.a_done(3), Ok(0));
    holds(&mine, &get, most, room);
    assert!(pair.a.seen.is_empty() && pair.b.seen.is_empty(), "{:?} and {:?}", pair.a.seen, pair.b.seen);
}

/// Other bytes for each chunk, out of `noise` for two: to make them anew would take longer than to move them.
fn chunks(noise: &[u8], bytes: u64) -> impl Iterator<Item = (u64, &[u8])> {
    (0..bytes).step_by(CHUNK_BYTES).enumerate().map(move |(index, at)| {
        let length = (bytes - at).min(CHUNK_BYTES as u64) as usize;
        (at, &noise[index * 8 % CHUNK_BYTES..][..length])
    })
}

fn fill(memory: &Memory, noise: &[u8], bytes: u64) {
    for (at, chunk) in chunks(noise, bytes) {
        memory.set(at, chunk);
    }
}

/// All of it arrived, and nothing behind it was touched.
fn holds(memory: &Memory, noise: &[u8], bytes: u64, room: u64) {
    for (at, chunk) in chunks(noise, bytes) {
        assert!(memory.get(at, chunk.len()) == chunk, "the chunk at {at} of {bytes} bytes");
    }
    assert!(memory.get(bytes, (room - bytes) as usize).iter().all(|byte| *byte == 0), "behind {bytes} bytes");
}
