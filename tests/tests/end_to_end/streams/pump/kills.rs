//! Programs and pumps that are killed at random moments: each survivor reads a prefix of what its peer wrote, and ends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ddss_stream::Transport;
use ddss_testkit::Random;

use super::super::{PORT, output_of, port_of, result, wait_for_line};
use super::Wire;

/// Variable with the number that the bytes of a connection follow from.
pub(in super::super) const SEED: &str = "DDSS_TEST_STREAM_SEED";
/// Bytes of each direction.
pub(in super::super) const BYTES: u64 = 4 << 20;
/// Longest time from the connection to the kill, in microseconds. The whole transfer takes some milliseconds.
const DELAY_US: u64 = 12_000;
/// Start of the hello by which a pump asks for the wire.
pub(super) const HELLO: &[u8] = b"MPA ID Req Frame";
/// Kills of programs, and of pumps.
const KILLS: u64 = 16;

/// Victim of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Acceptor,
    Connector,
    PumpOfAcceptor,
    PumpOfConnector,
    Nobody,
}

/// Report of an end about its connection.
#[derive(Debug)]
pub(in super::super) struct Found {
    pub(in super::super) read: u64,
    /// `end`, `hello`, `different`, or the error of the last read.
    pub(in super::super) last: String,
    /// `all`, or the error of the last write.
    pub(in super::super) wrote: String,
    transport: String,
}

impl Found {
    pub(in super::super) fn parse(text: &str) -> Self {
        let part = |name: &str| text.split(' ').find_map(|part| part.strip_prefix(name)).unwrap().to_owned();
        let (last, wrote, transport) = (part("last="), part("wrote="), part("transport="));
        Self { read: part("read=").parse().unwrap(), last, wrote, transport }
    }

    pub(in super::super) fn report(&self) {
        let Self { read, last, wrote, transport } = self;
        println!("\nRESULT read={read} last={last} wrote={wrote} transport={transport}");
    }
}

