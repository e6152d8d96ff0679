//! Frames of this implementation, checked by Wireshark's dissectors of MPA, DDP and RDMAP.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, which says what it skips")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::{ALL, Loopback, Memory, Pair, pattern};
use ddss_verbs::{Fabric, IwarpConfig, LocalRange, RemoteRange, SendMode, Work};

/// Maximum bytes of one recorded packet: it has to fit into an IPv4 datagram.
const PACKET_BYTES_MAX: usize = 60_000;
/// Pause between two checks of an idle connection.
const PAUSE: Duration = Duration::from_micros(20);
/// Ports in the recording.
const PORTS: [u16; 2] = [40_000, 7471];

/// Recorded packets: the sender (0 connected, 1 accepted), and the bytes.
type Packets = Vec<(usize, Vec<u8>)>;

/// Relay between two fabrics that records their packets.
struct Relay {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: JoinHandle<Packets>,
}

impl Relay {
    fn to(target: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let (first, _) = listener.accept().unwrap();
            let second = TcpStream::connect(target).unwrap();
            let mut ends = [first, second];
            ends.iter().for_each(|end| end.set_nonblocking(true).unwrap());
            let mut packets = Packets::new();
            let mut room = vec![0; PACKET_BYTES_MAX];
            while !asked.load(Ordering::Acquire) {
                for from in 0..2 {
                    match ends[from].read(&mut room) {
                        Ok(count) if count > 0 => {
                            packets.push((from, room[..count].to_vec()));
                            pass_on(&mut ends[1 - from], &room[..count]);
                        }
                        _ => thread::sleep(PAUSE),
                    }
                }
            }
            packets
        });
        Relay { address, over, thread }
    }

    fn packets(self) -> Packets {
        self.over.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// Forwards bytes; a closed peer accepts none, but they are recorded.
fn pass_on(end: &mut TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match end.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(_) => return,
        }
    }
}

/// Posts one of every kind of work, and a violation at the end, so that there is a terminate as well.
fn one_of_everything(config: IwarpConfig) -> Packets {
    // Large answers are summed in place; writes of up to 32 KiB are copied anyway.
    let mut pair = Pair::new(Loopback::of(config).exclusive());
    let relay = Relay::to(pair.address);
    pair.address = relay.address;
    let (there, here) = pair.connect();
    let (ours, theirs) = (Memory::new(1 << 20), Memory::new(1 << 20));
    theirs.set(0, &pattern(5, 1 << 20));
    let region = pair.a.register(&ours);
    let (_, window) = pair.expose(&theirs, here, ALL);
    let remote = |offset| RemoteRange { key: window.key, address: window.base + offset };
    let local = |bytes| LocalRange { region, offset: 0, bytes };
    for bytes in [0, 1, 8, 1000, 5000, 100_000] {
        pair.a.fabric.post(&[Work::Read { peer: there, tag: 1, local: local(bytes), remote: remote(0) }]).unwrap();
        assert_eq!(pair.a_done(1), Ok(0));
        pair.a.fabric.post(&[Work::Write { peer: there, tag: 2, local: local(bytes), remote: remote(8) }]).unwrap();
        assert_eq!(pair.a_done(2), Ok(0));
    }
    let message = pattern(7, 300);
    let mode = SendMode { solicited: true, invalidate: None };
    pair.a.fabric.post(&[Work::Send { peer: there, tag: 3, message: &message, mode }]).unwrap();
    assert_eq!(pair.wait("the message", |pair| pair.b.message()), message);
    let data = [7; 8];
    pair.a.fabric.post(&[Work::Immediate { peer: there, tag: 4, data, solicited: false }]).unwrap();
    pair.a.fabric.post(&[Work::CompareSwap { peer: there, tag: 5, remote: remote(64), compare: 1, swap: 2 }]).unwrap();
    pair.a.fabric.post(&[Work::FetchAdd { peer: there, tag: 6, remote: remote(64), add: 2 }]).unwrap();
    for tag in [5, 6] {
        assert!(pair.a_done(tag).is_ok());
    }
    let wrong = RemoteRange { key: !window.key, address: 0 };
    pair.a.fabric.post(&[Work::Read { peer: there, tag: 9, local: local(8), remote: wrong }]).unwrap();
    assert!(pair.a_done(9).is_err());
    pair.wait("the end", |pair| pair.a.closed(there));
    relay.packets()
}

