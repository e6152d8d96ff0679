//! Attacks on the bytes of a sealed connection: an attacker on the path reads, alters, repeats, moves and cuts them.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use ddss_verbs::{
    CloseReason, Fabric, FabricError, Iwarp, IwarpConfig, LocalRange, PeerId, PostErrorKind, RemoteRange, SendMode,
    TAG_BYTES, TerminateCode, Work,
};

use crate::common::{ALL, Memory, Node, OwnedEvent, WAIT_MAX, pattern, session};

/// Bytes of the memory of each side.
const BYTES: u64 = 1 << 20;

/// Two nodes with a connection through an attacker, who sees all bytes and decides what arrives.
struct Path {
    a: Node<Iwarp>,
    b: Node<Iwarp>,
    /// The attacker's sockets to both.
    to_a: TcpStream,
    to_b: TcpStream,
    there: PeerId,
    here: PeerId,
    /// Bytes of `a` that have not been passed on, and those of `b`.
    pending: Vec<u8>,
    answers: Vec<u8>,
    /// All bytes that were seen.
    seen: Vec<u8>,
}

impl Path {
    fn connect(is_sealed: bool) -> Self {
        let new = || Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
        let (mut a, mut b) = (new(), new());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (ours, theirs) = session();
        let at = listener.local_addr().unwrap();
        let there = if is_sealed { a.fabric.connect_sealed(at, b"from a") } else { a.fabric.connect(at, b"from a") };
        let target = b.fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (to_a, _) = listener.accept().unwrap();
        let to_b = TcpStream::connect(target).unwrap();
        for stream in [&to_a, &to_b] {
            stream.set_nonblocking(true).unwrap();
        }
        let (there, here) = (there.unwrap(), PeerId::from_bits(u64::MAX));
        let mut path =
            Self { a, b, to_a, to_b, there, here, pending: Vec::new(), answers: Vec::new(), seen: Vec::new() };
        let asked = path.wait("being asked", |path| {
            path.pass();
            path.b.take(|seen| matches!(seen, OwnedEvent::ConnectRequest { .. }))
        });
        let OwnedEvent::ConnectRequest { peer: here, .. } = asked else { unreachable!() };
        path.here = here;
        if is_sealed {
            path.b.fabric.seal(here, theirs).unwrap();
        }
        path.b.fabric.accept(here, b"from b").unwrap();
        let is_connected = |seen: &OwnedEvent| matches!(seen, OwnedEvent::Connected { .. });
        path.wait("a to be connected", |path| path.a.take(is_connected));
        if is_sealed {
            let message = Work::Send { peer: there, tag: 1, message: b"too early", mode: SendMode::default() };
            let refused = path.a.fabric.post(&[message]).unwrap_err();
            assert_eq!(refused.kind, PostErrorKind::NotConnected, "nothing leaves before it can be sealed");
            path.a.fabric.seal(there, ours).unwrap();
            assert!(matches!(path.a.fabric.seal(there, session().0), Err(FabricError::WrongState(_))), "only once");
        }
        path.wait("b to be connected", |path| {
            path.pass();
            path.b.take(is_connected)
        });
        path
    }

    /// Polls both and takes their bytes. Those of `b` arrive at once.
    fn step(&mut self) {
        self.a.poll();
        self.b.poll();
        let mut bytes = Vec::new();
        take(&mut self.to_a, &mut bytes);
        self.pending.extend_from_slice(&bytes);
        self.seen.extend_from_slice(&bytes);
        bytes.clear();
        take(&mut self.to_b, &mut bytes);
        self.seen.extend_from_slice(&bytes);
        self.answers.extend_from_slice(&bytes);
        give(&mut self.to_a, &mut self.answers);
    }

    /// Passes on what waits.
    fn pass(&mut self) {
        give(&mut self.to_b, &mut self.pending);
    }

