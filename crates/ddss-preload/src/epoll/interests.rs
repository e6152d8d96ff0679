//! The interests of a set. The kernel's registrations carry tokens, so that an event of the kernel finds its item.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use ddss_stream::{Descriptor, Endpoint};
use libc::epoll_event;

use super::item::Item;
use crate::descriptor_table;
use crate::sys::Array;
use crate::sys::kernel::kernel_control;

/// Sleeps after which a stream without bytes is left to its bell.
const IDLE_SLEEPS: u32 = 16;
const ADD: i32 = libc::EPOLL_CTL_ADD;
const MODIFY: i32 = libc::EPOLL_CTL_MOD;
const DELETE: i32 = libc::EPOLL_CTL_DEL;
const END_BITS: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
/// Marks the token of a bell.
const BELL: u64 = 1;
/// Upper bits of a token. The kernel keeps the program's own data of other descriptors, so that their events pass as they are.
const TOKEN: u64 = 0xd55a << 48;
const TOKEN_MASK: u64 = 0xffff << 48;
const VERSION_BITS: u32 = 24;
const INDEX_BITS: u32 = 23;

pub(super) type Room = [MaybeUninit<epoll_event>];

/// Counts that a wait needs without the lock. A thread counts itself, then looks for streams; one that brings a stream counts it, then
/// looks for sleepers.
pub(super) struct Counts {
    /// Streams whose interest the library keeps.
    librarys: AtomicU32,
    /// Threads that wait in the kernel, or are about to.
    sleepers: AtomicU32,
}

