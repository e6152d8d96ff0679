//! A process without free descriptors. Alone in its binary, because the limit applies to the whole process.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Node, WAIT_MAX};
use ddss_verbs::{Fabric, Iwarp, IwarpConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit, setrlimit};

#[test]
fn accepting_pauses_without_descriptors_and_resumes() {
    // If this failed, a daemon at its limit would spin on a listener that it cannot serve, or stop listening for good.
    let mut home = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    let address = home.fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let streams: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let before = getrlimit(Resource::Nofile);
    let mut low = before;
    low.current = Some(open + 5);
    setrlimit(Resource::Nofile, low).unwrap();
    let begin = Instant::now();
    let mut slept = 0;
    while slept < 3 {
        home.poll();
        if home.fabric.arm() {
            let wait = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let woken = poll(&mut [PollFd::new(&home.fabric.descriptor(), PollFlags::IN)], Some(&wait)).unwrap();
            slept += usize::from(woken == 0);
            home.fabric.disarm();
        }
        assert!(begin.elapsed() < WAIT_MAX, "it never sleeps");
    }
    let taken = home.fabric.open_socket_count();
    assert!((1..20).contains(&taken), "{taken} were taken: the limit was not felt");
    assert!(home.fabric.next_deadline().is_some(), "it knows when to try again");
    setrlimit(Resource::Nofile, before).unwrap();
    while home.fabric.open_socket_count() < 20 {
        home.poll();
        std::thread::sleep(Duration::from_millis(1));
        assert!(begin.elapsed() < WAIT_MAX, "it does not listen again");
    }
    drop(streams);
    while home.fabric.open_socket_count() > 0 {
        home.poll();
        assert!(begin.elapsed() < WAIT_MAX, "sockets are left");
    }
}
