//! The control planes of real daemons: the streams between them, and how a node shows that it is no good for now.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ddss::{Client, Spec};
use ddss_tests::{Daemon, DaemonOptions};

fn client(daemon: &Daemon) -> Client {
    Client::builder().folder(daemon.folder()).timeout(Duration::from_secs(20)).connect().unwrap()
}

/// A port that forwards each connection to `to` and counts them.
struct Forwarder {
    connections: Arc<AtomicUsize>,
}

impl Forwarder {
    fn start(listener: TcpListener, to: SocketAddr) -> Self {
        let connections = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&connections);
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counts.fetch_add(1, Ordering::Relaxed);
                let Ok(other) = TcpStream::connect(to) else { continue };
                for (mut from, mut into) in [(stream.try_clone().unwrap(), other.try_clone().unwrap()), (other, stream)]
                {
                    let _ = (from.set_nodelay(true), into.set_nodelay(true));
                    std::thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut into);
                        let _ = into.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Self { connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Two free ports in a row.
fn two_ports() -> (TcpListener, TcpListener) {
    loop {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        if let Some(next) = port.checked_add(1)
            && let Ok(second) = TcpListener::bind((Ipv4Addr::LOCALHOST, next))
        {
            return (first, second);
        }
    }
}

// If this failed, each name that is made at a node that does not lead would pay for a handshake, and wait for its turn to have one.
#[test]
fn names_made_and_released_at_a_follower_share_one_control_stream() {
    const NAMES: usize = 500;
    let (data, control) = two_ports();
    let advertised = data.local_addr().unwrap();
    let options = DaemonOptions::new(1).unwrap().clustered().argument("--advertise").argument(advertised.to_string());
    let leader = options.start().unwrap();
    let _data = Forwarder::start(data, leader.listen());
    let control_port = SocketAddr::new(leader.listen().ip(), leader.listen().port() + 1);
    let control = Forwarder::start(control, control_port);
    let follower = DaemonOptions::new(2).unwrap().joins(advertised).start().unwrap();
    let client = client(&follower);
    client.allocate("before", Spec::new(64)).unwrap();
    let before = control.connections();
    let segments: Vec<_> =
        (0..NAMES).map(|index| client.allocate(&format!("name-{index}"), Spec::new(64)).unwrap()).collect();
    let made = control.connections() - before;
    segments.into_iter().for_each(|segment| segment.release().unwrap());
    let released = control.connections() - before - made;
    assert!(made + released <= 8, "{made} streams for {NAMES} names, {released} to release them");
}
