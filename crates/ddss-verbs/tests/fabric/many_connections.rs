//! Hundreds of connections on one thread.

use std::time::Instant;

use crate::common::{ALL, Memory, Node, OwnedEvent, WAIT_MAX, pattern};
use ddss_verbs::{Fabric, Iwarp, IwarpConfig, LocalRange, PeerId, RemoteRange, SendMode, Work};

const PEERS: usize = 300;
const ROUNDS: u64 = 20;

fn send(peer: PeerId, tag: u64, message: &[u8]) -> Work<'_> {
    Work::Send { peer, tag, message, mode: SendMode::default() }
}

/// Serves as home: exposes its memory to every peer, and echoes messages.
fn serve(home: &mut Node<Iwarp>, region: ddss_verbs::RegionId) {
    home.poll();
    for seen in std::mem::take(&mut home.seen) {
        match seen {
            OwnedEvent::ConnectRequest { peer, .. } => {
                let window = home.fabric.expose(peer, region, 0, 1 << 20, ALL).unwrap();
                home.fabric.accept(peer, &window.key.to_le_bytes()).unwrap();
            }
            OwnedEvent::Message { peer, bytes, .. } => home.fabric.post(&[send(peer, 0, &bytes)]).unwrap(),
            OwnedEvent::Connected { .. } | OwnedEvent::Done { outcome: Ok(_), .. } | OwnedEvent::Closed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn hundreds_of_peers_are_served_fairly() {
    // If this failed, a busy pair of nodes would starve the rest of a cluster, or a large cluster could not connect.
    let mut home = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    let theirs = Memory::new(1 << 20);
    theirs.set(0, &pattern(1, 1 << 20));
    let remote_region = home.register(&theirs);
    let address = home.fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut client = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    let mine = Memory::new(1 << 20);
    let local_region = client.register(&mine);
    let begin = Instant::now();
    let mut peers: Vec<(PeerId, u32)> = Vec::new();
    let mut asked = 0;
    while peers.len() < PEERS {
        // At most as many at a time as may be half open.
        while asked < PEERS && asked < peers.len() + 32 {
            client.fabric.connect(address, b"").unwrap();
            asked += 1;
        }
        serve(&mut home, remote_region);
        client.poll();
        for seen in std::mem::take(&mut client.seen) {
            match seen {
                OwnedEvent::Connected { peer, hello } => {
                    peers.push((peer, u32::from_le_bytes(hello.try_into().unwrap())));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(begin.elapsed() < WAIT_MAX, "{} of {PEERS} are connected", peers.len());
    }
    assert_eq!(home.fabric.open_socket_count(), PEERS);

    // Every peer always has a read and a message in flight; two of them read a megabyte each time.
    let post = |client: &mut Node<Iwarp>, index: usize, round: u64| {
        let (peer, key) = peers[index];
        let bytes = if index < 2 { 1 << 20 } else { 64 };
        let local = LocalRange { region: local_region, offset: if index < 2 { 0 } else { index as u64 * 64 }, bytes };
        let remote = RemoteRange { key, address: local.offset };
        let read = Work::Read { peer, tag: (index as u64) << 32 | round, local, remote };
        client.fabric.post(&[read, send(peer, u64::MAX, &[index as u8; 40])]).unwrap();
    };
    let mut rounds = vec![0_u64; PEERS];
    for index in 0..PEERS {
        post(&mut client, index, 0);
    }
    let (mut echoes, mut spread) = (0, 0);
    while rounds.iter().any(|round| *round < ROUNDS) {
        serve(&mut home, remote_region);
        client.poll();
        for seen in std::mem::take(&mut client.seen) {
            match seen {
                OwnedEvent::Done { tag: u64::MAX, outcome, .. } => assert_eq!(outcome, Ok(0)),
                OwnedEvent::Done { tag, outcome, .. } => {
                    assert_eq!(outcome, Ok(0));
                    let index = (tag >> 32) as usize;
                    rounds[index] += 1;
                    if rounds[index] < ROUNDS {
                        post(&mut client, index, rounds[index]);
                    }
                }
                OwnedEvent::Message { bytes, .. } => {
                    assert_eq!(bytes.len(), 40);
                    echoes += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        let small = &rounds[2..];
        spread = spread.max(small.iter().max().unwrap() - small.iter().min().unwrap());
        assert!(begin.elapsed() < 3 * WAIT_MAX, "rounds {rounds:?}");
    }
    assert!(spread <= ROUNDS / 2, "one peer is {spread} of {ROUNDS} rounds ahead of another");
    assert!(echoes > PEERS as u64 * (ROUNDS - 2));
    assert!(mine.get(0, 1 << 20) == pattern(1, 1 << 20));
    for (peer, _) in &peers {
        client.fabric.close(*peer);
    }
    while client.fabric.open_socket_count() + home.fabric.open_socket_count() > 0 {
        serve(&mut home, remote_region);
        client.poll();
        assert!(begin.elapsed() < 4 * WAIT_MAX, "{} sockets are left", home.fabric.open_socket_count());
    }
}
