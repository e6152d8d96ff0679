//! Tests of the memory of uploads, with a pool and a table around it only.

use super::UploadMemory;
use crate::config::{EngineConfig, Now};
use crate::requester::LockOwner;
use crate::state::memory::uploads::{UploadOwner, Uploads};
use crate::state::segments::Segments;
use ddss_core::limits::UPLOAD_IDLE_US;
use ddss_core::{ClientId, Failure, NodeId, ReplicaAck, SegmentId, Shard, Storage, UploadId};

const HERE: NodeId = NodeId(1);
const PEER: NodeId = NodeId(2);
const NOW: Now = Now { steady_us: 1000, wall_us: 1000 };
const SEGMENT: SegmentId = SegmentId::from_bits(7);
const POOL_BYTES: u64 = 1 << 20;
/// Bytes of an upload: four of them are the most that one client may have.
const BYTES: u32 = 1 << 16;

struct Memory {
    segments: Segments,
    uploads: Uploads,
    free: u64,
}

impl Memory {
    fn new() -> Self {
        let (shard, peers) = (Shard::ONLY, vec![PEER]);
        let config =
            EngineConfig { node: HERE, shard, pool_bytes: POOL_BYTES, peers, first_generation: 1, reads_overlap: true };
        let segments = Segments::new(&config);
        let free = segments.free_bytes(Storage::Memory);
        Self { segments, uploads: Uploads::new(POOL_BYTES, 0), free }
    }

    fn handler(&mut self) -> UploadMemory<'_> {
        UploadMemory { segments: &mut self.segments, uploads: &mut self.uploads }
    }

    fn begin(&mut self, node: NodeId, index: u32) -> UploadId {
        self.handler().begin(NOW, owner(node, index), SEGMENT, BYTES).expect("the pool has room")
    }

    /// Returns the number of uploads that hold memory, and checks that the pool and the table agree.
    fn count(&self) -> u64 {
        let taken = self.free - self.segments.free_bytes(Storage::Memory);
        assert_eq!((taken / u64::from(BYTES), taken), (self.uploads.usage().0 as u64, self.uploads.usage().1));
        taken / u64::from(BYTES)
    }
}

fn owner(node: NodeId, index: u32) -> UploadOwner {
    UploadOwner { node, client: ClientId { index, generation: 1 } }
}

#[test]
fn uploads_of_who_is_gone_return_their_memory_and_others_stay() {
    // If this broke, a client that is killed in a large put would keep memory of the node, or lose that of others.
    let mut memory = Memory::new();
    for (node, index) in [(HERE, 1), (HERE, 1), (HERE, 2), (PEER, 1), (PEER, 3)] {
        memory.begin(node, index);
    }
    memory.handler().begin_of_home(NOW, PEER, SEGMENT, BYTES).expect("homes have room of their own");
    assert_eq!(memory.count(), 6);
    memory.handler().drop_of(HERE, LockOwner::Client(owner(HERE, 1).client));
    assert_eq!(memory.count(), 4, "the client of the same id at the peer keeps its upload");
    memory.handler().drop_of(HERE, LockOwner::Peer(PEER));
    assert_eq!(memory.count(), 1, "the peer's clients and its own puts to replicas are gone");
}

#[test]
fn upload_returns_its_memory_once() {
    // If this broke, the bytes of a put would belong to two owners.
    let mut memory = Memory::new();
    let (first, second) = (memory.begin(HERE, 1), memory.begin(HERE, 1));
    let sent = memory.handler().begin_of_home(NOW, PEER, SEGMENT, BYTES).expect("the pool has room");
    memory.handler().drop_upload(owner(PEER, 1), first);
    assert_eq!(memory.count(), 3, "it has another owner");
    memory.handler().drop_upload(owner(HERE, 1), first);
    memory.handler().drop_upload(owner(HERE, 1), first);
    assert_eq!(memory.count(), 2);
    let own = (owner(HERE, 1), SEGMENT);
    let at = memory.uploads.append(NOW.steady_us, second, own, (0, BYTES)).expect("the first part");
    memory.uploads.commit(second, own.0, own.1).expect("it is complete");
    memory.handler().drop_upload(own.0, UploadId(0));
    memory.handler().expire(Now { steady_us: u64::MAX, ..NOW });
    assert_eq!(memory.count(), 1, "a commit still reads its bytes, and the home sends no more");
    memory.handler().free_at(at);
    memory.handler().free_at(at);
    memory.handler().drop_one(sent);
    assert_eq!(memory.count(), 0);
}

#[test]
fn upload_without_parts_expires() {
    // If this broke, memory of an abandoned put would be lost until the daemon restarts.
    let mut memory = Memory::new();
    memory.begin(HERE, 1);
    memory.handler().expire(Now { steady_us: NOW.steady_us + UPLOAD_IDLE_US - 1, ..NOW });
    assert_eq!(memory.count(), 1);
    memory.handler().expire(Now { steady_us: NOW.steady_us + UPLOAD_IDLE_US, ..NOW });
    assert_eq!(memory.count(), 0);
}

#[test]
fn home_learns_whether_its_replica_may_get_room() {
    // If this broke, a home would wait for memory that never comes, or part from a replica that is only busy.
    let mut memory = Memory::new();
    let half = (POOL_BYTES / 2) as u32;
    assert_eq!(memory.handler().begin_of_home(NOW, PEER, SEGMENT, half + 1), Err(ReplicaAck::NoRoom));
    let sent = memory.handler().begin_of_home(NOW, PEER, SEGMENT, BYTES).expect("the pool has room");
    assert_eq!(memory.handler().begin_of_home(NOW, PEER, SEGMENT, half), Err(ReplicaAck::Busy));
    memory.handler().drop_one(sent);
    assert!(memory.handler().begin_of_home(NOW, PEER, SEGMENT, half).is_ok());
    let refused = memory.handler().begin(NOW, owner(HERE, 1), SEGMENT, half);
    assert_eq!(refused, Err(Failure::UploadsFull), "one client gets half of the memory of all clients");
}
