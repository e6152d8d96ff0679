//! Connections of a member, and the task of its service thread.

use super::wire::{CHUNK_BYTES, FileMessage, encode_window};
use crate::state::SlotMemory;
use ddss_group::{Context, Driver, Group, Happened, Member, Membership, RemoteWindow, Wake};
use ddss_runtime::ProgressTask;
use ddss_verbs::{Fabric, LocalRange, PeerId, PostErrorKind, RegionId, Rights, Trust, Work};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Release of the messages between members.
const RELEASE: u8 = 1;
/// Orders that wait for a member, at most: one that takes no answers to what it asks is no honest one.
const ORDERS_MAX: usize = 64;

/// A step to a member.
#[derive(Debug)]
pub(super) enum Order {
    /// A chunk goes from a slot of this process into one of the member.
    Chunk {
        from: u16,
        into: u16,
        length: u32,
    },
    Message(Vec<u8>),
}

#[derive(Debug, Default)]
struct Link {
    /// False after the end of its connection, whatever messages follow.
    is_up: bool,
    /// Number of the connection: each process in the place has one.
    life: u32,
    /// Memory into which the member writes, and its region.
    inbox: Option<(SlotMemory, RegionId)>,
    window: Option<RemoteWindow>,
    orders: VecDeque<Order>,
}

/// A chunk in a slot into which a member has written it.
#[derive(Debug)]
pub(super) struct Chunk {
    memory: SlotMemory,
    slot: u16,
    length: u32,
}

impl Chunk {
    /// Returns a copy: the member may write into the slot at any time.
    pub(super) fn copy(&self) -> Vec<u8> {
        self.memory.read(self.slot, self.length)
    }
}

/// Connections of a member.
pub(super) struct Port {
    driver: Driver,
    wake: Arc<Wake>,
    /// Number of this file server; 0 for a user.
    server: u64,
    /// Slots of which chunks are sent.
    outbox: SlotMemory,
    outbox_region: RegionId,
    inbox_slots: u16,
    links: Vec<Link>,
}

/// Kind of a member: a file server or a user.
pub(super) trait Handler {
    /// A member opened its window. `server` is 0 for a user.
    fn on_open(&mut self, port: &mut Port, member: Member, server: u64);
    /// A message arrived. Returns false if no member sends it.
    fn on_message(&mut self, port: &mut Port, from: Member, message: FileMessage<'_>) -> bool;
    /// A member has left or is lost.
    fn on_end(&mut self, port: &mut Port, member: Member);
    /// The bytes of a slot from which a chunk was sent may change again.
    fn on_sent(&mut self, slot: u16);
    /// This process has lost its place.
    fn on_fenced(&mut self);
    /// Does a bounded part of the work of its own. Returns the amount.
    fn work(&mut self, port: &mut Port) -> usize;
    fn has_work(&self) -> bool;
}

impl Port {
    /// Bytes of a message between members.
    pub(super) const MESSAGE_BYTES: usize = 1024;

    /// Creates the port of a member, with so many slots for each direction.
    pub(super) fn new(
        (membership, mut fabric): (Membership, Box<dyn Fabric>),
        wake: Arc<Wake>,
        lease: Duration,
        server: u64,
        (outbox, inbox_slots): (SlotMemory, u16),
    ) -> Result<Self, io::Error> {
        let register = fabric.register(outbox.descriptor(), Trust::Sealed, 0, outbox.bytes());
        let outbox_region = register.map_err(io::Error::other)?;
        let links = (0..membership.members()).map(|_| Link::default()).collect();
        let context = Context { name: *b"DDSS files", release: RELEASE };
        let group = Group::new(membership, fabric.as_mut(), context, lease)?;
        let driver = Driver::new(fabric, group, wake.clone());
        Ok(Self { driver, wake, server, outbox, outbox_region, inbox_slots, links })
    }

    /// Creates memory for so many chunks.
    pub(super) fn slots(name: &str, slots: u16) -> Result<SlotMemory, ddss_ipc::MemoryError> {
        SlotMemory::create(name, slots, CHUNK_BYTES)
    }

    fn link(&mut self, member: Member) -> &mut Link {
        &mut self.links[usize::from(member.0)]
    }

