//! Verification of handshakes, off the progress thread.
//!
//! The cryptography of one handshake takes as long as a hundred client calls, and an attacker who has recorded a hello
//! can replay it at will. So the progress thread does none of it. A fabric that supports an admission filter runs the
//! verifier on its own acceptor thread; for any other fabric this worker runs it:
//!
//! ```text
//!   progress thread             handshake worker
//!   ask    ──── HandshakeRequest ────► judge
//!   answer ◄─── HandshakeResult ────── and a wake-up, if the progress thread sleeps
//! ```

use crate::auth::{Answer, Purpose, respond};
use crate::supervisor::CriticalTask;
use arrayvec::ArrayVec;
use ddss_admin::ClusterKey;
use ddss_core::PeerHello;
use ddss_core::limits::HELLO_BYTES_MAX;
use ddss_ipc::Inbox;
use ddss_verbs::{Admission, AdmissionFilter, AdmissionToken, PeerId};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Number of verified handshakes, shared by all threads.
#[derive(Clone, Default, Debug)]
pub(crate) struct HandshakeCounts(Arc<AtomicU64>);

impl HandshakeCounts {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Admission filter that knows the cluster key.
pub(crate) struct HandshakeVerifier {
    key: ClusterKey,
    purpose: Purpose,
    ours: PeerHello,
    counts: HandshakeCounts,
    /// Liveness token of the thread that runs the filter.
    _liveness: CriticalTask,
}

impl HandshakeVerifier {
    pub(crate) fn new(
        key: ClusterKey,
        purpose: Purpose,
        ours: PeerHello,
        counts: HandshakeCounts,
        liveness: CriticalTask,
    ) -> Self {
        Self { key, purpose, ours, counts, _liveness: liveness }
    }
}

impl AdmissionFilter for HandshakeVerifier {
    /// Verifies a hello; the admission token is the [`Answer`].
    fn evaluate(&mut self, address: SocketAddr, hello: &[u8]) -> Admission {
        self.counts.0.fetch_add(1, Ordering::Relaxed);
        match respond(&self.key, self.purpose, &self.ours, hello) {
            Ok(answer) => Admission::Admit(Box::new(answer)),
            Err(error) => {
                log_rejection(address, &error.to_string());
                Admission::Reject(error.public_reason())
            }
        }
    }
}

/// Logs a rejected connection.
pub(crate) fn log_rejection(address: SocketAddr, reason: &str) {
    tracing::info!(%address, reason, "rejected a connection");
}

/// Returns the handshake answer of an admitted peer.
pub(crate) fn answer_from_token(token: AdmissionToken) -> Option<Answer> {
    token.downcast().ok().map(|answer| *answer)
}

/// A peer that asks to connect.
struct HandshakeRequest {
    peer: PeerId,
    address: SocketAddr,
    hello: ArrayVec<u8, HELLO_BYTES_MAX>,
}

/// Result of one verification.
pub(crate) struct HandshakeResult {
    pub(crate) peer: PeerId,
    pub(crate) address: SocketAddr,
    pub(crate) verdict: Admission,
}

/// Progress thread's handle of the worker. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct HandshakeWorker {
    requests: Option<SyncSender<HandshakeRequest>>,
    results: Receiver<HandshakeResult>,
    /// Results that are still to come.
    waiting: usize,
    thread: Option<JoinHandle<()>>,
}

impl HandshakeWorker {
    /// Hellos that wait for their verification.
    const REQUESTS_MAX: usize = 128;

    /// Starts the thread on any core that the caller may use; it wakes the progress thread for each result.
    pub(crate) fn start(mut verifier: HandshakeVerifier, inbox: Inbox) -> io::Result<Self> {
        let (requests, queue) = sync_channel::<HandshakeRequest>(Self::REQUESTS_MAX);
        // Each request has one result, so this channel never fills up.
        let (answers, results) = sync_channel(Self::REQUESTS_MAX);
        let body = move || {
            for HandshakeRequest { peer, address, hello } in queue {
                let verdict = verifier.evaluate(address, &hello);
                if answers.send(HandshakeResult { peer, address, verdict }).is_err() {
                    return;
                }
                inbox.wake_server();
            }
        };
        let thread = std::thread::Builder::new().name("ddss-handshake".to_owned()).spawn(body)?;
        Ok(Self { requests: Some(requests), results, waiting: 0, thread: Some(thread) })
    }

    /// Queues a hello for verification. Returns false if the queue is full or the hello is too long.
    pub(crate) fn submit(&mut self, peer: PeerId, address: SocketAddr, hello: &[u8]) -> bool {
        let Ok(hello) = ArrayVec::try_from(hello) else { return false };
        let sent = self.waiting < Self::REQUESTS_MAX
            && self
                .requests
                .as_ref()
                .is_some_and(|requests| requests.try_send(HandshakeRequest { peer, address, hello }).is_ok());
        self.waiting += usize::from(sent);
        sent
    }

    /// Returns the next result, if there is one. Costs nothing while no request is pending.
    pub(crate) fn next_result(&mut self) -> Option<HandshakeResult> {
        if self.waiting == 0 {
            return None;
        }
        let results = self.results.try_recv().ok()?;
        self.waiting -= 1;
        Some(results)
    }
}

impl Drop for HandshakeWorker {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Initiator;
    use crate::supervisor::Supervisor;
    use ddss_core::NodeId;
    use ddss_ipc::IpcServer;
    use std::time::{Duration, Instant};

    #[test]
    fn each_hello_is_verified_once_and_queue_is_bounded() {
        // If this broke, a flood would fill the daemon's memory, or a member would wait for an answer that never
        // comes.
        let (key, server) = (ClusterKey::generate().unwrap(), IpcServer::open(NodeId(1)).unwrap());
        let hello = |node| PeerHello { node: NodeId(node), run: 1, shards: 1 };
        let counts = HandshakeCounts::default();
        let verifier = HandshakeVerifier::new(
            key.clone(),
            Purpose::Data(0),
            hello(1),
            counts.clone(),
            Supervisor::default().register("it"),
        );
        let mut handshake_worker = HandshakeWorker::start(verifier, server.inbox()).unwrap();
        let (address, peer) = (SocketAddr::from(([127, 0, 0, 9], 1)), PeerId::from_bits(7));
        let (_, first) = Initiator::begin(&key, Purpose::Data(0), &hello(2)).unwrap();
        assert!(handshake_worker.submit(peer, address, &first));
        assert!(!handshake_worker.submit(peer, address, &[0; HELLO_BYTES_MAX + 1]), "longer than any");
        let more = (0..1000).filter(|_| handshake_worker.submit(peer, address, b"rubbish")).count();
        assert_eq!(more, HandshakeWorker::REQUESTS_MAX - 1);
        let end = Instant::now() + Duration::from_secs(20);
        let mut answers = Vec::new();
        while answers.len() < HandshakeWorker::REQUESTS_MAX && Instant::now() < end {
            answers.extend(handshake_worker.next_result());
        }
        let count = answers.len();
        let good = answers.into_iter().filter_map(|HandshakeResult { verdict, .. }| match verdict {
            Admission::Admit(token) => answer_from_token(token),
            Admission::Reject(_) => None,
        });
        let good: Vec<Answer> = good.collect();
        assert_eq!((count, good.len()), (HandshakeWorker::REQUESTS_MAX, 1));
        assert_eq!(counts.count(), HandshakeWorker::REQUESTS_MAX as u64);
        assert_eq!(good[0].theirs, hello(2));
        assert!(
            handshake_worker.next_result().is_none() && handshake_worker.submit(peer, address, &first),
            "there is room again"
        );
    }
}
