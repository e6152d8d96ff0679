//! Transfers of bytes and words: each arrives once, unchanged, in its place.

use ddss_verbs::{Fabric, Rights, Work};

use super::{greet, local, remote, send};
use crate::common::{ALL, FabricFactory, Memory, Pair, pattern};

pub(crate) fn bytes_arrive_at_every_size_and_offset(factory: impl FabricFactory) {
    // If this failed, a get or a put would return other bytes than were stored, or damage its neighbours.
    let mut pair = Pair::new(factory);
    let (there, here) = pair.connect();
    let size = 4 << 20;
    let (mine, theirs) = (Memory::new(size), Memory::new(size));
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, ALL);
    let cases = [
        (0, 0, 0),
        (0, 0, 1),
        (8, 16, 8),
        (3, 5, 7),
        (1, 0, 511),
        (0, 0, 512),
        (4096, 8, 4096),
        (4095, 9, 4097),
        (0, 64, 16384),
        (7, 1, 65535),
        (0, 0, 65536),
        (128, 4, 70001),
        (0, 0, 1 << 20),
        (33, 77, 3 << 20),
    ];
    // The surroundings differ in each case, but are not generated anew, which would take longer than moving them.
    let (noise, nothing) = (pattern(1, size as usize + cases.len()), vec![0; size as usize]);
    for (step, (local_at, remote_at, bytes)) in cases.into_iter().enumerate() {
        let seed = step as u64 + 1;
        let (before, content) = (&noise[step..][..size as usize], pattern(seed ^ 77, bytes));
        theirs.set(0, before);
        mine.set(0, &nothing);
        mine.set(local_at, &content);
        let range = local(region, local_at, bytes as u64);
        let put = Work::Write { peer: there, tag: 1, local: range, remote: remote(&window, remote_at) };
        pair.a.fabric.post(&[put, send(there, 2, b"look")]).unwrap();
        assert_eq!(pair.a_done(1), Ok(0));
        assert_eq!(pair.a_done(2), Ok(0));
        assert_eq!(pair.wait("the message", |pair| pair.b.message()), b"look");
        assert!(holds(&theirs, before, remote_at, &content), "a write of {bytes} bytes from {local_at} to {remote_at}");

        let fresh = pattern(seed ^ 1234, bytes);
        theirs.set(remote_at, &fresh);
        mine.set(0, before);
        let get = Work::Read { peer: there, tag: 3, local: range, remote: remote(&window, remote_at) };
        pair.a.fabric.post(&[get]).unwrap();
        assert_eq!(pair.a_done(3), Ok(0));
        assert!(holds(&mine, before, local_at, &fresh), "a read of {bytes} bytes from {remote_at} to {local_at}");
    }
}

/// Returns true if all of `memory` equals `before`, except for `content` at `offset`.
fn holds(memory: &Memory, before: &[u8], offset: u64, content: &[u8]) -> bool {
    let (start, all) = (offset as usize, memory.get(0, before.len()));
    let end = start + content.len();
    all[..start] == before[..start] && all[start..end] == *content && all[end..] == before[end..]
}

pub(crate) fn atomics_are_exact(factory: impl FabricFactory) {
    // If this failed, two nodes could hold one lock, or an update would be lost.
    let mut pair = Pair::new(factory);
    let (there, here) = pair.connect();
    let theirs = Memory::new(4096);
    let (_, window) = pair.expose(&theirs, here, Rights::ATOMIC);
    theirs.set(16, &41_u64.to_ne_bytes());
    let word = remote(&window, 16);
    let fabric = &mut pair.a.fabric;
    fabric
        .post(&[
            Work::FetchAdd { peer: there, tag: 1, remote: word, add: 1 },
            Work::CompareSwap { peer: there, tag: 2, remote: word, compare: 41, swap: 7 },
            Work::CompareSwap { peer: there, tag: 3, remote: word, compare: 42, swap: u64::MAX },
            Work::FetchAdd { peer: there, tag: 4, remote: word, add: 2 },
        ])
        .unwrap();
    assert_eq!([1, 2, 3, 4].map(|tag| pair.a_done(tag)), [Ok(41), Ok(42), Ok(42), Ok(u64::MAX)]);
    assert_eq!(theirs.word(16), 1);
    assert_eq!((theirs.word(8), theirs.word(24)), (0, 0));
    for tag in 0..500 {
        let add = Work::FetchAdd { peer: there, tag, remote: word, add: 3 };
        if pair.a.fabric.post(&[add]).is_err() {
            panic!("500 atomics fit into the queue");
        }
    }
    for tag in 0..500 {
        assert_eq!(pair.a_succeeds(tag), 1 + tag * 3, "atomics are worked on in order");
    }
    assert_eq!(theirs.word(16), 1501);
}

