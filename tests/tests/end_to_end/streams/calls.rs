//! Early reads cost one system call as long as the thread need not sleep, counted by the kernel.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};

use ddss_stream::{Listener, Stream, Transport, TransportPolicy};
use ddss_testkit::skipped;

use crate::system_calls::trace;

const NAME: &str = "early_read_asks_tcp_only_before_a_sleep";
const WARM_TRIPS: usize = 200;
/// Round trips between two reads of the trace, and the maximum number of such rounds. A busy machine needs more than
/// one.
const TRIPS: usize = 1_000;
const ROUNDS_MAX: usize = 500;
/// Sufficient number of early reads with one system call. If each read asked TCP, there would be none.
const CHEAP_MIN: usize = 200;

fn connect() -> (Stream, Stream) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind_with(any, TransportPolicy::Auto).unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = std::thread::spawn(move || listener.accept().unwrap().0);
    let connected = Stream::connect_with(address, &TransportPolicy::Auto).unwrap();
    (connected, accepted.join().unwrap())
}

fn trips(stream: &mut Stream, count: usize) {
    let mut message = [7; 64];
    for _ in 0..count {
        stream.write_all(&message).unwrap();
        stream.read_exact(&mut message).unwrap();
    }
}

// If this failed, a round trip between two awake threads would take four times as long: each read would ask TCP, and the socket for its
// deadline, before it looked at the ring a second time.
#[test]
fn early_read_asks_tcp_only_before_a_sleep() {
    let (mut stream, mut echo) = connect();
    let echoing = std::thread::spawn(move || {
        let mut message = [0; 64];
        while echo.read_exact(&mut message).is_ok() {
            echo.write_all(&message).unwrap();
        }
    });
    trips(&mut stream, WARM_TRIPS);
    assert_eq!(stream.transport(), Transport::SameNode);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let tracer = match trace(std::process::id(), &thread, &path) {
        Ok(tracer) => tracer,
        Err(why) => return skipped(NAME, &why),
    };
    let written = File::open(&path).unwrap();
    let (mut cheap, mut rounds) = (0, 0);
    while cheap < CHEAP_MIN && rounds < ROUNDS_MAX {
        trips(&mut stream, TRIPS);
        rounds += 1;
        // In a thread of its own, because a thread that reads its own trace would extend it endlessly.
        cheap += std::thread::scope(|scope| scope.spawn(|| cheap_early_reads(&written)).join().unwrap());
    }
    drop(tracer);
    stream.shutdown(Shutdown::Write).unwrap();
    echoing.join().unwrap();
    println!("{cheap} early reads with one system call in {rounds} rounds of {TRIPS} trips");
    assert!(cheap >= CHEAP_MIN, "only {cheap} early reads with one system call in {rounds} rounds of {TRIPS} trips");
}

/// Counts early reads in the rest of the trace that found their bytes without asking TCP, whatever the scheduler did to the others.
/// Each early read asks once whether it may wait (`fcntl`), and only an early read does so.
fn cheap_early_reads(mut trace: &File) -> usize {
    let mut lines = String::new();
    trace.read_to_string(&mut lines).unwrap();
    let is_look = lines.lines().filter_map(|line| match line.split('(').next() {
        Some("fcntl") => Some(false),
        Some("recvfrom" | "recvmsg" | "getsockopt") => Some(true),
        _ => None,
    });
    let is_look: Vec<bool> = is_look.collect();
    is_look.windows(2).filter(|pair| pair == &[false, false]).count()
}
