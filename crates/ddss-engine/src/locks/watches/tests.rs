//! Tests of watches, without a home around them.

use super::Watches;
use crate::action::{Action, PeerAction};
use crate::config::{EngineConfig, Now};
use crate::requester::{ReplyFields, Requester};
use crate::state::lock_queue::Watcher;
use crate::state::output::Output;
use crate::state::segments::Segments;
use ddss_core::limits::WAITERS_PER_SEGMENT_MAX;
use ddss_core::{
    Failure, Limit, Message, Name, NodeId, Outcome, Permissions, Principal, SegmentId, Shard, Spec, Timestamp, Version,
};

const PEER: NodeId = NodeId(2);
const NOW: Now = Now { steady_us: 1000, wall_us: 1000 };

struct Parts {
    segments: Segments,
    output: Output,
    id: SegmentId,
}

impl Parts {
    fn new(spec: Spec) -> Self {
        let (node, shard, peers) = (NodeId(1), Shard::ONLY, vec![PEER]);
        let config = EngineConfig { node, shard, pool_bytes: 1 << 20, peers, first_generation: 1, reads_overlap: true };
        let mut segments = Segments::new(&config);
        let (name, owner) = (Name::new("watched").expect("it is short"), Principal { uid: 7, gid: 7 });
        let permissions = Permissions { owner, mode: 0o600 };
        let made = segments.allocate(name, spec, permissions, Timestamp(1), Requester::Peer(PEER, 0), None);
        let id = made.expect("the pool is empty").segment;
        segments.formed(id).expect("it is in creation");
        Self { segments, output: Output::new(), id }
    }

    fn watches(&mut self) -> Watches<'_> {
        Watches { segments: &mut self.segments, output: &mut self.output }
    }

    /// Returns the answers that went out, with their steps.
    fn answers(&mut self) -> Vec<(u64, Outcome, u64, u64)> {
        let actions = std::iter::from_fn(|| self.output.next_action());
        let answer = |action| match action {
            Action::Peer(PeerAction::Send {
                message: Message::Ended { step, outcome, version, timestamp, .. },
                ..
            }) => (step, outcome, version.0, timestamp.0),
            other => panic!("{other:?}"),
        };
        actions.map(answer).collect()
    }
}

fn watcher(step: u64, row: u64, above: u64) -> Watcher {
    let (requester, deadline_us) = (Requester::Peer(PEER, step), NOW.steady_us + 100);
    Watcher { requester, row, above: Version(above), deadline_us }
}

fn fields(version: u64, timestamp: u64) -> ReplyFields {
    ReplyFields::of((Version(version), Timestamp(timestamp)), 0)
}

#[test]
fn change_answers_its_requester_and_the_watchers_of_its_row_and_of_all_rows() {
    // If this broke, a watcher would wait for a change that has come, or report one of another row.
    let mut parts = Parts::new(Spec { row_bytes: 8, ..Spec::new(4 * 8) });
    let id = parts.id;
    for (step, row, above) in [(1, 2, 3), (2, 2, 4), (3, 1, 3)] {
        parts.watches().watch(id, watcher(step, row, above), None).expect("there is room");
    }
    parts.watches().await_any_row(id, watcher(4, 0, 50), Version(50)).expect("there is room");
    assert_eq!(parts.answers(), []);
    parts.watches().answer_change(Some(Requester::Peer(PEER, 9)), id, Some(2), fields(4, 60));
    let expected = [(9, Outcome::Done, 4, 60), (1, Outcome::Done, 4, 60), (4, Outcome::Done, 51, 3)];
    assert_eq!(parts.answers(), expected, "the number of all rows comes with one more than the row");
    parts.watches().await_any_row(id, watcher(5, 0, 50), Version(70)).expect("there is room");
    assert_eq!(parts.answers(), [(5, Outcome::Done, 51, 3)], "a change that was recorded is reported at once");
}

#[test]
fn watch_ends_at_its_deadline_and_a_reached_version_needs_none() {
    // If this broke, a client would wait for ever, or for a version that its segment already has.
    let mut parts = Parts::new(Spec::new(64));
    let id = parts.id;
    parts.watches().watch(id, watcher(1, 0, 3), Some(fields(5, 6))).expect("the version is reached");
    assert_eq!(parts.answers(), [(1, Outcome::Done, 5, 6)]);
    parts.watches().watch(id, watcher(2, 0, 5), None).expect("there is room");
    parts.watches().expire(NOW, id);
    assert_eq!(parts.answers(), []);
    parts.watches().expire(Now { steady_us: NOW.steady_us + 100, ..NOW }, id);
    assert_eq!(parts.answers(), [(2, Outcome::Failed(Failure::TimedOut), 0, 0)]);
    parts.watches().answer_change(None, id, None, fields(6, 7));
    assert_eq!(parts.answers(), [], "it was answered once");
}

#[test]
fn watchers_of_names_learn_of_the_next_change_and_are_limited() {
    // If this broke, a list would be outdated without notice, or one client could fill the memory with watchers.
    let mut parts = Parts::new(Spec::new(64));
    let (names, Version(version)) = parts.segments.names_version();
    parts.watches().await_names(watcher(1, 0, version)).expect("there is room");
    parts.watches().await_names(watcher(2, 0, version - 1)).expect("the names have changed");
    assert_eq!(parts.answers(), [(2, Outcome::Done, version, 0)]);
    parts.watches().announce_names();
    assert_eq!(parts.answers(), [(1, Outcome::Done, version + 1, 0)]);
    for step in 0..WAITERS_PER_SEGMENT_MAX as u64 {
        parts.watches().await_names(watcher(step, 0, version + 1)).expect("there is room");
    }
    let refused = parts.watches().watch(names, watcher(9, 0, version + 1), None);
    assert_eq!(refused, Err(Failure::Busy(Limit::Waiters)));
}
