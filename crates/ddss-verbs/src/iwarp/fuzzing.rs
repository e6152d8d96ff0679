//! Drivers for fuzzers and property tests: any input becomes the life of one connection, or of two connected ones.
//!
//! Invariants: no panic, no access outside the open window, exactly one completion for each posted tag, and no leaked
//! hold on memory.

#[cfg(test)]
mod path_coverage;
pub mod sealed;

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::events::{CloseReason, Event, Events};
use crate::fabric::{Rights, Trust};
use crate::id::{PeerId, RegionId};
use crate::iwarp::config::{IwarpConfig, Revision};
use crate::iwarp::connection::{Connection, Context, Stage};
use crate::iwarp::ddp::{Tagged, Untagged};
use crate::iwarp::mpa::{MarkedFrame, StartFrame, marked_frame_bytes};
use crate::iwarp::rdmap::{AtomicKind, AtomicRequest, Opcode, ReadRequest};
use crate::limits::{SEND_QUEUE_BYTES, SNAPSHOT_BYTES};
use crate::memory::{KeySource, RegionTable};
use crate::sys::{Part, crc};
use crate::work::{LocalRange, RemoteRange, SendMode, Work};

/// Bytes of memory on each side. The middle half is open to the peer, and is larger than the copy limit of each path.
const MEMORY_BYTES: u64 = 48 << 10;
const WINDOW_BYTES: u64 = MEMORY_BYTES / 2;
const GUARD: u8 = 0xa5;
const GUARDED: [u8; (WINDOW_BYTES / 2) as usize] = [GUARD; (WINDOW_BYTES / 2) as usize];

/// Fuzz input, read number by number; zeros after its end.
struct FuzzInput<'a>(&'a [u8]);

impl<'a> FuzzInput<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u64 {
        u64::from(self.byte()) << 8 | u64::from(self.byte())
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

thread_local! {
    /// Memory of earlier runs, reused because mapping it is most of the cost of a short run.
    static POOL: RefCell<Vec<(RegionTable, [RegionId; 2])>> = const { RefCell::new(Vec::new()) };
}

/// Registers the same memory twice: as shared memory, and as memory that only the polling thread writes.
fn register() -> (RegionTable, [RegionId; 2]) {
    let fd = memfd_create("fuzz", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).expect("a fuzzer has memory");
    ftruncate(&fd, MEMORY_BYTES).expect("a fuzzer has memory");
    fcntl_add_seals(&fd, SealFlags::SHRINK).expect("a memfd can be sealed");
    let mut memory = RegionTable::default();
    let regions = [Trust::Sealed, Trust::Exclusive].map(|trust| memory.register(fd.as_fd(), trust, 0, MEMORY_BYTES));
    (memory, regions.map(|region| region.expect("the memfd is sealed")))
}

/// One connection, its memory, and its operations without completion.
struct Side {
    connection: Connection,
    memory: RegionTable,
    events: Events,
    regions: [RegionId; 2],
    region: RegionId,
    key: u32,
    posted: HashMap<u64, bool>,
    tag: u64,
    closed: Option<CloseReason>,
    partial_frame: Vec<u8>,
    /// Messages received, messages posted, and failed operations.
    messages: usize,
    sent: usize,
    failed: usize,
    /// Sequence numbers of the peer's next message and next request.
    sequences: [u32; 2],
}

impl Side {
    fn new(config: &IwarpConfig, connects: bool) -> Self {
        Self::open(config, connects, false)
    }

    fn open(config: &IwarpConfig, connects: bool, is_sealed: bool) -> Self {
        let (memory, regions) = POOL.with_borrow_mut(Vec::pop).unwrap_or_else(register);
        let region = regions[usize::from(!connects)];
        memory.mapping(region).copy_in(0, &[GUARD; MEMORY_BYTES as usize]);
        let id = PeerId { index: 0, generation: 1 };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let config = Arc::new(config.clone());
        let mut connection = if connects {
            Connection::connecting(id, address, config, 7, b"hello", is_sealed)
        } else {
            Connection::accepting(id, address, config, 7)
        };
        let rights = Rights::READ.union(Rights::WRITE).union(Rights::ATOMIC);
        let mut keys = KeySource::seeded(if connects { 1 } else { 2 });
        let window = connection
            .windows
            .expose(&memory, &mut keys, region, WINDOW_BYTES / 2, WINDOW_BYTES, rights)
            .expect("the first window finds room");
        Self {
            connection,
            memory,
            events: Events::new(),
            regions,
            region,
            key: window.key,
            posted: HashMap::new(),
            tag: 0,
            closed: None,
            partial_frame: Vec::new(),
            messages: 0,
            sent: 0,
            failed: 0,
            sequences: [1, 1],
        }
    }

