//! Tests against a hostile peer: without the key, with a recorded handshake, or a removed member. The program `attack`
//! of `tests/` has the attacks of a member.

use crate::auth::{Channel, Initiator, Purpose};
use crate::{AdminRequest, AdminResponse, Config, Node, PeerAddress};
use ddss_admin::ClusterKey;
use ddss_core::limits::STAGING_BYTES;
use ddss_core::{ArenaRange, Message, NodeId, Operation, Outcome, PeerHello, Principal, RemoteWindow, Timestamp};
use ddss_verbs::{CloseReason, Event, Events, Fabric, Iwarp, IwarpConfig, PeerId, SendMode, Work};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Generous limit: the machine may run other tests.
const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const PRINCIPAL: Principal = Principal { uid: 0, gid: 0 };

/// A clustered node that expects node 2 at an unused address.
pub(crate) struct Home {
    service: Option<Node>,
    key: ClusterKey,
    folder: PathBuf,
}

impl Home {
    pub(crate) fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ddssd-unauthenticated-{name}-{}", std::process::id()));
        let key = ClusterKey::generate().unwrap();
        let mut config = Config::single(&folder);
        config.pool_bytes = 1 << 20;
        config.key = Some(key.clone());
        config.peers = vec![PeerAddress { node: NodeId(2), address: "127.0.0.9:1".parse().unwrap() }];
        Self { service: Some(Node::start(config).unwrap()), key, folder }
    }

    fn address(&self) -> SocketAddr {
        self.service.as_ref().unwrap().address().unwrap()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.service.as_ref().unwrap().is_running()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(self.service.take());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An event on a connection, as the caller sees it.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    Connected(Vec<u8>),
    Said(Vec<u8>),
    Done(bool),
    Closed(CloseReason, String),
}

pub(crate) struct Caller {
    pub(crate) fabric: Iwarp,
    events: Events,
    seen: Vec<(PeerId, Seen)>,
}

impl Caller {
    fn new() -> Self {
        Self { fabric: Iwarp::new(IwarpConfig::default()).unwrap(), events: Events::new(), seen: Vec::new() }
    }

    /// Connects, and returns the connection with its first event: it is connected, rejected or otherwise closed. A try
    /// that timed out on a busy machine is neither let in nor rejected, so it is repeated.
    fn call(&mut self, home: &Home, hello: &[u8]) -> (PeerId, Seen) {
        let end = Instant::now() + PATIENCE;
        loop {
            let peer = self.fabric.connect(home.address(), hello).unwrap();
            match self.next(peer) {
                Some(Seen::Closed(CloseReason::TimedOut, _)) if Instant::now() < end => {}
                Some(seen) => return (peer, seen),
                None => panic!("a connection without an event"),
            }
        }
    }

    /// Returns the next event of a connection.
    fn next(&mut self, peer: PeerId) -> Option<Seen> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(index) = self.seen.iter().position(|(principal, _)| *principal == peer) {
                return Some(self.seen.remove(index).1);
            }
            self.look();
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Collects the events of the fabric.
    pub(crate) fn look(&mut self) {
        self.events.clear();
        // This poll asks every socket. Otherwise one poll in 256 does, and these polls are a millisecond apart.
        self.fabric.disarm();
        self.fabric.poll(&mut self.events);
        for event in self.events.iter() {
            let seen = match event {
                Event::Connected { peer, hello } => (peer, Seen::Connected(hello.to_vec())),
                Event::Message { peer, bytes, .. } => (peer, Seen::Said(bytes.to_vec())),
                Event::Done { peer, tag: 1, outcome, .. } => (peer, Seen::Done(outcome.is_ok())),
                Event::Closed { peer, reason, hello } => {
                    (peer, Seen::Closed(reason, String::from_utf8_lossy(hello).into_owned()))
                }
                _ => continue,
            };
            self.seen.push(seen);
        }
    }

    pub(crate) fn say(&mut self, peer: PeerId, message: &[u8]) {
        self.fabric.post(&[Work::Send { peer, tag: 0, message, mode: SendMode::default() }]).unwrap();
    }

