//! Local refusals, and the limits in the capabilities.

use ddss_verbs::{Fabric, PeerId, PostErrorKind, RemoteRange, Work};

use super::{local, remote, send};
use crate::common::{ALL, FabricFactory, Memory, Pair, pattern};

pub(crate) fn invalid_work_is_refused_locally(factory: impl FabricFactory) {
    // If this failed, one bad length in the daemon would cost the connection to a whole node.
    let mut pair = Pair::new(factory);
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(4096), Memory::new(4096));
    let region = pair.a.register(&mine);
    let gone = pair.a.register(&mine);
    pair.a.fabric.deregister(gone);
    let (_, window) = pair.expose(&theirs, here, ALL);
    let remote_region = remote(&window, 0);
    let wrap = RemoteRange { key: window.key, address: u64::MAX - 3 };
    let odd = remote(&window, 4);
    let (peer, tag) = (there, 9);
    let unknown = PeerId::from_bits(there.to_bits() ^ (1 << 40));
    let too_long = vec![0; pair.a.fabric.capabilities().message_bytes_max + 1];
    let cases = [
        (Work::Read { peer, tag, local: local(region, 4090, 8), remote: remote_region }, PostErrorKind::OutOfBounds),
        (
            Work::Write { peer, tag, local: local(region, u64::MAX, 8), remote: remote_region },
            PostErrorKind::OutOfBounds,
        ),
        (Work::Read { peer, tag, local: local(region, 0, 8), remote: wrap }, PostErrorKind::OutOfBounds),
        (Work::Read { peer, tag, local: local(gone, 0, 8), remote: remote_region }, PostErrorKind::UnknownRegion),
        (Work::FetchAdd { peer, tag, remote: odd, add: 1 }, PostErrorKind::Unaligned),
        (Work::CompareSwap { peer, tag, remote: odd, compare: 0, swap: 1 }, PostErrorKind::Unaligned),
        (send(peer, tag, &too_long), PostErrorKind::TooLong),
        (send(unknown, tag, b""), PostErrorKind::UnknownPeer),
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

/// Bytes of the longest transfer that are filled and compared at a time.
const CHUNK_BYTES: usize = 1 << 20;

pub(crate) fn capability_limits_are_exact(factory: impl FabricFactory) {
    // If this failed, a caller within the limits would be refused, or one byte too much would cost the connection to a
    // whole node.
    let mut pair = Pair::new(factory);
    let (peer, here) = pair.connect();
    let promises = pair.a.fabric.capabilities();
    let longest = pattern(1, promises.message_bytes_max + 1);
    pair.a.fabric.post(&[send(peer, 1, &longest[1..])]).unwrap();
    assert_eq!(pair.wait("the longest message", |pair| pair.b.message()), longest[1..]);
    assert_eq!(pair.a_done(1), Ok(0));

    // Memory beyond the limit, so that only the length can be wrong.
    let most = promises.work_bytes_max;
    let room = (most + 1).next_multiple_of(4096);
    let (mine, theirs) = (Memory::new(room), Memory::new(room));
    let local_region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, ALL);
    let write = |bytes| Work::Write { peer, tag: 2, local: local(local_region, 0, bytes), remote: remote(&window, 0) };
    let read = |bytes| Work::Read { peer, tag: 3, local: local(local_region, 0, bytes), remote: remote(&window, 0) };
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

/// Returns different bytes for each chunk, from `noise` for two: generating them would take longer than moving them.
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

/// Checks that all bytes arrived, and nothing behind them was touched.
fn holds(memory: &Memory, noise: &[u8], bytes: u64, room: u64) {
    for (at, chunk) in chunks(noise, bytes) {
        assert!(memory.get(at, chunk.len()) == chunk, "the chunk at {at} of {bytes} bytes");
    }
    assert!(memory.get(bytes, (room - bytes) as usize).iter().all(|byte| *byte == 0), "behind {bytes} bytes");
}