    /// Returns true if a member is connected.
    pub(super) fn is_up(&self, member: Member) -> bool {
        self.links[usize::from(member.0)].is_up
    }

    /// Returns the number of the last connection to the place of a member.
    pub(super) fn life(&self, member: Member) -> u32 {
        self.links[usize::from(member.0)].life
    }

    /// Returns what a member has written into a slot. `None` if it has no such slot.
    pub(super) fn chunk(&self, from: Member, slot: u16, length: u32) -> Option<Chunk> {
        let (inbox, _) = self.links[usize::from(from.0)].inbox.as_ref()?;
        (slot < self.inbox_slots && length <= CHUNK_BYTES).then(|| Chunk { memory: inbox.clone(), slot, length })
    }

    /// Sends a message behind the orders before it.
    pub(super) fn send(&mut self, to: Member, message: &FileMessage<'_>) {
        self.order(to, Order::Message(message.encode()));
    }

    /// Executes an order behind those before it. One for a member whose connection has ended is forgotten.
    pub(super) fn order(&mut self, to: Member, order: Order) {
        let link = self.link(to);
        if link.is_up {
            link.orders.push_back(order);
        }
    }

    /// Opens this process's memory to a member.
    fn open(&mut self, member: Member) -> Result<(), io::Error> {
        let Some(peer) = self.driver.peer(member) else { return Ok(()) };
        if self.link(member).inbox.is_none() {
            let inbox = Self::slots("ddss-river-inbox", self.inbox_slots).map_err(io::Error::other)?;
            let region = self.driver.register(inbox.descriptor(), Trust::Sealed, 0, inbox.bytes());
            self.link(member).inbox = Some((inbox, region.map_err(io::Error::other)?));
        }
        let Some((inbox, region)) = &self.links[usize::from(member.0)].inbox else { return Ok(()) };
        let window = self.driver.expose(peer, *region, 0, inbox.bytes(), Rights::WRITE).map_err(io::Error::other)?;
        let message = encode_window(&RemoteWindow::encode(&window), self.server);
        self.link(member).orders.push_back(Order::Message(message));
        Ok(())
    }

    /// Executes the orders for a member, as far as they go. Returns their number, or `None` if one can never be executed.
    fn post(&mut self, member: Member) -> Option<usize> {
        let mut posted = 0;
        let Some(peer) = self.driver.peer(member) else { return Some(0) };
        while let Some(order) = self.link(member).orders.pop_front() {
            let is_done = match &order {
                Order::Message(bytes) => Some(self.driver.send(member, &[bytes]).is_ok()),
                Order::Chunk { from, into, length } => self.write(member, peer, (*from, *into, *length)),
            };
            if is_done != Some(true) {
                // If the connection has ended, its event follows. The end of the connection frees the slot of a chunk.
                self.link(member).orders.push_front(order);
                is_done?;
                break;
            }
            posted += 1;
        }
        // A user asks for all that it sends.
        let is_bounded = self.server == 0 || self.link(member).orders.len() <= ORDERS_MAX;
        is_bounded.then_some(posted)
    }

    /// Writes a chunk into a slot of a member. Returns false if it cannot now, and `None` if it never can.
    fn write(&mut self, member: Member, peer: PeerId, (from, into, length): (u16, u16, u32)) -> Option<bool> {
        let (offset, bytes) = (self.outbox.offset(into), u64::from(length));
        // Slots have the same size in all members.
        let remote = self.link(member).window.and_then(|window| window.address(offset, bytes))?;
        let local = LocalRange { region: self.outbox_region, offset: self.outbox.offset(from), bytes };
        match self.driver.post(Work::Write { peer, tag: from.into(), local, remote }) {
            Ok(()) => Some(true),
            Err(PostErrorKind::Busy | PostErrorKind::NotConnected) => Some(false),
            Err(_) => None,
        }
    }
}

/// Task of the service thread of a member.
pub(super) struct Endpoint<H> {
    port: Port,
    handler: H,
    happened: Vec<Happened>,
}

impl<H: Handler> Endpoint<H> {
    /// Longest wait for the last orders to leave.
    const ORDERS_WAIT_MAX: Duration = Duration::from_secs(2);
    /// Longest wait for the members to notice that this process leaves.
    const LEAVE_MAX: Duration = Duration::from_millis(500);

