//! Streams and listeners on tokio.
//!
//! A stream that cannot go on waits for its socket, and in shared memory for its bells as well. Tokio remembers one task for each direction
//! of a descriptor, but a reader may need the socket to be writable and a writer may need it to be readable. So each event wakes both.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use rustix::event::PollFlags;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

use super::listener::Listener;
use super::local::LocalStream;
use super::policy::{Transport, TransportPolicy};
use super::stream::{Carrier, Stream};
use crate::endpoint::Endpoint;
use crate::limits::STALL_AFTER;
use crate::reason::Reason;
use crate::wire::WireStream;

/// A connected stream on tokio, for hyper, tonic and other programs that take `AsyncRead + AsyncWrite`.
///
/// Flush after the last write: on the wire, bytes that the socket did not take wait for the next call. The runtime needs its timer.
#[derive(Debug)]
pub struct AsyncStream {
    /// Bells of a stream in shared memory. They are registered no longer than the stream lives.
    bells: Option<[AsyncFd<Number>; 2]>,
    /// `None` only while the stream is dropped.
    socket: Option<AsyncFd<Stream>>,
    wakers: Arc<Wakers>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// A listener on tokio.
#[derive(Debug)]
pub struct AsyncListener {
    listener: AsyncFd<Listener>,
}

/// Number of a descriptor of another owner.
#[derive(Debug)]
struct Number(RawFd);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// Tasks that wait for a stream.
#[derive(Debug, Default)]
struct Wakers {
    reader: Mutex<Option<Waker>>,
    writer: Mutex<Option<Waker>>,
}

/// Direction that a task waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Reader,
    Writer,
}

impl Wakers {
    fn of(&self, role: Role) -> &Mutex<Option<Waker>> {
        if role == Role::Reader { &self.reader } else { &self.writer }
    }

    fn set(&self, role: Role, waker: &Waker) {
        let mut set = self.of(role).lock().unwrap_or_else(PoisonError::into_inner);
        if !set.as_ref().is_some_and(|set| set.will_wake(waker)) {
            *set = Some(waker.clone());
        }
    }

    fn wake_one(&self, role: Role) {
        let waker = self.of(role).lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_one(Role::Reader);
        self.wake_one(Role::Writer);
    }
}

impl AsyncListener {
    /// Binds an address and listens.
    pub fn bind(address: SocketAddr, policy: TransportPolicy) -> io::Result<Self> {
        let listener = Listener::bind_with(address, policy)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: register(listener)? })
    }

    /// Waits for a connection. A peer that says nothing stops its own stream only.
    pub async fn accept(&self) -> io::Result<(AsyncStream, SocketAddr)> {
        loop {
            let mut guard = self.listener.readable().await?;
            match guard.try_io(|listener| listener.get_ref().accept()) {
                Ok(accepted) => {
                    let (stream, peer) = accepted?;
                    return Ok((AsyncStream::new(stream)?, peer));
                }
                Err(_would_block) => {}
            }
        }
    }

    /// Returns the bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.get_ref().local_addr()
    }
}

impl AsyncStream {
    /// Connects to an address. On the wire this waits until both sides agree on a plan.
    pub async fn connect(address: SocketAddr, policy: &TransportPolicy) -> io::Result<Self> {
        if let TransportPolicy::Wire(config) = policy {
            let tcp = tokio::net::TcpStream::connect(address).await?.into_std()?;
            let mut stream = Self::new(Stream::of(Carrier::Wire(Box::new(WireStream::start_connect(tcp, config)?))))?;
            std::future::poll_fn(|context| {
                stream.poll_step(context, Role::Writer, |stream| match stream.as_wire() {
                    Some(wire) => wire.complete_start(),
                    None => Ok(()),
                })
            })
            .await?;
            return Ok(stream);
        }
        let is_library = matches!(policy, TransportPolicy::Auto);
        let stream = Self::new(Stream::of(Carrier::Local(LocalStream::start_connect(address, is_library)?)))?;
        drop(stream.registration()?.writable().await?);
        rustix::net::sockopt::socket_error(stream.get_ref()?)??;
        Ok(stream)
    }