    fn with<T>(&mut self, step: impl FnOnce(&mut Connection, &mut Context<'_>) -> T) -> T {
        let mut cx = Context { memory: &mut self.memory, events: &mut self.events };
        step(&mut self.connection, &mut cx)
    }

    /// Offers bytes of the stream as a socket would.
    fn feed(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        // Payload that may be received in place is.
        while let Some((region, offset, want)) = self.connection.direct_target()
            && !bytes.is_empty()
        {
            assert!(self.partial_frame.is_empty(), "payload follows its header at once");
            let count = want.min(bytes.len());
            self.memory.mapping(region).copy_in(offset as usize, &bytes[..count]);
            self.with(|connection, cx| connection.advance_placement(count, cx));
            bytes = &bytes[count..];
        }
        self.partial_frame.extend_from_slice(bytes);
        let mut partial_frame = std::mem::take(&mut self.partial_frame);
        let used = self.with(|connection, cx| connection.receive(&mut partial_frame, cx));
        assert!(used <= partial_frame.len(), "no more bytes are used than offered");
        self.partial_frame.extend_from_slice(&partial_frame[used..]);
        assert!(self.partial_frame.len() <= 70_000, "an incomplete frame is bounded");
    }

    /// Sends up to `count` bytes as a socket would.
    fn drain(&mut self, count: usize) -> Vec<u8> {
        self.with(|connection, cx| connection.encode_pending(SEND_QUEUE_BYTES, cx));
        let mut out = Vec::new();
        for part in self.connection.send_queue().parts(&self.memory) {
            match part {
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
                Part::Memory { mapping, offset, bytes } => {
                    let start = out.len();
                    out.resize(start + bytes, 0);
                    mapping.copy_out(offset, &mut out[start..]);
                }
            }
        }
        assert!(out.len() <= SEND_QUEUE_BYTES + SNAPSHOT_BYTES + (80 << 10), "the send queue is bounded");
        out.truncate(count);
        self.with(|connection, cx| connection.sent(out.len(), cx));
        self.connection.copy_in_place_payload(&mut self.memory);
        out
    }

    fn post(&mut self, input: &mut FuzzInput<'_>, other_key: u32) {
        let peer = self.connection.id();
        self.tag += 1;
        let tag = self.tag;
        let kind = input.byte();
        let bytes = match input.byte() % 4 {
            0 => 0,
            1 => 8,
            2 => input.word() % 600,
            _ => input.word() % (WINDOW_BYTES + 1),
        };
        let at = input.word() % (WINDOW_BYTES - bytes + 1);
        // Local memory outside the window, so that a peer's writes and local reads do not race in a test.
        let offset =
            if bytes <= WINDOW_BYTES / 2 { at % (WINDOW_BYTES / 2 - bytes + 1) } else { WINDOW_BYTES / 2 + at };
        let local = LocalRange { region: self.region, offset, bytes };
        let remote = RemoteRange { key: other_key, address: at };
        let word = RemoteRange { key: other_key, address: at / 8 * 8 % WINDOW_BYTES };
        let message = [kind; 512];
        let mode = SendMode { solicited: kind & 8 != 0, invalidate: None };
        let work = match kind % 6 {
            0 => Work::Read { peer, tag, local, remote },
            1 => Work::Write { peer, tag, local, remote },
            2 => Work::CompareSwap { peer, tag, remote: word, compare: at, swap: bytes },
            3 => Work::FetchAdd { peer, tag, remote: word, add: bytes },
            4 => Work::Send { peer, tag, message: &message[..bytes.min(512) as usize], mode },
            _ => Work::Immediate { peer, tag, data: [kind; 8], solicited: mode.solicited },
        };
        if self.connection.post(&work, &mut self.memory).is_ok() {
            self.posted.insert(tag, false);
            self.sent += usize::from(matches!(work, Work::Send { .. } | Work::Immediate { .. }));
        }
    }

    fn check_events(&mut self) {
        for event in self.events.iter() {
            match event {
                Event::Done { tag, outcome, .. } => {
                    self.failed += usize::from(outcome.is_err());
                    assert!(self.closed.is_none(), "no event follows the end");
                    let is_completed = self.posted.insert(tag, true);
                    assert_eq!(is_completed, Some(false), "each tag completes once");
                }
                Event::Closed { reason, .. } => {
                    assert!(self.closed.is_none(), "closed comes once");
                    self.closed = Some(reason);
                }
                Event::Message { bytes, .. } => {
                    assert!(bytes.len() <= 512, "messages are bounded");
                    self.messages += 1;
                }
                Event::Immediate { .. } => self.messages += 1,
                _ => {}
            }
        }
        self.events.clear();
    }

    /// Ends the connection and checks for leaks. `guarded`: memory outside the window must be untouched.
    fn finish(mut self, guarded: bool) {
        self.check_events();
        self.with(|connection, cx| connection.end(CloseReason::Local, &[], false, None, cx));
        self.check_events();
        assert!(
            self.closed.is_some() && self.posted.values().all(|is_completed| *is_completed),
            "every tag completes by the end"
        );
        self.connection.discard(&mut self.memory);
        if guarded {
            let mut all = [0; MEMORY_BYTES as usize];
            self.memory.mapping(self.region).copy_out(0, &mut all);
            let quarter = (WINDOW_BYTES / 2) as usize;
            assert!(all[..quarter] == GUARDED, "memory in front of the window is untouched");
            assert!(all[3 * quarter..] == GUARDED, "memory behind the window is untouched");
        }
        assert_eq!(self.memory.hold_count(), 0, "every hold on memory is released");
        POOL.with_borrow_mut(|pool| pool.push((self.memory, self.regions)));
    }
}

fn configure(bits: u8) -> IwarpConfig {
    IwarpConfig {
        crc: bits & 1 != 0,
        markers: bits & 2 != 0,
        revision: if bits & 4 != 0 { Revision::One } else { Revision::Two },
        reads_inbound: if bits & 8 != 0 { 2 } else { 64 },
        reads_outbound: if bits & 16 != 0 { 3 } else { 64 },
        ..IwarpConfig::default()
    }
}

/// Drives one connection against a peer that sends arbitrary input: raw bytes, or well-formed frames.
pub fn stream(data: &[u8]) {
    let mut input = FuzzInput(data);
    let bits = input.byte();
    let config = configure(bits);
    let connects = bits & 32 != 0;
    let mut side = Side::new(&config, connects);
    let mut has_posted = false;
    if bits & 64 != 0 {
        complete_handshake(&mut side, connects, bits & 128 != 0);
    }
    let mut position = 0;
    while !input.is_empty() {
        match input.byte() % 8 {
            0 => {
                let count = input.byte() as usize;
                let bytes = input.take(count);
                position += bytes.len() as u64;
                side.feed(bytes);
            }
            1..=3 => {
                let ulpdu = if input.byte() & 1 == 0 {
                    compose(&mut input, &side)
                } else {
                    compose_valid(&mut input, &mut side)
                };
                let frame = wrap_frame(&ulpdu, bits, position);
                let cut = if bits & 128 != 0 { frame.len() / 2 } else { 0 };
                position += frame.len() as u64;
                side.feed(&frame[..cut]);
                side.feed(&frame[cut..]);
            }
            4 => {
                has_posted = true;
                let key = side.key;
                side.post(&mut input, key);
            }
            5 => {
                let count = input.word() as usize;
                side.drain(count);
            }
            6 => match input.byte() % 6 {
                0 => drop(side.connection.accept(b"yes")),
                1 => drop(side.connection.reject(b"no")),
                2 => {
                    side.connection.withdraw(side.key, &mut side.memory);
                }
                3 => {
                    let tag = u64::from(input.byte());
                    if side.connection.abandon(tag, &mut side.memory) {
                        assert_eq!(side.posted.insert(tag, true), Some(false), "only posted work is abandoned");
                    }
                }
                4 => side.with(|connection, cx| connection.end(CloseReason::ClosedByPeer, &[], true, None, cx)),
                _ => {}
            },
            _ => {
                side.drain(usize::MAX);
            }
        }
        side.check_events();
    }
    side.finish(!has_posted);
}

/// Plays the peer's part of a handshake.
fn complete_handshake(side: &mut Side, connects: bool, markers: bool) {
    let frame = StartFrame { markers, crc: false, reject: false, revision: 1, enhanced: None, private: b"hi" };
    let mut bytes = Vec::new();
    let from = if connects { crate::iwarp::mpa::StartKind::Reply } else { crate::iwarp::mpa::StartKind::Request };
    frame.encode(from, &mut bytes);
    side.drain(usize::MAX);
    side.feed(&bytes);
    if side.connection.stage() == Stage::AwaitAccept {
        assert_eq!(side.connection.accept(b"yes"), Ok(true), "a pending request can be accepted");
    }
    side.check_events();
}

/// Composes a segment with a header from the input.
fn compose(input: &mut FuzzInput<'_>, side: &Side) -> Vec<u8> {
    let control = input.byte();
    let mut ulpdu = vec![control & 0xc0 | 1 | (control & 0x02), 0x40 | (input.byte() % 16)];
    let key = if input.byte().is_multiple_of(8) { 0 } else { side.key };
    if control & 0x80 != 0 {
        let key = if input.byte() & 1 == 0 { key } else { 7 + u32::from(input.byte() % 4) };
        ulpdu.extend(key.to_be_bytes());
        ulpdu.extend((input.word() % (WINDOW_BYTES + 64)).to_be_bytes());
    } else {
        ulpdu.extend(key.to_be_bytes());
        ulpdu.extend(u32::from(input.byte() % 5).to_be_bytes());
        ulpdu.extend(u32::from(input.byte() % 4).to_be_bytes());
        ulpdu.extend((u32::from(input.byte() % 2) * u32::from(input.byte())).to_be_bytes());
    }
    match input.byte() % 4 {
        0 => {
            ulpdu.extend(9_u32.to_be_bytes());
            ulpdu.extend(0_u64.to_be_bytes());
            ulpdu.extend((input.word() as u32 % 9000).to_be_bytes());
            ulpdu.extend(key.to_be_bytes());
            ulpdu.extend((input.word() % (WINDOW_BYTES + 64)).to_be_bytes());
        }
        1 => {
            ulpdu.extend(u32::from(input.byte() % 3).to_be_bytes());
            ulpdu.extend(u32::from(7 + input.byte() % 4).to_be_bytes());
            ulpdu.extend(key.to_be_bytes());
            ulpdu.extend((input.word() % (WINDOW_BYTES + 64)).to_be_bytes());
            ulpdu.resize(ulpdu.len() + 32, input.byte());
        }
        2 => {
            let count = input.word() as usize % 5000;
            ulpdu.resize(ulpdu.len() + count, control);
        }
        _ => {
            let count = input.byte() as usize;
            ulpdu.extend(input.take(count));
        }
    }
    ulpdu
}

/// Composes a segment that is valid except, perhaps, for its address.
fn compose_valid(input: &mut FuzzInput<'_>, side: &mut Side) -> Vec<u8> {
    let kind = input.byte() % 4;
    let (key, at) = (side.key, input.word() % (WINDOW_BYTES + 8));
    if kind == 0 {
        let tagged = Tagged { last: true, rdmap: Opcode::Write.control(), key, address: at };
        let bytes = input.word() as usize % 3000;
        return [&tagged.encode()[..], &vec![kind; bytes]].concat();
    }
    let which = usize::from(kind != 1);
    let sequence = side.sequences[which];
    side.sequences[which] = sequence.wrapping_add(1);
    let (opcode, body) = match kind {
        1 => (Opcode::Send { solicited: false, invalidate: false }, vec![7; input.word() as usize % 513]),
        2 => {
            let bytes = input.word() as u32 % WINDOW_BYTES as u32;
            let read = ReadRequest { sink_key: 9, sink_address: 0, bytes, source_key: key, source_address: at };
            (Opcode::ReadRequest, read.encode().to_vec())
        }
        _ => {
            let kind = AtomicKind::FetchAdd { add: at, mask: u64::from(input.byte()) };
            (Opcode::AtomicRequest, AtomicRequest { id: 1, key, address: at / 8 * 8, kind }.encode().to_vec())
        }
    };
    let queue = which as u32;
    let header = Untagged { last: true, rdmap: opcode.control(), word: 0, queue, sequence, offset: 0 };
    [&header.encode()[..], &body].concat()
}

/// Wraps a ULPDU in a frame with correct length, padding and checksum.
fn wrap_frame(ulpdu: &[u8], bits: u8, position: u64) -> Vec<u8> {
    let mut frame = (ulpdu.len() as u16).to_be_bytes().to_vec();
    frame.extend(ulpdu);
    frame.resize(frame.len().next_multiple_of(4), 0);
    if bits & 2 != 0 {
        // Frames begin at multiples of four; arbitrary bytes before this one may have any length.
        let position = position.next_multiple_of(4);
        let mut out = vec![0; marked_frame_bytes(ulpdu.len(), position)];
        let mut marked = MarkedFrame::new(&mut out, position);
        marked.put(&frame);
        marked.finish(true);
        return out;
    }
    let sum = crc::checksum(&frame);
    frame.extend(sum.to_le_bytes());
    frame
}

/// Drives two connections, with the stream cut into pieces of any size. Every posted operation has to succeed.
pub fn pipe(data: &[u8]) {
    let mut input = FuzzInput(data);
    let (mut first, mut second) = (configure(input.byte()), configure(input.byte()));
    if first.revision == Revision::One || second.revision == Revision::One {
        // Without negotiated read limits, both sides have to accept what the other may send.
        (first.reads_inbound, second.reads_inbound) = (64, 64);
    }
    let mut sides = [Side::new(&first, true), Side::new(&second, false)];
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    assert_eq!(sides[1].connection.accept(b"yes"), Ok(true), "a request is a request");
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    let keys = [sides[0].key, sides[1].key];
    // In revision 1 the accepting side may not send before it has received a frame.
    let open = sides[1].connection.stage() == Stage::Open;
    while !input.is_empty() {
        let which = usize::from(input.byte() & 1 == 1 && open);
        match input.byte() % 4 {
            0 => exchange(&mut sides, &mut input, 3),
            _ => sides[which].post(&mut input, keys[1 - which]),
        }
    }
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    for side in &sides {
        assert_eq!(side.closed, None, "two valid connections stay open");
        assert!(
            side.posted.values().all(|is_completed| *is_completed),
            "everything completes when nothing is in flight"
        );
        assert_eq!(side.failed, 0, "every operation is permitted");
    }
    assert_eq!([sides[0].messages, sides[1].messages], [sides[1].sent, sides[0].sent], "each message arrives once");
    sides.into_iter().for_each(|side| side.finish(false));
}

/// Moves pieces back and forth until nothing moves any more, or `rounds` times.
fn exchange(sides: &mut [Side; 2], input: &mut FuzzInput<'_>, rounds: usize) {
    for _ in 0..rounds {
        let mut moved = false;
        for from in 0..2 {
            let count = match input.byte() {
                0 => usize::MAX,
                small if small < 200 => usize::from(small),
                _ => input.word() as usize,
            };
            let bytes = sides[from].drain(count);
            moved |= !bytes.is_empty();
            sides[1 - from].feed(&bytes);
            sides.iter_mut().for_each(Side::check_events);
        }
        if !moved && input.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn arbitrary_bytes_are_harmless(data in proptest::collection::vec(any::<u8>(), 0..400)) {
            // If this failed, a peer could crash a daemon, or make it touch memory that is not open to the peer.
            super::stream(&data);
        }

        #[test]
        fn arbitrary_frames_are_harmless(bits in any::<u8>(), data in proptest::collection::vec(any::<u8>(), 0..400)) {
            // The same after a handshake, where frames are parsed.
            super::stream(&[&[bits | 64][..], &data].concat());
        }

        #[test]
        fn two_connections_exchange_any_mix_of_operations(data in proptest::collection::vec(any::<u8>(), 0..600)) {
            // If this failed, some mix of operations, cut in some way, would hang or break a valid connection.
            super::pipe(&data);
        }
    }
}
