//! Two basic streams over a simulated fabric of messages, judged by the second reading.

use std::collections::VecDeque;

use ddss_sdp::codec::Advertisement;
use ddss_sdp::{BasicStream, Plan, SdpError, StreamConfig};

use crate::common::{Random, SMALL, byte_at, pattern, terms, zero_copy_plan};
use crate::reading::{Reading, mid};

/// Steps of a drain after which a stream counts as stuck.
const STEPS_MAX: usize = 200_000;

/// Two streams, the messages between them, and their books.
pub(crate) struct Network {
    pub(crate) streams: [BasicStream; 2],
    pub(crate) queues: [VecDeque<Vec<u8>>; 2],
    pub(crate) reading: Reading,
    pub(crate) written: [u64; 2],
    /// Bytes read by each side.
    pub(crate) read: [u64; 2],
    pub(crate) is_closed: [bool; 2],
    pub(crate) has_end: [bool; 2],
    /// Position and length of the memory that each side advertised.
    advertised: [Option<(u64, u32)>; 2],
    pub(crate) now: u64,
}

impl Network {
    pub(crate) fn new(config: &StreamConfig, plan: Plan) -> Network {
        let streams = terms(config, plan).map(|terms| BasicStream::new(config, &terms).unwrap());
        let reading = Reading::new(u32::from(config.buffers), config.buffer_bytes, true);
        Network {
            streams,
            queues: Default::default(),
            reading,
            written: [0; 2],
            read: [0; 2],
            is_closed: [false; 2],
            has_end: [false; 2],
            advertised: [None; 2],
            now: 0,
        }
    }

    pub(crate) fn write(&mut self, side: usize, bytes: usize) -> usize {
        if self.is_closed[side] || self.advertised[side].is_some() {
            return 0;
        }
        let taken = self.streams[side].write(&pattern(side, self.written[side], bytes)).unwrap();
        self.written[side] += taken as u64;
        taken
    }

    /// Moves every message that may leave into the queue.
    pub(crate) fn pump(&mut self, side: usize) -> usize {
        let mut count = 0;
        while let Some(message) = self.streams[side].next_message(self.now) {
            let bytes = [message.head(), message.payload].concat();
            assert_eq!(bytes.len(), message.len());
            self.reading.sent(side, &bytes).unwrap();
            self.queues[side].push_back(bytes);
            count += 1;
            assert!(count < 10_000, "a stream that never stops sending");
        }
        count
    }

    /// Delivers the oldest message of `from`.
    pub(crate) fn deliver(&mut self, from: usize) -> bool {
        let Some(message) = self.queues[from].pop_front() else { return false };
        let to = 1 - from;
        self.streams[to].receive_buffer().unwrap()[..message.len()].copy_from_slice(&message);
        self.reading.delivered(to, &message);
        self.streams[to].received(message.len()).unwrap();
        true
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

    /// Advertises the next bytes of the stream, the first ones in the message.
    pub(crate) fn advertise(&mut self, side: usize, len: u32, inline: usize) {
        if self.is_closed[side] || self.advertised[side].is_some() {
            return;
        }
        let at = self.written[side];
        let memory = Advertisement { len, rkey: side as u32, vaddr: at };
        let first = pattern(side, at, inline);
        match self.streams[side].advertise(memory, &first) {
            Ok(()) => {
                self.advertised[side] = Some((at, len));
                self.written[side] += u64::from(len);
            }
            Err(error) => assert_eq!(error, SdpError::CannotAdvertise),
        }
    }

    /// Reads a part of the peer's memory in place.
    pub(crate) fn read_source(&mut self, side: usize, most: u32, is_short: bool) -> bool {
        let Some(source) = self.streams[side].source() else { return false };
        let wanted = source.len.min(most.max(1));
        let source = self.streams[side].begin_source_read(wanted).unwrap();
        assert_eq!((source.rkey, source.vaddr), (1 - side as u32, self.read[side]), "the memory continues the stream");
        let done = if is_short { wanted / 2 } else { wanted };
        self.streams[side].end_source_read(done).unwrap();
        self.read[side] += u64::from(done);
        true
    }

    /// Takes an outcome; what the peer did not take is written through the buffers.
    pub(crate) fn take_outcome(&mut self, side: usize) -> bool {
        let Some((at, len)) = self.advertised[side] else { return false };
        let Some(outcome) = self.streams[side].take_outcome() else { return false };
        assert_eq!(outcome.sent + outcome.rest, len);
        self.written[side] = at + u64::from(outcome.sent);
        self.advertised[side] = None;
        true
    }

    /// Runs until nothing moves any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            let mut moved = 0;
            for side in 0..2 {
                moved += usize::from(self.take_outcome(side)) + self.pump(side);
                moved += usize::from(self.deliver(side)) + self.read(side, 4096);
            }
            if moved == 0 {
                let deadline = self.streams.iter().filter_map(BasicStream::next_deadline_ms).min();
                match deadline {
                    Some(time) => self.now = self.now.max(time),
                    None => return,
                }
            }
        }
        panic!("the streams did not settle");
    }
}

