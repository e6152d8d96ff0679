//! Clients with stopped processes: their memory is still read and written.

use std::os::fd::AsFd;

use ddss_verbs::{Fabric, Iwarp, IwarpConfig, Trust, Work};

use super::{greet, local, remote, send};
use crate::common::{ALL, FabricFactory, HelperProcess, Memory, Pair, helper_task, pattern, print_line, wait_until};

/// Bytes that the client writes, the same again that are written for it, and then a counter.
const PART_BYTES: usize = 64 << 10;
const WORD: u64 = 2 * PART_BYTES as u64;
const BYTES: u64 = WORD + 4096;
const ROUNDS: u64 = 20;

pub(crate) fn stopped_client_does_not_delay_transfers(factory: impl FabricFactory) {
    // If this failed, a get would wait for the scheduling of an unrelated process.
    let mut pair = Pair::new(factory);
    let counts = pair.factory.has_extensions();
    let (peer, here) = pair.connect();
    greet(&mut pair, peer);
    let (mine, theirs) = (Memory::new(BYTES), Memory::new(BYTES));
    let local_region = pair.a.register(&mine);
    let (_, window) = pair.expose(&theirs, here, ALL);
    let count = if counts { ROUNDS } else { 0 };
    let name = concat!(module_path!(), "::client").split_once("::").unwrap().1;
    let mut client = HelperProcess::start(name, &count.to_string(), &theirs);
    client.wait_for_line("client wrote");
    client.stop();

    let part = PART_BYTES as u64;
    for round in 0..ROUNDS {
        let message = round.to_le_bytes();
        mine.set(0, &[0; PART_BYTES]);
        mine.set(part, &pattern(round, PART_BYTES));
        pair.a
            .fabric
            .post(&[
                Work::Write { peer, tag: 1, local: local(local_region, part, part), remote: remote(&window, part) },
                Work::Read { peer, tag: 2, local: local(local_region, 0, part), remote: remote(&window, 0) },
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
    client.resume();
    client.wait_for_line("client found the bytes");
}

/// Body of the client process, no test of its own. It writes, and reports when it finds the bytes written for it and
/// the counter.
#[test]
fn client() {
    let Some((count, memory)) = helper_task(BYTES) else { return };
    let count: u64 = count.parse().unwrap();
    // The memory is mapped for the life of the process, as in a client.
    let mut fabric = Iwarp::new(IwarpConfig::default()).unwrap();
    fabric.register(memory.fd.as_fd(), Trust::Sealed, 0, BYTES).unwrap();
    memory.set(0, &pattern(u64::MAX, PART_BYTES));
    print_line("client wrote");
    let last = pattern(ROUNDS - 1, PART_BYTES);
    wait_until("what is written for it", || {
        memory.get(PART_BYTES as u64, PART_BYTES) == last && memory.word(WORD) == count
    });
    print_line("client found the bytes");
}
