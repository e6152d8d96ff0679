//! Two enhanced streams over simulated sockets, judged by the second reading.

use std::collections::VecDeque;

use ddss_sdp::{EnhancedStream, Framing, SdpError, StreamConfig};

use crate::common::{Random, SMALL, enhanced_plan, pattern, terms};
use crate::reading::{PlainDecoder, Reading, mid};

const STEPS_MAX: usize = 200_000;

pub(crate) fn framing(markers: bool, crc: bool) -> Framing {
    Framing { markers, checksum: if crc { Some(crc32c::crc32c_append) } else { None } }
}

/// Two streams and the bytes between them, as much as a socket holds.
pub(crate) struct Sockets {
    pub(crate) streams: [EnhancedStream; 2],
    pub(crate) pipes: [VecDeque<u8>; 2],
    pub(crate) pipe_bytes: usize,
    decoders: [PlainDecoder; 2],
    pub(crate) reading: Reading,
    pub(crate) written: [u64; 2],
    pub(crate) read: [u64; 2],
    pub(crate) is_closed: [bool; 2],
    pub(crate) has_end: [bool; 2],
}

impl Sockets {
    pub(crate) fn new(config: &StreamConfig, markers: bool, crc: bool, pipe_bytes: usize) -> Sockets {
        let framing = framing(markers, crc);
        let streams =
            terms(config, enhanced_plan()).map(|terms| EnhancedStream::new(config, &terms, framing, framing).unwrap());
        Sockets {
            streams,
            pipes: Default::default(),
            pipe_bytes,
            decoders: [PlainDecoder::new(markers, crc), PlainDecoder::new(markers, crc)],
            reading: Reading::new(u32::from(config.buffers), config.buffer_bytes, false),
            written: [0; 2],
            read: [0; 2],
            is_closed: [false; 2],
            has_end: [false; 2],
        }
    }

    pub(crate) fn write(&mut self, side: usize, bytes: usize) -> usize {
        if self.is_closed[side] {
            return 0;
        }
        let taken = self.streams[side].write(&pattern(side, self.written[side], bytes)).unwrap();
        self.written[side] += taken as u64;
        taken
    }

    /// Gives the socket what it takes, at most `most` bytes.
    pub(crate) fn flush(&mut self, side: usize, most: usize) -> usize {
        let bytes = self.streams[side].outgoing().concat();
        self.send(side, &bytes, most)
    }

    /// Gives the socket what leaves behind a write.
    fn flush_after_write(&mut self, side: usize) -> usize {
        let bytes = self.streams[side].outgoing_after_write().concat();
        self.send(side, &bytes, usize::MAX)
    }

    fn send(&mut self, side: usize, bytes: &[u8], most: usize) -> usize {
        let room = self.pipe_bytes - self.pipes[side].len();
        let taken = bytes.len().min(room).min(most);
        self.streams[side].sent(taken);
        for message in self.decoders[side].push(&bytes[..taken]) {
            self.reading.sent(side, &message).unwrap();
        }
        self.pipes[side].extend(&bytes[..taken]);
        taken
    }

    pub(crate) fn receive(&mut self, side: usize, most: usize) -> usize {
        let pipe = &mut self.pipes[1 - side];
        let room = self.streams[side].receive_room();
        let taken = room.len().min(pipe.len()).min(most);
        for (place, byte) in room.iter_mut().zip(pipe.drain(..taken)) {
            *place = byte;
        }
        self.streams[side].received(taken).unwrap();
        taken
    }

    pub(crate) fn read(&mut self, side: usize, bytes: usize) -> usize {
        let mut out = vec![0; bytes];
        match self.streams[side].read(&mut out).unwrap() {
            Some(0) if bytes > 0 => {
                self.has_end[side] = true;
                0
            }
            Some(taken) => {
                assert!(
                    out[..taken] == pattern(1 - side, self.read[side], taken),
                    "side {side} reads what was written"
                );
                self.read[side] += taken as u64;
                taken
            }
            None => 0,
        }
    }

    pub(crate) fn shutdown(&mut self, side: usize) {
        self.streams[side].shutdown();
        self.is_closed[side] = true;
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            let mut moved = 0;
            for side in 0..2 {
                moved += self.read(side, 50_000) + self.flush(side, usize::MAX) + self.receive(side, usize::MAX);
            }
            if moved == 0 {
                return;
            }
        }
        panic!("the streams did not settle");
    }
}

