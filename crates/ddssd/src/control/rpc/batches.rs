//! Batches of calls to one control plane: while one batch is in flight, later calls wait for the next.
//!
//! So names that are created at the same time take few Raft rounds, on one stream.

use super::types::{Call, Reply};
use ddss_core::limits::OPERATIONS_MAX;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Maximum number of calls in a batch.
pub(crate) const BATCH_CALLS_MAX: usize = 256;
/// Maximum number of calls that wait for one node: as many operations as an engine can have in flight.
const WAITING_MAX: usize = OPERATIONS_MAX;

#[derive(Debug)]
pub(super) struct WaitingCall {
    pub(super) call: Call,
    pub(super) answer: oneshot::Sender<io::Result<Reply>>,
}

type Queues = HashMap<SocketAddr, VecDeque<WaitingCall>>;

/// Calls that wait for each node with a batch in flight. Clones share the queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallBatches(Arc<Mutex<Queues>>);

impl CallBatches {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call to a node's queue. Returns true if the queue is new: the caller then starts the sender.
    pub(super) fn push(&self, address: SocketAddr, waiting: WaitingCall) -> io::Result<bool> {
        let mut queues = self.queues();
        let is_new = !queues.contains_key(&address);
        let queue = queues.entry(address).or_default();
        if queue.len() == WAITING_MAX {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "too many calls wait for the leader"));
        }
        queue.push_back(waiting);
        Ok(is_new)
    }

    /// Takes the next batch out of a node's queue, without abandoned calls. `None` ends the queue.
    pub(super) fn next_batch(&self, address: SocketAddr) -> Option<Vec<WaitingCall>> {
        let mut queues = self.queues();
        let queue = queues.get_mut(&address)?;
        queue.retain(|waiting| !waiting.answer.is_closed());
        if queue.is_empty() {
            queues.remove(&address);
            return None;
        }
        let count = queue.len().min(BATCH_CALLS_MAX);
        Some(queue.drain(..count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_is_bounded_and_skips_abandoned_calls() {
        // If this broke, many callers would make a message beyond the size limit, or abandoned calls would load the
        // leader.
        let batches = CallBatches::default();
        let address = SocketAddr::from(([127, 0, 0, 1], 7400));
        let mut callers = Vec::new();
        for index in 0..BATCH_CALLS_MAX + 2 {
            let (answer, answered) = oneshot::channel();
            let is_new = batches.push(address, WaitingCall { call: Call::Newest, answer }).unwrap();
            assert_eq!(is_new, index == 0, "one task sends the calls of one queue");
            callers.push(answered);
        }
        callers.swap_remove(0);
        let first = batches.next_batch(address).unwrap();
        assert_eq!(first.len(), BATCH_CALLS_MAX);
        assert_eq!(batches.next_batch(address).unwrap().len(), 1);
        assert!(batches.next_batch(address).is_none());
        let (answer, _answered) = oneshot::channel();
        assert!(batches.push(address, WaitingCall { call: Call::Newest, answer }).unwrap(), "the queue had ended");
    }
}
