//! Messages that wait until a peer's connection takes them.

use std::collections::VecDeque;

/// Sealed messages in sending order, bounded by their bytes.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    messages: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl SendQueue {
    /// Bytes of queued messages: room for an answer to each operation of the peer. A peer with more has stopped reading.
    pub(crate) const BYTES_MAX: usize = 8 << 20;
    /// Bytes that a message costs besides its own.
    const OVERHEAD_BYTES: usize = 32;

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Adds a message; `false` if there is no room for it.
    pub(crate) fn push(&mut self, message: &[u8]) -> bool {
        let cost = message.len() + Self::OVERHEAD_BYTES;
        if self.bytes + cost > Self::BYTES_MAX {
            return false;
        }
        self.bytes += cost;
        self.messages.push_back(message.into());
        true
    }

    pub(crate) fn front(&self) -> Option<&[u8]> {
        self.messages.front().map(|message| &**message)
    }

    pub(crate) fn pop(&mut self) {
        if let Some(message) = self.messages.pop_front() {
            self.bytes -= message.len() + Self::OVERHEAD_BYTES;
        }
        if self.messages.is_empty() {
            self.clear();
        }
    }

    /// Removes all messages and frees their memory.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::limits::{MESSAGE_BYTES_MAX, OPERATIONS_MAX};

    #[test]
    fn answers_to_all_operations_of_a_peer_fit_and_no_more_than_the_bound() {
        // If this broke, waits that end together would end the connection, or a peer that never reads would take memory.
        let mut send_queue = SendQueue::default();
        // The answer to a wait, sealed.
        assert!((0..OPERATIONS_MAX).all(|_| send_queue.push(&[1; 72])));
        while send_queue.push(&[2; MESSAGE_BYTES_MAX]) {}
        assert!(send_queue.bytes <= SendQueue::BYTES_MAX && send_queue.len() > OPERATIONS_MAX);
        let in_order: Vec<u8> = std::iter::from_fn(|| {
            let first = send_queue.front()?[0];
            send_queue.pop();
            Some(first)
        })
        .collect();
        assert!(in_order.is_sorted() && send_queue.is_empty());
        assert_eq!((send_queue.bytes, send_queue.messages.capacity()), (0, 0));
    }
}
