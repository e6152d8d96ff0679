//! Messages of the engine in synthetic RoCE frames, read by Wireshark's dissector.
//!
//! The dissector attaches to InfiniBand conversations, so a message becomes the payload of a send on a reliable
//! connection: UDP port 4791, base transport header, payload, checksum.

use std::path::PathBuf;
use std::process::Command;

use ddss_sdp::{Plan, connect};

use crate::basic_simulation::Network;
use crate::common::{SMALL, addresses, zero_copy_plan};
use crate::enhanced_simulation::Sockets;

/// Directory that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ddss-sdp-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Begins a recording with this link type.
fn recording(link: u32) -> Vec<u8> {
    [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 18, link].into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Adds an IPv4 packet with a UDP datagram or a TCP segment in it.
fn add_packet(out: &mut Vec<u8>, turn: u32, protocol: u8, from: u8, body: &[u8]) {
    let total = 20 + body.len();
    for word in [turn, 0, total as u32, total as u32] {
        out.extend(word.to_le_bytes());
    }
    out.extend([0x45, 0]);
    out.extend((total as u16).to_be_bytes());
    out.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1 + from, 10, 0, 0, 2 - from]);
    out.extend(body);
}

/// Wraps a message into a send on a reliable connection.
fn roce(message: &[u8], from: usize, number: u32) -> Vec<u8> {
    let padding = (4 - message.len() % 4) % 4;
    let mut out = Vec::new();
    for half in [49_152_u16, 4791, (8 + 12 + message.len() + padding + 4) as u16, 0] {
        out.extend(half.to_be_bytes());
    }
    out.extend([0x04, (padding as u8) << 4, 0xff, 0xff, 0]);
    out.extend(&(0x11 + from as u32).to_be_bytes()[1..]);
    out.push(0);
    out.extend(&number.to_be_bytes()[1..]);
    out.extend(message);
    out.extend(vec![0; padding + 4]);
    out
}

/// Runs tshark; `None` without it.
fn tshark(name: &str, recording: &[u8], arguments: &[&str]) -> Option<String> {
    let folder = Folder::new(name);
    let file = folder.0.join("recording.pcap");
    std::fs::write(&file, recording).unwrap();
    match Command::new("tshark").args(arguments).arg("-r").arg(&file).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            println!("skipped: {name}: cannot run tshark ({error})");
            None
        }
    }
}

/// Plays a stream with every message that this side sends; returns what both sides sent, in order.
fn every_message() -> Vec<(usize, Vec<u8>)> {
    let mut network = Network::new(&SMALL, zero_copy_plan());
    let mut all = vec![(0, connect(&SMALL, Plan::basic(), addresses()).unwrap().to_vec())];
    let mut exchange = |network: &mut Network| {
        for side in [0, 1, 0, 1] {
            network.pump(side);
            all.extend(network.queues[side].iter().map(|message| (side, message.clone())));
            while network.deliver(side) {}
        }
    };
    network.write(0, 500);
    exchange(&mut network);
    network.read(1, 1000);
    exchange(&mut network);
    network.advertise(0, 0x0102_0304, 5);
    exchange(&mut network);
    network.read(1, 5);
    network.read_source(1, 0x0100_0000, false);
    exchange(&mut network);
    network.streams[0].withdraw();
    exchange(&mut network);
    assert!(network.take_outcome(0));
    network.shutdown(0);
    exchange(&mut network);
    network.streams[1].abort();
    exchange(&mut network);
    all
}