fn play(seed: u64, markers: bool, crc: bool) -> Sockets {
    let mut random = Random::new(seed);
    let pipe_bytes = 1 + random.below(if seed.is_multiple_of(2) { 3000 } else { 300_000 });
    let config = StreamConfig { no_delay: !seed.is_multiple_of(5), ..SMALL };
    let mut sockets = Sockets::new(&config, markers, crc, pipe_bytes);
    for _ in 0..1500 {
        let side = random.below(2);
        match random.below(10) {
            0..4 => {
                let most = if random.below(20) == 0 { 150_000 } else { 900 };
                sockets.write(side, 1 + random.below(most));
                if random.below(2) == 0 {
                    sockets.flush_after_write(side);
                }
            }
            4..6 => drop(sockets.flush(side, 1 + random.below(20_000))),
            6..8 => drop(sockets.receive(side, 1 + random.below(20_000))),
            8 => drop(sockets.read(side, 1 + random.below(40_000))),
            _ if random.below(400) == 0 => sockets.shutdown(side),
            _ => {}
        }
    }
    for side in 0..2 {
        sockets.shutdown(side);
    }
    sockets.settle();
    assert_eq!(sockets.read, [sockets.written[1], sockets.written[0]], "seed {seed}");
    assert_eq!(sockets.has_end, [true, true], "seed {seed}: both sides see the end");
    assert!(sockets.streams.iter().all(EnhancedStream::is_finished), "seed {seed}");
    for side in 0..2 {
        let ledger = sockets.streams[side].ledger();
        assert_eq!((ledger.written, ledger.send_copied), (sockets.written[side], sockets.written[side]));
        assert_eq!((ledger.read, ledger.receive_copied), (sockets.read[side], sockets.read[side]));
    }
    sockets
}

#[test]
fn random_schedules_deliver_every_byte() {
    // If this failed, bytes would be lost or stuck under some interleaving, or copied twice.
    let mut bytes = 0;
    for seed in 0..60 {
        bytes += play(seed, seed % 3 != 0, seed % 4 != 0).read[0];
    }
    assert!(bytes > 10_000_000, "{bytes}");
}

#[test]
fn writes_behind_a_blocked_socket_share_messages() {
    // If this failed, a slow receiver would cost one message for each small write.
    let mut sockets = Sockets::new(&StreamConfig { ring_bytes: 256 << 10, ..SMALL }, true, true, 16 << 10);
    let writes = 20_000;
    for _ in 0..writes {
        while sockets.write(0, 64) == 0 {
            sockets.flush(0, usize::MAX);
            sockets.receive(1, 4096);
            sockets.read(1, 4096);
        }
        // One try a write while the socket takes everything; the receiver reads a fifth of that.
        if sockets.pipes[0].len() < sockets.pipe_bytes {
            sockets.flush(0, usize::MAX);
        }
        sockets.receive(1, 12);
        sockets.read(1, 64);
    }
    sockets.settle();
    let messages = sockets.streams[0].messages();
    println!("{messages} messages for {writes} writes of 64 bytes");
    assert_eq!(u64::from(messages), sockets.reading.messages(0));
    assert!(messages * 5 <= writes, "{messages} messages for {writes} writes");
}

#[test]
fn writes_to_a_free_socket_leave_at_once() {
    // If this failed, a message would be held back in the hope of more.
    let mut sockets = Sockets::new(&SMALL, true, true, 1 << 20);
    for write in 1..100 {
        assert_eq!(sockets.write(0, 10), 10);
        assert!(sockets.flush(0, usize::MAX) > 0);
        assert_eq!(sockets.streams[0].messages(), write);
        assert!(!sockets.streams[0].has_outgoing());
    }
}

