//! A stream on the wire, driven by the threads that call it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ddss_sdp::{CopyLedger, Plan};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::config::WireConfig;
use super::negotiation::Negotiation;
use super::socket_memory::ReadCall;
use super::state::{Interest, Lent, WireState};
use crate::limits::{LINGER_LOOK_EVERY, WIRE_CLOSE_MAX, WIRE_UNSENT_MAX};
use crate::sys;

/// One end of a stream on the wire.
///
/// A write takes bytes into the send ring and sends what the socket takes; the rest leaves with a later call or
/// [`Write::flush`]. Dropping the stream closes its direction and sends what is left, for a second at most.
///
/// Threads may read and write at the same time through `&WireStream`. No thread holds the lock while it waits.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpListener;
///
/// use ddss_stream::wire::{WireConfig, WireStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let other = std::thread::spawn(move || -> std::io::Result<String> {
///     let mut stream = WireStream::accept(listener.accept()?.0, &WireConfig::default())?;
///     let mut text = String::new();
///     stream.read_to_string(&mut text)?;
///     Ok(text)
/// });
/// let mut stream = WireStream::connect(address, &WireConfig::default())?;
/// stream.write_all(b"hello")?;
/// stream.shutdown_write()?;
/// assert_eq!(other.join().expect("the thread ends")?, "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct WireStream {
    pub(crate) tcp: TcpStream,
    state: Mutex<WireState>,
    /// Readable for threads that sleep, once another thread moved the stream.
    bell: OwnedFd,
}

impl fmt::Debug for WireStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireStream").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

impl WireStream {
    /// Connects to an address and agrees on a plan.
    ///
    /// # Errors
    /// There is no connection, or the peer does not speak the protocol, or does not answer in time.
    pub fn connect(address: SocketAddr, config: &WireConfig) -> io::Result<Self> {
        Self::begin(TcpStream::connect(address)?, config)
    }

    /// Makes the stream of a TCP connection that this side opened and has not used.
    ///
    /// # Errors
    /// The peer does not speak the protocol, or does not answer in time.
    pub fn begin(tcp: TcpStream, config: &WireConfig) -> io::Result<Self> {
        let stream = Self::start_connect(tcp, config)?;
        stream.complete_start()?;
        Ok(stream)
    }

    /// Makes the stream of a TCP connection that this side accepted and has not used.
    ///
    /// # Errors
    /// The peer does not speak the protocol, or says nothing in time.
    pub fn accept(tcp: TcpStream, config: &WireConfig) -> io::Result<Self> {
        let stream = Self::start_accept(tcp, config)?;
        stream.complete_start()?;
        Ok(stream)
    }

    /// Makes the stream of a connection that this side opened; the first call agrees on a plan.
    ///
    /// # Errors
    /// A setting is outside its limits, or the system has no descriptor left.
    pub fn start_connect(tcp: TcpStream, config: &WireConfig) -> io::Result<Self> {
        let negotiation = Negotiation::connect(&tcp, config)?;
        Self::new(tcp, negotiation)
    }

