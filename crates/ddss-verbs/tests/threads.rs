//! Who has nothing to do sleeps, as a daemon does, and whatever it waits for wakes it.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{ALL, Loopback, Memory, Node, PATIENCE, Pair, Seen, pattern};
use ddss_verbs::{
    Event, Events, Fabric, Iwarp, IwarpConfig, LocalRange, PeerId, RemoteRange, SendMode, Trust, Window, Work,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Polls, and sleeps when it may, until `wanted` is satisfied. Returns how often it slept.
fn run(fabric: &mut Iwarp, mut wanted: impl FnMut(&mut Iwarp, Event<'_>) -> bool) -> u64 {
    let mut events = Events::new();
    let mut sleeps = 0;
    let mut busy = Instant::now();
    loop {
        let mut over = false;
        fabric.poll(&mut events);
        for event in events.iter() {
            over |= wanted(fabric, event);
        }
        let quiet = events.is_empty();
        events.clear();
        if over {
            return sleeps;
        }
        if !quiet {
            busy = Instant::now();
        }
        assert!(busy.elapsed() < 2 * PATIENCE, "waited in vain");
        // As a daemon does, it spins for a while before it sleeps.
        if busy.elapsed() > Duration::from_millis(1) && fabric.arm() {
            let latest = Instant::now() + PATIENCE;
            let until = fabric.next_deadline().map_or(latest, |deadline| deadline.min(latest));
            let wait = until.saturating_duration_since(Instant::now());
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            let woken = poll(&mut [PollFd::new(&fabric.descriptor(), PollFlags::IN)], Some(&wait)).unwrap();
            // Nobody but the descriptor and its own deadline wakes it: what it slept through would be asleep still.
            assert!(woken > 0 || until < latest, "it slept through what it waited for");
            sleeps += 1;
            fabric.disarm();
        }
    }
}

fn encode(window: Window) -> Vec<u8> {
    [&window.key.to_le_bytes()[..], &window.base.to_le_bytes()].concat()
}

fn decode(hello: &[u8]) -> RemoteRange {
    let key = u32::from_le_bytes(hello[..4].try_into().unwrap());
    let address = u64::from_le_bytes(hello[4..12].try_into().unwrap());
    RemoteRange { key, address }
}

#[test]
fn sleepers_are_woken_for_everything() {
    // If this failed, a get would hang until a timeout because the home slept through it.
    let size = 4 << 20;
    let theirs = Memory::new(size);
    theirs.set(0, &pattern(1, size as usize));
    let mut server = Iwarp::new(IwarpConfig::default()).unwrap();
    let region = server.register(theirs.fd.as_fd(), Trust::Sealed, 0, size).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            run(&mut server, |fabric, event| match event {
                Event::Asked { peer, .. } => {
                    let window = fabric.expose(peer, region, 0, size, ALL).unwrap();
                    fabric.accept(peer, &encode(window)).unwrap();
                    false
                }
                Event::Message { peer, bytes, .. } => {
                    let echo = Work::Send { peer, tag: 0, message: bytes, mode: SendMode::default() };
                    fabric.post(&[echo]).unwrap();
                    false
                }
                Event::Closed { .. } => {
                    gone.store(true, Ordering::Release);
                    true
                }
                _ => false,
            })
        });
        let mine = Memory::new(size);
        let mut client = Iwarp::new(IwarpConfig::default()).unwrap();
        let region = client.register(mine.fd.as_fd(), Trust::Sealed, 0, size).unwrap();
        let peer = client.connect(address, b"").unwrap();
        let mut window = None;
        let mut slept = run(&mut client, |_, event| match event {
            Event::Connected { hello, .. } => {
                window = Some(decode(hello));
                true
            }
            other => panic!("{other:?}"),
        });
        let remote = window.unwrap();
        for round in 0..30 {
            // So many at once that both sides stop asking epoll, and then time for the other side to fall asleep.
            for busy in 0..100 {
                slept += round_trip(&mut client, peer, region, remote, 10_000 * round + 3 * busy + 1);
            }
            std::thread::sleep(Duration::from_millis(5));
            slept += round_trip(&mut client, peer, region, remote, 10_000 * round);
        }
        assert!(mine.get(0, size as usize) == pattern(1, size as usize));
        client.close(peer);
        run(&mut client, |_, event| matches!(event, Event::Closed { .. }));
        let served = served.join().unwrap();
        assert!(served > 5 && slept > 0, "they slept {served} and {slept} times");
    });
    assert!(gone.into_inner());
}

fn round_trip(client: &mut Iwarp, peer: PeerId, region: ddss_verbs::RegionId, remote: RemoteRange, round: u64) -> u64 {
    let bytes = if round.is_multiple_of(30_000) { 4 << 20 } else { 8 };
    let local = LocalRange { region, offset: 0, bytes };
    let message = round.to_le_bytes();
    client
        .post(&[
            Work::Read { peer, tag: round, local, remote },
            Work::Send { peer, tag: round + 1_000_000, message: &message, mode: SendMode::default() },
        ])
        .unwrap();
    let mut left = 3;
    run(client, |_, event| {
        match event {
            Event::Done { tag, outcome, .. } => assert!((tag == round || tag == round + 1_000_000) && outcome == Ok(0)),
            Event::Message { bytes, .. } => assert_eq!(bytes, message),
            other => panic!("{other:?}"),
        }
        left -= 1;
        left == 0
    })
}

fn is_readable(node: &Node<Iwarp>, wait: Duration) -> bool {
    let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
    poll(&mut [PollFd::new(&node.fabric.descriptor(), PollFlags::IN)], Some(&wait)).unwrap() > 0
}

