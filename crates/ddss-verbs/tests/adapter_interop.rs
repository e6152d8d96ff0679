//! Interoperability of user-space iWARP and the kernel's Soft-iWARP, in both directions, without the frames and
//! credits of DDSS; and of both with programs of others. Skipped without an iWARP adapter, as in `adapter.rs`.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
mod foreign;
#[macro_use]
mod suite;

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{FabricFactory, Forward, Memory, Node, OwnedEvent, WAIT_MAX, addresses, forward_fabric, pattern};
use ddss_verbs::rdma::{Framing, Rdma, RdmaConfig, adapters};
use ddss_verbs::{Fabric, Iwarp, IwarpConfig, LocalRange, RemoteRange, Revision, Rights, SendMode, Trust, Work};

/// Either of the two implementations.
#[allow(clippy::large_enum_variant, reason = "there are two of it")]
enum Either {
    User(Iwarp),
    Kernel(Rdma),
}

impl Forward for Either {
    fn inner(&self) -> &dyn Fabric {
        match self {
            Either::User(fabric) => fabric,
            Either::Kernel(fabric) => fabric,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn Fabric {
        match self {
            Either::User(fabric) => fabric,
            Either::Kernel(fabric) => fabric,
        }
    }
}

forward_fabric!(Either);

/// Factory in which `a` connects to `b` and one of them is the kernel's.
struct Mixed {
    ways: (IpAddr, IpAddr),
    made: usize,
    kernel_connects: bool,
    config: IwarpConfig,
}

impl FabricFactory for Mixed {
    type Fabric = Either;

    fn fabric(&mut self) -> Either {
        let first = self.made == 0;
        self.made += 1;
        if first != self.kernel_connects {
            return Either::User(Iwarp::new(self.config.clone()).unwrap());
        }
        let mut config = RdmaConfig::default();
        config.address = Some(if first { self.ways.0 } else { self.ways.1 });
        config.framing = Framing::Plain;
        Either::Kernel(Rdma::new(config).unwrap())
    }

    fn address(&mut self) -> SocketAddr {
        SocketAddr::new(self.ways.1, 0)
    }

    fn checks_read_rights(&self) -> bool {
        self.kernel_connects
    }

    // User space answers from exclusive memory in longer frames, summed in place.
    fn trust(&self) -> Trust {
        Trust::Exclusive
    }

    fn has_extensions(&self) -> bool {
        false
    }
}

fn mixed(kernel_connects: bool, change: impl FnOnce(&mut IwarpConfig)) -> Option<Mixed> {
    let ways = addresses()?;
    let mut config = IwarpConfig::default();
    change(&mut config);
    adapters().unwrap().iter().all(|adapter| adapter.is_iwarp).then_some(Mixed {
        ways,
        made: 0,
        kernel_connects,
        config,
    })
}

macro_rules! kernel {
    ($connects:expr, $change:expr) => {
        match mixed($connects, $change) {
            Some(factory) => factory,
            None => return,
        }
    };
}

macro_rules! both {
    ($asks:ident, $asked:ident, $change:expr) => {
        standard!($asks, kernel!(true, $change));
        standard!($asked, kernel!(false, $change));
    };
}

// Only this direction: Soft-iWARP parses the first four bytes of a reject as read limits, and delivers the rest.
mod kernel_rejects {
    use super::*;

    #[test]
    fn rejected_peer_receives_the_reason() {
        suite::rejected_peer_receives_the_reason(kernel!(false, |_| {}));
    }
}

/// Tests of the standard alone: without immediates and atomics, which Soft-iWARP lacks.
macro_rules! standard {
    ($fabric:ident, $factory:expr) => {
        conformance!(
            $fabric,
            $factory,
            [
                bytes_arrive_at_every_size_and_offset,
                many_reads_complete_correctly,
                bad_key_ends_the_connection_and_names_the_read,
                bounds_and_rights_are_enforced,
                key_is_valid_for_one_connection,
                invalid_work_is_refused_locally,
                capability_limits_are_exact,
                close_completes_every_operation_once,
                messages_pass_between_large_answers,
                both_sides_transfer_concurrently,
                deregistered_memory_stays_mapped_while_in_use,
                stopped_client_does_not_delay_transfers,
            ]
        );
    };
}

both!(kernel_connects, user_connects, |_| {});
both!(kernel_connects_without_crc, user_connects_without_crc, |config| config.crc = false);
// Revision 1 states no read limits, and Soft-iWARP accepts 128.
both!(kernel_connects_revision_one, user_connects_revision_one, |config| {
    config.revision = Revision::One;
    config.reads_outbound = 128;
});

/// A running `rping` of rdma-core.
struct Rping(Child);

impl Rping {
    fn start(words: &[&str], at: SocketAddr) -> Self {
        let mut rping = Command::new("rping");
        rping.args(words).args(["-a", &at.ip().to_string(), "-p", &at.port().to_string()]);
        Self(rping.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Rping {
    fn drop(&mut self) {
        // The program ends with its peer; otherwise it is killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Plays rping's client: it sends the place of its ping, the server reads it; it sends the place of the pong, the
/// server writes it. A message reports each step of the server.
fn ping_pong(fabric: Either, server: SocketAddr) {
    let _rping = Rping::start(&["-s"], server);
    let mut node = Node::new(fabric);
    let start = Instant::now();
    let mut peer = None;
    // The server may not listen yet.
    let peer = loop {
        assert!(start.elapsed() < WAIT_MAX, "rping does not answer; saw {:?}", node.seen);
        let asked = *peer.get_or_insert_with(|| node.fabric.connect(server, b"").unwrap());
        node.poll();
        if node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })).is_some() {
            break asked;
        }
        if node.closed(asked).is_some() {
            std::thread::sleep(Duration::from_millis(50));
            peer = None;
        }
    };
    let memory = Memory::new(8192);
    let text = pattern(3, 63).iter().map(|byte| byte % 26 + b'a').collect::<Vec<u8>>();
    memory.set(0, &text);
    let region = node.register(&memory);
    let ping = node.fabric.expose(peer, region, 0, 64, Rights::READ).unwrap();
    let pong = node.fabric.expose(peer, region, 4096, 64, Rights::WRITE).unwrap();
    for (tag, window) in [ping, pong].into_iter().enumerate() {
        let mut words = window.base.to_be_bytes().to_vec();
        words.extend_from_slice(&window.key.to_be_bytes());
        words.extend_from_slice(&64_u32.to_be_bytes());
        let send = Work::Send { peer, tag: tag as u64, message: &words, mode: SendMode::default() };
        node.fabric.post(&[send]).unwrap();
        while node.message().is_none() {
            assert!(start.elapsed() < WAIT_MAX, "no answer to step {tag}; saw {:?}", node.seen);
            node.poll();
        }
        assert_eq!(node.done(tag as u64), Some(Ok(0)));
    }
    assert_eq!(memory.get(4096, 63), text, "the server writes back what it has read");
    node.fabric.close(peer);
    while node.closed(peer).is_none() {
        assert!(start.elapsed() < WAIT_MAX);
        node.poll();
    }
}

/// Plays rping's server, for a client that pings three times and compares the bytes that come back.
fn pong(fabric: Either, from: IpAddr, at: IpAddr) {
    let mut node = Node::new(fabric);
    let address = node.fabric.listen(SocketAddr::new(at, 0)).unwrap();
    let heard = (0..5).any(|_| pongs(&mut node, from, address));
    assert!(heard, "five of rping's clients were never heard; saw {:?}", node.seen);
}

/// Serves one client. Soft-iWARP accepts a connection and only then reads its bytes: it notices bytes that arrive in
/// between only when more arrive, and rping sends no more. Returns false in that case.
fn pongs(node: &mut Node<Either>, from: IpAddr, address: SocketAddr) -> bool {
    let may_miss =
        matches!(node.fabric, Either::Kernel(_)) && adapters().unwrap().iter().any(|adapter| adapter.is_iwarp);
    let mut client = Rping::start(&["-c", "-V", "-C", "3", "-I", &from.to_string()], address);
    let memory = Memory::new(4096);
    let local = LocalRange { region: node.register(&memory), offset: 0, bytes: 64 };
    let start = Instant::now();
    let mut steps = 0_u64;
    while node.take(|seen| matches!(seen, OwnedEvent::Closed { .. })).is_none() {
        assert!(start.elapsed() < WAIT_MAX, "rping did not go after {steps} steps; saw {:?}", node.seen);
        node.poll();
        let connected = node.seen.iter().find_map(|seen| match seen {
            OwnedEvent::Connected { peer, .. } => Some(*peer),
            _ => None,
        });
        if let Some(peer) = connected
            && may_miss
            && steps == 0
            && start.elapsed() > WAIT_MAX / 4
        {
            drop(client);
            node.fabric.close(peer);
            while node.closed(peer).is_none() {
                assert!(start.elapsed() < WAIT_MAX, "the peer does not close");
                node.poll();
            }
            node.seen.clear();
            return false;
        }
        if let Some(OwnedEvent::ConnectRequest { peer, .. }) =
            node.take(|seen| matches!(seen, OwnedEvent::ConnectRequest { .. }))
        {
            node.fabric.accept(peer, b"").unwrap();
        }
        let Some(OwnedEvent::Message { peer, bytes, .. }) =
            node.take(|seen| matches!(seen, OwnedEvent::Message { .. }))
        else {
            continue;
        };
        let remote = RemoteRange {
            address: u64::from_be_bytes(bytes[..8].try_into().unwrap()),
            key: u32::from_be_bytes(bytes[8..12].try_into().unwrap()),
        };
        assert_eq!(bytes[12..], 64_u32.to_be_bytes(), "rping moves 64 bytes");
        let work = match steps % 2 {
            0 => Work::Read { peer, tag: steps, local, remote },
            _ => Work::Write { peer, tag: steps, local, remote },
        };
        node.fabric.post(&[work]).unwrap();
        let outcome = loop {
            assert!(start.elapsed() < WAIT_MAX, "step {steps} does not end; saw {:?}", node.seen);
            node.poll();
            if let Some(outcome) = node.done(steps) {
                break outcome;
            }
        };
        assert_eq!(outcome, Ok(0));
        // The receiver checks nothing but the length.
        node.fabric.post(&[Work::Send { peer, tag: 99, message: &[0; 16], mode: SendMode::default() }]).unwrap();
        steps += 1;
    }
    assert_eq!(steps, 6, "a read and a write for each ping");
    assert!(memory.get(0, 64).starts_with(b"rdma-ping-2: "));
    let status = client.0.wait().unwrap();
    assert!(status.success(), "rping found other bytes than it sent: {status}");
    true
}

fn plain(address: IpAddr) -> Either {
    let mut config = RdmaConfig::default();
    (config.address, config.framing) = (Some(address), Framing::Plain);
    Either::Kernel(Rdma::new(config).unwrap())
}

#[test]
fn rping_server_with_adapter() {
    // If this failed, only this implementation could be a peer.
    let Some((a, b)) = addresses() else { return };
    ping_pong(plain(a), SocketAddr::new(b, 7174));
}

#[test]
fn rping_client_with_adapter() {
    // If this failed, a foreign program could not connect, or would get other bytes than it sent.
    let Some((a, b)) = addresses() else { return };
    pong(plain(b), a, b);
}

#[test]
fn rping_server_with_user_space() {
    // If this failed, user-space iWARP would have no peer but itself and our own use of the kernel's.
    let Some(factory) = mixed(false, |_| {}) else { return };
    ping_pong(Either::User(Iwarp::new(IwarpConfig::default()).unwrap()), SocketAddr::new(factory.ways.1, 7175));
}

#[test]
fn rping_client_with_user_space() {
    // If this failed, a foreign program on an iWARP adapter could not read and write memory of user-space iWARP.
    let Some(factory) = mixed(false, |_| {}) else { return };
    pong(Either::User(Iwarp::new(factory.config).unwrap()), factory.ways.0, factory.ways.1);
}
