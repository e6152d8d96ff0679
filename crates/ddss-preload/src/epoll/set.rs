//! A set: the kernel's registrations carry tokens, so that an event of the kernel finds its item.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ddss_stream::{Descriptor, Endpoint, Spin};
use libc::{epoll_event, sigset_t};

use super::item::Item;
use crate::descriptor_table;
use crate::sys::kernel::{kernel_control, kernel_wait};

/// Events that one wait in the kernel returns.
const KERNEL_EVENTS: usize = 64;
/// Returns without the kernel, after which the kernel's events are looked at.
const RETURNS_BEFORE_KERNEL: u32 = 32;
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

type Room = [MaybeUninit<epoll_event>];

/// The interest of a program in its descriptors.
pub(crate) struct EpollSet {
    inner: Mutex<Inner>,
    returns: AtomicU32,
    counts: Counts,
}

/// Counts that a wait needs without the lock. A thread counts itself, then looks for streams; one that brings a stream counts it, then
/// looks for sleepers.
struct Counts {
    /// Streams whose interest the library keeps.
    librarys: AtomicU32,
    /// Threads that wait in the kernel, or are about to.
    sleepers: AtomicU32,
}

impl Counts {
    const fn new() -> Self {
        Self { librarys: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
    }

    fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    fn is_kernels(&self) -> bool {
        self.librarys.load(Ordering::SeqCst) == 0
    }

    fn begin_sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    fn end_sleep(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts of a set that was never created.
static UNUSED: Counts = Counts::new();

struct Inner {
    descriptor: RawFd,
    items: Vec<Item>,
    free: Vec<u32>,
    /// Position of a descriptor's item, plus one.
    by_descriptor: Vec<u32>,
    awake: Vec<u32>,
    counts: &'static Counts,
    version: u32,
}

impl EpollSet {
    pub(super) const fn new() -> Self {
        let inner = Inner {
            descriptor: -1,
            items: Vec::new(),
            free: Vec::new(),
            by_descriptor: Vec::new(),
            awake: Vec::new(),
            counts: &UNUSED,
            version: 0,
        };
        Self { inner: Mutex::new(inner), returns: AtomicU32::new(0), counts: Counts::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reset(&'static self, descriptor: RawFd) {
        let mut inner = self.lock();
        inner.descriptor = descriptor;
        inner.items.clear();
        inner.free.clear();
        inner.by_descriptor.clear();
        inner.awake.clear();
        inner.counts = &self.counts;
        self.counts.librarys.store(0, Ordering::SeqCst);
        self.counts.sleepers.store(0, Ordering::SeqCst);
    }

    /// Adds, changes or removes a registration.
    pub(crate) fn control(
        &self,
        set: RawFd,
        operation: i32,
        descriptor: RawFd,
        event: Option<epoll_event>,
    ) -> Result<(), i32> {
        let mut inner = self.lock();
        match (operation, event) {
            (ADD, Some(event)) => inner.add(set, descriptor, event),
            (MODIFY, Some(event)) => inner.modify(set, descriptor, event),
            (DELETE, _) => inner.remove(set, descriptor),
            (ADD | MODIFY, None) => Err(libc::EFAULT),
            _ => Err(libc::EINVAL),
        }
    }

    /// Learns that a registered descriptor is about to connect, and may leave TCP: programs may register it before.
    pub(super) fn learn(&self, descriptor: RawFd, endpoint: &Endpoint) {
        let mut inner = self.lock();
        let set = inner.descriptor;
        let Some(index) = inner.item(descriptor) else { return };
        let item = &mut inner.items[index as usize];
        item.stream = Some((endpoint.index(), endpoint.generation()));
        let (events, token) = (item.events, token(index, item));
        if kernel_control(set, MODIFY, descriptor, events, token).is_err() {
            // The program closed the descriptor that it had registered: this is another one.
            inner.forget(index);
        }
    }

    /// Removes a registration. `None`: the kernel has none of this descriptor.
    pub(super) fn take_registration(&self, descriptor: RawFd) -> Option<(RawFd, epoll_event)> {
        let mut inner = self.lock();
        let (set, item) = (inner.descriptor, inner.items[inner.item(descriptor)? as usize]);
        inner.remove(set, descriptor).ok()?;
        Some((set, epoll_event { events: item.events, u64: item.data }))
    }

    pub(super) fn convert(&self, endpoint: &Endpoint) {
        let mut inner = self.lock();
        let set = inner.descriptor;
        for index in 0..inner.items.len() {
            let item = inner.items[index];
            if item.stream == Some((endpoint.index(), endpoint.generation())) && !item.is_librarys {
                inner.take_from_kernel(set, index as u32, endpoint);
            }
        }
    }

    /// Waits by the program's own call while no stream of the set is the library's. `None`: the library has to wait.
    #[inline(always)]
    pub(crate) fn wait_native(&self, native: impl FnOnce() -> i32) -> Option<i32> {
        if !self.counts.is_kernels() {
            return None;
        }
        self.counts.begin_sleep();
        let found = if self.counts.is_kernels() { Some(native()) } else { None };
        self.counts.end_sleep();
        found
    }

    /// Returns true if an event has a token in place of the program's data.
    #[inline(always)]
    pub(crate) fn is_streams(event: &epoll_event) -> bool {
        event.u64 & TOKEN_MASK == TOKEN
    }

    /// Puts the program's data in the place of tokens: of streams that may still leave TCP, or have just left it. Returns the number of
    /// events that are left.
    pub(crate) fn translate(
        &self,
        found: usize,
        event_at: impl Fn(usize) -> epoll_event,
        put: impl Fn(usize, epoll_event),
    ) -> usize {
        let (mut inner, mut reported) = (self.lock(), 0);
        for event in (0..found).map(event_at) {
            if let Some(event) = inner.take_event(event) {
                put(reported, event);
                reported += 1;
            }
        }
        reported
    }

    /// Waits for events. The count of events in `room` is returned, or the error number.
    pub(crate) fn wait(
        &self,
        set: RawFd,
        room: &mut Room,
        timeout_ms: i32,
        mask: *const sigset_t,
    ) -> Result<usize, i32> {
        let deadline = u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            let mut inner = self.lock();
            if self.counts.is_kernels() {
                self.counts.begin_sleep();
                drop(inner);
                let waited = self.wait_in_kernel(set, room, remaining(deadline), mask);
                self.counts.end_sleep();
                match waited? {
                    0 if deadline.is_none_or(|deadline| Instant::now() < deadline) => continue,
                    found => return Ok(found),
                }
            }
            let mut found = inner.collect(set, room);
            drop(inner);
            if found == 0 && timeout_ms != 0 {
                found = Spin::until(|| Some(self.lock().collect(set, room)).filter(|found| *found > 0)).unwrap_or(0);
            }
            if found > 0 {
                self.lock().hand_over();
                let returns = self.returns.fetch_add(1, Ordering::Relaxed);
                if returns.is_multiple_of(RETURNS_BEFORE_KERNEL) && found < room.len() {
                    found += self.wait_in_kernel(set, &mut room[found..], 0, std::ptr::null())?;
                }
                return Ok(found);
            }
            let mut inner = self.lock();
            inner.announce();
            found = inner.collect(set, room);
            if found > 0 {
                inner.withdraw();
                inner.hand_over();
                return Ok(found);
            }
            self.counts.begin_sleep();
            drop(inner);
            let waited = self.wait_in_kernel(set, room, remaining(deadline), mask);
            let mut inner = self.lock();
            self.counts.end_sleep();
            inner.withdraw();
            found = waited?;
            if found < room.len() {
                found += inner.collect(set, &mut room[found..]);
            }
            if found > 0 {
                inner.hand_over();
            }
            if found > 0 || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(found);
            }
        }
    }

    /// Waits in the kernel, reports events of the program's other descriptors, and records those of streams.
    fn wait_in_kernel(
        &self,
        set: RawFd,
        room: &mut Room,
        timeout_ms: i32,
        mask: *const sigset_t,
    ) -> Result<usize, i32> {
        let mut events = [epoll_event { events: 0, u64: 0 }; KERNEL_EVENTS];
        let count = room.len().min(KERNEL_EVENTS);
        let found = kernel_wait(set, &mut events[..count], timeout_ms, mask)?;
        if found == 0 {
            return Ok(0);
        }
        let mut inner = self.lock();
        let mut reported = 0;
        for event in &events[..found] {
            if let Some(event) = inner.take_event(*event) {
                room[reported].write(event);
                reported += 1;
            }
        }
        Ok(reported)
    }
}

impl Inner {
    fn item(&self, descriptor: RawFd) -> Option<u32> {
        self.by_descriptor.get(descriptor as usize)?.checked_sub(1)
    }

    fn add(&mut self, set: RawFd, descriptor: RawFd, event: epoll_event) -> Result<(), i32> {
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
        let is_librarys = endpoint.as_ref().is_some_and(Endpoint::is_shared);
        item.kernel_events = match &endpoint {
            Some(endpoint) if is_librarys => item.wanted_kernel_events(endpoint),
            _ => event.events,
        };
        let index = self.free.last().copied().unwrap_or(self.items.len() as u32);
        kernel_control(set, ADD, descriptor, item.kernel_events, token(index, &item))?;
        // The kernel forgot what the descriptor was before.
        if let Some(stale) = self.item(descriptor) {
            self.forget(stale);
        }
        let index = if self.free.last() == Some(&index) {
            self.free.pop();
            self.items[index as usize] = item;
            index
        } else if index as usize == self.items.len() {
            self.items.push(item);
            index
        } else {
            // Another place was freed on top of the stack: the chosen one lies below it.
            self.free.retain(|free| *free != index);
            self.items[index as usize] = item;
            index
        };
        if self.by_descriptor.len() <= descriptor as usize {
            self.by_descriptor.resize(descriptor as usize + 1, 0);
        }
        self.by_descriptor[descriptor as usize] = index + 1;
        // The stream may have left TCP since it was looked at.
        if let Some(endpoint) = endpoint.filter(Endpoint::is_shared) {
            self.take_from_kernel(set, index, &endpoint);
        }
        Ok(())
    }

    /// Takes up a registration that the program removed before. False: there is none of this stream.
    fn revive(&mut self, set: RawFd, index: u32, endpoint: &Endpoint, event: epoll_event) -> Result<bool, i32> {
        let item = &mut self.items[index as usize];
        if item.stream != Some((endpoint.index(), endpoint.generation())) || !item.is_librarys {
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
        item.is_librarys = true;
        endpoint.register();
        item.has_edge = true;
        let (token, wanted) = (token(index, item), item.wanted_kernel_events(endpoint));
        item.kernel_events = wanted;
        let descriptor = item.descriptor;
        self.counts.librarys.fetch_add(1, Ordering::SeqCst);
        // A second descriptor of the same stream finds the bell registered already.
        let bell = endpoint.bell().map_or(-1, |bell| bell.number());
        let _ = kernel_control(set, ADD, bell, (libc::EPOLLIN | libc::EPOLLET) as u32, token | BELL);
        let _ = kernel_control(set, MODIFY, descriptor, wanted, token);
        self.rouse(index, endpoint);
    }

    fn modify(&mut self, set: RawFd, descriptor: RawFd, event: epoll_event) -> Result<(), i32> {
        let Some(index) = self.item(descriptor) else {
            return kernel_control(set, MODIFY, descriptor, event.events, event.u64);
        };
        let item = &mut self.items[index as usize];
        if !item.is_librarys {
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

    fn remove(&mut self, set: RawFd, descriptor: RawFd) -> Result<(), i32> {
        let Some(index) = self.item(descriptor) else { return kernel_control(set, DELETE, descriptor, 0, 0) };
        let item = &mut self.items[index as usize];
        if item.is_librarys
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
            if let Some(bell) = endpoint.bell() {
                let _ = kernel_control(set, DELETE, bell.number(), 0, 0);
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
        if item.is_librarys {
            if let Some(endpoint) = item.endpoint() {
                endpoint.unregister();
            }
            self.counts.librarys.fetch_sub(1, Ordering::SeqCst);
        }
        if item.is_awake {
            self.awake.retain(|other| *other != index);
        }
        self.items[index as usize] = Item::default();
        self.free.push(index);
    }

    /// Lets the set look at a stream, and wakes threads that sleep in it.
    fn rouse(&mut self, index: u32, endpoint: &Endpoint) {
        let item = &mut self.items[index as usize];
        item.idle_sleeps = 0;
        if !item.is_awake {
            item.is_awake = true;
            self.awake.push(index);
        }
        if self.counts.has_sleepers() {
            endpoint.ring_own();
        }
    }

    /// Reports the ready streams among those that are awake, at most as many as there is room for.
    fn collect(&mut self, set: RawFd, room: &mut Room) -> usize {
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
    fn announce(&mut self) {
        let items = &mut self.items;
        self.awake.retain(|index| {
            let item = &mut items[*index as usize];
            let Some(endpoint) = item.endpoint() else { return true };
            endpoint.rest(item.wants_space(endpoint.ready()));
            item.idle_sleeps += 1;
            // This is the look after the announcement of a stream that leaves.
            item.is_awake = item.idle_sleeps <= IDLE_SLEEPS || item.is_due(endpoint.ready());
            item.is_awake
        });
    }

    /// Leaves the streams to the threads that sleep in the set, before this one returns to the program.
    fn hand_over(&mut self) {
        if !self.counts.has_sleepers() {
            return;
        }
        self.announce();
        for index in &self.awake {
            let item = &self.items[*index as usize];
            if let Some(endpoint) = item.endpoint().filter(|endpoint| item.is_due(endpoint.ready())) {
                endpoint.ring_own();
            }
        }
    }

    /// Spares the peers the bells of streams that this thread looks at itself, unless another thread sleeps.
    fn withdraw(&mut self) {
        if self.counts.has_sleepers() {
            return;
        }
        for index in &self.awake {
            if let Some(endpoint) = self.items[*index as usize].endpoint() {
                endpoint.wake();
            }
        }
    }

    /// Records an event of the kernel. Returns it if it is the program's.
    fn take_event(&mut self, event: epoll_event) -> Option<epoll_event> {
        let (events, token) = (event.events, event.u64);
        if token & TOKEN_MASK != TOKEN {
            return Some(event);
        }
        let index = (token >> 1) as u32 & ((1 << INDEX_BITS) - 1);
        let item = self.items.get_mut(index as usize)?;
        if version_bits(item) != (token & !TOKEN_MASK) >> (INDEX_BITS + 1) {
            return None;
        }
        if !item.is_librarys {
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
        }
        item.idle_sleeps = 0;
        if !item.is_awake {
            item.is_awake = true;
            self.awake.push(index);
        }
        None
    }
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

fn remaining(deadline: Option<Instant>) -> i32 {
    let Some(deadline) = deadline else { return -1 };
    let left = deadline.saturating_duration_since(Instant::now());
    left.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32
}