#[test]
fn small_writes_share_a_message_until_the_first_is_acknowledged() {
    // If this failed, each small write would cost a message and a system call, or the last ones would never leave.
    let mut sockets = Sockets::new(&StreamConfig { no_delay: false, ..SMALL }, true, true, 1 << 20);
    for _ in 0..3 {
        let before = sockets.streams[0].messages();
        let mut calls = 0;
        for _ in 0..100 {
            assert_eq!(sockets.write(0, 10), 10);
            calls += usize::from(sockets.flush_after_write(0) > 0);
        }
        assert_eq!((sockets.streams[0].messages() - before, calls), (2, 1), "the others wait in the second message");
        assert!(sockets.streams[0].has_outgoing());
        // The reader takes the first message, and waits for more: it acknowledges.
        sockets.receive(1, usize::MAX);
        assert_eq!((sockets.read(1, 5000), sockets.flush(1, usize::MAX)), (10, 0), "nothing is due before it waits");
        assert_eq!(sockets.read(1, 5000), 0);
        assert!(sockets.flush(1, usize::MAX) > 0);
        assert_eq!(sockets.flush(1, usize::MAX), 0, "one acknowledgement is enough");
        sockets.receive(0, usize::MAX);
        assert!(sockets.flush_after_write(0) > 0, "the acknowledged side sends the rest");
        sockets.settle();
        assert_eq!(sockets.read[1], sockets.written[0]);
    }
}

#[test]
fn held_writes_leave_before_the_writer_waits_and_when_a_frame_is_full() {
    // If this failed, a program that asks and then reads would wait for an answer to a question that never left.
    let mut sockets = Sockets::new(&StreamConfig { no_delay: false, ..SMALL }, true, true, 1 << 20);
    sockets.write(0, 10);
    sockets.flush_after_write(0);
    sockets.write(0, 20);
    assert_eq!(sockets.flush_after_write(0), 0);
    assert!(sockets.flush(0, usize::MAX) > 0, "a read, a flush or a poll sends everything");
    for _ in 0..70 {
        sockets.write(0, 1000);
        sockets.flush_after_write(0);
    }
    assert!(sockets.pipes[0].len() > 63 << 10, "a full frame waits for nothing");
    assert_eq!(sockets.streams[0].messages(), 4);
    sockets.settle();
    assert_eq!(sockets.read[1], sockets.written[0]);
}

#[test]
fn full_ring_stops_receiving() {
    // If this failed, a reader that sleeps would not slow the sender down, and memory would have no bound.
    let mut sockets = Sockets::new(&SMALL, true, true, 10_000);
    let mut moved = 1;
    while moved > 0 {
        moved = sockets.write(0, 5000) + sockets.flush(0, usize::MAX) + sockets.receive(1, usize::MAX);
    }
    assert!(sockets.streams[1].receive_room().is_empty());
    assert!(sockets.written[0] < 2 * SMALL.ring_bytes as u64 + 10_000);
    sockets.settle();
    assert_eq!(sockets.read[1], sockets.written[0]);
    assert_ne!(sockets.write(0, 1), 0);
}

#[test]
fn reset_crosses_the_ring() {
    // If this failed, a reset would wait for a reader.
    let mut sockets = Sockets::new(&SMALL, true, true, 1 << 20);
    sockets.write(0, 300);
    sockets.settle();
    assert_eq!(sockets.read[1], 300);
    sockets.write(0, 10);
    sockets.streams[0].abort();
    sockets.flush(0, usize::MAX);
    sockets.receive(1, usize::MAX);
    for stream in &mut sockets.streams {
        assert_eq!(stream.read(&mut [0; 8]), Err(SdpError::Reset));
        assert_eq!(stream.write(b"x"), Err(SdpError::Reset));
        assert!(stream.is_finished());
    }
    assert_eq!(sockets.reading.count(0, mid::ABORT_CONN), 1);
}

#[test]
fn advertisement_without_zero_copy_is_declined() {
    // If this failed, a peer that advertises would wait for a read that never comes.
    let mut sockets = Sockets::new(&SMALL, false, false, 1 << 20);
    let mut writer = ddss_sdp::FrameWriter::new(SMALL.ring_bytes, framing(false, false)).unwrap();
    let mut message = vec![mid::SRC_AVAIL, 0, 0, 9, 0, 0, 0, 36, 0, 0, 0, 1, 0, 0, 0, 0];
    assert!(writer.open(&message.clone().try_into().unwrap()));
    message.clear();
    message.extend([0, 0, 1, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    message.extend(pattern(0, 0, 4));
    writer.append_body(&message);
    let bytes = writer.parts().concat();
    sockets.streams[1].receive_room()[..bytes.len()].copy_from_slice(&bytes);
    sockets.streams[1].received(bytes.len()).unwrap();
    assert_eq!(sockets.read(1, 100), 4, "the bytes in the message belong to the stream");
    let answer = PlainDecoder::new(false, false).push(&sockets.streams[1].outgoing().concat());
    assert_eq!(answer.iter().map(|message| message[0]).collect::<Vec<_>>(), [mid::SEND_SM]);
}
