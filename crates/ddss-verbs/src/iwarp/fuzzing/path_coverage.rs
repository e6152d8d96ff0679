//! Tests of the data paths: zero-copy receive and send, and batched small messages.

use super::*;
use crate::iwarp::connection::GATHERED_SNAPSHOT_BYTES;
use crate::iwarp::mpa::frame_bytes;

/// Bytes of a tagged segment's header in its frame, and of an untagged one without the length.
const TAGGED_HEAD: usize = 2 + 14;
const UNTAGGED_HEADER: usize = 18;

/// Creates two open connections; the first one connected.
fn pair(crc: bool) -> [Side; 2] {
    let config = IwarpConfig { crc, ..IwarpConfig::default() };
    let mut sides = [Side::new(&config, true), Side::new(&config, false)];
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    assert_eq!(sides[1].connection.accept(b"yes"), Ok(true));
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    assert!(sides.iter().all(|side| side.connection.stage() == Stage::Open));
    sides
}

impl Side {
    fn post_checked(&mut self, work: &Work<'_>) {
        self.posted.insert(work.tag(), false);
        assert!(self.connection.post(work, &mut self.memory).is_ok());
    }

    /// Returns the waiting bytes in private memory and in registered memory.
    fn waiting(&mut self) -> (usize, usize) {
        self.with(|connection, cx| connection.encode_pending(SEND_QUEUE_BYTES, cx));
        self.connection.send_queue().parts(&self.memory).fold((0, 0), |(private, memory), part| match part {
            Part::Bytes(bytes) => (private + bytes.len(), memory),
            Part::Memory { bytes, .. } => (private, memory + bytes),
        })
    }

    fn at(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.memory.mapping(self.region).copy_out(offset as usize, &mut out);
        out
    }
}

/// Posts a read of the second side's whole window; returns the stream that answers it.
fn answer(sides: &mut [Side; 2], has_crc: bool) -> Vec<u8> {
    let pattern: Vec<u8> = (0..WINDOW_BYTES).map(|at| at as u8 ^ (at >> 8) as u8).collect();
    sides[1].memory.mapping(sides[1].region).copy_in((WINDOW_BYTES / 2) as usize, &pattern);
    let (peer, region, key) = (sides[0].connection.id(), sides[0].region, sides[1].key);
    let local = LocalRange { region, offset: 0, bytes: WINDOW_BYTES };
    sides[0].post_checked(&Work::Read { peer, tag: 1, local, remote: RemoteRange { key, address: 0 } });
    let request = sides[0].drain(usize::MAX);
    sides[1].feed(&request);
    let answer = sides[1].drain(usize::MAX);
    // With a CRC and without wide vectors the payload is copied, in segments of 16 KiB.
    let bytes = if has_crc && !crc::has_wide_vectors() { vec![16 << 10, 8 << 10] } else { vec![24 << 10] };
    assert_eq!(bytes.iter().sum::<usize>(), WINDOW_BYTES as usize);
    let frames = bytes.iter().map(|bytes| frame_bytes(TAGGED_HEAD - 2 + bytes));
    assert_eq!(answer.len(), frames.sum::<usize>(), "{} segments", bytes.len());
    answer
}

#[test]
fn answer_without_crc_is_received_in_place() {
    // If this failed, each large read would be copied once more than necessary.
    let mut sides = pair(false);
    let answer = answer(&mut sides, false);
    let first = TAGGED_HEAD + 100;
    sides[0].feed(&answer[..first]);
    assert_eq!(sides[0].at(0, 100), &answer[TAGGED_HEAD..first], "what has come is in its place");
    let region = sides[0].region;
    assert_eq!(
        sides[0].connection.direct_target(),
        Some((region, 100, WINDOW_BYTES as usize - 100)),
        "the rest goes there by itself"
    );
    sides[0].feed(&answer[first..]);
    sides[0].check_events();
    assert_eq!(sides[0].posted.get(&1), Some(&true));
    assert_eq!(sides[0].at(0, WINDOW_BYTES as usize), &answer[TAGGED_HEAD..TAGGED_HEAD + WINDOW_BYTES as usize]);
    sides.into_iter().for_each(|side| side.finish(false));
}

