//! A use of one end: creation, and the count of uses.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::io::{Errno, FdFlags};

use crate::forks::Beginning;
use crate::limits::{SKIPS_MAX, SKIPS_MIN, SLOW_BIND};
use crate::reason::Reason;
use crate::rendezvous::{self, Ends};
use crate::sys::{self, Descriptor, Hidden, HiddenDescriptor, Link, Local, SLOTS, Shared, Side};

/// Free entry. A new table consists of zeros.
pub(crate) const FREE: u32 = 0;
pub(crate) const UNDECIDED: u32 = 1;
pub(crate) const PLAIN: u32 = 2;
pub(crate) const SHARED: u32 = 3;
/// A stream that a pump carries on the wire.
pub(crate) const WIRE: u32 = 4;

/// Accepting end.
pub(crate) const ACCEPTOR: u32 = 0;
/// Connecting end.
pub(crate) const CONNECTOR: u32 = 1;

/// Entry from which the search for a free one starts.
pub(super) static NEXT: AtomicU32 = AtomicU32::new(0);

/// A use of one end of a stream. The entry is freed with its last use.
#[derive(Debug)]
pub struct Endpoint {
    index: u32,
}

impl Endpoint {
    /// Prepares the end of a socket that is about to connect: binds it and listens for the acceptor's call.
    /// `None`: the connection is plain TCP.
    pub fn connecting(socket: Descriptor, destination: SocketAddr) -> Option<Self> {
        if !HiddenDescriptor::has_room(socket) {
            return None;
        }
        let _beginning = Beginning::new()?;
        let acceptor = rendezvous::normal(destination);
        let bound = SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
        let bound = if bound.port() == 0 { bind_any(socket, bound)? } else { bound };
        let listener = rendezvous::listen(bound.port(), acceptor).ok()?;
        let endpoint = Self::allocate(CONNECTOR)?;
        let Ok(listener) = HiddenDescriptor::hide(listener, true) else { return None };
        endpoint.local().set_hidden(Hidden::Listener, listener);
        endpoint.set_ends(&Ends { connector: bound, acceptor });
        Some(endpoint)
    }

    /// Calls the connector of an accepted socket. `None`: the connection is plain TCP.
    pub fn accepted(socket: Descriptor) -> Option<Self> {
        let peer = SocketAddr::try_from(rustix::net::getpeername(socket).ok()??).ok()?;
        let own = SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
        let ends = Ends { connector: rendezvous::normal(peer), acceptor: rendezvous::normal(own) };
        if !is_same_node(&ends) || !HiddenDescriptor::has_room(socket) {
            return None;
        }
        let _beginning = Beginning::new()?;
        let control = rendezvous::call(&ends)?;
        let endpoint = Self::allocate(ACCEPTOR)?;
        let Ok(control) = HiddenDescriptor::hide(control, true) else { return None };
        endpoint.local().set_hidden(Hidden::Control, control);
        endpoint.set_ends(&ends);
        Some(endpoint)
    }

    pub(super) fn allocate(side: u32) -> Option<Self> {
        if !sys::init() {
            return None;
        }
        let start = NEXT.load(Ordering::Relaxed);
        for offset in 0..SLOTS as u32 {
            let index = (start + offset) % SLOTS as u32;
            let shared = sys::shared(index);
            if shared.state.load(Ordering::Relaxed) == FREE
                && sys::local(index).users.load(Ordering::Relaxed) == 0
                && shared.state.compare_exchange(FREE, UNDECIDED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                sys::high_water(Some(index));
                NEXT.store(index + 1, Ordering::Relaxed);
                Self::reset(index, side);
                return Some(Self { index });
            }
        }
        None
    }

