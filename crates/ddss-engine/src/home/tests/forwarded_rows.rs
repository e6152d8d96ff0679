//! Tests of a replica whose home lies about the versions of rows.
//!
//! A home decides what its rows contain, and their versions belong to that: the first copy brings them as bytes of the
//! table. So a replica cannot tell a wrong version from a right one. It checks that a version belongs to one row of a
//! table, and that a state word can hold it (`message_codec.rs`); a wrong version harms the readers of that row only.

use super::{A, NOW, Parts};
use crate::action::{Action, PeerAction};
use crate::role::RoleAssignment;
use crate::state::lock_queue::PendingOp;
use ddss_core::{
    AtomicOp, Failure, Message, NodeId, OfferReply, Outcome, Range, Ranges, ReplicaAck, SegmentId, Spec, TableLayout,
    Timestamp, Version,
};

const ROW_BYTES: u32 = 64;
pub(super) const FIRST: Timestamp = Timestamp(100);

/// Makes a complete replica of a segment whose home is node 2.
pub(super) fn replica(spec: Spec) -> (Parts, SegmentId) {
    let (mut parts, id) = Parts::with(Spec { copies: 2, ..spec });
    let assignment =
        RoleAssignment { segment: id, home: A, replica: NodeId(1), epoch: 2, turn: 1, paired: true, vacant: false };
    parts.replicas.join_cluster();
    parts.replicas.add_unconfirmed(id);
    parts.home().assign_role(NOW, &assignment);
    parts.home().lease(NOW, NOW.steady_us + 1_000_000);
    let whole = Message::Whole { segment: id, epoch: 2, version: Version(10), timestamp: FIRST };
    parts.home().replica_message(NOW, A, &whole, &[]);
    parts.actions();
    (parts, id)
}

fn table() -> Spec {
    Spec::table(4, ROW_BYTES)
}

/// A put of 8 bytes that the home forwards: its row, the version of the table, and the version of the row.
fn forward(segment: SegmentId, row: u64, version: u64, row_version: u64) -> Message {
    Message::Forward {
        segment,
        epoch: 2,
        version: Version(version),
        row_version: Version(row_version),
        timestamp: Timestamp(FIRST.0.saturating_add(version)),
        offset: row * u64::from(ROW_BYTES),
        length: 8,
        staged: Message::NOT_STAGED,
        number: Message::NOT_STAGED,
        ranges: 0,
    }
}

/// Delivers a message; returns the commits as row and version, and the rest of the actions.
fn deliver(parts: &mut Parts, id: SegmentId, message: &Message, tail: &[u8]) -> (Vec<(u64, Version)>, Vec<Action>) {
    parts.home().replica_message(NOW, A, message, tail);
    let at = parts.segments.get(id).expect("the replica stays").at;
    let layout = TableLayout::new(ROW_BYTES).expect("a row of a table");
    let (mut commits, mut rest) = (Vec::new(), Vec::new());
    for action in parts.actions() {
        match action {
            Action::CommitRecord { place, version, .. } => {
                let rows = (0..4).filter(|&row| layout.record(row).of_segment(at) == place);
                commits.extend(rows.map(|row| (row, version)));
            }
            other => rest.push(other),
        }
    }
    (commits, rest)
}

fn is_acknowledged(actions: &[Action]) -> bool {
    actions.iter().any(|action| {
        matches!(
            action,
            Action::Peer(PeerAction::Send { node: A, message: Message::Replicated { ack: ReplicaAck::Put, .. }, .. })
        )
    })
}

#[test]
fn home_that_names_no_version_of_a_row_or_one_of_a_plain_segment_is_disconnected() {
    // If this broke, bytes of a put would lie over the headers of rows, or a version in the bytes of a plain segment.
    let disconnected = (Vec::new(), vec![Action::Peer(PeerAction::Disconnect { node: A })]);
    for (spec, message) in [
        (table(), |id| forward(id, 1, 11, 0)),
        (Spec::new(256), |id| forward(id, 1, 11, 1)),
        // Not a row of this table.
        (table(), |id| forward(id, 4, 11, 1)),
    ] as [(Spec, fn(SegmentId) -> Message); 3]
    {
        let (mut parts, id) = replica(spec);
        assert_eq!(deliver(&mut parts, id, &message(id), &[7; 8]), disconnected, "{:?}", message(id));
        assert_eq!(parts.segments.get(id).map(|segment| segment.version()), Ok(Version(10)));
    }
}