/// Polls until it may sleep, and has it sleep.
fn to_sleep(node: &mut Node<Iwarp>) {
    let begin = Instant::now();
    loop {
        node.poll();
        if node.fabric.arm() {
            // What was on its way may have come in between.
            if !is_readable(node, Duration::from_millis(5)) {
                return;
            }
            node.fabric.disarm();
        }
        assert!(begin.elapsed() < PATIENCE, "it never sleeps");
    }
}

/// It is woken, whoever of the two has to do something for that, and sees `wanted`.
fn is_woken(sleeper: &mut Node<Iwarp>, other: &mut Node<Iwarp>, why: &str, wanted: impl Fn(&Seen) -> bool) -> Seen {
    let begin = Instant::now();
    while !is_readable(sleeper, Duration::ZERO) {
        other.poll();
        assert!(begin.elapsed() < PATIENCE, "it sleeps through {why}");
    }
    sleeper.fabric.disarm();
    loop {
        if let Some(seen) = sleeper.take(&wanted) {
            return seen;
        }
        sleeper.poll();
        other.poll();
        assert!(begin.elapsed() < PATIENCE, "nothing came of {why}; saw {:?}", sleeper.seen);
    }
}

#[test]
fn each_cause_by_itself_wakes_a_sleeper() {
    // If this failed, one kind of event would be seen only when another one happens to come.
    let size = 16 << 20;
    let (theirs, mine) = (Memory::new(size), Memory::new(size));
    let mut server = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    let mut client = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    let (lent, region) = (server.register(&theirs), client.register(&mine));
    let address = server.fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();

    to_sleep(&mut server);
    let there = client.fabric.connect(address, b"").unwrap();
    let asked = is_woken(&mut server, &mut client, "a connect", |seen| matches!(seen, Seen::Asked { .. }));
    let Seen::Asked { peer: here, .. } = asked else { unreachable!() };

    to_sleep(&mut client);
    let window = server.fabric.expose(here, lent, 0, size, ALL).unwrap();
    server.fabric.accept(here, b"").unwrap();
    is_woken(&mut client, &mut server, "an accept", |seen| matches!(seen, Seen::Connected { .. }));
    let remote = RemoteRange { key: window.key, address: window.base };

    to_sleep(&mut server);
    let message = Work::Send { peer: there, tag: 1, message: b"awake?", mode: SendMode::default() };
    client.fabric.post(&[message]).unwrap();
    is_woken(&mut server, &mut client, "a message", |seen| matches!(seen, Seen::Message { .. }));

    let local = LocalRange { region, offset: 0, bytes: 8 };
    client.fabric.post(&[Work::Read { peer: there, tag: 2, local, remote }]).unwrap();
    to_sleep(&mut client);
    is_woken(&mut client, &mut server, "an answer", |seen| matches!(seen, Seen::Done { tag: 2, .. }));

    // More than any socket takes; the server sleeps with the rest, because nobody takes it.
    let local = LocalRange { region, offset: 0, bytes: size };
    client.fabric.post(&[Work::Read { peer: there, tag: 3, local, remote }]).unwrap();
    client.poll();
    server.poll();
    to_sleep(&mut server);
    let begin = Instant::now();
    while client.done(3).is_none() {
        // It does nothing by itself any more: only what wakes it has it go on.
        client.poll();
        if is_readable(&server, Duration::ZERO) {
            server.fabric.disarm();
            to_sleep(&mut server);
        }
        assert!(begin.elapsed() < PATIENCE, "it sleeps through room in its socket");
    }

    client.fabric.close(there);
    is_woken(&mut server, &mut client, "an end", |seen| matches!(seen, Seen::Closed { .. }));
}

#[test]
fn who_was_busy_notices_a_few_bytes() {
    // If this failed, the first get after a burst would wait until much more has come: to the one who asked, a home that hangs.
    let mut pair = Pair::new(Loopback::new(|_| {}));
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(4096), Memory::new(4096));
    let region = pair.a.register(&mine);
    let (_, window) = pair.open(&theirs, here, ALL);
    let local = LocalRange { region, offset: 0, bytes: 8 };
    let remote = RemoteRange { key: window.key, address: window.base };
    // Enough, one by one, that the thread looks after this connection by itself and nobody else does.
    let be_busy = |pair: &mut Pair<Loopback>| {
        for tag in 0..300 {
            pair.a.fabric.post(&[Work::Read { peer: there, tag, local, remote }]).unwrap();
            assert_eq!(pair.a_done(tag), Ok(0));
        }
    };
    for sleeps in [true, false, true, false] {
        be_busy(&mut pair);
        if sleeps {
            to_sleep(&mut pair.b);
        } else {
            // So long that it is left alone.
            (0..10_000).for_each(|_| assert_eq!(pair.b.poll(), 0));
        }
        let message = Work::Send { peer: there, tag: 1, message: b"a few", mode: SendMode::default() };
        pair.a.fabric.post(&[message]).unwrap();
        if sleeps {
            is_woken(&mut pair.b, &mut pair.a, "a few bytes", |seen| matches!(seen, Seen::Message { .. }));
        } else {
            pair.wait("a few bytes", |pair| pair.b.message());
        }
        assert_eq!(pair.a_done(1), Ok(0));
    }
    // An end has no bytes at all: the other process dies in the middle of its business.
    be_busy(&mut pair);
    pair.a = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    pair.wait("an end", |pair| pair.b.closed(here));
}
