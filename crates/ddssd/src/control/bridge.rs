//! Message queues between a progress thread and the control plane: neither side ever waits for the other.
//!
//! The engine's tables bound the requests; the decisions of the cluster bound the events.

use crate::config::addresses::shard_address;
use ddss_admin::PeerAddress;
use ddss_core::{Failure, Name, NodeId, SegmentId, Shard};
use ddss_engine::{ClaimId, Proposal, RoleAssignment, StepId};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc as asynchronous;

/// A request of the progress thread.
#[derive(Debug)]
pub(crate) enum ControlRequest {
    /// Claims a name: this node wants to be its home.
    Claim { claim: ClaimId, name: Name, within: Duration },
    /// Gives a name back.
    Disclaim { claim: ClaimId, name: Name },
    /// Looks up a name with the newest state of the whole cluster.
    Confirm { step: StepId, name: Name, within: Duration },
    /// Proposes a change of a replicated segment; the engine repeats it until it is decided.
    Decide(Proposal),
    /// A replicated segment is lost: it is expected here, and is not there.
    Lost(RoleAssignment),
}

/// An event for the progress thread.
#[derive(Clone, Debug)]
pub(crate) enum ControlEvent {
    /// The home of a name has changed; `None` means that the name is free.
    Name { name: Name, home: Option<NodeId> },
    /// All names of the directory.
    Names(Vec<(Name, NodeId)>),
    /// All other members.
    Members(Vec<PeerAddress>),
    /// The cluster has declared a node dead.
    Dead(NodeId),
    /// A node was found alive again.
    Alive(NodeId),
    /// A node left or was removed: its id is not used again.
    Removed(NodeId),
    /// The cluster has decided the roles of a replicated segment.
    RoleAssigned(RoleAssignment),
    /// A replicated segment was released.
    RoleReleased(SegmentId),
    /// A lease: until this time no other node takes over a segment of this home. Earlier decisions were delivered
    /// before.
    Lease { until: Instant },
    /// Result of a claim.
    Claimed { claim: ClaimId, result: Result<(), Failure> },
    /// Result of a disclaim: the name is free, or will be as soon as the cluster is reachable.
    Disclaimed { claim: ClaimId, result: Result<(), Failure> },
    /// The cluster has given a segment up of which no copy is left.
    GivenUp(SegmentId),
    /// True if a majority of the voters is reachable.
    Majority(bool),
    /// Result of a confirmation: the home of the name.
    Confirmed { step: StepId, result: Result<Option<NodeId>, Failure> },
}

#[derive(Debug)]
struct Waker {
    /// Events are waiting in the queue.
    signaled: AtomicBool,
    eventfd: OwnedFd,
}

/// The control plane's sender of events to one shard.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    events: mpsc::Sender<ControlEvent>,
    waker: Arc<Waker>,
}

impl EventSender {
    pub(crate) fn send(&self, event: ControlEvent) {
        // A progress thread that has ended needs no events.
        if self.events.send(event).is_err() {
            return;
        }
        // pairs with the Acquire in `ControlBridge::is_signaled`
        self.waker.signaled.store(true, Ordering::Release);
        // A full counter is as readable as a fresh one.
        let _ = rustix::io::write(&self.waker.eventfd, &1u64.to_ne_bytes());
    }
}

/// Event senders of all shards. An event that concerns one shard goes to this shard, all others go to all shards.
///
/// Responses do not pass here: they go to the shard that asked.
#[derive(Clone, Debug)]
pub(crate) struct EventSenders(Arc<[EventSender]>);

impl EventSenders {
    /// Collects the senders of all shards, in the order of the shards.
    pub(crate) fn new(senders: impl IntoIterator<Item = EventSender>) -> Self {
        Self(senders.into_iter().collect())
    }

    /// Number of shards.
    fn count(&self) -> u8 {
        self.0.len() as u8
    }

    fn each(&self) -> impl Iterator<Item = (Shard, &EventSender)> {
        Shard::all(self.count()).zip(&*self.0)
    }

    /// Sends to one shard; an event for a shard that does not exist is dropped.
    fn send_to(&self, shard: u8, event: ControlEvent) {
        if let Some(sender) = self.0.get(usize::from(shard)) {
            sender.send(event);
        }
    }