/// Plays one seed: random calls of both sides, random delays, then everything is read and both sides close.
fn play(seed: u64, config: &StreamConfig, plan: Plan) -> Network {
    let mut random = Random::new(seed);
    let mut network = Network::new(config, plan);
    // Some sides read rarely: the peer runs out of credits.
    let slow = [random.below(6), random.below(6)];
    for _ in 0..2000 {
        let side = random.below(2);
        match random.below(12) {
            0..4 => drop(network.write(side, 1 + random.below(2000))),
            4..6 => drop(network.pump(side)),
            6..9 => drop(network.deliver(side)),
            9 if random.below(1 + slow[side]) == 0 => drop(network.read(side, 1 + random.below(3000))),
            10 => network.now += random.below(40) as u64,
            11 if plan.zero_copy => match random.below(5) {
                0 => {
                    let len = 1 + random.below(9000);
                    network.advertise(side, len as u32, random.below(100).min(len));
                }
                1 => network.streams[side].withdraw(),
                2 => drop(network.take_outcome(side)),
                _ => {
                    let is_short = random.below(4) == 0;
                    network.read_source(side, random.below(5000) as u32, is_short);
                }
            },
            _ => {}
        }
        if random.below(1500) == 0 && !network.is_closed[side] && network.advertised[side].is_none() {
            network.shutdown(side);
        }
    }
    network.settle();
    for side in 0..2 {
        network.shutdown(side);
    }
    network.settle();
    assert_eq!(network.read, [network.written[1], network.written[0]], "seed {seed}");
    assert_eq!(network.has_end, [true, true], "seed {seed}: both sides see the end");
    assert!(network.streams.iter().all(BasicStream::is_finished), "seed {seed}");
    network
}

#[test]
fn random_schedules_deliver_every_byte() {
    // If this failed, bytes would be lost, swapped or stuck under some interleaving.
    let mut bytes = 0;
    for seed in 0..150 {
        bytes += play(seed, &SMALL, Plan::basic()).read[0];
    }
    assert!(bytes > 1_000_000, "{bytes}");
}

#[test]
fn random_schedules_deliver_every_byte_with_delay() {
    // If this failed, the timer for small messages could hold bytes forever.
    for seed in 0..60 {
        play(seed, &StreamConfig { no_delay: false, ..SMALL }, Plan::basic());
    }
}

#[test]
fn random_schedules_deliver_every_byte_with_zero_copy() {
    // If this failed, crossing or withdrawn advertisements would lose or repeat bytes.
    let mut seen = [0_u64; 4];
    for seed in 0..300 {
        let network = play(seed, &SMALL, zero_copy_plan());
        for (count, mid) in
            seen.iter_mut().zip([mid::SRC_AVAIL, mid::RDMA_RD_COMPL, mid::SEND_SM, mid::SRC_AVAIL_CANCEL])
        {
            *count += network.reading.count(0, mid) + network.reading.count(1, mid);
        }
    }
    assert!(seen.iter().all(|count| *count > 50), "every message of zero copy occurs: {seen:?}");
}

#[test]
fn sender_stops_at_the_reserved_credits() {
    // If this failed, messages would overrun the receive buffers of a reader that sleeps.
    let mut network = Network::new(&SMALL, Plan::basic());
    while network.write(0, 400) > 0 {
        network.pump(0);
    }
    assert_eq!(network.reading.messages(0), u64::from(SMALL.buffers) - 2);
    assert_eq!(network.streams[0].credits(), 2);
    while network.deliver(0) {}
    network.pump(1);
    while network.deliver(1) {}
    // The buffers are full of unread bytes, so an acknowledgement gives no credits.
    assert_eq!((network.pump(0), network.streams[0].credits()), (0, 2));
    network.settle();
    assert_eq!(network.read[1], network.written[0]);
}

#[test]
fn both_sides_out_of_credits_go_on() {
    // If this failed, two sides that fill each other's buffers at once would wait for each other.
    let mut network = Network::new(&SMALL, Plan::basic());
    for round in 0..50 {
        for side in 0..2 {
            while network.write(side, 10_000) > 0 {
                network.pump(side);
            }
            network.pump(side);
        }
        // Updates cross: all messages arrive before either side sends again.
        for side in 0..2 {
            while network.deliver(side) {}
            network.read(side, 1 + 300 * (round % 7));
        }
    }
    network.settle();
    assert_eq!(network.read, [network.written[1], network.written[0]]);
    let messages = [0, 1].map(|side| network.reading.count(side, mid::DATA));
    assert!(messages.iter().all(|count| *count > 30), "{messages:?}");
}

