//! Tests of commits, without a home around them.

use super::Commits;
use crate::action::{Action, CommitSource, RangeSet};
use crate::config::{EngineConfig, Now};
use crate::requester::Requester;
use crate::state::memory::uploads::{UploadOwner, Uploads};
use crate::state::output::Output;
use crate::state::replication::{RowCommit, SegmentChange};
use crate::state::segments::Segments;
use crate::uploads::memory::UploadMemory;
use ddss_core::{
    ClientId, HybridClock, Name, NodeId, Permissions, Principal, SegmentId, Shard, Spec, Storage, Timestamp, Version,
};

const PEER: NodeId = NodeId(2);
const NOW: Now = Now { steady_us: 1000, wall_us: 1000 };
const WORD: (RangeSet, CommitSource) = (RangeSet::One { offset: 8, bytes: 8 }, CommitSource::Word(5));

struct Parts {
    segments: Segments,
    uploads: Uploads,
    clock: HybridClock,
    output: Output,
    id: SegmentId,
}

impl Parts {
    fn new(spec: Spec) -> Self {
        let (node, shard, peers) = (NodeId(1), Shard::ONLY, vec![PEER]);
        let config = EngineConfig { node, shard, pool_bytes: 1 << 20, peers, first_generation: 1, reads_overlap: true };
        let mut segments = Segments::new(&config);
        let (name, owner) = (Name::new("changed").expect("it is short"), Principal { uid: 7, gid: 7 });
        let permissions = Permissions { owner, mode: 0o600 };
        let made = segments.allocate(name, spec, permissions, Timestamp(1), Requester::Peer(PEER, 0), None);
        let id = made.expect("the pool is empty").segment;
        segments.formed(id).expect("it is in creation");
        let (uploads, clock) = (Uploads::new(1 << 20, 0), HybridClock::default());
        Self { segments, uploads, clock, output: Output::new(), id }
    }

    fn commits(&mut self) -> Commits<'_> {
        let Self { segments, uploads, clock, output, .. } = self;
        Commits { segments, uploads, clock, output }
    }

    /// Stores an upload of that many bytes, and returns its pool offset.
    fn upload(&mut self, bytes: u32) -> u64 {
        let (id, owner) = (self.id, UploadOwner { node: PEER, client: ClientId { index: 1, generation: 1 } });
        let Self { segments, uploads, .. } = self;
        let upload = UploadMemory { segments, uploads }.begin(NOW, owner, id, bytes).expect("the pool has room");
        self.uploads.append(NOW.steady_us, upload, (owner, id), (0, bytes)).expect("it is the first part");
        self.uploads.commit(upload, owner, id).expect("it is complete").0
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.output.next_action()).collect()
    }

    fn stamp(&self) -> (Version, Timestamp) {
        self.segments.get(self.id).expect("it exists").stamp()
    }
}

fn change((parts, source): (RangeSet, CommitSource)) -> SegmentChange {
    SegmentChange { requester: None, parts, source, row: None, word: 0, deadline_us: u64::MAX }
}

#[test]
fn commit_is_the_next_version_and_goes_to_the_history() {
    // If this broke, a read of an older version would find other bytes, or two commits would have one version.
    let mut parts = Parts::new(Spec { history: 2, ..Spec::new(64) });
    let id = parts.id;
    let before = parts.stamp();
    let first = parts.commits().commit(NOW, id, &change(WORD)).expect("it may run");
    let second = parts.commits().commit(NOW, id, &change(WORD)).expect("it may run");
    assert_eq!((before.0, first.0, second.0), (Version(0), Version(1), Version(2)));
    assert!(before.1 < first.1 && first.1 < second.1, "each version has a later timestamp, in one microsecond too");
    assert_eq!((parts.stamp(), parts.output.counters.commits), (second, 2));
    let places: Vec<_> = parts
        .actions()
        .iter()
        .filter_map(|action| match *action {
            Action::SaveVersion { to, .. } => Some(to),
            Action::Commit(_) => None,
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert!(places.len() == 2 && places[0] != places[1], "{places:?}");
}

#[test]
fn row_is_written_before_the_version_of_its_table() {
    // If this broke, a daemon that dies in between would have a table that seems newer than it is.
    let mut parts = Parts::new(Spec::table(4, 8));
    let id = parts.id;
    let at = parts.segments.get(id).expect("it exists").at;
    let place =
        parts.segments.get(id).expect("it exists").spec.layout().expect("it is a table").record(1).of_segment(at);
    let row = RowCommit { row: 1, place, version: Version(9) };
    parts.commits().apply(id, (WORD.0, Some(row)), WORD.1, (Version(1), Timestamp(70))).expect("it exists");
    let actions = parts.actions();
    assert!(
        matches!(
            actions[..],
            [Action::CommitRecord { version: Version(9), .. }, Action::WriteVersion { version: Version(1), .. }]
        ),
        "{actions:?}"
    );
    // A table without a replica has no version of its own.
    parts.commits().commit_record(NOW, row, WORD);
    assert!(matches!(parts.actions()[..], [Action::CommitRecord { version: Version(9), .. }]));
    assert_eq!(parts.stamp(), (Version(1), Timestamp(70)));
}

#[test]
fn upload_is_free_when_its_commit_ends_and_a_large_one_blocks_the_segment_until_then() {
    // If this broke, the pool would fill, or a get would see the first slices of a value.
    let mut parts = Parts::new(Spec::new(8192));
    let id = parts.id;
    let free = parts.segments.free_bytes(Storage::Memory);
    let from = parts.upload(4096);
    let small = change((RangeSet::One { offset: 0, bytes: 4096 }, CommitSource::Pool(from)));
    assert!(!parts.commits().is_large(&small));
    parts.commits().commit(NOW, id, &small).expect("it may run");
    assert_eq!(parts.segments.free_bytes(Storage::Memory), free);
    parts.uploads.at_once_max = 1024;
    for (made, version) in [(true, 2), (false, 2)] {
        let from = parts.upload(4096);
        let large = change((RangeSet::One { offset: 0, bytes: 4096 }, CommitSource::Pool(from)));
        assert!(parts.commits().is_large(&large));
        parts.commits().begin_large(NOW, id, &large).expect("it may run");
        assert!(parts.segments.get(id).expect("it exists").lock_queue.is_memory_busy());
        assert!(parts.segments.free_bytes(Storage::Memory) < free);
        assert!(parts.commits().end_large(id, made).is_some() && parts.commits().end_large(id, made).is_none());
        assert!(!parts.segments.get(id).expect("it exists").lock_queue.is_memory_busy());
        assert_eq!((parts.segments.free_bytes(Storage::Memory), parts.stamp().0), (free, Version(version)));
    }
}
