//! Drives two streams by the bytes of an input: random calls, and a peer that sends anything. For the fuzzer and the
//! tests.
#![allow(clippy::unwrap_used, reason = "the driver of a fuzzer")]

use ddss_sdp::codec::{Advertisement, Hello, HelloAck};
use ddss_sdp::{BasicStream, EnhancedStream, Framing, Plan, StreamConfig, Terms};

const CONFIG: StreamConfig =
    StreamConfig { buffers: 8, buffer_bytes: 512, buffer_bytes_max: 2048, ring_bytes: 128 << 10, no_delay: false };
/// Calls of one input at most.
const CALLS_MAX: usize = 2000;

/// Input, byte for byte; zero behind its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }
}

/// Plays one input.
pub(crate) fn play(data: &[u8]) {
    let _ = Hello::decode(data);
    let _ = HelloAck::decode(data);
    let mut input = Input(data);
    let plan = Plan { zero_copy: input.byte() & 1 != 0, ..Plan::basic() };
    let peer_receive_bytes = 128 + u32::from(input.byte()) * 8;
    let terms = Terms { plan, peer_buffers: u16::from(input.byte()), peer_receive_bytes };
    if input.byte() & 1 == 0 {
        basic(&mut input, &terms);
    } else {
        enhanced(&mut input, &terms);
    }
}

/// A header that is nearly right: the next numbers, unless the input changes them.
fn header(input: &mut Input<'_>, mseq: &mut u32, body: usize) -> [u8; 16] {
    const KINDS: [u8; 18] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xfd, 0xfe, 0xff];
    let mut out = [0; 16];
    let kind = input.byte();
    out[0] = KINDS.get(usize::from(kind)).copied().unwrap_or(0xff);
    out[1] = input.byte() & 15;
    out[3] = input.byte();
    out[4..8].copy_from_slice(&(16 + body as u32).to_be_bytes());
    *mseq = mseq.wrapping_add(1);
    out[8..12].copy_from_slice(&mseq.to_be_bytes());
    out[15] = input.byte();
    if input.byte() == 0xff {
        let at = usize::from(input.byte() % 16);
        out[at] = input.byte();
    }
    out
}

fn basic(input: &mut Input<'_>, terms: &Terms) {
    let mut stream = BasicStream::new(&CONFIG, terms).unwrap();
    let (mut mseq, mut now, mut sent) = (0, 0, 0_u32);
    let mut out = [0; 700];
    for _ in 0..CALLS_MAX {
        if input.0.is_empty() {
            break;
        }
        match input.byte() % 12 {
            0 => drop(stream.write(&vec![1; usize::from(input.byte()) * 17])),
            1 => drop(stream.write(&[3])),
            2 => drop(stream.read(&mut out)),
            3 => now += u64::from(input.byte()),
            4 => {
                while let Some(message) = stream.next_message(now) {
                    sent += 1;
                    assert!(message.len() <= 64 << 10 && message.payload.len() <= 64 << 10);
                    assert!(sent < 1_000_000, "a stream that never stops sending");
                }
            }
            5 => {
                let memory = Advertisement { len: input.word() % 5000, rkey: 1, vaddr: u64::from(input.word()) };
                let _ = stream.advertise(memory, &[5; 9][..usize::from(input.byte() % 10)]);
            }
            6 => stream.withdraw(),
            7 => drop(stream.take_outcome()),
            8 => {
                let _ = stream.begin_source_read(u32::from(input.byte()));
                let _ = stream.end_source_read(u32::from(input.byte()));
            }
            9 if input.byte() == 1 => stream.shutdown(),
            9 if input.byte() == 1 => stream.abort(),
            _ => {
                let body = usize::from(input.byte()) % 40;
                let head = header(input, &mut mseq, body);
                if let Ok(buffer) = stream.receive_buffer() {
                    buffer[..16].copy_from_slice(&head);
                    buffer[16..16 + body].fill_with(|| input.byte());
                    let _ = stream.received(16 + body);
                }
            }
        }
        let _ = (stream.source(), stream.credits());
        let ledger = stream.ledger();
        assert!(ledger.send_copied <= ledger.written && ledger.receive_copied <= ledger.read);
    }
}

fn enhanced(input: &mut Input<'_>, terms: &Terms) {
    let plan = Plan {
        buffering: ddss_sdp::Buffering::Integrated,
        coalescing: ddss_sdp::Coalescing::Append,
        flow_control: ddss_sdp::FlowControl::Receiver,
        zero_copy: false,
    };
    let framing = Framing { markers: input.byte() & 1 != 0, checksum: None };
    let mut stream = EnhancedStream::new(&CONFIG, &Terms { plan, ..*terms }, framing, framing).unwrap();
    let mut peer = ddss_sdp::FrameWriter::new(CONFIG.ring_bytes, framing).unwrap();
    let mut mseq = 0;
    let mut out = [0; 700];
    for _ in 0..CALLS_MAX {
        if input.0.is_empty() {
            break;
        }
        match input.byte() % 9 {
            0 => drop(stream.write(&vec![1; usize::from(input.byte()) * 301])),
            1 => drop(stream.write(&[3])),
            2 => drop(stream.read(&mut out)),
            3 => {
                let waiting: usize = stream.outgoing().iter().map(|part| part.len()).sum();
                stream.sent(waiting * usize::from(input.byte()) / 255);
            }
            4 if input.byte() == 1 => stream.shutdown(),
            4 if input.byte() == 1 => stream.abort(),
            5 => {
                // Bytes that are no frame.
                let room = stream.receive_room();
                let bytes = room.len().min(usize::from(input.byte()));
                room[..bytes].fill_with(|| input.byte());
                let _ = stream.received(bytes);
            }
            _ => {
                let body = usize::from(input.byte()) % 40;
                let head = header(input, &mut mseq, body);
                if peer.open(&head) {
                    let bytes: Vec<u8> = (0..body).map(|_| input.byte()).collect();
                    peer.append_body(&bytes);
                }
                let bytes = peer.parts().concat();
                let room = stream.receive_room();
                let taken = bytes.len().min(room.len());
                room[..taken].copy_from_slice(&bytes[..taken]);
                let _ = stream.received(taken);
                peer.consume(taken);
            }
        }
        let _ = stream.has_outgoing();
    }
}
