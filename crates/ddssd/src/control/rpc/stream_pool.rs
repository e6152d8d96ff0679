//! Streams to other control planes that wait for the next question: a handshake takes longer than most answers, and the other
//! side answers each address's handshakes at a [pace](crate::control::handshake_limit).

use super::stream::RpcStream;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Streams that are kept, to all nodes together.
const IDLE_STREAMS_MAX: usize = 8;
/// How long a stream is kept without a question: less than the other side waits for one.
const IDLE_MAX: Duration = Duration::from_secs(20);

const _: () = assert!(IDLE_MAX.as_secs() < super::server::IDLE_MAX.as_secs());

#[derive(Debug)]
struct IdleStream {
    address: SocketAddr,
    wire: RpcStream,
    since: Instant,
}

/// The streams without a question under way. Clones are the same pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamPool(Arc<Mutex<Vec<IdleStream>>>);

impl StreamPool {
    fn streams(&self) -> MutexGuard<'_, Vec<IdleStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a stream to that address out of the pool, the one that was used last.
    pub(crate) fn take(&self, address: SocketAddr) -> Option<RpcStream> {
        let mut streams = self.streams();
        streams.retain(|stream| stream.since.elapsed() < IDLE_MAX);
        let index = streams.iter().rposition(|stream| stream.address == address)?;
        Some(streams.remove(index).wire)
    }

    /// Keeps a stream whose question was answered. The oldest one makes room.
    pub(crate) fn keep(&self, address: SocketAddr, wire: RpcStream) {
        let mut streams = self.streams();
        if streams.len() == IDLE_STREAMS_MAX {
            streams.remove(0);
        }
        streams.push(IdleStream { address, wire, since: Instant::now() });
    }

    /// Drops all streams to an address: one of them has broken, so its node has probably ended.
    pub(crate) fn forget(&self, address: SocketAddr) {
        self.streams().retain(|stream| stream.address != address);
    }
}