    /// Makes the stream of one that was connected without tokio.
    pub fn new(stream: Stream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { bells: None, socket: Some(register(stream)?), wakers: Arc::default(), timer: None })
    }

    /// Returns the stream below, for its addresses and settings.
    pub fn get_ref(&self) -> io::Result<&Stream> {
        Ok(self.registration()?.get_ref())
    }

    /// Returns the transport of the bytes that this end writes next.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.get_ref().map_or(Transport::Tcp, Stream::transport)
    }

    /// Returns the reason for the transport.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.get_ref().map_or(Reason::Undecided, Stream::reason)
    }

    fn registration(&self) -> io::Result<&AsyncFd<Stream>> {
        self.socket.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Repeats a step until it has a result, or until neither the socket nor a bell lets it go on.
    fn poll_step<T>(
        &mut self,
        context: &mut Context<'_>,
        role: Role,
        mut step: impl FnMut(&Stream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        self.wakers.set(role, context.waker());
        loop {
            let result = step(self.get_ref()?);
            self.register_bells()?;
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => return Poll::Ready(result),
            }
            if !self.poll_events(role)? {
                return Poll::Pending;
            }
        }
    }

    /// Registers the bells once the stream uses shared memory. A task that waits for the socket alone has to look again.
    fn register_bells(&mut self) -> io::Result<()> {
        let Some(endpoint) = self.shared().filter(|_| self.bells.is_none()) else { return Ok(()) };
        let [control, bell] = endpoint.bells();
        if control >= 0 {
            self.bells = Some([register(Number(control))?, register(Number(bell))?]);
            self.wakers.wake_by_ref();
        }
        Ok(())
    }

    fn shared(&self) -> Option<&Endpoint> {
        match self.get_ref().ok()?.carrier() {
            Carrier::Local(local) => local.endpoint().filter(|endpoint| endpoint.is_shared()),
            Carrier::Wire(_) => None,
        }
    }

    /// Waits for what the stream needs. True: look again now.
    fn poll_events(&mut self, role: Role) -> io::Result<bool> {
        let waker = Waker::from(Arc::clone(&self.wakers));
        let mut context = Context::from_waker(&waker);
        let (mut flags, at);
        if let Some(wire) = self.get_ref()?.as_wire() {
            let interest = wire.interest()?;
            (flags, at) = (interest.flags, interest.at);
        } else {
            // The socket tells a writer in shared memory that the peer is gone.
            let is_of_tcp = self.shared().is_none_or(Endpoint::writes_to_tcp);
            flags = PollFlags::IN;
            flags.set(PollFlags::OUT, role == Role::Writer && is_of_tcp);
            // The next write looks whether the reader has stopped.
            at = (role == Role::Writer && !is_of_tcp).then(|| std::time::Instant::now() + STALL_AFTER);
        }
        let mut is_ready = self.poll_bells(role, &mut context)?;
        let socket = self.registration()?;
        if flags.contains(PollFlags::IN) {
            is_ready |= is_cleared(socket.poll_read_ready(&mut context))?;
        }
        if flags.contains(PollFlags::OUT) {
            is_ready |= is_cleared(socket.poll_write_ready(&mut context))?;
        }
        // In shared memory the time is a writer's: it wakes both tasks, and a reader leaves it alone, over or not.
        let has_time = role == Role::Writer || self.get_ref()?.as_wire().is_some();
        Ok(is_ready | (has_time && self.poll_timer(at, &mut context)))
    }

    /// Announces that a task sleeps, and looks once more.
    fn poll_bells(&mut self, role: Role, context: &mut Context<'_>) -> io::Result<bool> {
        let (Some(bells), Some(endpoint)) = (&self.bells, self.shared()) else { return Ok(false) };
        if endpoint.silence() {
            // It may have rung for the other task.
            self.wakers.wake_one(if role == Role::Reader { Role::Writer } else { Role::Reader });
        }
        endpoint.rest(role == Role::Writer);
        let wanted = if role == Role::Reader { libc::EPOLLIN } else { libc::EPOLLOUT };
        let has_bytes = endpoint.ready().bits & wanted as u32 != 0;
        let mut is_ready = has_bytes;
        // The end of a control socket that the peer has closed would never be cleared.
        for (bell, _) in bells.iter().zip(endpoint.bells()).filter(|(_, number)| *number >= 0) {
            is_ready |= is_cleared(bell.poll_read_ready(context))?;
        }
        Ok(is_ready)
    }

    fn poll_timer(&mut self, at: Option<std::time::Instant>, context: &mut Context<'_>) -> bool {
        let Some(at) = at.map(Instant::from_std) else {
            self.timer = None;
            return false;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(context).is_ready()
    }
}

/// Registers a descriptor that stays open for as long as its owner lives: a listener, a stream, or a bell of a stream that is dropped later.
#[allow(deprecated, reason = "the other function is not in every version of tokio that the manifest permits")]
fn register<T: AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(owner)
}

/// Returns true for an event, which it forgets: the caller looks again.
fn is_cleared<T: AsRawFd>(event: Poll<io::Result<tokio::io::unix::AsyncFdReadyGuard<'_, T>>>) -> io::Result<bool> {
    match event {
        Poll::Ready(guard) => {
            guard?.clear_ready();
            Ok(true)
        }
        Poll::Pending => Ok(false),
    }
}

impl AsyncRead for AsyncStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let free = room.initialize_unfilled();
        let bytes = ready!(self.poll_step(context, Role::Reader, |mut stream| stream.read(free)))?;
        room.advance(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AsyncStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_step(context, Role::Writer, |mut stream| stream.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_step(context, Role::Writer, |mut stream| stream.flush())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_step(context, Role::Writer, |stream| match stream.shutdown(Shutdown::Write) {
            // The peer closed first.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        })
    }
}

impl Drop for AsyncStream {
    fn drop(&mut self) {
        self.bells = None;
        let Some(stream) = self.socket.take().map(AsyncFd::into_inner) else { return };
        // A stream on the wire sends what is left. No task waits for that.
        if stream.as_wire().is_some_and(WireStream::is_drop_slow)
            && let Ok(runtime) = Handle::try_current()
        {
            drop(runtime.spawn_blocking(move || drop(stream)));
        }
    }
}
