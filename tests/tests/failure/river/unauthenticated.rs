//! Processes at the port of a queue's member that are no members: one that sends other bytes, and one with the key of another queue.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions};
use ddss_auth::Context;
use ddss_group::{Incarnation, JoinOptions, MemberInfo, Membership, Mesh, MeshConfig, MeshEvent, inspect};
use ddss_river::{Queue, QueueOptions};
use ddss_testkit::Daemon;
use ddss_verbs::{Events, Fabric, Iwarp, IwarpConfig};

/// Deadline of everything that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time in which nothing may happen.
const SHORT: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(4);
const MEMBERS: u16 = 4;
const CONTEXT: Context = Context { name: *b"DDSS queue", release: 1 };

fn open(client: &Client, name: &str) -> Queue {
    Queue::open(client, name, QueueOptions::new().members(MEMBERS).lease(LEASE).timeout(PATIENCE)).unwrap()
}

fn fabric() -> (Iwarp, std::net::SocketAddr) {
    let mut config = IwarpConfig::default();
    config.message_bytes_max = 1024;
    let mut fabric = Iwarp::new(config).unwrap();
    let address = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    (fabric, address)
}

/// Takes a place in the directory of a queue, as a member does that may read and write it.
fn join(client: &Client, name: &str, address: std::net::SocketAddr) -> Membership {
    let table = format!("river/{name}");
    let settings = inspect(client, &table).unwrap().unwrap().settings;
    let join = JoinOptions::new(MEMBERS, address).settings(settings).lease(LEASE);
    Membership::join(client, &table, &join).unwrap()
}

/// Returns true if a process with this key gets a connection to a member.
fn connects(fabric: &mut Iwarp, ours: Incarnation, key: [u8; 32], target: &MemberInfo, time: Duration) -> bool {
    let mut mesh = Mesh::new(MeshConfig { ours, members: MEMBERS, key, context: CONTEXT });
    let (begin, mut events) = (Instant::now(), Events::new());
    mesh.learn(fabric, target.whom, target.address, Duration::ZERO);
    while begin.elapsed() < time {
        fabric.poll(&mut events);
        for event in events.iter() {
            if matches!(mesh.handle(fabric, &event, begin.elapsed()), Some(MeshEvent::Up(_))) {
                return true;
            }
        }
        events.clear();
        mesh.tick(fabric, begin.elapsed());
    }
    false
}

fn assert_works(queue: &Queue) {
    let mut consumer = queue.consumer().unwrap();
    queue.producer().unwrap().put(b"1234").unwrap();
    let message = consumer.take().unwrap().unwrap();
    assert_eq!(message[..], *b"1234");
    assert!(message.acknowledge());
}

// If this failed, a program that finds the port of a queue could end it, or hold its connections.
#[test]
fn stranger_is_disconnected_and_the_queue_goes_on() {
    let daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let queue = open(&client, "frames");
    let address = Queue::inspect(&client, "frames").unwrap().unwrap().members[0].address;
    for bytes in [&b"GET / HTTP/1.1\r\nHost: queue\r\n\r\n"[..], &[0xff; 4096], &[0; 64]] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The member may have closed the connection already.
        let _ = stream.write_all(bytes);
        let end = stream.read_to_end(&mut Vec::new());
        let is_closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(end.as_ref().map_or_else(is_closed, |_| true), "{end:?}");
    }
    assert_works(&queue);
}

// If this failed, a process that may use one queue could read and write the messages of all others.
#[test]
fn process_with_the_key_of_another_queue_gets_no_connection() {
    let daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let (queue, _other) = (open(&client, "frames"), open(&client, "other"));
    let target = inspect(&client, "river/frames").unwrap().unwrap().members[0];
    for is_member in [false, true] {
        let (mut fabric, address) = fabric();
        let membership = join(&client, "frames", address);
        let key = if is_member { *membership.key() } else { *join(&client, "other", address).key() };
        let time = if is_member { PATIENCE } else { SHORT };
        assert_eq!(connects(&mut fabric, membership.ours(), key, &target, time), is_member);
    }
    assert_works(&queue);
}
