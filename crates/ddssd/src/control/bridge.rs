//! Where the progress thread and the control plane meet: neither ever waits for the other.
//!
//! What the progress thread asks is bounded by the engine's tables; what it is told, by what the cluster decides.

use super::raft::network::plane_address;
use crate::config::config::PeerAddress;
use ddss_core::engine::{ClaimId, Proposal, RoleAssignment, StepId};
use ddss_core::{Failure, Name, NodeId, SegmentId, Shard};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc as asynchronous;

/// What the progress thread asks.
#[derive(Debug)]
pub(crate) enum ControlRequest {
    /// This node wants to be the home of a name.
    Claim { claim: ClaimId, name: Name, within: Duration },
    /// It is the home no longer.
    Disclaim { claim: ClaimId, name: Name },
    /// Where is that name, at this moment, in the whole cluster?
    Confirm { step: StepId, name: Name, within: Duration },
    /// Something about a mirrored segment is to be decided; it is asked again if it is not.
    Decide(Proposal),
}

/// What the progress thread is told.
#[derive(Clone, Debug)]
pub(crate) enum ControlEvent {
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
    /// It left or was removed: its number is nobody's any more.
    Gone(NodeId),
    /// What the cluster has decided about a mirrored segment.
    Duty(RoleAssignment),
    /// A mirrored segment was released.
    NoDuty(SegmentId),
    /// Until then nobody else is the home of what is at home here; all that was decided before was told before.
    Lease { until: Instant },
    /// What became of a claim.
    Claimed { claim: ClaimId, result: Result<(), Failure> },
    /// A name is given back, or will be as soon as the cluster can be reached.
    Disclaimed { claim: ClaimId, result: Result<(), Failure> },
    /// Whether most voters of the cluster can be reached.
    Majority(bool),
    /// Where a name is.
    Confirmed { step: StepId, result: Result<Option<NodeId>, Failure> },
}

#[derive(Debug)]
struct Waker {
    /// Something lies on the desk.
    rung: AtomicBool,
    wake: OwnedFd,
}

/// The control plane's side.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    tells: mpsc::Sender<ControlEvent>,
    bell: Arc<Waker>,
}

impl EventSender {
    pub(crate) fn tell(&self, tell: ControlEvent) {
        // A progress thread that has ended hears nothing, and needs to hear nothing.
        if self.tells.send(tell).is_err() {
            return;
        }
        // pairs with the Acquire in `ControlBridge::is_rung`
        self.bell.rung.store(true, Ordering::Release);
        // A full counter is as readable as a fresh one.
        let _ = rustix::io::write(&self.bell.wake, &1u64.to_ne_bytes());
    }
}

/// The control plane's side of the desks of all planes: what concerns one plane is told that one, the rest all of them.
/// Only answers are none of its business: they go to whoever asked.
#[derive(Clone, Debug)]
pub(crate) struct EventSenders(Arc<[EventSender]>);

impl EventSenders {
    /// Of all planes, the first one first.
    pub(crate) fn new(tellers: impl IntoIterator<Item = EventSender>) -> Self {
        Self(tellers.into_iter().collect())
    }

    /// How many planes there are.
    fn count(&self) -> u8 {
        self.0.len() as u8
    }

    fn each(&self) -> impl Iterator<Item = (Shard, &EventSender)> {
        Shard::all(self.count()).zip(&*self.0)
    }

    /// One plane's; a number that none has is nobody's.
    fn tell_one(&self, plane: u8, tell: ControlEvent) {
        if let Some(teller) = self.0.get(usize::from(plane)) {
            teller.tell(tell);
        }
    }