#[test]
fn half_close_leaves_the_other_direction_open() {
    // If this failed, a client that closes after its request would never read the answer.
    let mut network = Network::new(&SMALL, Plan::basic());
    network.write(0, 700);
    network.shutdown(0);
    network.settle();
    assert_eq!(network.streams[0].write(b"x"), Err(SdpError::WriteClosed));
    assert!(network.has_end[1] && !network.has_end[0]);
    for _ in 0..100 {
        network.write(1, 5000);
        network.settle();
    }
    assert!(network.read[0] > 100_000);
    network.shutdown(1);
    network.settle();
    assert!(network.streams.iter().all(BasicStream::is_finished));
    assert_eq!(network.reading.count(0, mid::DIS_CONN) + network.reading.count(1, mid::DIS_CONN), 2);
}

#[test]
fn reset_ends_both_sides() {
    // If this failed, the peer of an aborted stream would wait for its end.
    let mut network = Network::new(&SMALL, Plan::basic());
    network.write(0, 100);
    network.pump(0);
    network.write(0, 100);
    network.streams[0].abort();
    network.pump(0);
    while network.deliver(0) {}
    for stream in &mut network.streams {
        assert_eq!(stream.read(&mut [0; 8]), Err(SdpError::Reset));
        assert_eq!(stream.write(b"x"), Err(SdpError::Reset));
        assert!(stream.is_finished() && stream.next_message(0).is_none());
    }
    assert_eq!(network.reading.count(0, mid::ABORT_CONN), 1);
}

#[test]
fn large_writes_grow_the_buffers_of_the_peer() {
    // If this failed, large writes would stay cut into first buffers forever.
    let mut network = Network::new(&SMALL, Plan::basic());
    for _ in 0..30 {
        network.write(0, 4096);
        network.settle();
    }
    assert_eq!((network.reading.count(0, mid::CH_RCV_BUF), network.reading.count(1, mid::CH_RCV_BUF_ACK)), (1, 1));
    network.write(0, 3024);
    network.pump(0);
    let largest = network.queues[0].iter().map(Vec::len).max();
    assert_eq!(largest, Some(SMALL.buffer_bytes_max as usize));
    network.settle();
}

#[test]
fn small_writes_wait_for_an_acknowledgement_or_the_timer() {
    // If this failed, each small write would be a message of its own, or would never leave.
    let mut network = Network::new(&StreamConfig { no_delay: false, ..SMALL }, Plan::basic());
    network.write(0, 10);
    assert_eq!(network.pump(0), 1, "nothing is unacknowledged");
    for _ in 0..5 {
        network.write(0, 10);
        assert_eq!(network.pump(0), 0);
    }
    assert_eq!(network.streams[0].next_deadline_ms(), Some(100));
    network.now = 99;
    assert_eq!(network.pump(0), 0);
    network.now = 100;
    assert_eq!(network.pump(0), 1);
    assert_eq!(network.queues[0].back().unwrap().len(), 16 + 50, "the writes were joined");
    network.write(0, 10);
    assert_eq!(network.pump(0), 0);
    network.write(0, 460);
    assert_eq!(network.pump(0), 1, "a full message leaves, the rest waits");
    assert_eq!(network.queues[0].back().unwrap().len(), SMALL.buffer_bytes as usize);
}

#[test]
fn reading_rejects_wrong_messages() {
    // If this failed, the second reading would accept anything, and the tests above would show nothing.
    let mut network = Network::new(&SMALL, Plan::basic());
    network.write(0, 100);
    let before = network.reading.clone();
    network.pump(0);
    let good = network.queues[0][0].clone();
    assert_eq!(good[16], byte_at(0, 0));
    for (at, why) in [(7, "len"), (11, "mseq"), (15, "mseqack"), (2, "buffers"), (1, "flags"), (0, "never sent")] {
        let mut bad = good.clone();
        bad[at] = if at == 0 { 0x05 } else { bad[at] ^ 0x48 };
        let said = before.clone().sent(0, &bad).unwrap_err();
        assert!(said.contains(why), "{said} instead of {why}");
    }
    let mut later = before;
    for mseq in 1..=4 {
        let mut next = good.clone();
        next[11] = mseq;
        assert!(later.sent(0, &next).is_ok());
    }
    let mut fifth = good;
    fifth[11] = 5;
    assert!(later.sent(0, &fifth).unwrap_err().contains("with 2 credits"));
}