#[test]
fn home_that_names_one_version_for_two_rows_is_disconnected_and_leaves_no_buffer() {
    // If this broke, a put could cross the header of a row, or a home could fill the memory of this node.
    let two_rows = [Range { offset: 0, bytes: 8 }, Range { offset: u64::from(ROW_BYTES), bytes: 8 }];
    let beyond = [Range { offset: 0, bytes: 8 }, Range { offset: 1 << 40, bytes: 8 }];
    for (spec, ranges, row_version) in [(table(), two_rows, 1), (table(), beyond, 1), (Spec::new(256), beyond, 0)] {
        let (mut parts, id) = replica(spec);
        let empty = parts.output.store(b"first");
        parts.output.drop_buffer(&empty);
        let list = Ranges::new(ranges).expect("two ranges").encode();
        let Message::Forward { segment, epoch, version, row_version, timestamp, staged, number, .. } =
            forward(id, 0, 11, row_version)
        else {
            unreachable!("a forwarded put")
        };
        let (offset, length, ranges) = (0, 16, 2);
        let message = Message::Forward {
            segment,
            epoch,
            version,
            row_version,
            timestamp,
            offset,
            length,
            staged,
            number,
            ranges,
        };
        assert_eq!(
            deliver(&mut parts, id, &message, &list),
            (Vec::new(), vec![Action::Peer(PeerAction::Disconnect { node: A })])
        );
        assert_eq!(parts.output.store(b"second"), empty, "the table of ranges is not freed");
    }
}

#[test]
fn wrong_version_of_a_row_changes_that_row_only() {
    // If this broke, a home that lies about one row could spoil other rows, or end the node that has its replica.
    let wrong = [3, 1, 1 << 40, u64::MAX >> 1];
    let (mut parts, id) = replica(table());
    let (commits, _) = deliver(&mut parts, id, &forward(id, 1, 11, 3), &[7; 8]);
    assert_eq!(commits, [(1, Version(3))]);
    for (version, wrong) in (12..).zip(wrong) {
        // The same version again, a lower one, and some that are far too high: this node has no other source for them.
        let (commits, rest) = deliver(&mut parts, id, &forward(id, 1, version, wrong), &[7; 8]);
        assert_eq!((commits, is_acknowledged(&rest)), (vec![(1, Version(wrong))], true), "{rest:?}");
        // The order of puts is that of the table, which no row changes.
        assert_eq!(parts.segments.get(id).map(|segment| segment.version()), Ok(Version(version)));
    }
    let (commits, rest) = deliver(&mut parts, id, &forward(id, 2, 16, 1), &[7; 8]);
    assert_eq!((commits, is_acknowledged(&rest)), (vec![(2, Version(1))], true));
    // A version of the table out of its order is no put at all: the home has to copy the table again.
    for version in [16, 15, 18, u64::MAX >> 1] {
        let (commits, rest) = deliver(&mut parts, id, &forward(id, 2, version, 2), &[7; 8]);
        let refused = |action: &Action| {
            matches!(
                action,
                Action::Peer(PeerAction::Send {
                    node: A,
                    message: Message::OfferAnswer { reply: OfferReply::Empty, .. },
                    ..
                })
            )
        };
        assert!(commits.is_empty() && rest.iter().any(refused), "{version}: {rest:?}");
    }
}

#[test]
fn new_home_works_on_with_rows_of_any_version() {
    // If this broke, a home that lied could end the node that takes over from it, when the next put of that row comes.
    let (mut parts, id) = replica(table());
    let assignment =
        RoleAssignment { segment: id, home: NodeId(1), replica: A, epoch: 3, turn: 1, paired: false, vacant: false };
    parts.home().assign_role(NOW, &assignment);
    parts.actions();
    let mut add = |row: u64, state: u64| {
        let change = PendingOp::Atomic { offset: row * u64::from(ROW_BYTES), change: AtomicOp::Add(1), token: None };
        assert_eq!(parts.submit(id, A, 5, change), Ok(()));
        parts.home().operations().record_read(state, Timestamp(1), 41);
        let ended = parts.actions().into_iter().find_map(|action| match action {
            Action::Peer(PeerAction::Send {
                message: Message::Ended { step: 5, outcome, version, word, .. }, ..
            }) => Some((outcome, version, word)),
            _ => None,
        });
        ended.expect("each call is answered")
    };
    assert_eq!(add(1, u64::MAX - 1), (Outcome::Done, Version(1 << 63), 41), "the highest version");
    assert_eq!(add(1, 0), (Outcome::Done, Version(1), 41), "its state word begins again");
    assert_eq!(add(1, 7).0, Outcome::Failed(Failure::Damaged), "a state word in the middle of a commit");
    assert_eq!(add(2, 2 * 9), (Outcome::Done, Version(10), 41), "another row");
}