    fn reset(index: u32, side: u32) {
        let (shared, local) = (sys::shared(index), sys::local(index));
        shared.gate.store(0, Ordering::Relaxed);
        shared.processes.store(1, Ordering::Relaxed);
        shared.side.store(side, Ordering::Relaxed);
        shared.reason.store(Reason::Undecided as u32, Ordering::Relaxed);
        shared.process.store(std::process::id(), Ordering::Relaxed);
        shared.calls.store(0, Ordering::Relaxed);
        shared.tcp_read.store(0, Ordering::Relaxed);
        shared.tcp_written.store(0, Ordering::Relaxed);
        local.latched.store(0, Ordering::Relaxed);
        local.error.store(0, Ordering::Relaxed);
        local.is_full.store(0, Ordering::Relaxed);
        local.shortages.store(0, Ordering::Relaxed);
        local.asks_space.store(0, Ordering::Relaxed);
        local.writes.store(0, Ordering::Relaxed);
        local.full_progress.store(u64::MAX, Ordering::Relaxed);
        local.seen_tail.store(0, Ordering::Relaxed);
        local.registrations.store(0, Ordering::Relaxed);
        local.is_watched.store(0, Ordering::Relaxed);
        local.low_water.store(0, Ordering::Relaxed);
        local.is_off_tcp.store(0, Ordering::Relaxed);
        let generation = shared.generation.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        local.generation.store(generation, Ordering::Relaxed);
        local.users.store(1, Ordering::Release);
    }

    /// Adds a use. `None`: the entry was freed in the meantime.
    #[inline]
    pub fn acquire(index: u32) -> Option<Self> {
        let users = &sys::local(index).users;
        let mut seen = users.load(Ordering::Relaxed);
        while seen != 0 {
            match users.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Self { index }),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Moves the use into a table, which returns it through [`from_table`](Self::from_table).
    #[must_use]
    pub fn into_table(self) -> u32 {
        let index = self.index;
        std::mem::forget(self);
        index
    }

    /// Takes the use back that a table held. The table entry must have been taken exactly once.
    #[must_use]
    pub fn from_table(index: u32) -> Self {
        Self { index }
    }

    /// Returns the position of the entry.
    #[inline]
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the number of streams that have used the entry.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.local().generation.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn local(&self) -> &'static Local {
        sys::local(self.index)
    }

