//! Where the progress thread and the control plane meet: neither ever waits for the other.
//!
//! What the progress thread asks is bounded by the engine's tables; what it is told, by what the cluster decides.

use ddss_core::engine::{ClaimId, Decision, Duty, StepId};
use ddss_core::{Failure, Name, NodeId, SegmentId};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc as asynchronous;

use crate::config::PeerAddress;

/// What the progress thread asks.
#[derive(Debug)]
pub(crate) enum Ask {
    /// This node wants to be the home of a name.
    Claim { claim: ClaimId, name: Name, within: Duration },
    /// It is the home no longer.
    Disclaim { claim: ClaimId, name: Name },
    /// Where is that name, at this moment, in the whole cluster?
    Confirm { step: StepId, name: Name, within: Duration },
    /// Something about a mirrored segment is to be decided; it is asked again if it is not.
    Decide(Decision),
}

/// What the progress thread is told.
#[derive(Debug)]
pub(crate) enum Tell {
    /// A name has another home, or none.
    Name { name: Name, home: Option<NodeId> },
    /// All names there are.
    Names(Vec<(Name, NodeId)>),
    /// All other nodes there are.
    Members(Vec<PeerAddress>),
    /// The cluster has declared a node dead.
    Dead(NodeId),
    /// It was found alive again.
    Alive(NodeId),
    /// What the cluster has decided about a mirrored segment.
    Duty(Duty),
    /// A mirrored segment was released.
    NoDuty(SegmentId),
    /// Until then nobody else is the home of what is at home here; all that was decided before was told before.
    Lease { until: Instant },
    /// What became of a claim.
    Claimed { claim: ClaimId, result: Result<(), Failure> },
    /// A name is given back, or will be as soon as the cluster can be reached.
    Disclaimed { claim: ClaimId },
    /// Where a name is.
    Confirmed { step: StepId, result: Result<Option<NodeId>, Failure> },
}

#[derive(Debug)]
struct Bell {
    /// Something lies on the desk.
    rung: AtomicBool,
    wake: OwnedFd,
}

/// The control plane's side.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    tells: mpsc::Sender<Tell>,
    bell: Arc<Bell>,
}

impl Teller {
    pub(crate) fn tell(&self, tell: Tell) {
        // A progress thread that has ended hears nothing, and needs to hear nothing.
        if self.tells.send(tell).is_err() {
            return;
        }
        // pairs with the Acquire in `Desk::is_rung`
        self.bell.rung.store(true, Ordering::Release);
        // A full counter is as readable as a fresh one.
        let _ = rustix::io::write(&self.bell.wake, &1u64.to_ne_bytes());
    }
}

/// The progress thread's side.
#[derive(Debug)]
pub(crate) struct Desk {
    asks: asynchronous::UnboundedSender<Ask>,
    tells: mpsc::Receiver<Tell>,
    bell: Arc<Bell>,
}

impl Desk {
    /// What is taken from it in one round.
    pub(crate) const BATCH: usize = 64;

    /// The two sides, and what is asked.
    pub(crate) fn open() -> io::Result<(Desk, Teller, asynchronous::UnboundedReceiver<Ask>)> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(Bell { rung: AtomicBool::new(false), wake });
        let (asks, asked) = asynchronous::unbounded_channel();
        let (tell, tells) = mpsc::channel();
        Ok((Desk { asks, tells, bell: Arc::clone(&bell) }, Teller { tells: tell, bell }, asked))
    }

    /// Asks; `false` if nobody is there to answer any more.
    pub(crate) fn ask(&self, ask: Ask) -> bool {
        self.asks.send(ask).is_ok()
    }

    pub(crate) fn is_rung(&self) -> bool {
        self.bell.rung.load(Ordering::Acquire)
    }

    /// The bell is heard: whoever rings after this rings anew.
    pub(crate) fn heard(&self) {
        self.bell.rung.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(&self.bell.wake, &mut [0; 8]);
    }

    /// There is more than one round takes.
    pub(crate) fn ring_again(&self) {
        self.bell.rung.store(true, Ordering::SeqCst);
    }

    pub(crate) fn next(&self) -> Option<Tell> {
        self.tells.try_recv().ok()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.wake.as_fd()
    }
}
