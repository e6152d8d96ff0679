//! Tests of writes without a copy.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use super::{PATIENCE, WireConfig, WireStream, configs, pair, pattern};
use crate::limits::{WIRE_IN_PLACE_MIN, WIRE_ZERO_COPY_MIN};

fn zero_copy_configs() -> impl Iterator<Item = WireConfig> {
    configs().into_iter().step_by(2).map(WireConfig::zero_copy)
}

/// Reads to the end with room for many frames.
fn read_all(mut stream: &WireStream, room: usize) -> Vec<u8> {
    let (mut got, mut room) = (Vec::new(), vec![0; room]);
    loop {
        match stream.read(&mut room) {
            Ok(0) => return got,
            Ok(bytes) => got.extend_from_slice(&room[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(error) => panic!("after {} bytes: {error}", got.len()),
        }
    }
}

// If this failed, zero copy would copy.
#[test]
fn bytes_read_in_place_are_never_copied() {
    for config in zero_copy_configs() {
        let (here, there) = pair(&config, &config);
        let bytes = pattern(5_000_003);
        let (before, rest) = bytes.split_at(1234);
        let (middle, after) = rest.split_at(4_700_001);
        let reader = thread::spawn(move || (read_all(&there, 1_000_000), there.ledger()));
        (&here).write_all(before).unwrap();
        assert_eq!(here.write_zero_copy(middle).unwrap(), middle.len(), "{config:?}");
        assert_eq!(here.write_zero_copy(after).unwrap(), after.len());
        here.shutdown_write().unwrap();
        let (got, received) = reader.join().unwrap();
        assert!(got == bytes, "{config:?}");
        let sent = here.ledger();
        assert_eq!((sent.written, received.read), (bytes.len() as u64, bytes.len() as u64));
        assert_eq!(sent.send_copied, 2 * before.len() as u64);
        assert_eq!(received.receive_copied, 2 * before.len() as u64);
    }
}

// If this failed, a peer that cannot read in place would get nothing, or not all.
#[test]
fn bytes_go_through_the_buffers_where_the_peer_does_not_read_in_place() {
    let base = WireConfig { handshake_max: PATIENCE, ..WireConfig::default() };
    let zero_copy = base.zero_copy();
    for (here, there, room) in [
        (zero_copy, zero_copy, WIRE_IN_PLACE_MIN / 2),
        (zero_copy, base.basic(), 1 << 20),
        (zero_copy, base, 1 << 20),
        (base, zero_copy, 1 << 20),
        (base, base, 1 << 20),
    ] {
        let (here, there) = pair(&here, &there);
        let bytes = pattern(3_000_001);
        let reader = thread::spawn(move || read_all(&there, room));
        assert_eq!(here.write_zero_copy(&bytes).unwrap(), 0);
        here.shutdown_write().unwrap();
        assert!(reader.join().unwrap() == bytes);
    }
}

// If this failed, a reader that looks for bytes now and then would lose those of the read that it did not wait for.
#[test]
fn read_that_times_out_loses_no_byte() {
    for config in zero_copy_configs() {
        let (here, there) = pair(&config, &config);
        let bytes = pattern(6_000_000);
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            let mut room = vec![0; 900_000];
            for round in 0_u64.. {
                there.set_read_timeout(Some(Duration::from_micros(round % 5 * 100)));
                match (&there).read(&mut room) {
                    Ok(0) => break,
                    Ok(bytes) => got.extend_from_slice(&room[..bytes]),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}"),
                }
                // What the stream placed before is not the memory of the next call.
                room.fill(0xee);
            }
            got
        });
        for piece in bytes.chunks(2_000_000) {
            here.write_zero_copy(piece).unwrap();
        }
        here.shutdown_write().unwrap();
        assert!(reader.join().unwrap() == bytes, "{config:?}");
    }
}

// If this failed, two programs that write before they read would wait for each other.
#[test]
fn writes_of_both_sides_do_not_wait_for_each_other() {
    for config in zero_copy_configs() {
        let (here, there) = pair(&config, &config);
        let bytes = pattern(1_000_000);
        thread::scope(|scope| {
            for stream in [&here, &there] {
                let bytes = &bytes;
                scope.spawn(move || {
                    stream.write_zero_copy(bytes).unwrap();
                    stream.shutdown_write().unwrap();
                    assert!(read_all(stream, 1 << 20) == *bytes);
                });
            }
        });
    }
}

// If this failed, a program that writes much before it reads would stop a peer that lends its memory.
#[test]
fn advertisement_is_withdrawn_from_a_peer_that_only_writes() {
    let mut config = WireConfig { handshake_max: PATIENCE, ..WireConfig::default() }.zero_copy();
    config.stream.buffers = 8;
    let (here, there) = pair(&config, &config);
    let (few, many) = (pattern(WIRE_ZERO_COPY_MIN), pattern(40_000_000));
    thread::scope(|scope| {
        scope.spawn(|| {
            (&there).write_all(&many).unwrap();
            there.shutdown_write().unwrap();
            assert!(read_all(&there, 1 << 20) == few);
        });
        assert_eq!(here.write_zero_copy(&few).unwrap(), 0);
        assert!(read_all(&here, 1 << 20) == many);
        here.shutdown_write().unwrap();
    });
}