/// Writes a recording in Wireshark's format: raw IPv4 without checksums.
fn write_recording(path: &Path, packets: &Packets) {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 18, 101] {
        out.extend(word.to_le_bytes());
    }
    let mut sequence = [1_000_u32, 5_000];
    let hello = [(0, 0x02_u8), (1, 0x12), (0, 0x10)].map(|(from, flags)| (from, flags, &[][..]));
    let data = packets.iter().map(|(from, bytes)| (*from, 0x18, &bytes[..]));
    for (turn, (from, flags, bytes)) in hello.into_iter().chain(data).enumerate() {
        let total = 40 + bytes.len();
        for word in [turn as u32, 0, total as u32, total as u32] {
            out.extend(word.to_le_bytes());
        }
        out.extend([0x45, 0]);
        out.extend((total as u16).to_be_bytes());
        out.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 127, 0, 0, 1 + from as u8, 127, 0, 0, 2 - from as u8]);
        out.extend(PORTS[from].to_be_bytes());
        out.extend(PORTS[1 - from].to_be_bytes());
        out.extend(sequence[from].to_be_bytes());
        out.extend((if flags == 0x02 { 0 } else { sequence[1 - from] }).to_be_bytes());
        out.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        out.extend(bytes);
        sequence[from] += bytes.len() as u32 + u32::from(flags & 0x02 != 0);
    }
    std::fs::write(path, out).unwrap();
}

/// Returns the complete dissection; `None` without tshark.
fn dissect(packets: &Packets) -> Option<String> {
    let folder = std::env::temp_dir().join(format!("ddss-dissected-{}-{:p}", std::process::id(), packets));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("recording.pcap");
    write_recording(&file, packets);
    let mut command = Command::new("tshark");
    command.args(["--enable-heuristic", "iwarp_mpa_tcp", "-V", "-r"]).arg(&file);
    let output = command.output();
    std::fs::remove_dir_all(&folder).unwrap();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            println!("skipped: dissected: cannot run tshark ({error})");
            None
        }
    }
}

fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.contains(what)).count()
}

/// Minimum number of frames in a dissection.
const FRAMES_MIN: usize = 6;

/// Minimum content of the recording, in the dissector's names (it does not know the opcode of immediate data).
const KINDS: [(&str, usize); 9] = [
    ("OpCode: Write", 6),
    ("OpCode: Read Request", 7),
    ("OpCode: Read Response", 6),
    ("OpCode: Send with SE", 1),
    ("OpCode: Terminate", 1),
    ("OpCode: Atomic Request", 2),
    ("OpCode: Atomic Response", 2),
    ("OpCode: FetchAdd", 1),
    ("OpCode: CmpSwap", 1),
];

fn agrees(config: IwarpConfig) {
    let (crc, markers) = (config.crc, config.markers);
    let Some(text) = dissect(&one_of_everything(config)) else { return };
    // This dissector loses its place where two marked frames share a packet: then it reads only the first ones.
    for (kind, least) in KINDS.into_iter().filter(|_| !markers) {
        assert!(count(&text, kind) >= least, "{kind}: {} of {least}", count(&text, kind));
    }
    let (frames, good) = (count(&text, "ULPDU length"), count(&text, "(Good CRC32)"));
    assert!(frames >= FRAMES_MIN, "{frames} frames");
    assert_eq!(good, if crc { frames } else { 0 }, "every frame has a good checksum, if it has one");
    for complaint in ["Malformed", "Bad CRC32", "Dissector bug"] {
        assert_eq!(count(&text, complaint), 0, "{complaint}");
    }
    println!("tshark read {frames} frames, {good} with a good checksum");
}

#[test]
fn wireshark_reads_frames_with_crc() {
    // If this failed, adapters and the kernel would not understand us, although we understand ourselves.
    agrees(IwarpConfig::default());
}

#[test]
fn wireshark_reads_frames_without_crc() {
    // If this failed, payload that is sent from memory without a copy would be framed in a private way.
    let mut config = IwarpConfig::default();
    config.crc = false;
    agrees(config);
}

#[test]
fn wireshark_reads_frames_with_markers() {
    // If this failed, an adapter that insists on markers would lose its place in our stream.
    let mut config = IwarpConfig::default();
    config.markers = true;
    agrees(config);
}
