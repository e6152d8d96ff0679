//! The loop of the pump: one thread for all connections.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::connection::{Connection, Progress};
use super::handover::{self, is_same_user};
use crate::limits::{PUMP_CONNECTIONS_MAX, PUMP_CONTROLS_MAX, PUMP_EVENTS, PUMP_HANDOVERS_MAX, PUMP_SCRATCH_BYTES};
use crate::sys::{self, SLOTS};
use crate::wire::WireConfig;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
const LISTENER: u64 = 0;
/// Bits of a token below the position of the entry.
const SIDE_BITS: u32 = 1;
/// Side of the peer in a token; 0 is the program's.
const FAR: u64 = 1;

// Each connection has an entry in the table of streams.
const _: () = assert!(PUMP_CONNECTIONS_MAX < SLOTS);

/// A pump that carries streams of other processes of this user.
///
/// ```
/// use std::time::Duration;
///
/// use ddss_stream::pump::{Pump, PumpClient};
///
/// let mut pump = Pump::bind()?;
/// let program = PumpClient::connect(pump.name()).expect("the pump listens");
/// // Without a program and a connection it ends after this time.
/// # let _ = program;
/// # drop(pump);
/// # let mut pump = Pump::bind()?;
/// pump.run(Duration::from_millis(10))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Pump {
    name: String,
    epoll: OwnedFd,
    listener: OwnedFd,
    /// A descriptor that is given up for a moment to refuse a program image, once the process may have no more.
    spare: Option<OwnedFd>,
    entries: Vec<LoopEntry>,
    free: Vec<usize>,
    timers: BTreeSet<(Instant, usize)>,
    again: Vec<usize>,
    scratch: Vec<u8>,
    config: WireConfig,
    controls: usize,
    connections: usize,
    pub(super) controls_max: usize,
    pub(super) connections_max: usize,
}

#[derive(Debug)]
enum LoopEntry {
    Free,
    Listener,
    /// A program image.
    Control(OwnedFd),
    Connection {
        connection: Box<Connection>,
        at: Option<Instant>,
    },
}

