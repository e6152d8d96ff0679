//! Limits of a pump, and what its end does to connections without the wire.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Pump, PumpClient};
use crate::sys::Descriptor;

/// Longest wait of a test, reached only in case of an error.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Time after which a pump without programs ends.
const IDLE_MAX: Duration = Duration::from_secs(3);

/// A peer without the library, and a server's socket that was accepted.
fn accepted() -> (TcpStream, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let server = listener.accept().unwrap().0;
    (peer, server.into())
}

/// Hands a server's socket to the pump; returns the program's end, or the socket if the pump does not take it.
fn try_to_hand_over(client: PumpClient, server: OwnedFd) -> Result<UnixStream, OwnedFd> {
    let Ok(program) = client.hand_over(Descriptor(server.as_raw_fd()), true) else { return Err(server) };
    let program = UnixStream::from(program);
    program.set_read_timeout(Some(WAIT_MAX)).unwrap();
    Ok(program)
}

fn hand_over(client: PumpClient, server: OwnedFd) -> UnixStream {
    try_to_hand_over(client, server).unwrap()
}

fn assert_carries(peer: &mut TcpStream, program: &mut UnixStream) {
    let mut room = [0; 8];
    peer.write_all(b"question").unwrap();
    program.read_exact(&mut room).unwrap();
    assert_eq!(&room, b"question");
    program.write_all(b"answered").unwrap();
    peer.read_exact(&mut room).unwrap();
    assert_eq!(&room, b"answered");
}

fn assert_reset(end: &mut impl Read, what: &str) {
    let found = end.read(&mut [0; 8]).map_err(|error| error.kind());
    assert_eq!(found, Err(ErrorKind::ConnectionReset), "{what}");
}

// If this failed, one program with many connections would end the connections of all others, or hang, or take a refusal for an end.
#[test]
fn connections_beyond_the_limit_are_reset_and_room_is_used_again() {
    let mut pump = Pump::bind().unwrap();
    pump.connections_max = 2;
    let client = PumpClient::connect(pump.name()).unwrap();
    thread::spawn(move || pump.run(IDLE_MAX).unwrap());
    let mut carried: Vec<_> = (0..2)
        .map(|_| {
            let (peer, server) = accepted();
            (peer, hand_over(client, server))
        })
        .collect();
    carried.iter_mut().for_each(|(peer, program)| assert_carries(peer, program));
    for _ in 0..3 {
        let (mut peer, server) = accepted();
        let mut program = hand_over(client, server);
        assert_reset(&mut program, "the program");
        assert_reset(&mut peer, "its peer");
    }
    carried.iter_mut().for_each(|(peer, program)| assert_carries(peer, program));
    let (mut peer, mut program) = carried.remove(0);
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(program.read(&mut [0; 8]).unwrap(), 0);
    drop(program);
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "the end in order is one for the peer");
    let (mut peer, server) = accepted();
    assert_carries(&mut peer, &mut hand_over(client, server));
    carried.iter_mut().for_each(|(peer, program)| assert_carries(peer, program));
}

// If this failed, a program beyond the limit would lose connections without an error.
#[test]
fn programs_beyond_the_limit_keep_their_sockets_or_are_reset() {
    let mut pump = Pump::bind().unwrap();
    pump.controls_max = 1;
    let first = PumpClient::connect(pump.name()).unwrap();
    let second = PumpClient::connect(pump.name()).unwrap();
    thread::spawn(move || pump.run(IDLE_MAX).unwrap());
    let (mut peer, server) = accepted();
    let mut program = hand_over(first, server);
    assert_carries(&mut peer, &mut program);
    let mut refusals = 0;
    for _ in 0..100 {
        let (mut peer, server) = accepted();
        match try_to_hand_over(second, server) {
            Ok(mut taken) => {
                assert_reset(&mut taken, "the program");
                assert_reset(&mut peer, "its peer");
            }
            Err(server) => {
                refusals += 1;
                // The socket is as it was before.
                let mut server = TcpStream::from(server);
                server.write_all(b"as before").unwrap();
                drop(server);
                let mut text = String::new();
                peer.read_to_string(&mut text).unwrap();
                assert_eq!(text, "as before");
            }
        }
    }
    assert!(refusals > 90, "{refusals} of 100 were refused");
    assert_carries(&mut peer, &mut program);
}

// If this failed, the peer of a killed pump would take a cut for the end of the bytes.
#[test]
fn end_of_a_pump_resets_peers_without_the_wire_too() {
    // Before a choice of the transport, and after it.
    for has_chosen in [false, true] {
        let mut pump = Pump::bind().unwrap();
        let client = PumpClient::connect(pump.name()).unwrap();
        let (mut peer, server) = accepted();
        let mut program = if has_chosen {
            // The pump is dropped while the connection lasts: as a killed process does, that closes everything.
            let is_told = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&is_told);
            let carrying = thread::spawn(move || {
                let mut events = Vec::with_capacity(8);
                while !told.load(Ordering::Acquire) {
                    pump.turn(&mut events, Instant::now() + Duration::from_millis(5)).unwrap();
                }
            });
            let mut program = hand_over(client, server);
            assert_carries(&mut peer, &mut program);
            is_told.store(true, Ordering::Release);
            carrying.join().unwrap();
            program
        } else {
            let program = hand_over(client, server);
            drop(pump);
            program
        };
        assert_reset(&mut program, "the program");
        assert_reset(&mut peer, "its peer");
    }
}