    pub(crate) fn ends(&mut self, peer: PeerId) -> bool {
        loop {
            match self.next(peer) {
                Some(Seen::Closed(..)) => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }
}

/// A connected member of the cluster.
pub(crate) struct Member {
    pub(crate) caller: Caller,
    pub(crate) peer: PeerId,
    pub(crate) channel: Channel,
    /// Staging window of the home.
    pub(crate) staging: RemoteWindow,
}

impl Member {
    pub(crate) fn meet(home: &Home, run: u32) -> (Self, Vec<u8>) {
        let (mut member, hello) = Self::greet(home, run);
        let staging = RemoteWindow { key: 1, base: 0, bytes: STAGING_BYTES as u64 };
        member.say(&Message::Welcome { staging }.encode(Timestamp::default(), &[]));
        let Some(Seen::Said(welcome)) = member.hear() else { panic!("a member is welcomed") };
        let Ok((Message::Welcome { staging }, ..)) = Message::decode(&welcome) else { panic!("it is welcomed first") };
        member.staging = staging;
        (member, hello)
    }

    /// Connects and proves that it has the key; the home has yet to see that the handshake is fresh.
    pub(crate) fn greet(home: &Home, run: u32) -> (Self, Vec<u8>) {
        let mut caller = Caller::new();
        let end = Instant::now() + PATIENCE;
        // A founding node needs a moment until it knows its members.
        let (shake, hello, peer, answer) = loop {
            let ours = PeerHello { node: NodeId(2), run, shards: 1 };
            let (shake, hello) = Initiator::begin(&home.key, Purpose::Data(0), &ours).unwrap();
            match caller.call(home, &hello) {
                (peer, Seen::Connected(answer)) => break (shake, hello, peer, answer),
                (_, seen) => assert!(Instant::now() < end, "a member is not let in: {seen:?}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let (theirs, channel) = shake.finish(&answer).unwrap();
        assert_eq!(theirs.node, NodeId(1));
        (Self { caller, peer, channel, staging: RemoteWindow::default() }, hello.to_vec())
    }

    pub(crate) fn say(&mut self, plain: &[u8]) {
        let mut sealed = [0; 600];
        let length = self.channel.seal(plain, &mut sealed).unwrap();
        self.caller.say(self.peer, &sealed[..length]);
    }

    pub(crate) fn hear(&mut self) -> Option<Seen> {
        let Some(Seen::Said(sealed)) = self.caller.next(self.peer) else { return None };
        let mut plain = [0; 600];
        let length = self.channel.open(&sealed, &mut plain).unwrap();
        Some(Seen::Said(plain[..length].to_vec()))
    }

    /// Checks that the home still answers with its next message.
    pub(crate) fn is_served(&mut self) -> bool {
        self.say(
            &Message::call(7, PRINCIPAL, 0, Operation::Open { name: ArenaRange { slot: 0, bytes: 7 } })
                .encode(Timestamp::default(), b"nothing"),
        );
        let Some(Seen::Said(plain)) = self.hear() else { return false };
        let (answer, ..) = Message::decode(&plain).unwrap();
        matches!(answer, Message::Ended { step: 7, outcome: Outcome::Failed(_), .. })
    }
}

#[test]
fn peer_without_key_is_rejected_with_reason() {
    // If this broke, any peer that reaches the port could read and write every segment.
    let home = Home::start("no-key");
    let mut caller = Caller::new();
    let other = ClusterKey::generate().unwrap();
    let ours = PeerHello { node: NodeId(2), run: 1, shards: 1 };
    let (_, wrong) = Initiator::begin(&other, Purpose::Data(0), &ours).unwrap();
    let (_, control) = Initiator::begin(&home.key, Purpose::Control, &ours).unwrap();
    let (_, unknown) =
        Initiator::begin(&home.key, Purpose::Data(0), &PeerHello { node: NodeId(77), run: 1, shards: 1 }).unwrap();
    let mut newer = wrong;
    newer[1] += 1;
    let old = b"DDSSpeer\x02\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00".as_slice();
    for (hello, part) in [
        (&b""[..], "not a ddssd"),
        (old, "begins handshake 68"),
        (&[0; 256], "not a ddssd"),
        (&wrong, "another cluster key"),
        (&control, "another cluster key"),
        (&newer, "begins handshake 17"),
        (&unknown, "peer"),
    ] {
        let (_, seen) = caller.call(&home, hello);
        let Seen::Closed(CloseReason::Rejected, why) = seen else { panic!("{part}: {seen:?} instead of a rejection") };
        assert!(why.contains(part), "{why} instead of {part}");
        for secret in ["release", "register", env!("CARGO_PKG_VERSION")] {
            assert!(!why.contains(secret), "an unauthenticated peer learns {secret}: {why}");
        }
    }
    assert!(home.is_running());
    assert!(Member::meet(&home, 1).0.is_served(), "a member finds no place any more");
}

#[test]
fn removed_member_is_disconnected_and_rejected() {
    // If this broke, a removed node could read and write the segments of its former cluster.
    let home = Home::start("removed");
    let (mut member, _) = Member::meet(&home, 1);
    assert!(member.is_served());
    let ask = AdminRequest::Remove { node: 2, force: true };
    let answer = ask.ask(&home.folder, |_| {}).unwrap();
    assert!(matches!(answer, AdminResponse::Left { dropped: 0, .. }), "{answer:?}");
    assert!(member.caller.ends(member.peer), "it is connected still");
    let ours = PeerHello { node: NodeId(2), run: 2, shards: 1 };
    let (mut caller, end) = (Caller::new(), Instant::now() + PATIENCE);
    // The membership may end a moment before the reason is known.
    loop {
        let (_, hello) = Initiator::begin(&home.key, Purpose::Data(0), &ours).unwrap();
        let (_, seen) = caller.call(&home, &hello);
        let Seen::Closed(CloseReason::Rejected, why) = seen else { panic!("{seen:?} instead of a rejection") };
        if why.contains("node 2 was removed from the cluster") {
            break;
        }
        assert!(Instant::now() < end, "{why}");
    }
    assert!(home.is_running());
}

#[test]
fn replayed_hello_does_not_replace_connection() {
    // If this broke, an attacker could cut a node off from its cluster with one recorded packet.
    let home = Home::start("replay");
    let (first, recorded) = Member::meet(&home, 1);
    drop(first);
    let (mut living, _) = Member::meet(&home, 2);
    assert!(living.is_served());
    let mut caller = Caller::new();
    for turn in 0..6 {
        // The recorded message is valid, so it is answered; try more often than there are candidate slots.
        let (peer, seen) = caller.call(&home, &recorded);
        assert!(matches!(seen, Seen::Connected(_)), "turn {turn}: {seen:?} instead of an answer");
        assert!(living.is_served(), "turn {turn}");
        if turn % 2 == 0 {
            caller.say(peer, &[turn; 40]);
            assert!(caller.ends(peer), "turn {turn}: what does not open is listened to");
        }
    }
    assert!(living.is_served());
    // A real new run of the node does replace the connection.
    let (mut reborn, _) = Member::meet(&home, 3);
    assert!(reborn.is_served());
    assert!(living.caller.ends(living.peer), "the old connection stays");
}
