//! Sleep and wake-up of a polling thread, as in a daemon.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{ALL, Loopback, Memory, Node, OwnedEvent, Pair, WAIT_MAX, pattern};
use ddss_verbs::{
    Event, Events, Fabric, Iwarp, IwarpConfig, LocalRange, PeerId, RemoteRange, SendMode, Trust, Window, Work,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Polls, and sleeps when possible, until `wanted` is satisfied. Returns the number of sleeps.
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
        assert!(busy.elapsed() < 2 * WAIT_MAX, "waited in vain");
        // Like a daemon, it spins for a while before it sleeps.
        if busy.elapsed() > Duration::from_millis(1) && fabric.arm() {
            let latest = Instant::now() + WAIT_MAX;
            let until = fabric.next_deadline().map_or(latest, |deadline| deadline.min(latest));
            let wait = until.saturating_duration_since(Instant::now());
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            let woken = poll(&mut [PollFd::new(&fabric.descriptor(), PollFlags::IN)], Some(&wait)).unwrap();
            // Only the descriptor and its own deadline wake it, so a missed event would still be pending.
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
fn sleeping_sides_serve_each_other() {
    // If this failed, a get would hang until a timeout because the home slept.
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
                Event::ConnectRequest { peer, .. } => {
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
            // So many operations that both sides stop using epoll, and then time for the other side to fall asleep.
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

/// Polls until the fabric may sleep, and arms it.
fn to_sleep(node: &mut Node<Iwarp>) {
    let begin = Instant::now();
    loop {
        node.poll();
        if node.fabric.arm() {
            // Bytes in flight may have arrived in between.
            if !is_readable(node, Duration::from_millis(5)) {
                return;
            }
            node.fabric.disarm();
        }
        assert!(begin.elapsed() < WAIT_MAX, "it never sleeps");
    }
}

/// Checks that the sleeper is woken, with the other side polling, and sees `wanted`.
fn is_woken(
    sleeper: &mut Node<Iwarp>,
    other: &mut Node<Iwarp>,
    why: &str,
    wanted: impl Fn(&OwnedEvent) -> bool,
) -> OwnedEvent {
    let begin = Instant::now();
    while !is_readable(sleeper, Duration::ZERO) {
        other.poll();
        assert!(begin.elapsed() < WAIT_MAX, "it sleeps through {why}");
    }
    sleeper.fabric.disarm();
    loop {
        if let Some(seen) = sleeper.take(&wanted) {
            return seen;
        }
        sleeper.poll();
        other.poll();
        assert!(begin.elapsed() < WAIT_MAX, "nothing came of {why}; saw {:?}", sleeper.seen);
    }
}

#[test]
fn each_cause_alone_wakes_a_sleeper() {
    // If this failed, one kind of event would be noticed only together with another one.
    let size = 16 << 20;
    let (theirs, mine) = (Memory::new(size), Memory::new(size));
    let mut server = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    let mut client = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    let (lent, region) = (server.register(&theirs), client.register(&mine));
    let address = server.fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();

    to_sleep(&mut server);
    let there = client.fabric.connect(address, b"").unwrap();
    let asked =
        is_woken(&mut server, &mut client, "a connect", |seen| matches!(seen, OwnedEvent::ConnectRequest { .. }));
    let OwnedEvent::ConnectRequest { peer: here, .. } = asked else { unreachable!() };

    to_sleep(&mut client);
    let window = server.fabric.expose(here, lent, 0, size, ALL).unwrap();
    server.fabric.accept(here, b"").unwrap();
    is_woken(&mut client, &mut server, "an accept", |seen| matches!(seen, OwnedEvent::Connected { .. }));
    let remote = RemoteRange { key: window.key, address: window.base };

    to_sleep(&mut server);
    let message = Work::Send { peer: there, tag: 1, message: b"awake?", mode: SendMode::default() };
    client.fabric.post(&[message]).unwrap();
    is_woken(&mut server, &mut client, "a message", |seen| matches!(seen, OwnedEvent::Message { .. }));

    let local = LocalRange { region, offset: 0, bytes: 8 };
    client.fabric.post(&[Work::Read { peer: there, tag: 2, local, remote }]).unwrap();
    to_sleep(&mut client);
    is_woken(&mut client, &mut server, "an answer", |seen| matches!(seen, OwnedEvent::Done { tag: 2, .. }));

    // More than any socket accepts; the server sleeps with the rest, because the client does not read.
    let local = LocalRange { region, offset: 0, bytes: size };
    client.fabric.post(&[Work::Read { peer: there, tag: 3, local, remote }]).unwrap();
    client.poll();
    server.poll();
    to_sleep(&mut server);
    let begin = Instant::now();
    while client.done(3).is_none() {
        // Only wake-ups let the server continue.
        client.poll();
        if is_readable(&server, Duration::ZERO) {
            server.fabric.disarm();
            to_sleep(&mut server);
        }
        assert!(begin.elapsed() < WAIT_MAX, "it sleeps through room in its socket");
    }

    client.fabric.close(there);
    is_woken(&mut server, &mut client, "an end", |seen| matches!(seen, OwnedEvent::Closed { .. }));
}

#[test]
fn few_bytes_after_a_burst_are_noticed() {
    // If this failed, the first get after a burst would wait until many more bytes arrive: the home would seem to
    // hang.
    let mut pair = Pair::new(Loopback::new(|_| {}));
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(4096), Memory::new(4096));
    let region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, ALL);
    let local = LocalRange { region, offset: 0, bytes: 8 };
    let remote = RemoteRange { key: window.key, address: window.base };
    // Enough, one by one, that the thread receives from this connection without epoll.
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
            // Long enough that the connection is left to epoll.
            (0..10_000).for_each(|_| assert_eq!(pair.b.poll(), 0));
        }
        let message = Work::Send { peer: there, tag: 1, message: b"a few", mode: SendMode::default() };
        pair.a.fabric.post(&[message]).unwrap();
        if sleeps {
            is_woken(&mut pair.b, &mut pair.a, "a few bytes", |seen| matches!(seen, OwnedEvent::Message { .. }));
        } else {
            pair.wait("a few bytes", |pair| pair.b.message());
        }
        assert_eq!(pair.a_done(1), Ok(0));
    }
    // An end has no bytes at all: the other process dies in the middle of its work.
    be_busy(&mut pair);
    pair.a = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    pair.wait("an end", |pair| pair.b.closed(here));
}
