//! Tests of bytes for other nodes, without a home around them.

use super::OutgoingBytes;
use crate::action::{Action, PeerAction, RangeSet};
use crate::config::EngineConfig;
use crate::ids::ServedGetId;
use crate::state::output::Output;
use crate::state::peers::Peers;
use crate::state::segments::Segments;
use ddss_core::{Failure, Limit, Message, NodeId, Outcome, Shard, Storage, Timestamp, Version};

const PEER: NodeId = NodeId(2);
const STAMP: (Version, Timestamp) = (Version(3), Timestamp(4));
/// More bytes than a message has.
const MANY: u32 = 8192;

struct Parts {
    peers: Peers,
    segments: Segments,
    output: Output,
}

impl Parts {
    fn new() -> Self {
        let (node, shard, peers) = (NodeId(1), Shard::ONLY, vec![PEER]);
        let config = EngineConfig { node, shard, pool_bytes: 1 << 20, peers, first_generation: 1, reads_overlap: true };
        let segments = Segments::new(&config);
        let mut peers = Peers::default();
        peers.connect(PEER);
        Self { peers, segments, output: Output::new() }
    }

    fn handler(&mut self) -> OutgoingBytes<'_> {
        let Self { peers, segments, output } = self;
        OutgoingBytes { peers, segments, output }
    }

    fn serve(&mut self, bytes: u32) -> Result<(), Failure> {
        self.handler().serve_get(PEER, 9, 4096, RangeSet::One { offset: 0, bytes }, STAMP)
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.output.next_action()).collect()
    }

    /// Returns the get that was sent through staging memory, and its message.
    fn staged(&mut self) -> (ServedGetId, Message) {
        match self.actions()[..] {
            [Action::Snapshot { .. }, Action::Peer(PeerAction::SendStaged { served_get, message, .. })] => {
                (served_get, message)
            }
            ref other => panic!("{other:?}"),
        }
    }

    fn free_bytes(&self) -> u64 {
        self.segments.free_bytes(Storage::Memory)
    }

    /// Takes as many bytes of the staging memory as there are; returns how many parts of `MANY` bytes it had.
    fn staging_left(&mut self) -> usize {
        let peer = self.peers.reachable(PEER).expect("it is connected");
        std::iter::from_fn(|| peer.staging.take(MANY)).count()
    }
}

#[test]
fn few_bytes_take_no_memory() {
    // If this broke, each small get of a peer would cost two copies and a place in its staging memory.
    let (mut parts, all) = (Parts::new(), Parts::new().staging_left());
    let free = parts.free_bytes();
    assert_eq!(parts.serve(8), Ok(()));
    assert!(matches!(
        parts.actions()[..],
        [Action::Peer(PeerAction::Send { node: PEER, message: Message::Got { length: 8, .. }, .. })]
    ));
    assert!(parts.handler().send_pool_bytes(PEER, 4096, 8, |_, _| Message::Taken { number: 1 }));
    assert_eq!((parts.free_bytes(), parts.staging_left()), (free, all));
}

#[test]
fn bytes_that_cannot_be_sent_return_all_memory_and_the_peer_is_told() {
    // If this broke, a peer with a full send queue would lose this node's memory for it, get by get.
    let (mut parts, all) = (Parts::new(), Parts::new().staging_left());
    let free = parts.free_bytes();
    assert_eq!(parts.serve(MANY), Ok(()));
    let (served_get, message) = parts.staged();
    assert_eq!(parts.free_bytes(), free - u64::from(MANY));
    parts.handler().failed(PEER, served_get, &message);
    let told = Outcome::Failed(Failure::Busy(Limit::PostedOperations));
    let actions = parts.actions();
    let is_told = |action: &Action| matches!(action, Action::Peer(PeerAction::Send { message: Message::Ended { step: 9, outcome, .. }, .. }) if *outcome == told);
    assert!(actions.iter().any(is_told), "{actions:?}");
    assert_eq!((parts.free_bytes(), parts.staging_left()), (free, all));
}

#[test]
fn copy_of_a_get_is_free_once_it_is_sent_and_its_place_once_the_peer_has_taken_it() {
    // If this broke, the fabric would send bytes of another get, or write over bytes that the peer still reads.
    let (mut parts, all) = (Parts::new(), Parts::new().staging_left());
    let free = parts.free_bytes();
    assert_eq!(parts.serve(MANY), Ok(()));
    let (served_get, message) = parts.staged();
    let Message::Got { number, .. } = message else { panic!("{message:?}") };
    parts.handler().sent(served_get);
    assert_eq!(parts.free_bytes(), free);
    parts.handler().free_place(PEER, number);
    assert_eq!(parts.staging_left(), all);
}

#[test]
fn get_without_room_takes_nothing() {
    // If this broke, a full pool would use up the staging memory of a peer with gets that it refuses.
    let (mut parts, all) = (Parts::new(), Parts::new().staging_left());
    while parts.segments.allocate_blocks(4096).is_some() {}
    assert_eq!(parts.serve(MANY), Err(Failure::Busy(Limit::Pool)));
    assert_eq!((parts.actions(), parts.staging_left()), (vec![], all));
    assert_eq!(parts.serve(MANY), Err(Failure::Busy(Limit::Staging)), "the peer's memory is taken");
    parts.peers.disconnect(PEER);
    assert_eq!(parts.serve(MANY), Err(Failure::NodeDown));
}