    fn wait<T>(&mut self, what: &str, mut wanted: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = wanted(self) {
                return found;
            }
            assert!(start.elapsed() < WAIT_MAX, "{what}: a saw {:?}, b saw {:?}", self.a.seen, self.b.seen);
            self.step();
        }
    }

    /// Sends a message of `a`, and returns its frame, which the attacker withholds.
    fn frame_of(&mut self, message: &[u8]) -> Vec<u8> {
        assert!(self.pending.is_empty());
        let work = Work::Send { peer: self.there, tag: 7, message, mode: SendMode::default() };
        self.a.fabric.post(&[work]).unwrap();
        let bytes = 2 + 18 + message.len() + TAG_BYTES;
        self.wait("the frame", |path| (path.pending.len() == bytes).then_some(()));
        std::mem::take(&mut self.pending)
    }

    /// Delivers what the attacker made of it. The connection of `b` ends, and no further message arrives.
    fn ends_at(mut self, bytes: &[u8], arrived: usize, what: &str) {
        self.pending.extend_from_slice(bytes);
        // An altered length waits for as many bytes: `a` has more to say.
        let end = self.wait(what, |path| {
            let message = Work::Send { peer: path.there, tag: 8, message: &[1; 500], mode: SendMode::default() };
            // It may have a full queue, or have learned of the end.
            let _ = path.a.fabric.post(&[message]);
            path.pass();
            path.b.closed(path.here)
        });
        assert_eq!(end, CloseReason::ProtocolViolation(TerminateCode::MPA_CRC), "{what}");
        let count = self.b.seen.iter().filter(|seen| matches!(seen, OwnedEvent::Message { .. })).count();
        assert_eq!(count, arrived, "{what}: nothing else is believed");
    }
}

fn take(from: &mut TcpStream, bytes: &mut Vec<u8>) {
    match from.read_to_end(bytes) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionReset) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Gives as many bytes as there is room for. A closed connection wants none.
