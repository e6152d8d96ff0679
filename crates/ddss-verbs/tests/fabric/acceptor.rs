//! A fabric with an admission filter: admitted and rejected peers, and the events of the polling thread.

use crate::common::{Node, OwnedEvent, WAIT_MAX};
use ddss_verbs::{Admission, AdmissionFilter, CloseReason, Event, Events, Fabric, Iwarp, IwarpConfig, PeerId};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Admits a hello that begins with `friend`, with that hello as token.
struct PrefixFilter(Arc<AtomicUsize>);

impl AdmissionFilter for PrefixFilter {
    fn evaluate(&mut self, _: SocketAddr, hello: &[u8]) -> Admission {
        self.0.fetch_add(1, Ordering::Relaxed);
        assert!(hello != b"panic", "a hello that makes the filter panic");
        if hello.starts_with(b"friend") {
            Admission::Admit(Box::new(hello.to_vec()))
        } else {
            Admission::Reject("unknown peer".repeat(100))
        }
    }
}

/// A fabric with that filter, and a record of its peers.
struct Home {
    fabric: Iwarp,
    events: Events,
    address: SocketAddr,
    evaluated: Arc<AtomicUsize>,
    admitted: Vec<(PeerId, Vec<u8>)>,
    closed: Vec<PeerId>,
}

impl Home {
    fn new(config: IwarpConfig) -> Self {
        let mut fabric = Iwarp::new(config).unwrap();
        let address = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let evaluated = Arc::new(AtomicUsize::new(0));
        assert!(fabric.capabilities().has_admission_filter);
        fabric.set_admission_filter(Box::new(PrefixFilter(Arc::clone(&evaluated)))).unwrap();
        Self { fabric, events: Events::new(), address, evaluated, admitted: Vec::new(), closed: Vec::new() }
    }

    fn poll(&mut self) {
        self.fabric.poll(&mut self.events);
        let events = std::mem::take(&mut self.events);
        for event in events.iter() {
            match event {
                Event::Admitted { peer, address } => {
                    assert!(address.ip().is_loopback());
                    let token = self.fabric.take_admission_token(peer).unwrap().downcast::<Vec<u8>>().unwrap();
                    assert!(self.fabric.take_admission_token(peer).is_none(), "a token is taken once");
                    self.admitted.push((peer, *token));
                }
                Event::Connected { .. } => {}
                Event::Closed { peer, .. } => self.closed.push(peer),
                other => panic!("{other:?}"),
            }
        }
    }

    fn poll_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            self.poll();
            assert!(begin.elapsed() < WAIT_MAX);
        }
    }
}

fn caller() -> Node<Iwarp> {
    Node::new(Iwarp::new(IwarpConfig::default()).unwrap())
}

/// Connects with a hello and returns the result; at the home, only `meanwhile` polls.
fn outcome(caller: &mut Node<Iwarp>, home: SocketAddr, hello: &[u8], mut meanwhile: impl FnMut()) -> OwnedEvent {
    caller.fabric.connect(home, hello).unwrap();
    let begin = Instant::now();
    loop {
        caller.poll();
        meanwhile();
        if let Some(seen) = caller.seen.pop() {
            return seen;
        }
        assert!(begin.elapsed() < WAIT_MAX);
    }
}