impl Counts {
    pub(super) const fn new() -> Self {
        Self { librarys: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
    }

    pub(super) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    pub(super) fn is_kernels(&self) -> bool {
        self.librarys.load(Ordering::SeqCst) == 0
    }

    pub(super) fn begin_sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn reset(&self) {
        self.librarys.store(0, Ordering::SeqCst);
        self.sleepers.store(0, Ordering::SeqCst);
    }

    pub(super) fn end_sleep(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts of a set that was never created.
static UNUSED: Counts = Counts::new();

pub(super) struct Interests {
    descriptor: RawFd,
    items: Array<Item, 0>,
    /// Free places. Has room for every item, as `awake` has.
    free: Array<u32, 0>,
    /// Position of a descriptor's item, plus one.
    by_descriptor: Array<u32, 0>,
    awake: Array<u32, 0>,
    /// True if two descriptors of one stream are in the set.
    has_copies: bool,
    /// True if the program waits for the set from outside. The kernel must know then whether the set is ready: the bell of a stream rings
    /// as long as a report is due.
    is_watched: bool,
    counts: &'static Counts,
    version: u32,
}

impl Interests {
    pub(super) const fn new() -> Self {
        Self {
            descriptor: -1,
            items: Array::new(),
            free: Array::new(),
            by_descriptor: Array::new(),
            awake: Array::new(),
            has_copies: false,
            is_watched: false,
            counts: &UNUSED,
            version: 0,
        }
    }

    /// Begins a new set.
    pub(super) fn reset(&mut self, descriptor: RawFd, counts: &'static Counts) {
        self.descriptor = descriptor;
        self.items.clear();
        self.free.clear();
        self.by_descriptor.clear();
        self.awake.clear();
        (self.has_copies, self.is_watched) = (false, false);
        self.counts = counts;
    }

    /// Learns that a registered descriptor is about to connect, and may leave TCP.
    pub(super) fn learn(&mut self, descriptor: RawFd, endpoint: &Endpoint) {
        let Some(index) = self.item(descriptor) else { return };
        let item = &mut self.items[index as usize];
        item.stream = Some((endpoint.index(), endpoint.generation()));
        let (events, token) = (item.events, token(index, item));
        if kernel_control(self.descriptor, MODIFY, descriptor, events, token).is_err() {
            // The program closed the descriptor that it had registered: this is another one.
            self.forget(index);
        }
    }

    /// Removes a registration. `None`: the kernel has none of this descriptor.
    pub(super) fn take_registration(&mut self, descriptor: RawFd) -> Option<(RawFd, epoll_event)> {
        let (set, item) = (self.descriptor, self.items[self.item(descriptor)? as usize]);
        self.remove(set, descriptor).ok()?;
        Some((set, epoll_event { events: item.events, u64: item.data }))
    }

    /// Takes the interests in a stream that has left TCP.
    pub(super) fn convert(&mut self, endpoint: &Endpoint) {
        for index in 0..self.items.len() {
            let item = self.items[index];
            if item.stream == Some((endpoint.index(), endpoint.generation())) && !item.is_served_by_library {
                self.take_from_kernel(self.descriptor, index as u32, endpoint);
            }
        }
        self.settle();
    }

    /// Prepares the set for waits from outside.
    pub(super) fn watch(&mut self) {
        if std::mem::replace(&mut self.is_watched, true) {
            return;
        }
        for index in 0..self.items.len() as u32 {
            let item = self.items[index as usize];
            if let Some(endpoint) = item.endpoint().filter(|_| item.is_served_by_library) {
                endpoint.watch();
                self.point_bell(self.descriptor, MODIFY, index, &endpoint);
                self.rouse(index, &endpoint);
            }
        }
        self.settle();
    }

    /// Rings the bells of the streams of a watched set for which a report is due, and silences the others.
    pub(super) fn settle(&mut self) {
        if !self.is_watched {
            return;
        }
        let items = &mut self.items;
        self.awake.retain(|index| {
            let item = &mut items[index as usize];
            let Some(endpoint) = item.endpoint() else { return true };
            if !item.is_due(endpoint.ready()) {
                endpoint.silence_set();
                endpoint.rest(item.wants_space(endpoint.ready()));
                endpoint.look_for_stall();
            }
            item.is_awake = item.is_due(endpoint.ready());
            if item.is_awake {
                endpoint.ring_own();
            }
            item.is_awake
        });
    }

    /// Registers the bell of a stream, or changes its registration: its events carry the token of this item.
    fn point_bell(&self, set: RawFd, operation: i32, index: u32, endpoint: &Endpoint) -> bool {
        let edge = if self.is_watched { 0 } else { libc::EPOLLET };
        let token = token(index, &self.items[index as usize]) | BELL;
        let registered = endpoint
            .bells()
            .map(|bell| kernel_control(set, operation, bell, (libc::EPOLLIN | edge) as u32, token).is_ok());
        registered.contains(&true)
    }

    /// Removes the bell of an item that is forgotten, or leaves it to another item of the stream.
    fn release_bell(&self, set: RawFd, index: u32, endpoint: &Endpoint) {
        let stream = self.items[index as usize].stream;
        let is_copy = |(place, item): &(usize, &Item)| {
            *place != index as usize && item.is_served_by_library && item.stream == stream
        };
        let other = self.items.iter().enumerate().find(|pair| self.has_copies && is_copy(pair));
        if let Some((other, _)) = other {
            self.point_bell(set, MODIFY, other as u32, endpoint);
            return;
        }
        for bell in endpoint.bells() {
            let _ = kernel_control(set, DELETE, bell, 0, 0);
        }
    }

    fn item(&self, descriptor: RawFd) -> Option<u32> {
        self.by_descriptor.get(descriptor as usize)?.checked_sub(1)
    }

    pub(super) fn add(&mut self, set: RawFd, descriptor: RawFd, event: epoll_event) -> Result<(), i32> {
        let endpoint = descriptor_table::stream(descriptor);
        if let Some(endpoint) = endpoint.as_ref().filter(|endpoint| endpoint.is_shared())
            && let Some(index) = self.item(descriptor)
            && self.revive(set, index, endpoint, event)?
        {
            return Ok(());
        }
        self.version = self.version.wrapping_add(1);
        let stream = endpoint.as_ref().map(|endpoint| (endpoint.index(), endpoint.generation()));
        let mut item = Item {
            descriptor,
            stream,
            version: self.version,
            events: event.events,
            data: event.u64,
            ..Item::default()
        };
        let is_served_by_library = endpoint.as_ref().is_some_and(Endpoint::is_shared);
        item.kernel_events = match &endpoint {
            Some(endpoint) if is_served_by_library => item.wanted_kernel_events(endpoint),
            _ => event.events,
        };
        self.make_room(descriptor)?;
        let index = self.free.last().copied().unwrap_or(self.items.len() as u32);
        kernel_control(set, ADD, descriptor, item.kernel_events, token(index, &item))?;
        if self.free.pop().is_some() {
            self.items[index as usize] = item;
        } else {
            self.items.push(item)?;
        }
        // The kernel forgot what the descriptor was before.
        if let Some(stale) = self.item(descriptor) {
            self.forget(stale);
        }
        self.by_descriptor[descriptor as usize] = index + 1;
        // The stream may have left TCP since it was looked at.
        if let Some(endpoint) = endpoint.filter(Endpoint::is_shared) {
            self.take_from_kernel(set, index, &endpoint);
        }
        Ok(())
    }

    /// Makes room for one more item, so that nothing fails behind the kernel's registration, nor in a handler that interrupts malloc.
    fn make_room(&mut self, descriptor: RawFd) -> Result<(), i32> {
        let count = self.items.len() + 1;
        self.items.reserve(count)?;
        self.free.reserve(count)?;
        self.awake.reserve(count)?;
        while self.by_descriptor.len() <= descriptor as usize {
            self.by_descriptor.push(0)?;
        }
        Ok(())
    }

    /// Takes up a registration that the program removed before. False: there is none of this stream.
    fn revive(&mut self, set: RawFd, index: u32, endpoint: &Endpoint, event: epoll_event) -> Result<bool, i32> {
        let item = &mut self.items[index as usize];
        if item.stream != Some((endpoint.index(), endpoint.generation())) || !item.is_served_by_library {
            return Ok(false);
        }
        if !item.is_parked {
            return Err(libc::EEXIST);
        }
        (item.events, item.data, item.is_spent, item.is_parked) = (event.events, event.u64, false, false);
        (item.has_edge, item.tcp_bits) = (true, 0);
        self.sync_kernel(set, index, endpoint);
        self.rouse(index, endpoint);
        Ok(true)
    }

    /// Makes a stream's interest the library's: the kernel keeps the end of the connection and the bell.
    fn take_from_kernel(&mut self, set: RawFd, index: u32, endpoint: &Endpoint) {
        let item = &mut self.items[index as usize];
        item.is_served_by_library = true;
        endpoint.register();
        if self.is_watched {
            endpoint.watch();
        }
        item.has_edge = true;
        let (token, wanted) = (token(index, item), item.wanted_kernel_events(endpoint));
        item.kernel_events = wanted;
        let descriptor = item.descriptor;
        self.counts.librarys.fetch_add(1, Ordering::SeqCst);
        // A second descriptor of the same stream finds the bell registered already.
        self.has_copies |= !self.point_bell(set, ADD, index, endpoint);
        let _ = kernel_control(set, MODIFY, descriptor, wanted, token);
        self.rouse(index, endpoint);
    }

    pub(super) fn modify(&mut self, set: RawFd, descriptor: RawFd, event: epoll_event) -> Result<(), i32> {
        let Some(index) = self.item(descriptor) else {
            return kernel_control(set, MODIFY, descriptor, event.events, event.u64);
        };
        let item = &mut self.items[index as usize];
        if !item.is_served_by_library {
            let changed = Item { events: event.events, data: event.u64, ..*item };
            kernel_control(set, MODIFY, descriptor, event.events, token(index, &changed))?;
            *item = changed;
            return Ok(());
        }
        let Some(endpoint) = item.endpoint() else {
            return kernel_control(set, MODIFY, descriptor, event.events, event.u64);
        };
        if item.is_parked {
            return Err(libc::ENOENT);
        }
        (item.events, item.data, item.is_spent, item.has_edge) = (event.events, event.u64, false, true);
        item.tcp_bits = 0;
        self.sync_kernel(set, index, &endpoint);
        self.rouse(index, &endpoint);
        Ok(())
    }

    /// Gives the kernel the events that it must have; for a stream that left TCP they never change.
    fn sync_kernel(&mut self, set: RawFd, index: u32, endpoint: &Endpoint) {
        let item = &mut self.items[index as usize];
        let wanted = item.wanted_kernel_events(endpoint);
        // A program that changes an edge-triggered registration wants conditions that hold again.
        if wanted != item.kernel_events || !endpoint.is_off_tcp() {
            item.kernel_events = wanted;
            let _ = kernel_control(set, MODIFY, item.descriptor, wanted, token(index, item));
        }
    }

    pub(super) fn remove(&mut self, set: RawFd, descriptor: RawFd) -> Result<(), i32> {
        let Some(index) = self.item(descriptor) else { return kernel_control(set, DELETE, descriptor, 0, 0) };
        let item = &mut self.items[index as usize];
        if item.is_served_by_library
            && let Some(endpoint) = item.endpoint()
        {
            if item.is_parked {
                return Err(libc::ENOENT);
            }
            if endpoint.is_off_tcp()
                && descriptor_table::stream(descriptor).is_some_and(|now| now.index() == endpoint.index())
            {
                item.is_parked = true;
                return Ok(());
            }
        }
        self.forget(index);
        kernel_control(set, DELETE, descriptor, 0, 0)
    }

    fn forget(&mut self, index: u32) {
        let item = self.items[index as usize];
        if self.item(item.descriptor) == Some(index) {
            self.by_descriptor[item.descriptor as usize] = 0;
        }
        if item.is_served_by_library {
            if let Some(endpoint) = item.endpoint() {
                endpoint.unregister();
                self.release_bell(self.descriptor, index, &endpoint);
            }
            self.counts.librarys.fetch_sub(1, Ordering::SeqCst);
        }
        if item.is_awake {
            self.awake.retain(|other| other != index);
        }
        self.items[index as usize] = Item::default();
        // `make_room` made room for every item, here and below.
        let _ = self.free.push(index);
    }

    /// Lets the set look at a stream.
    fn mark_awake(&mut self, index: u32) {
        let item = &mut self.items[index as usize];
        item.idle_sleeps = 0;
        if !std::mem::replace(&mut item.is_awake, true) {
            let _ = self.awake.push(index);
        }
    }

    /// Lets the set look at a stream, and wakes threads that sleep in it.
    fn rouse(&mut self, index: u32, endpoint: &Endpoint) {
        self.mark_awake(index);
        if self.counts.has_sleepers() {
            endpoint.ring_own();
        }
    }

    /// Reports the ready streams among those that are awake, at most as many as there is room for.
    pub(super) fn collect(&mut self, set: RawFd, room: &mut Room) -> usize {
        let (mut found, mut place) = (0, 0);
        while place < self.awake.len() && found < room.len() {
            let index = self.awake[place];
            let item = &mut self.items[index as usize];
            let Some(endpoint) = item.endpoint() else {
                self.forget(index);
                continue;
            };
            let bits = item.report(endpoint.ready());
            if bits != 0 {
                room[found].write(epoll_event { events: bits, u64: item.data });
                found += 1;
            }
            let is_settled = item.kernel_events == item.wanted_kernel_events(&endpoint);
            if !is_settled {
                self.sync_kernel(set, index, &endpoint);
            }
            place += 1;
        }
        if found == room.len() && place < self.awake.len() {
            // The next call begins with the streams that found no room.
            self.awake.rotate_left(place);
        }
        found
    }

    /// Announces that the set sleeps, and leaves idle streams to their bells. Every stream must be looked at afterwards.
    pub(super) fn announce(&mut self) {
        if self.is_watched {
            return self.settle();
        }
        let items = &mut self.items;
        self.awake.retain(|index| {
            let item = &mut items[index as usize];
            let Some(endpoint) = item.endpoint() else { return true };
            endpoint.rest(item.wants_space(endpoint.ready()));
            item.idle_sleeps += 1;
            // This is the look after the announcement of a stream that leaves.
            item.is_awake = item.idle_sleeps <= IDLE_SLEEPS || item.is_due(endpoint.ready());
            item.is_awake
        });
    }

    /// Leaves the streams to the threads that sleep in the set, before this one returns to the program.
    pub(super) fn hand_over(&mut self) {
        if !self.counts.has_sleepers() {
            return self.settle();
        }
        self.announce();
        for index in self.awake.iter() {
            let item = &self.items[*index as usize];
            if let Some(endpoint) = item.endpoint().filter(|endpoint| item.is_due(endpoint.ready())) {
                endpoint.ring_own();
            }
        }
    }

    /// Spares the peers the bells of streams that this thread looks at itself, unless another thread sleeps.
    pub(super) fn withdraw(&mut self) {
        if self.counts.has_sleepers() || self.is_watched {
            return;
        }
        for index in self.awake.iter() {
            if let Some(endpoint) = self.items[*index as usize].endpoint() {
                endpoint.wake();
            }
        }
    }

    /// Records an event of the kernel. Returns it if it is the program's.
    pub(super) fn take_event(&mut self, event: epoll_event) -> Option<epoll_event> {
        let (events, token) = (event.events, event.u64);
        if !has_token(&event) {
            return Some(event);
        }
        let index = (token >> 1) as u32 & ((1 << INDEX_BITS) - 1);
        let item = self.items.get_mut(index as usize)?;
        if version_bits(item) != (token & !TOKEN_MASK) >> (INDEX_BITS + 1) {
            return None;
        }
        if !item.is_served_by_library {
            item.return_to_kernel(self.descriptor);
            return Some(epoll_event { events, u64: item.data });
        }
        let Some(endpoint) = item.endpoint() else {
            self.forget(index);
            return None;
        };
        if token & BELL == 0 {
            if endpoint.is_off_tcp() || events & END_BITS != 0 {
                endpoint.latch(events);
            }
            if events & END_BITS == 0 {
                endpoint.check_bypass(Descriptor(item.descriptor));
            }
            if !endpoint.is_off_tcp() {
                item.tcp_bits |= events;
            }
            item.has_edge = true;
        } else if let Some(ended) = endpoint.take_rings() {
            let _ = kernel_control(self.descriptor, DELETE, ended, 0, 0);
        }
        self.mark_awake(index);
        if token & BELL != 0 && self.has_copies {
            let stream = self.items[index as usize].stream;
            for copy in 0..self.items.len() {
                if self.items[copy].is_served_by_library && self.items[copy].stream == stream {
                    self.mark_awake(copy as u32);
                }
            }
        }
        None
    }
}

/// Returns true if an event has a token in place of the program's data.
#[inline(always)]
pub(super) fn has_token(event: &epoll_event) -> bool {
    event.u64 & TOKEN_MASK == TOKEN
}

/// Returns the kernel's data of a registration: the program's own, or a stream's version and position, and whether it is the bell's.
fn token(index: u32, item: &Item) -> u64 {
    if item.stream.is_none() {
        return item.data;
    }
    TOKEN | version_bits(item) << (INDEX_BITS + 1) | u64::from(index) << 1
}

fn version_bits(item: &Item) -> u64 {
    u64::from(item.version) & ((1 << VERSION_BITS) - 1)
}