    /// Makes the stream of a connection that this side accepted; the first call agrees on a plan. A program that accepts does not wait for
    /// a peer that says nothing.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn start_accept(tcp: TcpStream, config: &WireConfig) -> io::Result<Self> {
        Self::new(tcp, Negotiation::accept(config, true))
    }

    fn new(tcp: TcpStream, negotiation: Negotiation) -> io::Result<Self> {
        // The engine decides which messages wait.
        tcp.set_nodelay(true)?;
        // Bytes in the kernel cannot be appended to.
        sys::set_unsent_max(tcp.as_fd(), WIRE_UNSENT_MAX)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { tcp, state: Mutex::new(WireState::new(negotiation)), bell })
    }

    /// Waits until both sides agree on a plan.
    ///
    /// # Errors
    /// The peer does not speak the protocol, or does not answer in time.
    pub fn complete_start(&self) -> io::Result<()> {
        self.repeat(|_| None, WireState::try_start)
    }

    /// Returns the plan that both sides agreed on; before that, the plan of this side.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.lock().map_or(Plan::basic(), |state| state.plan())
    }

    /// Returns the copies of stream bytes that this end has made.
    #[must_use]
    pub fn ledger(&self) -> CopyLedger {
        self.lock().map_or_else(|_| CopyLedger::default(), |state| state.ledger())
    }

    /// Returns the messages that this end has sent.
    #[must_use]
    pub fn messages(&self) -> u32 {
        self.lock().map_or(0, |state| state.messages())
    }

    /// Sets the maximum time of a read; `None` waits as long as the peer lives.
    pub fn set_read_timeout(&self, max: Option<Duration>) {
        self.with(|state| state.read_max = max);
    }

    /// Sets the maximum time of a write or flush; `None` waits as long as the peer lives.
    pub fn set_write_timeout(&self, max: Option<Duration>) {
        self.with(|state| state.write_max = max);
    }

    /// Sets or clears the non-blocking mode: a call that would wait fails with `WouldBlock`.
    pub fn set_nonblocking(&self, is_set: bool) {
        self.with(|state| state.is_nonblocking = is_set);
    }

    /// Closes the direction of this side behind everything written. The peer can still write.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.repeat(|state| state.write_max, WireState::try_shutdown)
    }

    /// Ends reading of this side: every later read returns the end of the stream.
    pub fn shutdown_read(&self) {
        self.with(|state| {
            state.is_read_shut = true;
            state.has_moved = true;
        });
    }

    /// Returns the events that let the stream go on after a call that would have waited.
    pub(crate) fn interest(&self) -> io::Result<Interest> {
        Ok(self.lock()?.interest(Lent::Nothing))
    }

    /// Returns true if a drop would wait: bytes have not left, or credits can arrive.
    pub(crate) fn is_drop_slow(&self) -> bool {
        self.lock().is_ok_and(|state| state.has_unsent() || state.has_credits())
    }

    /// Resets the connection: what was written and has not left is lost.
    pub(crate) fn abort(self) {
        // A failure means that the socket has none to reset.
        let _ = sockopt::set_socket_linger(&self.tcp, Some(Duration::ZERO));
        self.with(|state| state.fail(&io::ErrorKind::ConnectionAborted.into()));
    }

    /// Repeats a step until it has a result, and waits in between.
    pub(super) fn repeat<T>(
        &self,
        max: impl Fn(&WireState) -> Option<Duration>,
        mut step: impl FnMut(&mut WireState, &TcpStream) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let mut state = self.lock()?;
        let deadline = max(&state).map(|max| Instant::now() + max);
        loop {
            state.lent = Lent::Nothing;
            let result = step(&mut state, &self.tcp);
            self.wake_others(&mut state);
            match result.transpose() {
                Some(result) => return result,
                None if state.is_nonblocking => return Err(io::ErrorKind::WouldBlock.into()),
                None => state = self.wait(state, deadline)?,
            }
        }
    }

    /// Waits without the lock until the stream may go on, until `deadline` at the latest.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, WireState>,
        deadline: Option<Instant>,
    ) -> io::Result<MutexGuard<'a, WireState>> {
        let lent = state.lent;
        let Interest { flags, at } = state.interest(lent);
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer did not move the stream in time"));
        }
        state.waiters += 1;
        state.calls.waits = state.calls.waits.wrapping_add(1);
        drop(state);
        let until = [deadline, at].into_iter().flatten().min();
        let socket = PollFd::from_borrowed_fd(self.tcp.as_fd(), flags);
        let polled = sleep(&mut [socket, PollFd::new(&self.bell, PollFlags::IN)], until);
        let mut state = self.lock()?;
        state.waiters -= 1;
        // The last one silences the bell: before that, every other waiter has to see it.
        if state.waiters == 0 && state.is_rung {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            state.is_rung = false;
        }
        polled?;
        Ok(state)
    }

    /// Wakes threads that sleep, if the stream moved.
    fn wake_others(&self, state: &mut WireState) {
        if std::mem::take(&mut state.has_moved) && state.waiters > 0 && !state.is_rung {
            state.is_rung = rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).is_ok();
        }
    }

    /// Notes that the calling thread is the only one with the stream.
    fn set_exclusive(&mut self, is_set: bool) {
        if let Ok(state) = self.state.get_mut() {
            state.is_exclusive = is_set;
        }
    }

    #[cfg(test)]
    pub(super) fn system_calls(&self) -> super::state::SystemCalls {
        self.lock().map(|state| state.calls).unwrap_or_default()
    }

    fn lock(&self) -> io::Result<MutexGuard<'_, WireState>> {
        self.state.lock().map_err(|_| io::Error::other("a thread panicked inside the stream: close it"))
    }

    pub(super) fn with(&self, change: impl FnOnce(&mut WireState)) {
        if let Ok(mut state) = self.lock() {
            change(&mut state);
            self.wake_others(&mut state);
        }
    }

    /// Waits until the peer's kernel has everything. A credit of the peer that arrives at a closed socket resets the connection, and
    /// bytes on their way would be lost.
    fn linger(tcp: &TcpStream, state: &mut WireState, deadline: Instant) {
        let is_shut = tcp.shutdown(Shutdown::Write).is_ok();
        while is_shut && !state.has_ended && sys::unacknowledged_bytes(tcp.as_fd()).is_ok_and(|bytes| bytes > 0) {
            if Instant::now() >= deadline || state.receive(tcp, None).is_err() {
                return;
            }
            std::thread::sleep(LINGER_LOOK_EVERY);
        }
    }
}

/// Sleeps until a descriptor is ready or it is late.
fn sleep(polled: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<()> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.map(|left| Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() });
    match poll(polled, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Read for &WireStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut call = ReadCall { out, can_place: false, is_placing: false };
        let result = self.repeat(
            |state| state.read_max,
            |state, tcp| {
                call.can_place = !state.is_nonblocking;
                state.try_read(tcp, &mut call)
            },
        );
        if call.is_placing {
            // The call ends before its read: the rest arrives in memory of the stream.
            self.with(|state| state.end_borrow(call.out));
        }
        result
    }
}

impl Write for &WireStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.repeat(|state| state.write_max, |state, tcp| state.try_write(tcp, bytes))
    }

    /// Waits until the socket has everything that was written.
    fn flush(&mut self) -> io::Result<()> {
        self.repeat(|state| state.write_max, WireState::try_flush)
    }
}

impl Read for WireStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.set_exclusive(true);
        let result = (&*self).read(out);
        self.set_exclusive(false);
        result
    }
}

impl Write for WireStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Drop for WireStream {
    fn drop(&mut self) {
        let deadline = Instant::now() + WIRE_CLOSE_MAX;
        // After a panic inside the stream nothing of it can be sent.
        let Ok(state) = self.state.get_mut() else { return };
        state.close_direction();
        while state.has_unsent() {
            match state.advance(&self.tcp) {
                Ok(true) => {}
                Ok(false) if Instant::now() < deadline => {
                    let Interest { flags, at } = state.interest(Lent::Nothing);
                    let until = at.map_or(deadline, |at| at.min(deadline));
                    if sleep(&mut [PollFd::from_borrowed_fd(self.tcp.as_fd(), flags)], Some(until)).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
        if state.has_credits() {
            Self::linger(&self.tcp, state, deadline);
        }
    }
}

impl AsFd for WireStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}