#[test]
fn answer_with_crc_is_placed_on_arrival() {
    // If this failed, the first byte of a large read would be placed only after its last byte arrived.
    let mut sides = pair(true);
    let answer = answer(&mut sides, true);
    let (piece, first) = (2048, TAGGED_HEAD + 2048 + 7);
    sides[0].feed(&answer[..first]);
    assert_eq!(sides[0].at(0, piece), &answer[TAGGED_HEAD..TAGGED_HEAD + piece]);
    assert_eq!(sides[0].connection.direct_target(), None, "what is summed is summed in private memory");
    sides[0].check_events();
    assert_eq!(sides[0].posted.get(&1), Some(&false), "it is done when its CRC was right");
    sides[0].feed(&answer[first..]);
    sides[0].check_events();
    assert_eq!(sides[0].posted.get(&1), Some(&true));
    sides.into_iter().for_each(|side| side.finish(false));
}

#[test]
fn payload_is_sent_without_a_copy() {
    // If this failed, each large write and answer would be copied once more than necessary.
    let mut sides = pair(false);
    let (peer, region, key) = (sides[0].connection.id(), sides[0].region, sides[1].key);
    let (local, remote) = (LocalRange { region, offset: 0, bytes: WINDOW_BYTES }, RemoteRange { key, address: 0 });
    sides[0].post_checked(&Work::Write { peer, tag: 1, local, remote });
    assert_eq!(sides[0].waiting(), (TAGGED_HEAD + 4, WINDOW_BYTES as usize), "the head, and the place of a CRC");
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    sides[0].post_checked(&Work::Read { peer, tag: 2, local, remote });
    let request = sides[0].drain(usize::MAX);
    sides[1].feed(&request);
    assert_eq!(sides[1].waiting().1, WINDOW_BYTES as usize);
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    assert!(sides[0].posted.values().all(|is_completed| *is_completed));
    sides.into_iter().for_each(|side| side.finish(false));

    // With a CRC only memory with one writer may be sent in place: the second side's belongs to the polling thread.
    let mut sides = pair(true);
    sides[0].post_checked(&Work::Write { peer, tag: 1, local, remote });
    assert_eq!(sides[0].waiting().1, 0, "a process could change it under its CRC");
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    sides[0].post_checked(&Work::Read { peer, tag: 2, local, remote });
    let request = sides[0].drain(usize::MAX);
    sides[1].feed(&request);
    assert_eq!(sides[1].waiting().1, if crc::has_wide_vectors() { WINDOW_BYTES as usize } else { 0 });
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    sides.into_iter().for_each(|side| side.finish(false));
}

#[test]
fn waiting_small_messages_are_sent_in_one_call() {
    // If this failed, a hundred small requests would be a hundred system calls, or the last one would wait for a full
    // packet.
    let mut sides = pair(true);
    let peer = sides[0].connection.id();
    for tag in 1..=100 {
        let mode = SendMode::default();
        sides[0].post_checked(&Work::Send { peer, tag, message: b"8 bytes!", mode });
    }
    assert_eq!(sides[0].waiting(), (100 * frame_bytes(UNTAGGED_HEADER + 8), 0));
    let together = sides[0].connection.send_queue().single().map(<[u8]>::len);
    assert_eq!(together, Some(100 * frame_bytes(UNTAGGED_HEADER + 8)), "one piece for one system call");
    assert!(!sides[0].connection.has_more(), "nothing follows, so nothing is held back");
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    assert_eq!(sides[1].messages, 100);
    sides.into_iter().for_each(|side| side.finish(false));
}

#[test]
fn snapshot_answer_is_taken_in_one_go() {
    // If this failed, a get without CRC could return bytes of two versions: payload that waits for a full socket
    // changes meanwhile.
    let promised = GATHERED_SNAPSHOT_BYTES;
    for (bytes, whole) in [(promised, true), (promised + 8, false)] {
        let mut sides = pair(false);
        let (peer, region, key) = (sides[0].connection.id(), sides[0].region, sides[1].key);
        let (here, there) = (LocalRange { region, offset: 0, bytes }, (WINDOW_BYTES / 2) as usize);
        sides[1].memory.mapping(sides[1].region).copy_in(there, &vec![1; bytes as usize]);
        sides[0].post_checked(&Work::Read { peer, tag: 1, local: here, remote: RemoteRange { key, address: 0 } });
        let request = sides[0].drain(usize::MAX);
        sides[1].feed(&request);
        assert_eq!(sides[1].waiting().1, if whole { 0 } else { bytes as usize }, "{bytes} bytes in their place");
        sides[1].memory.mapping(sides[1].region).copy_in(there, &vec![2; bytes as usize]);
        exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
        assert_eq!(sides[0].at(0, bytes as usize), vec![if whole { 1 } else { 2 }; bytes as usize]);
        sides.into_iter().for_each(|side| side.finish(false));
    }
}