    pub(super) fn new(port: Port, handler: H) -> Self {
        Self { port, handler, happened: Vec::new() }
    }

    fn members(&self) -> impl Iterator<Item = Member> + use<H> {
        (0..self.port.links.len() as u16).map(Member)
    }

    fn apply(&mut self, happened: Happened) {
        match happened {
            Happened::Up(member) => self.greet(member),
            Happened::Message(from, bytes) if self.port.link(from).is_up => self.receive(from, &bytes),
            Happened::Done(slot, _) => self.handler.on_sent(slot as u16),
            Happened::Left(member) | Happened::Lost(member, _) => self.end(member),
            // Without its directory no other member finds this one.
            Happened::Replaced | Happened::Released | Happened::Unreadable(_) => {
                self.handler.on_fenced();
                self.members().for_each(|member| self.expel(member));
            }
            _ => {}
        }
    }

    /// Opens the memory of a server to a member. Users open theirs to servers only, behind that.
    fn greet(&mut self, member: Member) {
        let link = self.port.link(member);
        (link.is_up, link.life) = (true, link.life.wrapping_add(1));
        if self.port.server != 0 && self.port.open(member).is_err() {
            self.expel(member);
        }
    }

    fn receive(&mut self, from: Member, bytes: &[u8]) {
        if !self.accept(from, bytes) {
            self.expel(from);
        }
    }

    fn accept(&mut self, from: Member, bytes: &[u8]) -> bool {
        let Some(message) = FileMessage::decode(bytes) else { return false };
        let FileMessage::Window { window, server } = message else {
            return self.handler.on_message(&mut self.port, from, message);
        };
        if self.port.link(from).window.replace(window).is_some() {
            return false;
        }
        if self.port.server == 0 && (server == 0 || self.port.open(from).is_err()) {
            return false;
        }
        self.handler.on_open(&mut self.port, from, server);
        true
    }

    fn end(&mut self, member: Member) {
        let link = self.port.link(member);
        (link.is_up, link.window) = (false, None);
        for order in std::mem::take(&mut link.orders) {
            if let Order::Chunk { from, .. } = order {
                self.handler.on_sent(from);
            }
        }
        self.handler.on_end(&mut self.port, member);
    }

    fn expel(&mut self, member: Member) {
        self.port.driver.close(member);
        self.end(member);
    }

    fn has_orders(&self) -> bool {
        self.handler.has_work() || self.port.links.iter().any(|link| link.is_up && !link.orders.is_empty())
    }

    fn post(&mut self) -> usize {
        let mut posted = 0;
        for member in self.members() {
            match self.port.post(member) {
                Some(count) => posted += count,
                None => self.expel(member),
            }
        }
        posted
    }
}

impl<H: Handler> ProgressTask for Endpoint<H> {
    fn poll(&mut self) -> usize {
        let mut happened = std::mem::take(&mut self.happened);
        let worked = self.port.driver.poll(&mut happened);
        happened.drain(..).for_each(|happened| self.apply(happened));
        self.happened = happened;
        worked + self.handler.work(&mut self.port) + self.post()
    }

    fn has_served_peers(&self) -> bool {
        self.port.driver.has_moved_bytes()
    }

    fn arm(&mut self) -> bool {
        self.port.wake.clear();
        !self.handler.has_work() && self.port.driver.arm()
    }

    fn disarm(&mut self) {
        self.port.driver.disarm();
    }

    fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>])) {
        wait(&self.port.driver.descriptors());
    }

    fn park_limit(&self) -> Duration {
        self.port.driver.sleep_max()
    }

    fn finish(&mut self) {
        // A writer drops the parts of a loading that failed: a server takes nothing behind the leave.
        let end = Instant::now() + Self::ORDERS_WAIT_MAX;
        while self.has_orders() && Instant::now() < end {
            self.poll();
            std::thread::yield_now();
        }
        let end = Instant::now() + Self::LEAVE_MAX;
        self.members().for_each(|member| self.port.driver.leave(member));
        while self.members().any(|member| self.port.driver.peer(member).is_some()) && Instant::now() < end {
            self.poll();
            std::thread::yield_now();
        }
    }
}
