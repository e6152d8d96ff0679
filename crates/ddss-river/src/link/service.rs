//! Task of the service thread.

use crate::state::{Failure, MemberLoad, Post, Shared, SlotMemory};
use ddss_group::{Context, Driver, Group, GroupState, Happened, Member, Membership, RemoteWindow, SendError, Wake};
use ddss_ipc::MemoryError;
use ddss_river_core::Header;
use ddss_river_core::codec::{Message, encode};
use ddss_river_core::limits::{HEADER_BYTES, INLINE_BYTES_MAX};
use ddss_runtime::ProgressTask;
use ddss_verbs::{Fabric, FabricError, LocalRange, PeerId, PostErrorKind, RegionId, RemoteRange, Rights, Trust, Work};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First byte of a message to a member.
const RING: u8 = 0;
const QUEUE: u8 = 1;

/// State of the group of a queue that is closed.
pub(crate) const CLOSED: u8 = 1;
/// State of the group of a fail-stop queue that has lost a member.
pub(crate) const FAILED: u8 = 2;

/// Tag of writes: nothing waits for their end, since a slot is free only when its message is acknowledged.
const WRITE: u64 = 0;

/// Parts of which the service thread is made.
pub(crate) struct ServiceConfig {
    pub(crate) shared: Arc<Shared>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) state: GroupState,
    pub(crate) membership: Membership,
    pub(crate) fabric: Box<dyn Fabric>,
    pub(crate) context: Context,
    pub(crate) lease: Duration,
}

/// Connection to another member.
#[derive(Debug, Default)]
struct Link {
    /// Region of the ring for its messages, once it was needed.
    ring: Option<RegionId>,
    /// True if the present process of the member was connected.
    was_up: bool,
    /// True while the member waits for its ring.
    awaits_ring: bool,
    /// This process's ring at the member.
    window: Option<RemoteWindow>,
}

/// Reason why a connection cannot be used.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Fabric(#[from] FabricError),
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Task of the service thread.
pub(crate) struct Service {
    shared: Arc<Shared>,
    wake: Arc<Wake>,
    driver: Driver,
    /// Region of the send slots.
    send_region: RegionId,
    links: Vec<Link>,
    happened: Vec<Happened>,
    /// Message in work.
    message: Vec<u8>,
    state: GroupState,
    /// The directory is no more.
    is_released: bool,
    /// Load that was published last, and when.
    reported: (Duration, MemberLoad),
}

impl Service {
    /// Time between two loads that this member publishes.
    const REPORT_EVERY: Duration = Duration::from_millis(500);
    /// Longest wait for the members to notice that this process leaves.
    const LEAVE_MAX: Duration = Duration::from_millis(500);
    /// Bytes of a message between members: a header with its bytes, or some notices.
    pub(crate) const MESSAGE_BYTES: usize = 1024;
    /// Bytes of notices in one message.
    const NOTICES_BYTES_MAX: usize = HEADER_BYTES + INLINE_BYTES_MAX;

    pub(crate) fn new(config: ServiceConfig) -> Result<Self, io::Error> {
        let ServiceConfig { shared, wake, state, membership, mut fabric, context, lease } = config;
        let slots = shared.serve(|ends| ends.send_slots().clone());
        let send_region =
            fabric.register(slots.descriptor(), Trust::Sealed, 0, slots.bytes()).map_err(io::Error::other)?;
        let links = (0..membership.members()).map(|_| Link::default()).collect();
        let group = Group::new(membership, fabric.as_mut(), context, lease)?;
        let driver = Driver::new(fabric, group, wake.clone());
        let reported = (Duration::ZERO, MemberLoad::default());
        Ok(Self {
            shared,
            wake,
            state,
            is_released: false,
            driver,
            send_region,
            links,
            happened: Vec::new(),
            message: Vec::new(),
            reported,
        })
    }

    /// Publishes the load of this member, for those who watch the queue.
    fn report(&mut self) {
        let (now, (then, before)) = (self.driver.now(), &self.reported);
        let time = now.saturating_sub(*then);
        if time >= Self::REPORT_EVERY {
            let held = self.shared.serve(|ends| ends.held());
            let load = self.shared.counters.load(held, before, time);
            self.state.publish(load.encode());
            self.reported = (now, load);
        }
    }

    fn link(&mut self, member: Member) -> &mut Link {
        &mut self.links[usize::from(member.0)]
    }

    fn members(&self) -> impl Iterator<Item = Member> + use<> {
        (0..self.links.len() as u16).map(Member)
    }