pub(in super::super) fn byte_at(seed: u64, position: u64) -> u8 {
    ((position ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Returns the bytes of a direction: none in every third round, whose program only reads.
pub(in super::super) fn bytes_of(seed: u64) -> u64 {
    if Random::new(seed).below(3) == 0 { 0 } else { BYTES }
}

/// One end of a connection, which writes and reads at the same time, and no test of its own.
#[test]
fn end_of_a_connection() {
    let Ok(seed) = std::env::var(SEED) else { return };
    let seed: u64 = seed.parse().unwrap();
    let port = std::env::var(PORT).ok();
    let stream = match &port {
        Some(port) => TcpStream::connect(("127.0.0.1", port.parse().unwrap())),
        None => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            println!("\nPORT {}", listener.local_addr().unwrap().port());
            listener.accept().map(|(stream, _)| stream)
        }
    };
    println!("\nCONNECTED");
    let own = u64::from(port.is_some());
    let found = match stream {
        Ok(stream) => exchange(stream, seed + own, seed + 1 - own),
        Err(error) => {
            let (last, none) = (format!("{:?}", error.kind()), String::new());
            Found { read: 0, last, wrote: none.clone(), transport: none }
        }
    };
    found.report();
    std::process::exit(0);
}

fn own_transport() -> String {
    let process = std::process::id();
    let transport = ddss_stream::list().iter().find(|row| row.process == process).map(|row| row.transport);
    transport.map_or(String::new(), |transport| format!("{transport:?}"))
}

/// Writes the bytes of one seed and reads those of the other one.
pub(in super::super) fn exchange(stream: TcpStream, own: u64, peers: u64) -> Found {
    let mut writing = stream.try_clone().unwrap();
    let writer = thread::spawn(move || {
        let (mut position, mut random) = (0, Random::new(own));
        let all = bytes_of(own);
        while position < all {
            let piece = [1, 700, 40_000, 200_000][random.below(4) as usize].min(all - position);
            let bytes: Vec<u8> = (position..position + piece).map(|position| byte_at(own, position)).collect();
            if let Err(error) = writing.write_all(&bytes) {
                return format!("{:?}", error.kind());
            }
            position += piece;
        }
        let _ = writing.shutdown(Shutdown::Write);
        "all".to_owned()
    });
    let (mut reading, mut read, mut room, mut transport) = (stream, 0, vec![0; 50_000], String::new());
    let last = loop {
        match reading.read(&mut room) {
            Ok(0) => break "end".to_owned(),
            Ok(bytes) => {
                if read == 0 {
                    transport = own_transport();
                }
                if read == 0 && room[..bytes].starts_with(HELLO) {
                    break "hello".to_owned();
                }
                if (read..).zip(&room[..bytes]).any(|(position, byte)| *byte != byte_at(peers, position)) {
                    break "different".to_owned();
                }
                read += bytes as u64;
            }
            Err(error) => break format!("{:?}", error.kind()),
        }
    };
    Found { read, last, wrote: writer.join().unwrap(), transport }
}

fn end(wire: &Wire, seed: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["streams::pump::kills::end_of_a_connection", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(SEED, seed.to_string()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    wire.put_on(&mut command);
    command
}

/// Connects two programs and kills the victim. Returns the reports of acceptor and connector, unless they were killed.
fn round(victim: Victim, seed: u64, acceptors: &mut Wire, connectors: &mut Wire) -> [Option<Found>; 2] {
    let mut acceptor = end(acceptors, seed).spawn().unwrap();
    let port = port_of(&mut acceptor).to_string();
    let mut connector = end(connectors, seed).env(PORT, port).spawn().unwrap();
    // The other end may still be on its way to its pump.
    let mut random = Random::new(seed);
    let first = if random.below(2) == 0 { &mut acceptor } else { &mut connector };
    wait_for_line(first, "CONNECTED");
    thread::sleep(Duration::from_micros(random.below(DELAY_US)));
    let killed: Option<&mut Child> = match victim {
        Victim::Acceptor => Some(&mut acceptor),
        Victim::Connector => Some(&mut connector),
        Victim::PumpOfAcceptor => Some(&mut acceptors.pump.0),
        Victim::PumpOfConnector => Some(&mut connectors.pump.0),
        Victim::Nobody => None,
    };
    if let Some(process) = killed {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    [(acceptor, Victim::Acceptor), (connector, Victim::Connector)].map(|(program, itself)| {
        let output = output_of(program);
        (victim != itself).then(|| Found::parse(&result(&output)))
    })
}

/// Checks the survivors' reports. Returns true if one of them lost its connection.
fn check(victim: Victim, seed: u64, found: [Option<Found>; 2]) -> bool {
    let mut is_cut = false;
    let expected = [seed + 1, seed].map(bytes_of);
    for (found, expected) in found.into_iter().zip(expected) {
        let Some(found) = found else { continue };
        let context = format!("{victim:?} killed, seed {seed}: {found:?}");
        assert!(found.last != "different" && found.read <= expected, "other bytes: {context}");
        assert!(found.last != "hello", "a hello: {context}");
        // The kernel ends the connection of a killed program as TCP does. A killed pump must never look like an end. But the kernel tells a
        // Unix socket's error once, and a write that is blocked takes it: it ends short, and the next write says EPIPE. So a read may see
        // the end then, in a program whose write failed.
        let is_program = [Victim::Acceptor, Victim::Connector].contains(&victim);
        let is_told = is_program || found.wrote != "all";
        assert!(found.last != "end" || found.read == expected || is_told, "a cut looks like the end: {context}");
        is_cut |= found.read < expected;
    }
    is_cut
}

/// Checks that both pumps carry a connection. On a busy machine a connection may stay on TCP, since no program waits long for a
/// pump; all of ten do not.
fn assert_carries(acceptors: &mut Wire, connectors: &mut Wire) {
    let seed = (0..).find(|seed| bytes_of(*seed) + bytes_of(seed + 1) == 2 * BYTES).unwrap();
    let wire = format!("{:?}", Transport::Wire);
    let is_on_wire = (0..10).any(|_| {
        let found = round(Victim::Nobody, seed, acceptors, connectors).map(Option::unwrap);
        for found in &found {
            assert_eq!((found.read, &*found.last), (BYTES, "end"), "{found:?}");
        }
        found.iter().all(|found| found.transport == wire)
    });
    assert!(is_on_wire, "no connection went by the pumps");
}

// If this failed, the death of a program would disturb its pump, and with it the connections of others; or its peer would hang.
#[test]
fn programs_killed_at_random_moments_leave_a_prefix_and_their_pumps() {
    let (mut acceptors, mut connectors) = (Wire::start(), Wire::start());
    let mut cuts = 0;
    for number in 0..KILLS {
        let victim = [Victim::Acceptor, Victim::Connector][(number % 2) as usize];
        let found = round(victim, 1000 * number, &mut acceptors, &mut connectors);
        cuts += u64::from(check(victim, 1000 * number, found));
    }
    assert!(cuts > 0, "no kill came in the middle");
    assert_carries(&mut acceptors, &mut connectors);
    for wire in [&mut acceptors, &mut connectors] {
        assert_eq!(wire.pump.0.try_wait().unwrap(), None, "a pump ended with a program of its own");
    }
}

// If this failed, a program would take the death of a pump for the end of its peer's bytes, or wait forever.
#[test]
fn pumps_killed_at_random_moments_reset_both_programs() {
    let mut cuts = 0;
    for number in 0..KILLS {
        let (mut acceptors, mut connectors) = (Wire::start(), Wire::start());
        let victim = [Victim::PumpOfAcceptor, Victim::PumpOfConnector][(number % 2) as usize];
        let seed = 1000 * number + 500;
        let found = round(victim, seed, &mut acceptors, &mut connectors);
        cuts += u64::from(check(victim, seed, found));
    }
    assert!(cuts > 0, "no kill came in the middle");
}
