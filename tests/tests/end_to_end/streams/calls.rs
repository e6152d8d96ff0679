//! Reads that come too early cost one system call as long as the thread need not sleep: counted by the kernel.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};

use ddss_stream::{Listener, Stream, Transport, TransportPolicy};
use ddss_testkit::skipped;

use crate::system_calls::trace;

const NAME: &str = "early_read_asks_tcp_only_before_a_sleep";
const WARM_TRIPS: usize = 200;
const TRIPS: usize = 5_000;

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
    trips(&mut stream, TRIPS);
    drop(tracer);
    stream.shutdown(Shutdown::Write).unwrap();
    echoing.join().unwrap();
    let lines = std::fs::read_to_string(&path).unwrap();
    let count = |call: &str| lines.lines().filter(|line| line.starts_with(call)).count();
    let (polls, looks, deadlines) = (count("poll(") + count("ppoll("), count("recv"), count("getsockopt("));
    println!("{TRIPS} trips: {polls} sleeps, {looks} looks at TCP, {deadlines} readings of the deadline");
    assert!(count("fcntl(") > 0 || polls > 0, "the trace comes too late to prove anything:\n{lines}");
    // A thread that announced its sleep looks once more, and may not sleep then.
    let sleeps_max = 2 * polls + TRIPS / 20;
    assert!(looks <= sleeps_max && deadlines <= sleeps_max, "{polls} sleeps, {looks} looks, {deadlines} deadlines");
}