    fn apply(&mut self, happened: Happened) {
        match happened {
            Happened::Seen(member) => self.shared.serve(|ends| ends.see(member)),
            Happened::Up(member) => {
                let link = self.link(member);
                (link.awaits_ring, link.was_up) = (true, true);
            }
            Happened::Message(from, bytes) => self.receive(from, &bytes),
            Happened::Left(member) => self.end(member, true),
            // A process that was never connected has no messages, and none of this one: nothing is lost with it.
            Happened::Lost(member, _) => {
                let has_nothing = !self.link(member).was_up;
                self.end(member, has_nothing);
            }
            Happened::State(state) if state >= FAILED => self.shared.serve(|ends| ends.fail(Failure::Ended)),
            Happened::State(state) if state >= CLOSED => self.shared.serve(|ends| ends.close()),
            Happened::Released => self.is_released = true,
            Happened::Replaced | Happened::Unreadable(_) => {
                self.shared.serve(|ends| ends.fail(Failure::Fenced));
                for member in self.members() {
                    self.driver.close(member);
                    self.end(member, false);
                }
            }
            // Writes that fail are followed by the end of their connection.
            _ => {}
        }
    }

    /// Ends a queue that nobody can join, once no member is left and no message waits: the next process makes another queue of
    /// this name.
    fn end_released(&mut self) {
        let is_alone = self.is_released && !self.members().any(|member| self.driver.peer(member).is_some());
        if is_alone && self.shared.serve(|ends| !ends.has_messages()) {
            self.is_released = false;
            self.shared.serve(|ends| ends.fail(Failure::Fenced));
        }
    }

    fn end(&mut self, member: Member, has_left: bool) {
        let link = self.link(member);
        (link.awaits_ring, link.window, link.was_up) = (false, None, false);
        self.shared.serve(|ends| ends.end(member, has_left));
    }

    /// Ends the connection to a member, which cannot be used.
    fn expel(&mut self, member: Member) {
        self.driver.close(member);
        self.end(member, false);
    }

    fn receive(&mut self, from: Member, bytes: &[u8]) {
        let is_valid = match bytes.split_first() {
            Some((&RING, window)) => self.take_window(from, window),
            Some((&QUEUE, messages)) => self.shared.serve(|ends| ends.receive(from, messages).is_ok()),
            _ => false,
        };
        if !is_valid {
            self.expel(from);
        }
    }

    /// Takes the window over this process's ring at a member. Returns false if it has one, or the ring is too small.
    fn take_window(&mut self, from: Member, window: &[u8]) -> bool {
        let bytes = self.shared.serve(|ends| ends.ring_bytes());
        let window = window.try_into().ok().and_then(RemoteWindow::decode).filter(|window| window.bytes() >= bytes);
        let link = self.link(from);
        if window.is_none() || link.window.is_some() {
            return false;
        }
        link.window = window;
        self.shared.serve(|ends| ends.connect_consumer(from));
        true
    }

    /// Opens the rings that members wait for.
    fn open_rings(&mut self) -> usize {
        let mut opened = 0;
        for member in self.members() {
            if !self.link(member).awaits_ring {
                continue;
            }
            match self.open_ring(member) {
                Ok(true) => {
                    self.link(member).awaits_ring = false;
                    self.shared.serve(|ends| ends.connect_producer(member));
                    opened += 1;
                }
                // Messages of the process before are in the ring.
                Ok(false) => {}
                Err(_) => self.expel(member),
            }
        }
        opened
    }

    /// Opens the ring for the messages of a member. Returns false if it has to wait.
    fn open_ring(&mut self, member: Member) -> Result<bool, LinkError> {
        let Some(peer) = self.driver.peer(member) else { return Ok(false) };
        let Some(ring) = self.shared.serve(|ends| ends.ring(member))? else { return Ok(false) };
        let region = match self.link(member).ring {
            Some(region) => region,
            None => self.driver.register(ring.descriptor(), Trust::Sealed, 0, ring.bytes())?,
        };
        self.link(member).ring = Some(region);
        let window = self.driver.expose(peer, region, 0, ring.bytes(), Rights::WRITE)?;
        self.driver.send(member, &[&[RING], &RemoteWindow::encode(&window)])?;
        Ok(true)
    }

    /// Posts what has to go to the members. Returns the number of posts.
    fn post(&mut self) -> usize {
        let damaged = self.shared.serve(|ends| ends.take_damaged());
        damaged.into_iter().for_each(|member| self.expel(member));
        let mut posted = 0;
        for member in self.members() {
            while let Some(peer) = self.driver.peer(member) {
                let Some(post) = self.shared.serve(|ends| ends.next_post(member)) else { break };
                let result = match post {
                    Post::Message { header, is_written } => self.post_message(member, peer, header, is_written),
                    Post::Notice(first) => self.post_notices(member, first),
                };
                match result {
                    Ok(()) => posted += 1,
                    Err(Some(post)) => {
                        self.shared.serve(|ends| ends.return_post(member, post));
                        break;
                    }
                    Err(None) => self.expel(member),
                }
            }
        }
        posted
    }

