//! Messages of a home to its replica.

use crate::action::{Action, PeerAction, RangeSet};
use crate::config::Now;
use crate::replica::forwarded_parts::ForwardedPart;
use crate::replica::handler::{ReplicaPiece, ReplicaStore};
use ddss_core::{Message, NodeId};

impl ReplicaStore<'_> {
    /// Handles what a home sends to its replica.
    pub(crate) fn message(&mut self, now: Now, node: NodeId, message: &Message, tail: &[u8]) {
        match *message {
            Message::Piece { segment: id, epoch, offset, length, staged, number } => {
                let parts = RangeSet::One { offset, bytes: length };
                self.store_piece(node, ReplicaPiece { id, epoch, number }, parts, staged, tail);
            }
            Message::Whole { segment, epoch, version, timestamp } => {
                self.complete_copy(node, segment, epoch, (version, timestamp));
            }
            Message::Forward {
                segment: id,
                epoch,
                version,
                row_version,
                timestamp,
                offset,
                length,
                staged,
                number,
                ranges,
            } => {
                let sent = ReplicaPiece { id, epoch, number };
                let table = if ranges == 0 { &[] } else { tail };
                let Ok(parts) = self.output.ranges_of_message((offset, length), ranges, table) else {
                    return self.output.push(Action::Peer(PeerAction::Disconnect { node }));
                };
                let bytes = if ranges == 0 { tail } else { &[] };
                self.store_forwarded(now, node, sent, (version, timestamp), (parts, row_version), (staged, bytes));
            }
            Message::ForwardPart {
                segment: id,
                epoch,
                version,
                timestamp,
                offset,
                at,
                total,
                length,
                staged,
                number,
            } => {
                let part = ForwardedPart { stamp: (version, timestamp), offset, at, total, length };
                self.handle_forwarded_part(now, node, ReplicaPiece { id, epoch, number }, part, (staged, tail));
            }
            _ => {}
        }
    }
}