    pub(crate) fn send(&self, event: ControlEvent) {
        match event {
            ControlEvent::Name { ref name, .. } => self.send_to(Shard::index_of(name, self.count()), event),
            ControlEvent::RoleAssigned(ref role) => self.send_to(role.segment.shard(), event),
            ControlEvent::GivenUp(segment) => self.send_to(segment.shard(), event),
            ControlEvent::RoleReleased(segment) => self.send_to(segment.shard(), event),
            ControlEvent::Names(names) => self.each().for_each(|(shard, sender)| {
                let of_shard = names.iter().filter(|(name, _)| shard.has(name)).copied();
                sender.send(ControlEvent::Names(of_shard.collect()));
            }),
            ControlEvent::Members(members) => self.each().for_each(|(shard, sender)| {
                let at = |member: &PeerAddress| shard_address(member.address, shard.index());
                let of_shard = members.iter().map(|member| PeerAddress { address: at(member), ..*member });
                sender.send(ControlEvent::Members(of_shard.collect()));
            }),
            event => self.0.iter().for_each(|sender| sender.send(event.clone())),
        }
    }
}

/// The progress thread's side of the bridge.
#[derive(Debug)]
pub(crate) struct ControlBridge {
    requests: asynchronous::UnboundedSender<ControlRequest>,
    events: mpsc::Receiver<ControlEvent>,
    waker: Arc<Waker>,
    /// The cluster's directory once had all names of this node.
    pub(crate) are_names_compared: bool,
}

impl ControlBridge {
    /// Maximum number of events that the progress thread takes in one round.
    pub(crate) const BATCH: usize = 64;

    /// Opens a bridge; returns both sides and the receiver of requests.
    pub(crate) fn open() -> io::Result<(ControlBridge, EventSender, asynchronous::UnboundedReceiver<ControlRequest>)> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waker = Arc::new(Waker { signaled: AtomicBool::new(false), eventfd });
        let (requests, request_receiver) = asynchronous::unbounded_channel();
        let (event_sender, events) = mpsc::channel();
        Ok((
            ControlBridge { requests, events, waker: Arc::clone(&waker), are_names_compared: false },
            EventSender { events: event_sender, waker },
            request_receiver,
        ))
    }

    /// Sends a request; returns false if the control plane has ended.
    pub(crate) fn send_request(&self, request: ControlRequest) -> bool {
        self.requests.send(request).is_ok()
    }

    pub(crate) fn is_signaled(&self) -> bool {
        self.waker.signaled.load(Ordering::Acquire)
    }

    /// Clears the signal, before the events are read: a later event signals anew.
    pub(crate) fn clear_signal(&self) {
        self.waker.signaled.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(&self.waker.eventfd, &mut [0; 8]);
    }

    /// Keeps the signal set, because more events wait than one round takes.
    pub(crate) fn signal_again(&self) {
        self.waker.signaled.store(true, Ordering::SeqCst);
    }

    pub(crate) fn next_event(&self) -> Option<ControlEvent> {
        self.events.try_recv().ok()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.waker.eventfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_goes_only_to_its_shard() {
        // If this broke, a shard would answer for names of other shards, or connect to the port of another shard.
        let (bridges, senders): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (bridge, sender, _) = ControlBridge::open().unwrap();
                (bridge, sender)
            })
            .unzip();
        let senders = EventSenders::new(senders);
        let names = ["a", "b"].map(|name| Name::new(name).unwrap());
        assert_eq!(names.map(|name| Shard::index_of(&name, 2)), [1, 0], "one of each shard");
        let home = Some(NodeId(1));
        names.into_iter().for_each(|name| senders.send(ControlEvent::Name { name, home }));
        senders.send(ControlEvent::Names(names.map(|name| (name, NodeId(1))).into()));
        let address = "127.0.0.2:7400".parse().unwrap();
        senders.send(ControlEvent::Members(vec![PeerAddress { node: NodeId(2), address }]));
        senders.send(ControlEvent::RoleReleased(SegmentId::new(NodeId(1), 0, 1).on_shard(1)));
        senders.send(ControlEvent::RoleReleased(SegmentId::new(NodeId(1), 0, 1).on_shard(9)));
        senders.send(ControlEvent::Dead(NodeId(2)));
        for (bridge, (name, port, assignments)) in bridges.iter().zip([(names[1], 7400, 0), (names[0], 7402, 1)]) {
            assert!(bridge.is_signaled());
            let received: Vec<ControlEvent> = std::iter::from_fn(|| bridge.next_event()).collect();
            assert!(matches!(&received[0], ControlEvent::Name { name: got, .. } if *got == name), "{received:?}");
            assert!(matches!(&received[1], ControlEvent::Names(got) if got[..] == [(name, NodeId(1))]), "{received:?}");
            assert!(
                matches!(&received[2], ControlEvent::Members(got) if got[0].address.port() == port),
                "{received:?}"
            );
            assert_eq!(
                received.iter().filter(|event| matches!(event, ControlEvent::RoleReleased(_))).count(),
                assignments
            );
            assert!(matches!(received.last(), Some(ControlEvent::Dead(NodeId(2)))));
        }
    }
}