    /// Writes a message into the ring at a member, and sends its header behind it. Returns the post if it has to wait, and
    /// `None` if it can never be sent.
    fn post_message(
        &mut self,
        member: Member,
        peer: PeerId,
        header: Header,
        is_written: bool,
    ) -> Result<(), Option<Post>> {
        let (slots, route): (SlotMemory, _) =
            self.shared.serve(|ends| (ends.send_slots().clone(), ends.route_to(member)));
        let (place, length) = (header.attempt.place, header.length);
        let is_inline = length as usize <= INLINE_BYTES_MAX;
        if !is_inline && !is_written {
            let remote = self.link(member).window.and_then(|window| {
                // Both rings have the same slots.
                window.address(slots.offset(header.slot), length.into())
            });
            let remote: RemoteRange = remote.ok_or(None)?;
            let local = LocalRange { region: self.send_region, offset: slots.offset(place), bytes: length.into() };
            match self.driver.post(Work::Write { peer, tag: WRITE, local, remote }) {
                Ok(()) => {}
                Err(PostErrorKind::Busy | PostErrorKind::NotConnected) => {
                    return Err(Some(Post::Message { header, is_written: false }));
                }
                Err(_) => return Err(None),
            }
        }
        let bytes = is_inline.then(|| slots.read(place, length));
        self.message.clear();
        encode(&Message::Put { route, header, inline: bytes.as_deref() }, &mut self.message);
        match self.driver.send(member, &[&[QUEUE], &self.message]) {
            Ok(()) => Ok(()),
            Err(SendError::TooLong { .. }) => Err(None),
            // If the connection has ended, its event follows.
            Err(_) => Err(Some(Post::Message { header, is_written: true })),
        }
    }

    /// Sends notices, as many as there are behind each other.
    fn post_notices(&mut self, member: Member, first: Vec<u8>) -> Result<(), Option<Post>> {
        let mut notices = first;
        self.shared.serve(|ends| {
            while let Some(post) = ends.next_post(member) {
                match post {
                    Post::Notice(next) if notices.len() + next.len() <= Self::NOTICES_BYTES_MAX => notices.extend(next),
                    other => return ends.return_post(member, other),
                }
            }
        });
        match self.driver.send(member, &[&[QUEUE], &notices]) {
            Ok(()) => Ok(()),
            Err(SendError::TooLong { .. }) => Err(None),
            Err(_) => Err(Some(Post::Notice(notices))),
        }
    }
}

impl ProgressTask for Service {
    fn poll(&mut self) -> usize {
        let mut happened = std::mem::take(&mut self.happened);
        let worked = self.driver.poll(&mut happened);
        happened.drain(..).for_each(|happened| self.apply(happened));
        self.happened = happened;
        self.report();
        self.end_released();
        worked + self.open_rings() + self.post()
    }

    fn has_served_peers(&self) -> bool {
        self.driver.has_moved_bytes()
    }

    fn arm(&mut self) -> bool {
        // Cleared before the look, so that what comes behind it makes the descriptor readable.
        self.wake.clear();
        if self.shared.serve(|ends| ends.has_posts()) {
            return false;
        }
        self.driver.arm()
    }

    fn disarm(&mut self) {
        self.driver.disarm();
    }

    fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>])) {
        wait(&self.driver.descriptors());
    }

    fn park_limit(&self) -> Duration {
        self.driver.sleep_max()
    }

    /// Gives back what the application has not finished, sends what is left, and waits a moment until the members have closed.
    fn finish(&mut self) {
        let end = Instant::now() + Self::LEAVE_MAX;
        while self.shared.serve(|ends| ends.has_posts()) && Instant::now() < end {
            self.poll();
        }
        let mut told = vec![false; self.links.len()];
        loop {
            // Members may come up meanwhile.
            for member in self.members() {
                if self.driver.peer(member).is_some() && !std::mem::replace(&mut told[usize::from(member.0)], true) {
                    self.driver.leave(member);
                }
            }
            if !self.members().any(|member| self.driver.peer(member).is_some()) || Instant::now() >= end {
                return;
            }
            self.poll();
            std::thread::yield_now();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.serve(|ends| ends.fail(Failure::Stopped));
    }
}
