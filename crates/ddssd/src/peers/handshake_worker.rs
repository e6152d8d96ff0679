//! Who judges first messages, and where. The arithmetic of one handshake takes as long as a hundred calls of a client, and
//! whoever has recorded a first message can have it done as often as he likes: so the progress thread does none of it. A
//! fabric with a porch has the doorkeeper stand there; behind any other he has a thread here, the doorman's:
//!
//! ```text
//!   progress thread             doorman
//!   asked ──── Knock ─────────► judge
//!   meet  ◄─── Checked ───────── and a ring of the bell, if the other one sleeps
//! ```

use crate::auth::{Answer, ClusterKey, Purpose, respond};
use crate::supervisor::CriticalTask;
use arrayvec::ArrayVec;
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

/// How many were judged, by whatever thread.
#[derive(Clone, Default, Debug)]
pub(crate) struct HandshakeCounts(Arc<AtomicU64>);

impl HandshakeCounts {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Knows the key, and says who may come in.
pub(crate) struct HandshakeVerifier {
    key: ClusterKey,
    purpose: Purpose,
    ours: PeerHello,
    judged: HandshakeCounts,
    /// Of the thread that asks him.
    _vital: CriticalTask,
}

impl HandshakeVerifier {
    pub(crate) fn new(
        key: ClusterKey,
        purpose: Purpose,
        ours: PeerHello,
        judged: HandshakeCounts,
        vital: CriticalTask,
    ) -> Self {
        Self { key, purpose, ours, judged, _vital: vital }
    }
}

impl AdmissionFilter for HandshakeVerifier {
    /// The pass is the [`Answer`].
    fn evaluate(&mut self, address: SocketAddr, hello: &[u8]) -> Admission {
        self.judged.0.fetch_add(1, Ordering::Relaxed);
        match respond(&self.key, self.purpose, &self.ours, hello) {
            Ok(answer) => Admission::Admit(Box::new(answer)),
            Err(error) => {
                let reason = error.to_string();
                tell(address, &reason);
                Admission::Reject(reason)
            }
        }
    }
}

/// Logs that a connection was turned away.
pub(crate) fn tell(address: SocketAddr, reason: &str) {
    tracing::info!(%address, reason, "turned a connection away");
}

/// What one who was admitted brings along.
pub(crate) fn answer_in(pass: AdmissionToken) -> Option<Answer> {
    pass.downcast().ok().map(|answer| *answer)
}

/// Somebody who wants to connect.
struct HandshakeRequest {
    peer: PeerId,
    address: SocketAddr,
    hello: ArrayVec<u8, HELLO_BYTES_MAX>,
}

/// What his first message is worth.
pub(crate) struct HandshakeResult {
    pub(crate) peer: PeerId,
    pub(crate) address: SocketAddr,
    pub(crate) verdict: Admission,
}

/// The progress thread's end of it. The thread ends with this value.
#[derive(Debug)]
pub(crate) struct HandshakeWorker {
    knocks: Option<SyncSender<HandshakeRequest>>,
    checked: Receiver<HandshakeResult>,
    /// Answers that are still to come.
    waiting: usize,
    thread: Option<JoinHandle<()>>,
}

impl HandshakeWorker {
    /// First messages that wait for an answer.
    const KNOCKS_MAX: usize = 128;

    /// Starts the thread, on whatever core the caller may use; it rings when there is an answer.
    pub(crate) fn start(mut doorkeeper: HandshakeVerifier, inbox: Inbox) -> io::Result<Self> {
        let (knocks, asked) = sync_channel::<HandshakeRequest>(Self::KNOCKS_MAX);
        // Whoever is asked about is answered once: there is always room for that.
        let (answers, checked) = sync_channel(Self::KNOCKS_MAX);
        let body = move || {
            for HandshakeRequest { peer, address, hello } in asked {
                let verdict = doorkeeper.evaluate(address, &hello);
                if answers.send(HandshakeResult { peer, address, verdict }).is_err() {
                    return;
                }
                inbox.wake_server();
            }
        };
        let thread = std::thread::Builder::new().name("ddss-doorman".to_owned()).spawn(body)?;
        Ok(Self { knocks: Some(knocks), checked, waiting: 0, thread: Some(thread) })
    }

    /// Has a first message checked; `false` if too many wait, or it is none.
    pub(crate) fn ask(&mut self, peer: PeerId, address: SocketAddr, hello: &[u8]) -> bool {
        let Ok(hello) = ArrayVec::try_from(hello) else { return false };
        let sent = self.waiting < Self::KNOCKS_MAX
            && self
                .knocks
                .as_ref()
                .is_some_and(|knocks| knocks.try_send(HandshakeRequest { peer, address, hello }).is_ok());
        self.waiting += usize::from(sent);
        sent
    }

    /// The next answer, if there is one. Costs nothing while nobody was asked about.
    pub(crate) fn answer(&mut self) -> Option<HandshakeResult> {
        if self.waiting == 0 {
            return None;
        }
        let checked = self.checked.try_recv().ok()?;
        self.waiting -= 1;
        Some(checked)
    }
}

impl Drop for HandshakeWorker {
    fn drop(&mut self) {
        drop(self.knocks.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there was reported where it happened.
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
    fn each_who_knocks_is_answered_once_and_no_more_may_wait_than_fit() {
        // If this broke, a flood would fill the daemon's memory, or a member would wait for an answer that never comes.
        let (key, station) = (ClusterKey::generate().unwrap(), IpcServer::open(NodeId(1)).unwrap());
        let hello = |node| PeerHello { node: NodeId(node), run: 1, planes: 1 };
        let judged = HandshakeCounts::default();
        let doorkeeper = HandshakeVerifier::new(
            key.clone(),
            Purpose::Data(0),
            hello(1),
            judged.clone(),
            Supervisor::default().part("it"),
        );
        let mut doorman = HandshakeWorker::start(doorkeeper, station.inbox()).unwrap();
        let (address, peer) = (SocketAddr::from(([127, 0, 0, 9], 1)), PeerId::from_bits(7));
        let (_, first) = Initiator::begin(&key, Purpose::Data(0), &hello(2)).unwrap();
        assert!(doorman.ask(peer, address, &first));
        assert!(!doorman.ask(peer, address, &[0; HELLO_BYTES_MAX + 1]), "longer than any");
        let more = (0..1000).filter(|_| doorman.ask(peer, address, b"rubbish")).count();
        assert_eq!(more, HandshakeWorker::KNOCKS_MAX - 1);
        let end = Instant::now() + Duration::from_secs(20);
        let mut answers = Vec::new();
        while answers.len() < HandshakeWorker::KNOCKS_MAX && Instant::now() < end {
            answers.extend(doorman.answer());
        }
        let count = answers.len();
        let good = answers.into_iter().filter_map(|HandshakeResult { verdict, .. }| match verdict {
            Admission::Admit(pass) => answer_in(pass),
            Admission::Reject(_) => None,
        });
        let good: Vec<Answer> = good.collect();
        assert_eq!((count, good.len()), (HandshakeWorker::KNOCKS_MAX, 1));
        assert_eq!(judged.count(), HandshakeWorker::KNOCKS_MAX as u64);
        assert_eq!(good[0].theirs, hello(2));
        assert!(doorman.answer().is_none() && doorman.ask(peer, address, &first), "there is room again");
    }
}
