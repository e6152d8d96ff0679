//! Selects the consumer of a message.

use super::peers::Peers;
use crate::model::{ConsumerId, Draw};

/// Returns the consumer for the next message: of two random ones with a credit, that with the smaller expected wait.
///
/// All producers choose at the same time. Two random consumers keep them from meeting at the one that is best.
pub(super) fn choose(peers: &Peers, draw: &mut Draw) -> Option<ConsumerId> {
    let ready = peers.ready();
    let first = match ready {
        [] => return None,
        [only] => return Some(*only),
        _ => draw.below(ready.len()),
    };
    let second = (first + 1 + draw.below(ready.len() - 1)) % ready.len();
    let cost = |id: ConsumerId| {
        let peer = peers.get(id).expect("a ready consumer is known");
        // A consumer that is new is expected to be as fast as any.
        (peer.expected_wait_us(1, 0), peer.unacknowledged())
    };
    let (first, second) = (ready[first], ready[second]);
    Some(if cost(second) < cost(first) { second } else { first })
}