    pub(crate) fn tell(&self, tell: ControlEvent) {
        match tell {
            ControlEvent::Name { ref name, .. } => self.tell_one(Shard::index_of(name, self.count()), tell),
            ControlEvent::Duty(ref duty) => self.tell_one(duty.segment.plane(), tell),
            ControlEvent::NoDuty(segment) => self.tell_one(segment.plane(), tell),
            ControlEvent::Names(names) => self.each().for_each(|(plane, teller)| {
                let theirs = names.iter().filter(|(name, _)| plane.has(name)).copied();
                teller.tell(ControlEvent::Names(theirs.collect()));
            }),
            ControlEvent::Members(members) => self.each().for_each(|(plane, teller)| {
                let at = |member: &PeerAddress| plane_address(member.address, plane.index());
                let theirs = members.iter().map(|member| PeerAddress { address: at(member), ..*member });
                teller.tell(ControlEvent::Members(theirs.collect()));
            }),
            everybodys => self.0.iter().for_each(|teller| teller.tell(everybodys.clone())),
        }
    }
}

/// The progress thread's side.
#[derive(Debug)]
pub(crate) struct ControlBridge {
    asks: asynchronous::UnboundedSender<ControlRequest>,
    tells: mpsc::Receiver<ControlEvent>,
    bell: Arc<Waker>,
}

impl ControlBridge {
    /// What is taken from it in one round.
    pub(crate) const BATCH: usize = 64;

    /// The two sides, and what is asked.
    pub(crate) fn open() -> io::Result<(ControlBridge, EventSender, asynchronous::UnboundedReceiver<ControlRequest>)> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(Waker { rung: AtomicBool::new(false), wake });
        let (asks, asked) = asynchronous::unbounded_channel();
        let (tell, tells) = mpsc::channel();
        Ok((ControlBridge { asks, tells, bell: Arc::clone(&bell) }, EventSender { tells: tell, bell }, asked))
    }

    /// Asks; `false` if nobody is there to answer any more.
    pub(crate) fn ask(&self, ask: ControlRequest) -> bool {
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

    pub(crate) fn next(&self) -> Option<ControlEvent> {
        self.tells.try_recv().ok()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plane_hears_what_is_its_own() {
        // If this broke, a plane would answer for names that it does not have, or connect to another plane's port.
        let (desks, tellers): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (desk, teller, _) = ControlBridge::open().unwrap();
                (desk, teller)
            })
            .unzip();
        let tellers = EventSenders::new(tellers);
        let names = ["a", "b"].map(|name| Name::new(name).unwrap());
        assert_eq!(names.map(|name| Shard::index_of(&name, 2)), [1, 0], "one of each plane");
        let home = Some(NodeId(1));
        names.into_iter().for_each(|name| tellers.tell(ControlEvent::Name { name, home }));
        tellers.tell(ControlEvent::Names(names.map(|name| (name, NodeId(1))).into()));
        let address = "127.0.0.2:7400".parse().unwrap();
        tellers.tell(ControlEvent::Members(vec![PeerAddress { node: NodeId(2), address }]));
        tellers.tell(ControlEvent::NoDuty(SegmentId::new(NodeId(1), 0, 1).on_plane(1)));
        tellers.tell(ControlEvent::NoDuty(SegmentId::new(NodeId(1), 0, 1).on_plane(9)));
        tellers.tell(ControlEvent::Dead(NodeId(2)));
        for (desk, (name, port, duties)) in desks.iter().zip([(names[1], 7400, 0), (names[0], 7402, 1)]) {
            assert!(desk.is_rung());
            let heard: Vec<ControlEvent> = std::iter::from_fn(|| desk.next()).collect();
            assert!(matches!(&heard[0], ControlEvent::Name { name: told, .. } if *told == name), "{heard:?}");
            assert!(matches!(&heard[1], ControlEvent::Names(told) if told[..] == [(name, NodeId(1))]), "{heard:?}");
            assert!(matches!(&heard[2], ControlEvent::Members(told) if told[0].address.port() == port), "{heard:?}");
            assert_eq!(heard.iter().filter(|tell| matches!(tell, ControlEvent::NoDuty(_))).count(), duties);
            assert!(matches!(heard.last(), Some(ControlEvent::Dead(NodeId(2)))));
        }
    }
}