// If this failed, a thread that reads would take bytes of a read in place from another thread, or stop it.
#[test]
fn threads_write_and_read_at_the_same_time() {
    for config in zero_copy_configs() {
        let (here, there) = pair(&config, &config);
        let bytes = pattern(6_300_000);
        thread::scope(|scope| {
            for stream in [&here, &there] {
                let bytes = &bytes;
                scope.spawn(move || {
                    for piece in bytes.chunks(700_000) {
                        let (in_place, buffered) = piece.split_at(600_000);
                        stream.write_zero_copy(in_place).unwrap();
                        (&*stream).write_all(buffered).unwrap();
                    }
                    stream.shutdown_write().unwrap();
                });
                scope.spawn(move || assert!(read_all(stream, 500_000) == *bytes));
            }
        });
    }
}

// If this failed, a peer that dies would leave its writer waiting, or give the reader bytes that were not written.
#[test]
fn dead_peer_ends_a_write_without_a_copy() {
    for config in zero_copy_configs() {
        let (here, there) = pair(&config, &config);
        let bytes = pattern(4_000_000);
        thread::scope(|scope| {
            let writer = scope.spawn(|| here.write_zero_copy(&bytes));
            let mut room = vec![0; 300_000];
            let read = (&there).read(&mut room).unwrap();
            assert!(room[..read] == bytes[..read]);
            there.tcp.shutdown(Shutdown::Both).unwrap();
            let error = writer.join().unwrap().unwrap_err();
            assert!(matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{error}");
        });
        // What was lent is not served any more, and the stream says so.
        assert!((&here).write(b"more").is_err() && here.write_zero_copy(&bytes).is_err());
    }
}

// If this failed, a reader would take what a dead writer sent for the whole, or lose the part that arrived.
#[test]
fn dead_writer_gives_a_prefix_and_then_an_error() {
    for config in zero_copy_configs() {
        let (here, there) = pair(&config, &config);
        let bytes = pattern(8_000_000);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut got, mut room) = (Vec::new(), vec![0; 3_000_000]);
                let error = loop {
                    match (&there).read(&mut room) {
                        Ok(read) => got.extend_from_slice(&room[..read]),
                        Err(error) => break error,
                    }
                    if !got.is_empty() {
                        let _ = here.tcp.shutdown(Shutdown::Both);
                    }
                };
                (got, error)
            });
            assert!(here.write_zero_copy(&bytes).is_err());
            let (got, error) = reader.join().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
            assert!(bytes.starts_with(&got) && !got.is_empty());
        });
    }
}

// If this failed, a program would hang at a peer that never reads, or the peer would read memory that is not lent any more.
#[test]
fn write_without_a_copy_has_the_deadline_that_was_set() {
    for config in zero_copy_configs() {
        let (here, there) = pair(&config, &config);
        here.set_write_timeout(Some(Duration::from_millis(20)));
        let bytes = pattern(1_000_000);
        assert_eq!(here.write_zero_copy(&bytes).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!((&here).write(b"more").unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut room = vec![0; 1 << 20];
        let error = (&there).read(&mut room).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{error}");
    }
}

// If this failed, a non-blocking program would wait in a write, or in a read of its peer's memory.
#[test]
fn nonblocking_ends_lend_no_memory() {
    let config = WireConfig { handshake_max: PATIENCE, ..WireConfig::default() }.zero_copy();
    let (here, there) = pair(&config, &config);
    here.set_nonblocking(true);
    let bytes = pattern(1_000_000);
    assert_eq!(here.write_zero_copy(&bytes).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    here.set_nonblocking(false);
    let writer = thread::spawn(move || {
        let in_place = here.write_zero_copy(&bytes).unwrap();
        here.shutdown_write().unwrap();
        in_place
    });
    there.set_nonblocking(true);
    let (mut got, mut room) = (Vec::new(), vec![0; 1 << 20]);
    loop {
        match (&there).read(&mut room) {
            Ok(0) => break,
            Ok(read) => got.extend_from_slice(&room[..read]),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
        }
        thread::yield_now();
    }
    assert!(got == pattern(1_000_000));
    assert_eq!(writer.join().unwrap(), 0);
}

// If this failed, a peer could read memory that was never lent, or place bytes that nobody asked for.
#[test]
fn reads_that_were_not_agreed_on_end_the_stream() {
    let config =
        WireConfig { handshake_max: PATIENCE, markers: false, checksums: false, ..WireConfig::default() }.zero_copy();
    let mut request = vec![0, 46, 0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    request.extend([0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut response = vec![0, 38, 0xc1, 0x42, 0, 0, 0, 1];
    response.resize(40, 0);
    for mut frame in [request, response] {
        frame.extend([0; 4]);
        let (here, there) = pair(&config, &config);
        (&here.tcp).write_all(&frame).unwrap();
        let error = (&there).read(&mut vec![0; 1 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert!((&there).write(b"x").is_err());
    }
}
