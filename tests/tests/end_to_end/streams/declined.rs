//! Connectors that stay on TCP after the acceptor has offered shared memory: every answer arrives.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use ddss_testkit::preload_library;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{DEADLINE, child, output_of, result};

/// Pieces after which the acceptor offers shared memory.
const PIECES: u8 = 3;
/// More writes than the acceptor makes between two checks of its peer.
const ANSWERS: u8 = 200;
/// More than TCP takes before the connector reads.
const LARGE_BYTES: usize = 32 << 20;

fn run(part: &str) {
    let program = child(part).env("LD_PRELOAD", preload_library().unwrap()).spawn().unwrap();
    assert_eq!(result(&output_of(program)), "every byte");
}

// If this failed, a client that shuts down its writing side before it reads would get no answer, although the server's
// write succeeds.
#[test]
fn client_that_shuts_its_side_before_its_first_read_gets_every_answer() {
    run("declined_by_shutdown");
}

// If this failed, a client near its limit of descriptors would get no answer, although the server's write succeeds.
#[test]
fn client_without_room_for_descriptors_gets_every_answer() {
    run("declined_without_room");
}

/// Plays both ends in a child process.
pub(super) fn act(part: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut connector = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut acceptor, _) = listener.accept().unwrap();
    connector.set_read_timeout(Some(DEADLINE / 4)).unwrap();
    for piece in 0..PIECES {
        connector.write_all(&[piece]).unwrap();
        acceptor.read_exact(&mut [0]).unwrap();
    }
    assert!(std::fs::read_to_string("/proc/self/maps").unwrap().contains("/memfd:ddss-stream "), "no offer");
    match part {
        "by_shutdown" => {
            connector.shutdown(Shutdown::Write).unwrap();
            assert_eq!(acceptor.read(&mut [0]).unwrap(), 0);
        }
        _ => read_without_room(&mut acceptor, &mut connector),
    }
    for answer in 0..ANSWERS {
        acceptor.write_all(&[answer]).unwrap();
        let mut found = [0];
        connector.read_exact(&mut found).unwrap();
        assert_eq!(found, [answer]);
    }
    let writer = std::thread::spawn(move || acceptor.write_all(&vec![7; LARGE_BYTES]).unwrap());
    let mut rest = Vec::new();
    connector.read_to_end(&mut rest).unwrap();
    assert!(rest.len() == LARGE_BYTES && rest.iter().all(|byte| *byte == 7), "{} bytes", rest.len());
    writer.join().unwrap();
    println!("\nRESULT every byte");
}

/// Lets the connector decide while the program can open no further descriptor.
fn read_without_room(acceptor: &mut TcpStream, connector: &mut TcpStream) {
    acceptor.write_all(&[1]).unwrap();
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(connector.as_raw_fd() as u64), ..limits }).unwrap();
    connector.read_exact(&mut [0]).unwrap();
    setrlimit(Resource::Nofile, limits).unwrap();
}
