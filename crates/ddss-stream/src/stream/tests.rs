//! Tests of one stream over every transport.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::thread;
use std::time::Duration;

use crate::wire::WireConfig;
use crate::{Listener, Reason, Stream, Transport, TransportPolicy};

/// Longer than any step of these tests takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn any() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn wire() -> WireConfig {
    WireConfig { handshake_max: PATIENCE, ..WireConfig::default() }
}

fn policies() -> [(TransportPolicy, Transport, Reason); 4] {
    [
        (TransportPolicy::Tcp, Transport::Tcp, Reason::Rule),
        (TransportPolicy::Auto, Transport::SameNode, Reason::SharedMemory),
        (TransportPolicy::Wire(wire()), Transport::Wire, Reason::Wire),
        (TransportPolicy::Wire(wire().basic()), Transport::Wire, Reason::Wire),
    ]
}

fn pair(policy: TransportPolicy) -> (Stream, Stream) {
    let listener = Listener::bind_with(any(), policy).unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        // On the wire, the first call waits for the hello.
        if let Some(wire) = stream.as_wire() {
            wire.complete_start().unwrap();
        }
        stream
    });
    let connected = Stream::connect_with(address, &policy).unwrap();
    let accepted = accepted.join().unwrap();
    for stream in [&connected, &accepted] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (connected, accepted)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

// If this failed, a program could not tell how its bytes travel, or why.
#[test]
fn transport_and_reason_are_known_on_every_transport() {
    for (policy, transport, reason) in policies() {
        let (mut here, mut there) = pair(policy);
        for round in 0..8 {
            let mut byte = [0];
            here.write_all(&[round]).unwrap();
            here.flush().unwrap();
            there.read_exact(&mut byte).unwrap();
            there.write_all(&byte).unwrap();
            there.flush().unwrap();
            here.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [round]);
        }
        assert_eq!((here.transport(), there.transport()), (transport, transport), "{policy:?}");
        assert_eq!((here.reason(), there.reason()), (reason, reason), "{policy:?}");
        assert_eq!(here.as_wire().is_some(), transport == Transport::Wire);
    }
}

// If this failed, a thread that reads would stop one that writes, or a credit taken by one would be lost for the other.
#[test]
fn halves_move_bytes_in_both_directions_at_once() {
    for (policy, ..) in policies() {
        let (here, there) = pair(policy);
        let bytes = pattern(4_000_001);
        let mut threads = Vec::new();
        for stream in [here, there] {
            let (mut reading, mut writing) = stream.split();
            let sent = bytes.clone();
            threads.push(thread::spawn(move || {
                sent.chunks(30_011).for_each(|piece| writing.write_all(piece).unwrap());
                Vec::new()
            }));
            threads.push(thread::spawn(move || {
                let mut got = Vec::new();
                reading.read_to_end(&mut got).unwrap();
                got
            }));
        }
        let results: Vec<Vec<u8>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(results[1] == bytes && results[3] == bytes, "{policy:?}");
    }
}

// If this failed, a stranger that connects and says nothing would stop a program that accepts.
#[test]
fn silent_peer_does_not_stop_the_listener() {
    let config = WireConfig { handshake_max: Duration::from_millis(50), ..wire() };
    let listener = Listener::bind_with(any(), TransportPolicy::Wire(config)).unwrap();
    let _silent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
}

// If this failed, a non-blocking program would wait inside a read.
#[test]
fn nonblocking_calls_do_not_wait() {
    for (policy, ..) in policies() {
        let (mut here, mut there) = pair(policy);
        here.set_nonblocking(true).unwrap();
        assert_eq!(here.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let piece = vec![7; 60_000];
        // Buffers of the kernel hold a few megabytes.
        let full = (0..10_000).find_map(|_| here.write(&piece).err()).unwrap();
        assert_eq!(full.kind(), ErrorKind::WouldBlock, "{policy:?}");
        here.set_nonblocking(false).unwrap();
        let reader = thread::spawn(move || there.read_to_end(&mut Vec::new()).unwrap());
        here.shutdown(Shutdown::Write).unwrap();
        assert!(reader.join().unwrap() > 0);
    }
}
