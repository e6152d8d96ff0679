//! Tests of streams on the wire, over real TCP connections.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::{WireConfig, WireStream, capabilities};

mod zero_copy;

/// Longer than any step of these tests takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn configs() -> Vec<WireConfig> {
    let mut all = Vec::new();
    for markers in [false, true] {
        for checksums in [false, true] {
            let mut config = WireConfig { markers, checksums, handshake_max: PATIENCE, ..WireConfig::default() };
            config.stream.no_delay = true;
            all.extend([config, config.basic()]);
        }
    }
    all
}

fn pair(here: &WireConfig, there: &WireConfig) -> (WireStream, WireStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, there) = (listener.local_addr().unwrap(), *there);
    let other = thread::spawn(move || WireStream::accept(listener.accept().unwrap().0, &there).unwrap());
    let mut connected = WireStream::connect(address, here).unwrap();
    let mut accepted = other.join().unwrap();
    for stream in [&mut connected, &mut accepted] {
        stream.set_read_timeout(Some(PATIENCE));
        stream.set_write_timeout(Some(PATIENCE));
    }
    (connected, accepted)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

// If this failed, a program would read other bytes than its peer wrote, or never see the end.
#[test]
fn both_directions_carry_every_byte_and_half_close() {
    for config in configs() {
        let (mut here, mut there) = pair(&config, &config);
        let bytes = pattern(3_000_001);
        let answer = bytes.clone();
        let other = thread::spawn(move || {
            let mut got = Vec::new();
            there.read_to_end(&mut got).unwrap();
            // This direction is still open.
            there.write_all(&answer).unwrap();
            there.shutdown_write().unwrap();
            got
        });
        for (number, piece) in bytes.chunks(77_777).enumerate() {
            // Pieces of many sizes.
            let (few, rest) = piece.split_at(number * 13 % piece.len());
            here.write_all(few).unwrap();
            here.write_all(rest).unwrap();
        }
        here.shutdown_write().unwrap();
        assert_eq!(here.write(b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let mut got = Vec::new();
        here.read_to_end(&mut got).unwrap();
        assert!(other.join().unwrap() == bytes && got == bytes, "{config:?}");
    }
}

// If this failed, a peer that knows the specification only would be sent more than it can take.
#[test]
fn plan_is_basic_if_either_side_wants_it() {
    let enhanced = WireConfig { handshake_max: PATIENCE, ..WireConfig::default() };
    assert!(ddss_sdp::Plan::of(&capabilities()).is_enhanced());
    for (one, other, is_enhanced) in
        [(enhanced, enhanced, true), (enhanced.basic(), enhanced, false), (enhanced, enhanced.basic(), false)]
    {
        let (mut here, mut there) = pair(&one, &other);
        assert_eq!((here.plan().is_enhanced(), there.plan().is_enhanced()), (is_enhanced, is_enhanced));
        here.write_all(b"ping").unwrap();
        here.flush().unwrap();
        let mut bytes = [0; 4];
        there.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"ping");
    }
}

// If this failed, the paper's claim would not hold here: one copy of each byte on each side instead of two.
#[test]
fn enhanced_copies_each_byte_once_and_basic_twice() {
    let base = WireConfig { handshake_max: PATIENCE, ..WireConfig::default() };
    for (config, copies) in [(base, 1), (base.basic(), 2)] {
        let (mut here, mut there) = pair(&config, &config);
        let bytes = 1_000_000;
        let other = thread::spawn(move || {
            let mut got = Vec::new();
            there.read_to_end(&mut got).unwrap();
            (got.len(), there.ledger())
        });
        here.write_all(&pattern(bytes)).unwrap();
        here.shutdown_write().unwrap();
        let (got, received) = other.join().unwrap();
        assert_eq!(got, bytes);
        assert_eq!(here.ledger().send_copied, copies * bytes as u64);
        assert_eq!(received.receive_copied, copies * bytes as u64);
    }
}

// If this failed, each small answer would cost two system calls more than on TCP: a look that finds nothing, and a wait.
#[test]
fn small_exchange_costs_one_send_and_one_receive() {
    const TRIPS: u32 = 200;
    let config = WireConfig { handshake_max: PATIENCE, markers: false, checksums: false, ..WireConfig::default() };
    let (mut here, mut there) = pair(&config, &config);
    here.set_read_timeout(None);
    there.set_read_timeout(None);
    let before = here.system_calls();
    let echo = thread::spawn(move || {
        let mut message = [0; 64];
        for _ in 0..TRIPS {
            there.read_exact(&mut message).unwrap();
            there.write_all(&message).unwrap();
        }
    });
    let mut message = [1; 64];
    for _ in 0..TRIPS {
        here.write_all(&message).unwrap();
        here.read_exact(&mut message).unwrap();
    }
    echo.join().unwrap();
    let after = here.system_calls();
    let counts = [after.sends - before.sends, after.receives - before.receives, after.waits - before.waits];
    assert_eq!(counts, [TRIPS, TRIPS, 0]);
}

// If this failed, a program that writes a lot in small pieces would pay a system call for each, or its last bytes would stay behind.
#[test]
fn small_writes_share_system_calls_where_they_may_wait() {
    const WRITES: u32 = 4000;
    let mut config = WireConfig { handshake_max: PATIENCE, ..WireConfig::default() };
    config.stream.no_delay = false;
    let (mut here, mut there) = pair(&config, &config);
    let piece = pattern(512);
    let reader = thread::spawn(move || {
        let mut got = vec![0; WRITES as usize * 512];
        there.read_exact(&mut got).unwrap();
        there.write_all(b"all").unwrap();
        got
    });
    let before = here.system_calls();
    for _ in 0..WRITES {
        here.write_all(&piece).unwrap();
    }
    // A read sends what waits.
    let mut answer = [0; 3];
    here.read_exact(&mut answer).unwrap();
    let sends = here.system_calls().sends - before.sends;
    // The stream looks for an acknowledgement every eight writes at most.
    assert!(sends <= WRITES / 4, "{sends} sends");
    assert!(reader.join().unwrap().chunks(512).all(|got| got == piece));
}

// If this failed, a call with the stream for itself would wait in the socket although it has a deadline.
#[test]
fn read_with_a_deadline_ends_without_bytes() {
    let config = WireConfig { handshake_max: PATIENCE, ..WireConfig::default() };
    let (mut here, there) = pair(&config, &config);
    here.set_read_timeout(Some(Duration::from_millis(20)));
    assert_eq!(here.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    here.set_nonblocking(true);
    assert_eq!(here.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(there);
}

// If this failed, a reader would take what a dead peer sent for the whole.
#[test]
fn dead_peer_gives_a_prefix_and_then_an_error() {
    for config in configs() {
        let (mut here, mut there) = pair(&config, &config);
        let bytes = pattern(100_000);
        there.write_all(&bytes).unwrap();
        there.flush().unwrap();
        // As the kernel does for a killed process: the connection ends without the half close of the stream.
        there.tcp.shutdown(Shutdown::Both).unwrap();
        let mut got = Vec::new();
        let error = here.read_to_end(&mut got).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        assert!(bytes.starts_with(&got) && got.len() == bytes.len(), "{} of {} bytes", got.len(), bytes.len());
        let error = (0..1000).find_map(|_| here.write_all(&bytes).and_then(|()| here.flush()).err());
        assert!(error.is_some(), "writing to a dead peer goes on for ever");
    }
}

// If this failed, a program would hang at a peer that never reads or never writes.
#[test]
fn every_wait_has_the_deadline_that_was_set() {
    for config in configs() {
        let (mut here, _there) = pair(&config, &config);
        here.set_read_timeout(Some(Duration::from_millis(20)));
        assert_eq!(here.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        here.set_write_timeout(Some(Duration::from_millis(20)));
        let bytes = vec![1; 1 << 20];
        let error = (0..1000).find_map(|_| here.write_all(&bytes).err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

// If this failed, a stranger on the port would make this side allocate, hang, or read its bytes as a stream.
#[test]
fn strangers_are_refused() {
    let config = WireConfig { handshake_max: Duration::from_millis(300), ..WireConfig::default() };
    let mut long = b"MPA ID Req Frame\xc0\x01\xff\xff".to_vec();
    long.resize(100, 7);
    let strangers: [(&[u8], io::ErrorKind); 6] = [
        (b"", io::ErrorKind::TimedOut),
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", io::ErrorKind::InvalidData),
        (b"MPA ID Req Frame\xc0\x01", io::ErrorKind::TimedOut),
        (b"MPA ID Req Frame\xc0\x02\x00\x00", io::ErrorKind::InvalidData),
        (b"MPA ID Req Frame\xc0\x01\x00\x04abcd", io::ErrorKind::InvalidData),
        (&long, io::ErrorKind::InvalidData),
    ];
    for (bytes, kind) in strangers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stranger.write_all(bytes).unwrap();
        let error = WireStream::accept(listener.accept().unwrap().0, &config).unwrap_err();
        assert_eq!(error.kind(), kind, "{bytes:?}: {error}");
    }
}

// If this failed, bytes that the network changed would reach the program.
#[test]
fn changed_byte_is_found_by_the_checksum() {
    let config = WireConfig { handshake_max: PATIENCE, ..WireConfig::default() };
    let (here, mut there) = pair(&config, &config);
    let mut raw = here.tcp.try_clone().unwrap();
    // A frame that is well formed except for its checksum.
    let mut frame = vec![0, 34];
    frame.resize(40, 0);
    let framed = [&[0, 0, 0, 0][..], &frame].concat();
    raw.write_all(&framed).unwrap();
    let error = there.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
}

// If this failed, a thread that writes would wait for ever for credits that another thread has received.
#[test]
fn credits_that_a_reader_received_wake_the_writer() {
    let mut config = WireConfig { handshake_max: PATIENCE, ..WireConfig::default() }.basic();
    config.stream.buffers = 4;
    let (here, there) = pair(&config, &config);
    for stream in [&here, &there] {
        // A read looks and does not sleep.
        stream.set_read_timeout(Some(Duration::ZERO));
    }
    let (bytes, mut room) = (pattern(400_000), vec![0; 400_000]);
    for round in 0..40 {
        thread::scope(|scope| {
            let writer = scope.spawn(|| (&here).write_all(&bytes).and_then(|()| (&here).flush()));
            let (mut got, late) = (0, std::time::Instant::now() + PATIENCE / 2);
            while got < bytes.len() && std::time::Instant::now() < late {
                got += (&there).read(&mut room[got..]).unwrap_or(0);
                // It takes the credits before the writer sees them, or not.
                assert_eq!((&here).read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
            }
            assert!(got == bytes.len() && room == bytes, "round {round}: {got} bytes");
            writer.join().unwrap().unwrap();
        });
    }
}
