//! Selects the message that an idle producer takes back.

use super::messages::{MessageState, Messages};
use super::peers::{Peer, Peers};
use crate::limits::RECALLED_ATTEMPTS_MAX;
use crate::model::{Attempt, ConsumerId};

/// Returns the newest message that the slowest consumer has not begun, if another consumer would process it sooner.
///
/// Without a recall the tail of a slow consumer decides when all are finished.
pub(super) fn select(peers: &Peers, messages: &Messages) -> Option<(ConsumerId, Attempt)> {
    let ready = peers.ready().iter().filter_map(|id| peers.get(*id));
    let (best_us, service_us) =
        ready.filter_map(|peer| Some((peer.expected_wait_us(1, 0), peer.service_us()?))).min()?;
    let wait_us = |peer: &Peer| peer.expected_wait_us(0, service_us);
    let can_recall = |peer: &&Peer| peer.has_unbegun() && peer.recall.is_none() && wait_us(peer) > best_us;
    let slowest = peers.iter().filter(can_recall).max_by_key(|peer| wait_us(peer))?;
    Some((slowest.id, newest(messages, slowest.id)?))
}

/// Returns the newest message of a consumer that may be unbegun.
fn newest(messages: &Messages, consumer: ConsumerId) -> Option<Attempt> {
    let is_unbegun = |state| matches!(state, MessageState::Sent { has_begun: false, .. });
    messages
        .sent_to(consumer)
        .filter(|(_, message)| is_unbegun(message.state) && message.attempts < RECALLED_ATTEMPTS_MAX)
        .max_by_key(|(_, message)| message.index)
        .map(|(place, message)| Attempt { index: message.index, place, number: message.attempts })
}