impl Pump {
    /// Binds an abstract address of its own choice.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn bind() -> io::Result<Self> {
        let name = format!("ddss-pump/{}/{:016x}", std::process::id(), RandomState::new().hash_one(0));
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        rustix::net::listen(&listener, PUMP_HANDOVERS_MAX as i32)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self {
            name,
            spare: Some(rustix::io::fcntl_dupfd_cloexec(&epoll, 0)?),
            epoll,
            listener,
            entries: vec![LoopEntry::Listener],
            free: Vec::new(),
            timers: BTreeSet::new(),
            again: Vec::new(),
            scratch: vec![0; PUMP_SCRATCH_BYTES],
            config: WireConfig::default(),
            controls: 0,
            connections: 0,
            controls_max: PUMP_CONTROLS_MAX,
            connections_max: PUMP_CONNECTIONS_MAX,
        })
    }

    /// Returns the name by which programs find the pump.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Carries streams until no program and no connection was there for `idle_max`.
    ///
    /// # Errors
    /// The kernel no longer reports events.
    pub fn run(&mut self, idle_max: Duration) -> io::Result<()> {
        sys::init();
        let mut idle_until = Instant::now() + idle_max;
        let mut events: Vec<Event> = Vec::with_capacity(PUMP_EVENTS);
        loop {
            let now = Instant::now();
            if self.controls + self.connections > 0 {
                idle_until = now + idle_max;
            } else if now >= idle_until {
                return Ok(());
            }
            self.turn(&mut events, idle_until)?;
        }
    }

    /// Waits for events, until this time at the latest, and handles them.
    pub(super) fn turn(&mut self, events: &mut Vec<Event>, until: Instant) -> io::Result<()> {
        let next = self.timers.first().map_or(until, |(at, _)| *at);
        let wait = if self.again.is_empty() { next.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
        self.wait(events, wait)?;
        for event in events.drain(..) {
            self.handle(event.data.u64(), event.flags);
        }
        for index in std::mem::take(&mut self.again) {
            self.advance(index);
        }
        self.advance_late();
        Ok(())
    }

    fn wait(&self, events: &mut Vec<Event>, wait: Duration) -> io::Result<()> {
        // A wait shorter than the kernel's unit would spin until the time has come.
        let wait = if wait.is_zero() { wait } else { wait.max(Duration::from_millis(1)) };
        let wait = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn handle(&mut self, token: u64, flags: EventFlags) {
        let index = (token >> SIDE_BITS) as usize;
        match self.entries.get_mut(index) {
            Some(LoopEntry::Listener) => self.accept(),
            Some(LoopEntry::Control(_)) => self.take_handovers(index),
            Some(LoopEntry::Connection { connection, .. }) => {
                if token & FAR == 0 {
                    connection.note_local(flags);
                }
                self.advance(index);
            }
            // The event of an entry that has ended since.
            Some(LoopEntry::Free) | None => {}
        }
    }

    fn accept(&mut self) {
        while let Some(control) = self.accept_one() {
            if self.controls >= self.controls_max || self.spare.is_none() || !is_same_user(&control) {
                continue;
            }
            let index = self.place();
            if self.watch(&control, index, 0, EventFlags::IN).is_ok() {
                self.entries[index] = LoopEntry::Control(control);
                self.controls += 1;
            } else {
                self.free.push(index);
            }
        }
        self.spare = self.spare.take().or_else(|| rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0).ok());
    }

    /// Accepts a program image, also in place of the spare descriptor: one that waited would hand over connections that nobody serves.
    fn accept_one(&mut self) -> Option<OwnedFd> {
        let accept = || rustix::net::accept_with(&self.listener, FLAGS);
        match accept() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.spare = None;
                accept().ok()
            }
            accepted => accepted.ok(),
        }
    }

    /// Takes connections of a program image, a bounded number so that others are served as well.
    fn take_handovers(&mut self, index: usize) {
        for _ in 0..PUMP_HANDOVERS_MAX {
            let Some(LoopEntry::Control(control)) = self.entries.get(index) else { return };
            match handover::receive(control) {
                Ok(Some(handover)) if self.connections < self.connections_max => {
                    // A connection that cannot be carried is reset, by its close.
                    if let Ok(connection) = Connection::new(handover, &self.config) {
                        self.begin(connection);
                    }
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.entries[index] = LoopEntry::Free;
                    self.free.push(index);
                    self.controls -= 1;
                    return;
                }
            }
        }
    }

    fn begin(&mut self, connection: Connection) {
        let index = self.place();
        let edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let far = connection.far().is_some_and(|far| self.watch(far, index, FAR, edges).is_ok());
        if far && self.watch(connection.local(), index, 0, edges).is_ok() {
            self.entries[index] = LoopEntry::Connection { connection: Box::new(connection), at: None };
            self.connections += 1;
            self.advance(index);
        } else {
            self.free.push(index);
            connection.end(false);
        }
    }

    fn place(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(LoopEntry::Free);
            self.entries.len() - 1
        })
    }

    fn watch(&self, descriptor: impl AsFd, index: usize, side: u64, flags: EventFlags) -> Result<(), Errno> {
        let token = (index as u64) << SIDE_BITS | side;
        epoll::add(&self.epoll, descriptor, EventData::new_u64(token), flags)
    }

    fn advance_late(&mut self) {
        let now = Instant::now();
        while let Some((at, index)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, index));
            self.advance(index);
        }
    }

    fn advance(&mut self, index: usize) {
        let Some(LoopEntry::Connection { connection, at }) = self.entries.get_mut(index) else { return };
        if let Some(at) = at.take() {
            self.timers.remove(&(at, index));
        }
        match connection.advance(&mut self.scratch) {
            Progress::Wait(next) => {
                *at = next;
                self.timers.extend(next.map(|next| (next, index)));
            }
            Progress::Again => self.again.push(index),
            Progress::NewSocket => self.watch_new_socket(index),
            progress => self.end(index, progress == Progress::Finished),
        }
    }

    fn watch_new_socket(&mut self, index: usize) {
        let edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let Some(LoopEntry::Connection { connection, .. }) = self.entries.get(index) else { return };
        match connection.far().map(|far| self.watch(far, index, FAR, edges)) {
            Some(Ok(())) => self.again.push(index),
            _ => self.end(index, false),
        }
    }

    fn end(&mut self, index: usize, is_in_order: bool) {
        if let LoopEntry::Connection { connection, .. } = std::mem::replace(&mut self.entries[index], LoopEntry::Free) {
            self.connections -= 1;
            self.free.push(index);
            connection.end(is_in_order);
        }
    }
}
