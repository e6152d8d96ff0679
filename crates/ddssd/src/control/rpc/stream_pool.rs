//! Pool of idle streams to other control planes.
//!
//! A handshake takes longer than most replies, and the peer [limits](crate::control::handshake_limit) the handshakes
//! of each address.

use super::stream::RpcStream;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of idle streams, to all nodes together.
const IDLE_STREAMS_MAX: usize = 8;
/// Maximum idle time of a stream: less than the peer allows.
const IDLE_MAX: Duration = Duration::from_secs(20);

const _: () = assert!(IDLE_MAX.as_secs() < super::stream::IDLE_MAX.as_secs());

#[derive(Debug)]
struct IdleStream {
    address: SocketAddr,
    stream: RpcStream,
    since: Instant,
}

/// The streams without a call in flight. Clones share the pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamPool(Arc<Mutex<Vec<IdleStream>>>);

impl StreamPool {
    fn streams(&self) -> MutexGuard<'_, Vec<IdleStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the most recently used stream to an address.
    pub(crate) fn take(&self, address: SocketAddr) -> Option<RpcStream> {
        let mut streams = self.streams();
        streams.retain(|stream| stream.since.elapsed() < IDLE_MAX);
        let index = streams.iter().rposition(|stream| stream.address == address)?;
        Some(streams.remove(index).stream)
    }

    /// Returns a stream to the pool after its reply. A full pool drops its oldest stream.
    pub(crate) fn put(&self, address: SocketAddr, stream: RpcStream) {
        let mut streams = self.streams();
        if streams.len() == IDLE_STREAMS_MAX {
            streams.remove(0);
        }
        streams.push(IdleStream { address, stream, since: Instant::now() });
    }

    /// Drops all streams to an address: one of them broke, so its node has probably stopped.
    pub(crate) fn remove_all(&self, address: SocketAddr) {
        self.streams().retain(|stream| stream.address != address);
    }
}
