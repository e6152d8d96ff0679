//! A fabric behind a guard: who is let in, who is turned away, and that who polls hears of nobody else.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::{Node, PATIENCE, Seen};
use ddss_verbs::{Admission, AdmissionFilter, CloseReason, Event, Events, Fabric, Iwarp, IwarpConfig, PeerId};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Lets in who says a word that begins with `friend`, with that word as his pass.
struct Words(Arc<AtomicUsize>);

impl AdmissionFilter for Words {
    fn judge(&mut self, _: SocketAddr, hello: &[u8]) -> Admission {
        self.0.fetch_add(1, Ordering::Relaxed);
        assert!(hello != b"panic", "a word that this guard cannot bear");
        if hello.starts_with(b"friend") {
            Admission::Admit(Box::new(hello.to_vec()))
        } else {
            Admission::TurnAway("who are you?".repeat(100))
        }
    }
}

/// A fabric behind that guard, and what it saw of others.
struct Home {
    fabric: Iwarp,
    events: Events,
    address: SocketAddr,
    judged: Arc<AtomicUsize>,
    admitted: Vec<(PeerId, Vec<u8>)>,
    closed: Vec<PeerId>,
}

impl Home {
    fn new(config: IwarpConfig) -> Self {
        let mut fabric = Iwarp::new(config).unwrap();
        let address = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let judged = Arc::new(AtomicUsize::new(0));
        assert!(fabric.capabilities().guarded);
        fabric.guard(Box::new(Words(Arc::clone(&judged)))).unwrap();
        Self { fabric, events: Events::new(), address, judged, admitted: Vec::new(), closed: Vec::new() }
    }

    fn poll(&mut self) {
        self.fabric.poll(&mut self.events);
        let events = std::mem::take(&mut self.events);
        for event in events.iter() {
            match event {
                Event::Admitted { peer, address } => {
                    assert!(address.ip().is_loopback());
                    let pass = self.fabric.take_pass(peer).unwrap().downcast::<Vec<u8>>().unwrap();
                    assert!(self.fabric.take_pass(peer).is_none(), "a pass is for one who takes it");
                    self.admitted.push((peer, *pass));
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
            assert!(begin.elapsed() < PATIENCE);
        }
    }
}

fn caller() -> Node<Iwarp> {
    Node::new(Iwarp::new(IwarpConfig::default()).unwrap())
}

/// What a call with such a word came to, while nobody polls at home but who is told to.
fn outcome(caller: &mut Node<Iwarp>, home: SocketAddr, hello: &[u8], mut meanwhile: impl FnMut()) -> Seen {
    caller.fabric.connect(home, hello).unwrap();
    let begin = Instant::now();
    loop {
        caller.poll();
        meanwhile();
        if let Some(seen) = caller.seen.pop() {
            return seen;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
}

#[test]
fn who_is_turned_away_learns_why_and_who_polls_learns_nothing() {
    // If this failed, each stranger would cost the clients of a node the time that he costs, or would wait for ever.
    let mut home = Home::new(IwarpConfig::default());
    let mut caller = caller();
    for hello in [&b"enemy"[..], b"", b"panic", b"enemy"] {
        // Nobody polls: the porch does it all.
        match outcome(&mut caller, home.address, hello, || ()) {
            Seen::Closed { reason: CloseReason::Rejected, hello: why, .. } if hello == b"panic" => {
                assert_eq!(why, b"its first message cannot be judged");
            }
            Seen::Closed { reason: CloseReason::Rejected, hello: why, .. } => assert!(why.starts_with(b"who are you?")),
            other => panic!("{hello:?}: {other:?}"),
        }
    }
    let mut stranger = TcpStream::connect(home.address).unwrap();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n--------------").unwrap();
    assert_eq!(stranger.read(&mut [0; 64]).unwrap_or(0), 0, "who speaks something else hears nothing");
    for _ in 0..10_000 {
        home.poll();
    }
    assert_eq!((home.fabric.sockets_open(), home.admitted.len()), (0, 0));
    assert_eq!(home.judged.load(Ordering::Relaxed), 4);
}

#[test]
fn who_is_admitted_is_connected_with_his_pass_and_can_work() {
    // If this failed, no node would come into a cluster.
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
        assert!(matches!(&seen, Seen::Connected { hello, .. } if hello == b"welcome"), "{seen:?}");
    }
    assert_eq!(home.fabric.sockets_open(), 3);
    caller.seen.clear();
    drop(caller);
    home.poll_until(|home| home.closed.len() == 3);
    assert_eq!(home.fabric.sockets_open(), 0);
}

#[test]
fn a_crowd_of_friends_comes_in_at_a_pace_and_who_gives_up_takes_no_place() {
    // If this failed, one who sends a good first message again and again would keep the thread that polls at answering him.
    let mut home = Home::new(IwarpConfig::default());
    let mut impatient = caller();
    for _ in 0..40 {
        impatient.fabric.connect(home.address, b"friend").unwrap();
    }
    let begin = Instant::now();
    while home.judged.load(Ordering::Relaxed) < 40 {
        impatient.poll();
        assert!(begin.elapsed() < PATIENCE);
    }
    drop(impatient);
    // The first ones had been let in, and are found gone.
    home.poll_until(|home| !home.admitted.is_empty() && home.fabric.sockets_open() == 0);
    let first = home.admitted.len();
    assert!(first < 40, "{first} of 40 came in at once");
    let mut patient = caller();
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        home.poll();
    }
    assert_eq!(home.admitted.len(), first, "who is gone does not come in");
    let seen = outcome(&mut patient, home.address, b"friend, too", || {
        home.poll();
        for (peer, _) in home.admitted.drain(..).filter(|(_, pass)| pass == b"friend, too") {
            home.fabric.accept(peer, b"").unwrap();
        }
    });
    assert!(matches!(seen, Seen::Connected { .. }), "{seen:?}");
}

#[test]
fn a_guard_comes_once_and_looks_after_what_is_listened_on_later() {
    // If this failed, a second address of a node would be one that nobody guards.
    let mut home = Home::new(IwarpConfig::default());
    let again = home.fabric.guard(Box::new(Words(Arc::default())));
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    let second = home.fabric.listen("127.0.0.2:0".parse().unwrap()).unwrap();
    let seen = outcome(&mut caller(), second, b"enemy", || ());
    assert!(matches!(seen, Seen::Closed { reason: CloseReason::Rejected, .. }), "{seen:?}");
    // It ends with the fabric, and the ports are free.
    let addresses = [home.address, second];
    drop(home);
    for address in addresses {
        assert!(TcpStream::connect(address).is_err());
    }
}
