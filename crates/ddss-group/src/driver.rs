//! A group and its fabric, as a service thread polls them.

use crate::directory::RowError;
use crate::group::{Group, GroupEvent, LostReason};
use crate::member::{Incarnation, Member};
use crate::mesh::{Mesh, SendError};
use crate::wake::Wake;
use ddss_verbs::{Event, Events, Fabric, FabricError, PeerId, PostErrorKind, RegionId, Rights, Trust, Window, Work};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Event of a group or of its fabric, with bytes of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Happened {
    /// A process has taken the place of a member. Its connection follows.
    Seen(Member),
    /// A member is connected.
    Up(Member),
    /// A message arrived.
    Message(Member, Vec<u8>),
    /// A member has left in order.
    Left(Member),
    /// A member is lost.
    Lost(Member, LostReason),
    /// The state of the group has changed.
    State(u8),
    /// This process has lost its place.
    Replaced,
    /// The directory is no more: no process finds this one any more. Those that are connected may go on.
    Released,
    /// The directory cannot be read by this release, so this process sees no more changes.
    Unreadable(RowError),
    /// Posted work ended: its tag, and its value if it succeeded. The end of the connection follows failed work.
    Done(u64, Option<u64>),
}

impl Happened {
    fn of(event: GroupEvent<'_>) -> Self {
        match event {
            GroupEvent::Seen(member, _) => Self::Seen(member),
            GroupEvent::Up(member) => Self::Up(member),
            GroupEvent::Message { from, bytes } => Self::Message(from, bytes.to_vec()),
            GroupEvent::Left(member) => Self::Left(member),
            GroupEvent::Lost(member, reason) => Self::Lost(member, reason),
            GroupEvent::State(state) => Self::State(state),
            GroupEvent::Replaced => Self::Replaced,
            GroupEvent::Released => Self::Released,
            GroupEvent::Unreadable(error) => Self::Unreadable(error),
        }
    }
}

/// A group and its fabric, as a service thread polls them.
pub struct Driver {
    fabric: Box<dyn Fabric>,
    group: Group,
    wake: Arc<Wake>,
    events: Events,
    start: Instant,
    next_tick: Duration,
}

impl Driver {
    /// Longest time between two reads of the group's news while the thread does not sleep.
    const TICK: Duration = Duration::from_millis(1);
    /// Longest sleep: silent members are noticed in time.
    const SLEEP_MAX: Duration = Duration::from_millis(50);

    /// Creates the driver of a group, whose thread `wake` wakes.
    #[must_use]
    pub fn new(fabric: Box<dyn Fabric>, group: Group, wake: Arc<Wake>) -> Self {
        let (events, start, next_tick) = (Events::new(), Instant::now(), Duration::ZERO);
        Self { fabric, group, wake, events, start, next_tick }
    }

    /// Returns the time since the driver was created.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns this process's number.
    #[must_use]
    pub fn ours(&self) -> Member {
        self.group.ours()
    }

    /// Returns the process that was seen last in the place of a member: its run is 0 if there was none.
    #[must_use]
    pub fn incarnation(&self, member: Member) -> Incarnation {
        self.group.incarnation(member)
    }

    /// Returns the connection to a member.
    #[must_use]
    pub fn peer(&self, member: Member) -> Option<PeerId> {
        self.group.peer(member)
    }

    /// Polls the fabric, and at times the group. Appends what happened, in its order; returns the number of events of the
    /// fabric.
    pub fn poll(&mut self, into: &mut Vec<Happened>) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let count = self.fabric.poll(&mut events);
        for event in events.iter() {
            if let Event::Done { tag, outcome, .. } = event {
                if tag != Mesh::TAG {
                    into.push(Happened::Done(tag, outcome.ok()));
                }
                continue;
            }
            let now = self.now();
            into.extend(self.group.handle(self.fabric.as_mut(), &event, now).map(Happened::of));
        }
        events.clear();
        self.events = events;
        if count > 0 || self.now() >= self.next_tick {
            while let Some(event) = self.group.tick(self.fabric.as_mut(), self.start.elapsed()) {
                into.push(Happened::of(event));
            }
            self.next_tick = self.now() + Self::TICK;
        }
        count
    }

    /// Sends a message: [`Mesh::send`].
    ///
    /// # Errors
    /// The errors of [`Mesh::send`].
    pub fn send(&mut self, to: Member, parts: &[&[u8]]) -> Result<(), SendError> {
        self.group.send(self.fabric.as_mut(), to, parts)
    }

    /// Posts work.
    ///
    /// # Errors
    /// The reason of the fabric.
    pub fn post(&mut self, work: Work<'_>) -> Result<(), PostErrorKind> {
        self.fabric.post(&[work]).map_err(|error| error.kind)
    }

    /// Maps memory for transfers.
    ///
    /// # Errors
    /// The reason of the fabric.
    pub fn register(
        &mut self,
        memory: BorrowedFd<'_>,
        trust: Trust,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionId, FabricError> {
        self.fabric.register(memory, trust, offset, bytes)
    }

    /// Opens a window to a connected member.
    ///
    /// # Errors
    /// The reason of the fabric.
    pub fn expose(
        &mut self,
        peer: PeerId,
        region: RegionId,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Window, FabricError> {
        self.fabric.expose(peer, region, offset, bytes, rights)
    }

    /// Closes the connection to a member, which the caller takes for lost: nothing more is reported of it.
    pub fn close(&mut self, member: Member) {
        self.group.close(self.fabric.as_mut(), member);
    }

    /// Tells a member that this process leaves in order, behind all messages to it.
    pub fn leave(&mut self, member: Member) {
        self.group.mesh().leave(self.fabric.as_mut(), member);
    }

    /// Returns true if the last poll served peers without an event.
    #[must_use]
    pub fn has_moved_bytes(&self) -> bool {
        self.fabric.has_moved_bytes()
    }

    /// Prepares to sleep. Returns false if the fabric has work. The caller clears the wake descriptor and looks for work of
    /// its own before.
    pub fn arm(&mut self) -> bool {
        self.fabric.arm()
    }

    /// Ends the sleep.
    pub fn disarm(&mut self) {
        self.fabric.disarm();
    }

    /// Returns the descriptors that are readable when there is work.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.fabric.descriptor(), self.group.descriptor(), self.wake.as_fd()]
    }

    /// Returns the longest permitted sleep.
    #[must_use]
    pub fn sleep_max(&self) -> Duration {
        let fabric = self.fabric.next_deadline();
        fabric.map_or(Self::SLEEP_MAX, |at| at.saturating_duration_since(Instant::now()).min(Self::SLEEP_MAX))
    }
}