    #[inline]
    pub(crate) fn shared(&self) -> &'static Shared {
        sys::shared(self.index)
    }

    /// Returns true if the connection is plain TCP for good.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.is_shared() && (self.is_entry_lost() || self.shared().state.load(Ordering::Acquire) == PLAIN)
    }

    /// Returns true if the library carries out the calls.
    #[inline]
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.local().is_off_tcp.load(Ordering::Acquire) != 0
    }

    /// Makes the stream one that has left TCP. Its memory is there.
    pub(super) fn leave_tcp(&self) {
        self.shared().state.store(SHARED, Ordering::Release);
        self.local().is_off_tcp.store(1, Ordering::Release);
    }

    /// Returns true in a child that its parent did not count, once the parent gave the entry back. Such a stream stays where it is: on TCP,
    /// or in the memory that the child has.
    pub(super) fn is_entry_lost(&self) -> bool {
        let shared = self.shared();
        shared.generation.load(Ordering::Acquire) != self.generation() || shared.state.load(Ordering::Acquire) == FREE
    }

    /// Returns the reason for the transport.
    #[must_use]
    pub fn reason(&self) -> Reason {
        Reason::from_number(self.shared().reason.load(Ordering::Relaxed)).unwrap_or(Reason::Undecided)
    }

    /// Copies the program's `FD_CLOEXEC` to the hidden descriptors.
    pub fn set_close_on_exec(&self, is_set: bool) {
        if self.is_shared() {
            for place in [Hidden::Own, Hidden::Memory, Hidden::Bell, Hidden::Control] {
                if let Some(descriptor) = self.local().hidden(place) {
                    descriptor.set_close_on_exec(is_set);
                }
            }
        }
    }

    /// Returns true if a new program image would inherit the memory of the stream. A stream of a descriptor that was closed on `exec` when
    /// it left TCP keeps no descriptor of it.
    #[must_use]
    pub fn is_memory_inherited(&self) -> bool {
        let own = self.local().hidden(Hidden::Own).map_or(-1, HiddenDescriptor::number);
        own >= HiddenDescriptor::lowest() && !is_close_on_exec(Descriptor(own))
    }

    pub(crate) fn side(&self) -> usize {
        (self.shared().side.load(Ordering::Relaxed) & 1) as usize
    }

    pub(crate) fn peer_side<'a>(&self, link: Link) -> &'a Side {
        &link.header().sides[link.side() ^ 1]
    }

    /// Counts a pump that gives this stream the bytes of a program image. Until [`end_pump`](Self::end_pump) the peer takes the end of the
    /// connection for a failure.
    pub fn begin_pump(&self) {
        if let Some(link) = self.local().link() {
            link.header().sides[link.side()].pumps.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Ends the count of a pump that has written everything.
    pub fn end_pump(&self) {
        if let Some(link) = self.local().link() {
            link.header().sides[link.side()].pumps.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(super) fn set_ends(&self, ends: &Ends) {
        let shared = self.shared();
        let ports = u32::from(ends.connector.port()) << 16 | u32::from(ends.acceptor.port());
        shared.ports.store(ports, Ordering::Relaxed);
        for (pair, end) in shared.addresses.chunks(2).zip([ends.connector, ends.acceptor]) {
            let ip = match end.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            pair[0].store((u128::from(ip) >> 64) as u64, Ordering::Relaxed);
            pair[1].store(u128::from(ip) as u64, Ordering::Relaxed);
        }
    }

    /// Returns the two ends as the kernel has them now.
    pub(crate) fn ends(&self, socket: Descriptor) -> Result<Ends, Errno> {
        let peer = rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
        let peer = rendezvous::normal(SocketAddr::try_from(peer).map_err(|_| Errno::AFNOSUPPORT)?);
        let own = SocketAddr::try_from(rustix::net::getsockname(socket)?).map_err(|_| Errno::AFNOSUPPORT)?;
        let own = rendezvous::normal(own);
        Ok(match self.side() {
            0 => Ends { connector: peer, acceptor: own },
            _ => Ends { connector: own, acceptor: peer },
        })
    }
}

pub(super) fn each_used(mut act: impl FnMut(&Endpoint)) {
    for index in 0..sys::high_water(None) {
        if let Some(endpoint) = Endpoint::acquire(index) {
            act(&endpoint);
        }
    }
}

/// Connections that do not look for a port of their own, because the last search was slow.
static SKIPPED: AtomicU32 = AtomicU32::new(0);
/// Number of them after the next slow search.
static SKIPS: AtomicU32 = AtomicU32::new(SKIPS_MIN);

/// Binds a socket to a free port of its wildcard address.
///
/// With most ports in TIME-WAIT the kernel searches for milliseconds, while a plain connect shares ports between destinations. After a
/// slow or failed search the next connections stay on TCP, twice as many each time.
fn bind_any(socket: Descriptor, bound: SocketAddr) -> Option<SocketAddr> {
    let skipped = SKIPPED.load(Ordering::Relaxed);
    if skipped > 0 {
        SKIPPED.store(skipped - 1, Ordering::Relaxed);
        return None;
    }
    let start = Instant::now();
    let result = rustix::net::bind(socket, &bound);
    if result.is_err() || start.elapsed() > SLOW_BIND {
        let skips = SKIPS.load(Ordering::Relaxed);
        SKIPPED.store(skips, Ordering::Relaxed);
        SKIPS.store((skips * 2).min(SKIPS_MAX), Ordering::Relaxed);
    } else {
        SKIPS.store(SKIPS_MIN, Ordering::Relaxed);
    }
    result.ok()?;
    SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()
}

fn is_same_node(ends: &Ends) -> bool {
    ends.connector.ip() == ends.acceptor.ip() || ends.connector.ip().is_loopback() && ends.acceptor.ip().is_loopback()
}

/// Returns the `FD_CLOEXEC` of the program's descriptor.
pub(crate) fn is_close_on_exec(socket: Descriptor) -> bool {
    rustix::io::fcntl_getfd(socket).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC))
}