fn give(to: &mut TcpStream, bytes: &mut Vec<u8>) {
    match to.write(bytes) {
        Ok(count) => drop(bytes.drain(..count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => bytes.clear(),
        Err(error) => panic!("{error}"),
    }
}

/// Returns true if a part of `bytes` is found in `seen`.
fn is_seen(seen: &[u8], bytes: &[u8]) -> bool {
    seen.windows(8).any(|part| bytes.chunks_exact(8).any(|known| known == part))
}

/// Moves bytes of each size both ways; returns true if the attacker sees any of them, and true if it sees the message.
fn sees_bytes(is_sealed: bool) -> (bool, bool) {
    let mut path = Path::connect(is_sealed);
    let (mine, theirs) = (Memory::new(BYTES), Memory::new(BYTES));
    let (local, remote) = (path.a.register(&mine), path.b.register(&theirs));
    let window = path.b.fabric.expose(path.here, remote, 0, BYTES, ALL).unwrap();
    let mut is_found = false;
    for bytes in [8_u64, 64, 4096, 64 << 10, 1 << 20] {
        for is_write in [true, false] {
            let text = pattern(bytes + u64::from(is_write), bytes as usize);
            let (from, to) = if is_write { (&mine, &theirs) } else { (&theirs, &mine) };
            from.set(0, &text);
            let (peer, tag) = (path.there, 3);
            let (local, remote) =
                (LocalRange { region: local, offset: 0, bytes }, RemoteRange { key: window.key, address: window.base });
            let fence = Work::FetchAdd {
                peer,
                tag: 4,
                remote: RemoteRange { address: window.base + BYTES - 8, ..remote },
                add: 0,
            };
            let work = if is_write {
                Work::Write { peer, tag, local, remote }
            } else {
                Work::Read { peer, tag, local, remote }
            };
            path.seen.clear();
            path.a.fabric.post(&[work, fence]).unwrap();
            let done = path.wait("both", |path| {
                path.pass();
                path.a.done(4)
            });
            assert_eq!((done.is_ok(), path.a.done(3)), (true, Some(Ok(0))));
            assert!(to.get(0, bytes as usize) == text, "{bytes} bytes arrived");
            let probe = if bytes > 4096 { &text[..4096] } else { &text[..] };
            is_found |= is_seen(&path.seen, probe);
        }
    }
    path.seen.clear();
    let name = b"a name that is nobody's business";
    let message = Work::Send { peer: path.there, tag: 5, message: name, mode: SendMode::default() };
    path.a.fabric.post(&[message]).unwrap();
    let received = path.wait("the message", |path| {
        path.pass();
        path.b.message()
    });
    assert_eq!(received, name);
    (is_found, is_seen(&path.seen, name))
}

#[test]
fn attacker_on_the_path_sees_no_byte_of_a_sealed_connection() {
    // If this broke, bytes of segments, or keys of windows, would travel in the clear.
    assert_eq!(sees_bytes(true), (false, false));
    assert_eq!(sees_bytes(false), (true, true), "the search finds what is there");
}

#[test]
fn altered_repeated_moved_or_cut_frames_end_the_connection() {
    // If this broke, an attacker on the path could write what it likes into segments, or an old value once more.
    let mut path = Path::connect(true);
    let frame = path.frame_of(b"one");
    path.ends_at(&[&frame[..], &frame].concat(), 1, "repeated");

    let mut path = Path::connect(true);
    let (first, second) = (path.frame_of(b"one"), path.frame_of(b"two"));
    path.ends_at(&[second, first].concat(), 0, "moved");

    let mut path = Path::connect(true);
    let (_, second) = (path.frame_of(b"one"), path.frame_of(b"two"));
    path.ends_at(&second, 0, "one is lost");

    let mut path = Path::connect(true);
    let (first, second) = (path.frame_of(b"one"), path.frame_of(b"two"));
    path.ends_at(&[&first[..first.len() - 1], &second].concat(), 0, "cut");

    let foreign = Path::connect(true).frame_of(b"one");
    let mut path = Path::connect(true);
    path.frame_of(b"one");
    path.ends_at(&foreign, 0, "of another session");

    let mut plain = Path::connect(false);
    let work = Work::Send { peer: plain.there, tag: 7, message: b"one", mode: SendMode::default() };
    plain.a.fabric.post(&[work]).unwrap();
    let clear = plain.wait("a frame", |path| (!path.pending.is_empty()).then(|| std::mem::take(&mut path.pending)));
    Path::connect(true).ends_at(&clear, 0, "in the clear");
}

#[test]
fn each_flipped_bit_ends_the_connection_and_places_nothing() {
    // If this broke, an attacker on the path could change a value although it cannot read it.
    let length = Path::connect(true).frame_of(b"value").len();
    for byte in 0..length {
        let mut path = Path::connect(true);
        let mut frame = path.frame_of(b"value");
        frame[byte] ^= 1 << (byte % 8);
        path.ends_at(&frame, 0, &format!("byte {byte}"));
    }
    // A write, over several frames: the altered one and those behind it are not placed.
    for at in [0, 1, 2, 20, 3000, 16_400] {
        let mut path = Path::connect(true);
        let (mine, theirs) = (Memory::new(BYTES), Memory::new(BYTES));
        let (local, remote) = (path.a.register(&mine), path.b.register(&theirs));
        let window = path.b.fabric.expose(path.here, remote, 0, BYTES, ALL).unwrap();
        let text = vec![0x5a; 40 << 10];
        mine.set(0, &text);
        let local = LocalRange { region: local, offset: 0, bytes: text.len() as u64 };
        let remote = RemoteRange { key: window.key, address: window.base };
        path.a.fabric.post(&[Work::Write { peer: path.there, tag: 2, local, remote }]).unwrap();
        path.wait("the frames", |path| (path.pending.len() > text.len()).then_some(()));
        let mut bytes = std::mem::take(&mut path.pending);
        bytes[at] ^= 0x10;
        path.ends_at(&bytes, 0, &format!("byte {at} of a write"));
        let placed = if at < 16_400 { 0 } else { 16 << 10 };
        let found = theirs.get(0, text.len());
        assert!(found[placed..].iter().all(|byte| *byte == 0), "byte {at}: nothing of it is placed");
    }
}

#[test]
fn sealed_peer_and_plain_peer_do_not_connect() {
    // If this broke, one side would believe that its bytes are sealed.
    let mut path = Path::connect(false);
    assert!(matches!(path.b.fabric.seal(path.here, session().1), Err(FabricError::WrongState(_))), "too late");
    let new = || Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    for is_sealed in [true, false] {
        let (mut a, mut b) = (new(), new());
        let at = b.fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let there = if is_sealed { a.fabric.connect_sealed(at, b"") } else { a.fabric.connect(at, b"") }.unwrap();
        let start = Instant::now();
        let end = loop {
            a.poll();
            b.poll();
            if let Some(OwnedEvent::ConnectRequest { peer, .. }) =
                b.take(|seen| matches!(seen, OwnedEvent::ConnectRequest { .. }))
            {
                if !is_sealed {
                    b.fabric.seal(peer, session().1).unwrap();
                }
                b.fabric.accept(peer, b"").unwrap();
            }
            if a.take(|seen| matches!(seen, OwnedEvent::Connected { .. })).is_some() && is_sealed {
                a.fabric.seal(there, session().0).unwrap();
            }
            if let Some(end) = a.closed(there) {
                break end;
            }
            assert!(start.elapsed() < WAIT_MAX, "a saw {:?}, b saw {:?}", a.seen, b.seen);
        };
        assert_ne!(end, CloseReason::TimedOut, "sealed {is_sealed}");
        assert!(!b.seen.iter().any(|seen| matches!(seen, OwnedEvent::Connected { .. })), "sealed {is_sealed}");
    }
}
