//! A set: what the program's calls on it do.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ddss_stream::{Endpoint, Spin};
use libc::{epoll_event, sigset_t};

use super::interests::{Counts, Interests, Room, has_token};
use crate::sys::kernel::kernel_wait;
use crate::sys::{ForkGuard, ForkLock};

/// Events that one wait in the kernel returns.
const KERNEL_EVENTS: usize = 64;
/// Returns without the kernel, after which the kernel's events are looked at.
const RETURNS_BEFORE_KERNEL: u32 = 32;
/// Answer to a process that was created past libc's `fork` while a thread used the set.
const UNUSABLE: i32 = libc::EBADF;

/// The interest of a program in its descriptors.
pub(crate) struct EpollSet {
    inner: ForkLock<Interests>,
    returns: AtomicU32,
    is_watched: AtomicBool,
    counts: Counts,
}

impl EpollSet {
    pub(super) const fn new() -> Self {
        Self {
            inner: ForkLock::new(Interests::new()),
            returns: AtomicU32::new(0),
            is_watched: AtomicBool::new(false),
            counts: Counts::new(),
        }
    }

    fn lock(&self) -> Result<ForkGuard<'_, Interests>, i32> {
        self.inner.take().ok_or(UNUSABLE)
    }

    /// Takes the lock until [`after_fork`](Self::after_fork). False: no thread of this process can hold it.
    pub(super) fn before_fork(&self) -> bool {
        self.inner.take().map(ForkGuard::leave_to_fork).is_some()
    }

    /// Releases the lock in the parent or in the child.
    pub(super) fn after_fork(&self) {
        drop(self.inner.resume_after_fork());
    }

    pub(super) fn reset(&'static self, descriptor: RawFd) {
        self.inner.adopt();
        if let Ok(mut inner) = self.lock() {
            self.counts.reset();
            self.is_watched.store(false, Ordering::Relaxed);
            inner.reset(descriptor, &self.counts);
        }
    }

    /// Adds, changes or removes a registration.
    pub(crate) fn control(
        &self,
        set: RawFd,
        operation: i32,
        descriptor: RawFd,
        event: Option<epoll_event>,
    ) -> Result<(), i32> {
        let mut inner = self.lock()?;
        let done = match (operation, event) {
            (libc::EPOLL_CTL_ADD, Some(event)) => inner.add(set, descriptor, event),
            (libc::EPOLL_CTL_MOD, Some(event)) => inner.modify(set, descriptor, event),
            (libc::EPOLL_CTL_DEL, _) => inner.remove(set, descriptor),
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, None) => Err(libc::EFAULT),
            _ => Err(libc::EINVAL),
        };
        inner.settle();
        done
    }

    /// Learns that a registered descriptor is about to connect, and may leave TCP: programs may register it before.
    pub(super) fn learn(&self, descriptor: RawFd, endpoint: &Endpoint) {
        if let Ok(mut inner) = self.lock() {
            inner.learn(descriptor, endpoint);
        }
    }

    /// Removes a registration. `None`: the kernel has none of this descriptor.
    pub(super) fn take_registration(&self, descriptor: RawFd) -> Option<(RawFd, epoll_event)> {
        self.lock().ok()?.take_registration(descriptor)
    }

    pub(super) fn convert(&self, endpoint: &Endpoint) {
        if let Ok(mut inner) = self.lock() {
            inner.convert(endpoint);
        }
    }

    /// Prepares the set for waits of the program from outside: in another set, by `poll`, by `select`.
    pub(super) fn watch(&self) {
        if !self.is_watched.load(Ordering::Relaxed)
            && let Ok(mut inner) = self.lock()
        {
            self.is_watched.store(true, Ordering::Relaxed);
            inner.watch();
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
        has_token(event)
    }

    /// Puts the program's data in the place of tokens: of streams that may still leave TCP, or have just left it. Returns the number of
    /// events that are left.
    pub(crate) fn translate(
        &self,
        found: usize,
        event_at: impl Fn(usize) -> epoll_event,
        put: impl Fn(usize, epoll_event),
    ) -> usize {
        let Ok(mut inner) = self.lock() else { return 0 };
        let mut reported = 0;
        for event in (0..found).map(event_at) {
            if let Some(event) = inner.take_event(event) {
                put(reported, event);
                reported += 1;
            }
        }
        inner.settle();
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
            let mut inner = self.lock()?;
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
                let mut look = || self.lock().map_or(0, |mut inner| inner.collect(set, room));
                found = Spin::until(|| Some(look()).filter(|found| *found > 0)).unwrap_or(0);
            }
            if found > 0 {
                self.lock()?.hand_over();
                let returns = self.returns.fetch_add(1, Ordering::Relaxed);
                if returns.is_multiple_of(RETURNS_BEFORE_KERNEL) {
                    // A set that never sleeps has streams that wait for space, too.
                    let _ = ddss_stream::before_sleep();
                }
                if returns.is_multiple_of(RETURNS_BEFORE_KERNEL) && found < room.len() {
                    found += self.wait_in_kernel(set, &mut room[found..], 0, std::ptr::null())?;
                }
                return Ok(found);
            }
            let mut inner = self.lock()?;
            inner.announce();
            found = inner.collect(set, room);
            if found > 0 {
                inner.withdraw();
                inner.hand_over();
                return Ok(found);
            }
            self.counts.begin_sleep();
            drop(inner);
            let left = remaining(deadline);
            let idle = ddss_stream::before_sleep().map(|idle| idle.as_millis() as i32);
            let idle = idle.filter(|idle| left < 0 || *idle < left);
            let waited = self.wait_in_kernel(set, room, idle.unwrap_or(left), mask);
            if idle.is_some() && waited == Ok(0) {
                ddss_stream::after_idle_sleep();
            }
            self.counts.end_sleep();
            let mut inner = self.lock()?;
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
        let mut inner = self.lock()?;
        let mut reported = 0;
        for event in &events[..found] {
            if let Some(event) = inner.take_event(*event) {
                room[reported].write(event);
                reported += 1;
            }
        }
        inner.settle();
        Ok(reported)
    }
}

fn remaining(deadline: Option<Instant>) -> i32 {
    let Some(deadline) = deadline else { return -1 };
    let left = deadline.saturating_duration_since(Instant::now());
    left.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32
}