pub(crate) fn many_reads_complete_correctly(factory: impl FabricFactory) {
    // If this failed, a busy client would get another operation's bytes, or wait forever.
    let mut pair = Pair::new(factory);
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(1 << 20), Memory::new(1 << 20));
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, Rights::READ);
    let content = pattern(5, 1 << 20);
    theirs.set(0, &content);
    let reads: Vec<Work<'_>> = (0..600)
        .map(|tag| {
            let at = tag * 1024;
            let bytes = if tag % 7 == 0 { 1024 } else { 8 };
            Work::Read { peer: there, tag, local: local(region, at, bytes), remote: remote(&window, at) }
        })
        .collect();
    pair.a.fabric.post(&reads).unwrap();
    for tag in 0..600 {
        assert_eq!(pair.a_done(tag), Ok(0));
        let at = tag as usize * 1024;
        let bytes = if tag % 7 == 0 { 1024 } else { 8 };
        assert_eq!(mine.get(at as u64, bytes), content[at..at + bytes]);
    }
    assert_eq!(pair.a.seen, [], "each completion comes once");
}

pub(crate) fn messages_pass_between_large_answers(factory: impl FabricFactory) {
    // If this failed, a message during a large get would end up in the bytes of the get, or vice versa.
    let mut pair = Pair::new(factory);
    let (there, here) = pair.connect();
    greet(&mut pair, there);
    let (bytes, reads, messages) = (1 << 20, 8, 400);
    let (mine, theirs) = (Memory::new(reads * bytes), Memory::new(reads * bytes));
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, Rights::READ);
    let content = pattern(8, (reads * bytes) as usize);
    theirs.set(0, &content);
    for tag in 0..reads {
        let (local, remote) = (local(region, tag * bytes, bytes), remote(&window, tag * bytes));
        pair.a.fabric.post(&[Work::Read { peer: there, tag, local, remote }]).unwrap();
    }
    let longest = pair.b.fabric.capabilities().message_bytes_max;
    let message = |index: u64| pattern(index + 100, index as usize * 37 % (longest + 1));
    for index in 0..messages {
        pair.step();
        // What waits is limited in bytes: on a slow link there may be no room for a moment.
        pair.wait("room for a message", |pair| pair.b.fabric.post(&[send(here, index, &message(index))]).ok());
    }
    for tag in 0..reads {
        assert_eq!(pair.a_done(tag), Ok(0));
    }
    for index in 0..messages {
        assert_eq!(pair.b_done(index), Ok(0));
        let came = pair.wait("a message", |pair| pair.a.message());
        assert!(came == message(index), "message {index} is not as it was sent: {} bytes", came.len());
    }
    assert!(mine.get(0, (reads * bytes) as usize) == content, "what was read is not what is there");
}

pub(crate) fn both_sides_transfer_concurrently(factory: impl FabricFactory) {
    // If this failed, two nodes that get from each other at full speed would deadlock.
    let mut pair = Pair::new(factory);
    let (there, here) = pair.connect();
    greet(&mut pair, there);
    let size = 8 << 20;
    let (mine, theirs) = (Memory::new(size), Memory::new(size));
    let half = size / 2;
    mine.set(0, &pattern(1, half as usize));
    theirs.set(0, &pattern(2, half as usize));
    let local_region = pair.a.register(&mine);
    let (remote_region, window) = pair.expose(&theirs, here, ALL);
    let back = pair.a.fabric.expose(there, local_region, 0, size, ALL).unwrap();
    let chunk = 256 << 10;
    let count = half / chunk;
    for index in 0..count {
        let (at, to) = (index * chunk, half + index * chunk);
        let tag = index;
        let get = Work::Read { peer: there, tag, local: local(local_region, to, chunk), remote: remote(&window, at) };
        pair.a.fabric.post(&[get]).unwrap();
        let get = Work::Read { peer: here, tag, local: local(remote_region, to, chunk), remote: remote(&back, at) };
        pair.b.fabric.post(&[get]).unwrap();
    }
    for tag in 0..count {
        assert_eq!(pair.a_done(tag), Ok(0));
        assert_eq!(pair.b_done(tag), Ok(0));
    }
    assert!(mine.get(half, half as usize) == pattern(2, half as usize));
    assert!(theirs.get(half, half as usize) == pattern(1, half as usize));
}