#[test]
fn rejected_peer_gets_a_reason_without_the_polling_thread() {
    // If this failed, each unauthenticated peer would cost the node's clients time, or would wait forever.
    let mut home = Home::new(IwarpConfig::default());
    let mut caller = caller();
    for hello in [&b"enemy"[..], b"", b"panic", b"enemy"] {
        // The home is not polled: the acceptor thread does everything.
        match outcome(&mut caller, home.address, hello, || ()) {
            OwnedEvent::Closed { reason: CloseReason::Rejected, hello: why, .. } if hello == b"panic" => {
                assert_eq!(why, b"the first message cannot be evaluated");
            }
            OwnedEvent::Closed { reason: CloseReason::Rejected, hello: why, .. } => {
                assert!(why.starts_with(b"unknown peer"))
            }
            other => panic!("{hello:?}: {other:?}"),
        }
    }
    let mut foreign = TcpStream::connect(home.address).unwrap();
    foreign.set_read_timeout(Some(WAIT_MAX)).unwrap();
    foreign.write_all(b"GET / HTTP/1.1\r\n\r\n--------------").unwrap();
    assert_eq!(foreign.read(&mut [0; 64]).unwrap_or(0), 0, "a foreign protocol gets no answer");
    for _ in 0..10_000 {
        home.poll();
    }
    assert_eq!((home.fabric.open_socket_count(), home.admitted.len()), (0, 0));
    assert_eq!(home.evaluated.load(Ordering::Relaxed), 4);
}

#[test]
fn admitted_peer_connects_with_its_token() {
    // If this failed, no node could join a cluster.
    let mut home = Home::new(IwarpConfig::default());
    let mut caller = caller();
    for turn in 0..3 {
        let word = format!("friend {turn}");
        let seen = outcome(&mut caller, home.address, word.as_bytes(), || {
            home.poll();
            for (peer, pass) in home.admitted.drain(..) {
                assert_eq!(pass, word.as_bytes());
                home.fabric.accept(peer, b"welcome").unwrap();
            }
        });
        assert!(matches!(&seen, OwnedEvent::Connected { hello, .. } if hello == b"welcome"), "{seen:?}");
    }
    assert_eq!(home.fabric.open_socket_count(), 3);
    caller.seen.clear();
    drop(caller);
    home.poll_until(|home| home.closed.len() == 3);
    assert_eq!(home.fabric.open_socket_count(), 0);
}

#[test]
fn admissions_are_rate_limited_per_address() {
    // If this failed, a peer that repeats a valid first message would keep the polling thread busy with answers.
    let mut home = Home::new(IwarpConfig::default());
    let mut impatient = caller();
    for _ in 0..40 {
        impatient.fabric.connect(home.address, b"friend").unwrap();
    }
    let begin = Instant::now();
    while home.evaluated.load(Ordering::Relaxed) < 40 {
        impatient.poll();
        assert!(begin.elapsed() < WAIT_MAX);
    }
    drop(impatient);
    // Eight at once, and one more in each tenth of a second.
    let most = 8 + 1 + begin.elapsed().as_millis() as u64 / 100;
    // The first ones were admitted, and are found closed.
    home.poll_until(|home| !home.admitted.is_empty() && home.fabric.open_socket_count() == 0);
    let first = home.admitted.len();
    assert!(first as u64 <= most, "{first} were admitted at once, and at most {most} may be");
    let mut patient = caller();
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        home.poll();
    }
    assert_eq!(home.admitted.len(), first, "a closed peer is not admitted");
    let seen = outcome(&mut patient, home.address, b"friend, too", || {
        home.poll();
        for (peer, _) in home.admitted.drain(..).filter(|(_, pass)| pass == b"friend, too") {
            home.fabric.accept(peer, b"").unwrap();
        }
    });
    assert!(matches!(seen, OwnedEvent::Connected { .. }), "{seen:?}");
}

#[test]
fn filter_is_set_once_and_covers_later_listeners() {
    // If this failed, a second address of a node would be unfiltered.
    let mut home = Home::new(IwarpConfig::default());
    let again = home.fabric.set_admission_filter(Box::new(PrefixFilter(Arc::default())));
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    let second = home.fabric.listen("127.0.0.2:0".parse().unwrap()).unwrap();
    let seen = outcome(&mut caller(), second, b"enemy", || ());
    assert!(matches!(seen, OwnedEvent::Closed { reason: CloseReason::Rejected, .. }), "{seen:?}");
    // The acceptor ends with the fabric, and the ports are free.
    let addresses = [home.address, second];
    drop(home);
    for address in addresses {
        assert!(TcpStream::connect(address).is_err());
    }
}
