//! Clients whose processes stand still: what they hold is read and written all the same.

use std::os::fd::AsFd;

use ddss_verbs::{Fabric, Iwarp, IwarpConfig, Trust, Work};

use super::{greet, local, remote, send};
use crate::common::{ALL, Lab, Memory, Other, Pair, look_for, pattern, say, task};

/// What the client writes, and behind it what is written for it, and behind that a word that is counted up.
const PART_BYTES: usize = 64 << 10;
const WORD: u64 = 2 * PART_BYTES as u64;
const BYTES: u64 = WORD + 4096;
const ROUNDS: u64 = 20;

pub(crate) fn stopped_clients_do_not_matter(lab: impl Lab) {
    // If this failed, a get would wait for the scheduler of a process that has nothing to do with it.
    let mut pair = Pair::new(lab);
    let counts = pair.lab.has_extensions();
    let (peer, here) = pair.connect();
    greet(&mut pair, peer);
    let (mine, theirs) = (Memory::new(BYTES), Memory::new(BYTES));
    let near = pair.a.register(&mine);
    let (_, window) = pair.open(&theirs, here, ALL);
    let count = if counts { ROUNDS } else { 0 };
    let name = concat!(module_path!(), "::client").split_once("::").unwrap().1;
    let mut client = Other::start(name, &count.to_string(), &theirs);
    client.hears("it wrote");
    client.stop();

    let part = PART_BYTES as u64;
    for round in 0..ROUNDS {
        let message = round.to_le_bytes();
        mine.set(0, &[0; PART_BYTES]);
        mine.set(part, &pattern(round, PART_BYTES));
        pair.a
            .fabric
            .post(&[
                Work::Write { peer, tag: 1, local: local(near, part, part), remote: remote(&window, part) },
                Work::Read { peer, tag: 2, local: local(near, 0, part), remote: remote(&window, 0) },
                send(peer, 3, &message),
            ])
            .unwrap();
        if counts {
            pair.a.fabric.post(&[Work::FetchAdd { peer, tag: 4, remote: remote(&window, WORD), add: 1 }]).unwrap();
            assert_eq!(pair.a_done(4), Ok(round));
        }
        assert_eq!([1, 2, 3].map(|tag| pair.a_done(tag)), [Ok(0); 3]);
        assert_eq!(pair.wait("the message", |pair| pair.b.message()), message);
        assert!(
            mine.get(0, PART_BYTES) == pattern(u64::MAX, PART_BYTES),
            "round {round} read other bytes than its client's"
        );
        assert!(theirs.get(part, PART_BYTES) == pattern(round, PART_BYTES), "round {round} wrote other bytes");
        assert!(client.is_stopped(), "round {round} was waited for until its client was awake");
    }
    client.go_on();
    client.hears("it saw");
}

/// Not a test by itself: the client. It writes, and says when it finds what is written for it, and how often was counted.
#[test]
fn client() {
    let Some((count, memory)) = task(BYTES) else { return };
    let count: u64 = count.parse().unwrap();
    // It has the memory mapped for as long as it lives, as a client has.
    let mut fabric = Iwarp::new(IwarpConfig::default()).unwrap();
    fabric.register(memory.fd.as_fd(), Trust::Sealed, 0, BYTES).unwrap();
    memory.set(0, &pattern(u64::MAX, PART_BYTES));
    say("it wrote");
    let last = pattern(ROUNDS - 1, PART_BYTES);
    look_for("what is written for it", || {
        memory.get(PART_BYTES as u64, PART_BYTES) == last && memory.word(WORD) == count
    });
    say("it saw");
}