#[test]
fn wireshark_reads_every_message() {
    // If this failed, this side and its own tests would agree on a wrong format.
    let messages = every_message();
    let mut capture = recording(101);
    for (turn, (from, message)) in messages.iter().enumerate() {
        add_packet(&mut capture, turn as u32, 17, *from as u8, &roce(message, *from, turn as u32));
    }
    let names = ["mid", "flags", "bufs", "len", "mseq", "mseqack"].map(|name| format!("infiniband_sdp.bsdh.{name}"));
    let hello = ["hh.majv", "hh.maxadverts", "hh.localrcvsz", "hh.localport", "hh.src_ip", "hh.dst_ip"];
    let hello = hello.map(|name| format!("infiniband_sdp.{name}"));
    let mut arguments = vec!["-T", "fields", "-E", "separator=,", "-d", "infiniband,infiniband_sdp"];
    arguments.extend(["-o", "infiniband.try_heuristic_first:FALSE"]);
    for field in names.iter().chain(&hello) {
        arguments.extend(["-e", field]);
    }
    let Some(text) = tshark("infiniband_sdp", &capture, &arguments) else { return };
    let mut kinds = std::collections::BTreeSet::new();
    for (turn, (line, (_, message))) in text.lines().zip(&messages).enumerate() {
        let word = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap());
        let (bufs, len) = (word(0) & 0xffff, message.len());
        let hello = if turn == 0 { "0x02,0x01,256,40000,::10.0.0.1,::10.0.0.2" } else { ",,,,," };
        let head = format!("{:#04x},{:#04x},{bufs},{len},{:#010x},{:#010x}", message[0], message[1], word(8), word(12));
        assert_eq!(line, format!("{head},{hello}"), "message {turn}");
        kinds.insert(message[0]);
    }
    assert_eq!(text.lines().count(), messages.len());
    let all = [0x00, 0x02, 0x03, 0x04, 0x06, 0x08, 0x0b, 0x0c, 0xfe, 0xff];
    assert!(kinds.iter().eq(&all), "every kind that this side sends: {kinds:x?}");
    println!("tshark read {} messages of {} kinds", messages.len(), kinds.len());
}

/// Adds a TCP segment of a conversation without acknowledgements of its own.
fn add_segment(out: &mut Vec<u8>, sequence: &mut [u32; 2], from: usize, flags: u8, body: &[u8]) {
    let ports = [40_000_u16, 7471];
    let mut segment = [ports[from].to_be_bytes(), ports[1 - from].to_be_bytes()].concat();
    segment.extend(sequence[from].to_be_bytes());
    segment.extend(sequence[1 - from].to_be_bytes());
    segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(body);
    add_packet(out, out.len() as u32, 6, from as u8, &segment);
    sequence[from] += body.len() as u32 + u32::from(flags & 2 != 0);
}

#[test]
fn wireshark_reads_frames_of_the_gap_writer() {
    // If this failed, an adapter on the other side could not read what the integrated buffer sends.
    let mut sockets = Sockets::new(&SMALL, true, true, 1 << 20);
    let (mut capture, mut sequence) = (recording(101), [1000, 5000]);
    for (from, flags) in [(0, 0x02), (1, 0x12), (0, 0x10)] {
        add_segment(&mut capture, &mut sequence, from, flags, &[]);
    }
    for (from, key) in [(0, b"MPA ID Req Frame"), (1, b"MPA ID Rep Frame")] {
        add_segment(&mut capture, &mut sequence, from, 0x18, &[&key[..], &[0xc0, 1, 0, 0]].concat());
    }
    // The dissector loses its place where marked frames share a packet, so each one gets its own.
    let lengths = [1, 2, 3, 64, 400, 600, 1000, 5000, 40_000, 63 << 10, 7];
    for length in lengths {
        assert_eq!(sockets.write(0, length), length);
        let frame = sockets.streams[0].outgoing().concat();
        sockets.streams[0].sent(frame.len());
        add_segment(&mut capture, &mut sequence, 0, 0x18, &frame);
    }
    let mut arguments = vec!["--enable-heuristic", "iwarp_mpa_tcp", "-V"];
    // Other protocols over RDMAP would take the messages for theirs.
    for other in ["rpcordma", "smb_direct", "iser", "lnet"] {
        arguments.extend(["--disable-protocol", other]);
    }
    let Some(text) = tshark("iwarp_mpa", &capture, &arguments) else { return };
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    assert_eq!((count("ULPDU length"), count("(Good CRC32)")), (lengths.len(), lengths.len()));
    assert_eq!(count("OpCode: Send"), lengths.len());
    for complaint in ["Malformed", "Bad CRC32", "Dissector bug"] {
        assert_eq!(count(complaint), 0, "{complaint}");
    }
    println!("tshark read {} frames with a good checksum", lengths.len());
}
