//! One connection with a fabric of its own, for a thread that has no event loop.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use ddss_verbs::{
    CloseReason, Event, Events, Fabric, FabricError, PeerId, PostError, PostErrorKind, SendMode, Work, WorkError,
};

/// Messages that wait for the caller.
const MESSAGES_MAX: usize = 1024;
/// No peer: a fabric issues no such handle.
const NO_PEER: PeerId = PeerId::from_bits(u64::MAX);
/// Reason of the reject of a second connection.
const TAKEN: &[u8] = b"this endpoint has its one connection";

/// One connection of a fabric. The calling thread drives it and sleeps in between; each call has a maximum time.
pub(crate) struct Endpoint<F: Fabric> {
    fabric: F,
    peer: PeerId,
    events: Events,
    messages: VecDeque<Vec<u8>>,
    /// Tag of the call in progress, and its outcome.
    call: (u64, Option<Result<u64, WorkError>>),
    closed: Option<CloseReason>,
}

/// Error of an endpoint.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointError {
    /// A control operation failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The fabric refused the operation, which did nothing.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The operation failed.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The connection ended or was never established.
    #[error("the connection ended: {0}")]
    Closed(CloseReason),
    /// The maximum time has passed. An operation that was posted may still take effect.
    #[error("the peer did not answer in time; an operation that was posted may still take effect")]
    TimedOut,
    /// The peer sent more messages than this side takes while it waits for something else.
    #[error("more than {MESSAGES_MAX} messages wait: receive them before the next call")]
    Flooded,
    /// A system call failed.
    #[error("cannot wait for the fabric")]
    System(#[from] io::Error),
}

impl<F: Fabric> Endpoint<F> {
    /// Connects with a fabric that has no other peer. Returns the connection, and what the peer answered to `hello`.
    pub(crate) fn connect(
        mut fabric: F,
        address: SocketAddr,
        hello: &[u8],
        max: Duration,
    ) -> Result<(Self, Vec<u8>), EndpointError> {
        let peer = fabric.connect(address, hello)?;
        let mut endpoint = Self::of(fabric, peer);
        let answer = endpoint.wait(Instant::now() + max, |endpoint| {
            let connected = endpoint.events.iter().find_map(|event| match event {
                Event::Connected { peer, hello } if peer == endpoint.peer => Some(hello.to_vec()),
                _ => None,
            });
            Ok(connected)
        })?;
        Ok((endpoint, answer))
    }

    /// Accepts the first peer of a fabric that listens. `judge` gets its hello and returns the answer, or the reason to reject it.
    pub(crate) fn accept(
        fabric: F,
        max: Duration,
        judge: impl FnOnce(&[u8]) -> Result<Vec<u8>, Vec<u8>>,
    ) -> Result<Self, EndpointError> {
        let deadline = Instant::now() + max;
        let mut endpoint = Self::of(fabric, NO_PEER);
        let (peer, hello) = endpoint.wait(deadline, |endpoint| {
            Ok(endpoint.events.iter().find_map(|event| match event {
                Event::ConnectRequest { peer, hello, .. } => Some((peer, hello.to_vec())),
                _ => None,
            }))
        })?;
        endpoint.peer = peer;
        match judge(&hello) {
            Ok(answer) => endpoint.fabric.accept(peer, &answer)?,
            Err(reason) => {
                endpoint.fabric.reject(peer, &reason)?;
                endpoint.wait(deadline, |_| Ok(None::<()>))?;
            }
        }
        endpoint.wait(deadline, |endpoint| {
            let is_ours = |event: Event<'_>| matches!(event, Event::Connected { peer, .. } if peer == endpoint.peer);
            Ok(endpoint.events.iter().any(is_ours).then_some(()))
        })?;
        Ok(endpoint)
    }

    fn of(fabric: F, peer: PeerId) -> Self {
        Self { fabric, peer, events: Events::new(), messages: VecDeque::new(), call: (0, None), closed: None }
    }

    /// Returns the peer, to open windows for it.
    pub(crate) fn peer(&self) -> PeerId {
        self.peer
    }

    /// Returns the fabric, to register memory and to open windows.
    pub(crate) fn fabric(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// Sends a message, after every write before it, and waits until it has left.
    pub(crate) fn send(&mut self, message: &[u8], max: Duration) -> Result<(), EndpointError> {
        let mode = SendMode { solicited: true, invalidate: None };
        // Until it is done the message is with the fabric, and lost if the caller drops the endpoint.
        self.call(max, |peer, tag| Work::Send { peer, tag, message, mode }).map(drop)
    }

    /// Receives a message.
    pub(crate) fn receive(&mut self, max: Duration) -> Result<Vec<u8>, EndpointError> {
        self.wait(Instant::now() + max, |endpoint| Ok(endpoint.messages.pop_front()))
    }

    /// Posts an operation and waits until it is done. Returns the previous word of an atomic, else 0.
    pub(crate) fn call<'a>(
        &mut self,
        max: Duration,
        work: impl Fn(PeerId, u64) -> Work<'a>,
    ) -> Result<u64, EndpointError> {
        let deadline = Instant::now() + max;
        self.post(max, work)?;
        self.wait(deadline, |endpoint| Ok(endpoint.call.1.take().transpose()?))
    }

    /// Posts an operation as soon as the queue of the connection has room.
    fn post<'a>(&mut self, max: Duration, work: impl Fn(PeerId, u64) -> Work<'a>) -> Result<(), EndpointError> {
        self.call = (self.call.0 + 1, None);
        self.wait(Instant::now() + max, |endpoint| {
            match endpoint.fabric.post(&[work(endpoint.peer, endpoint.call.0)]) {
                Ok(()) => Ok(Some(())),
                Err(PostError { kind: PostErrorKind::Busy, .. }) => Ok(None),
                // The reason is known: the connection has ended.
                Err(PostError { kind: PostErrorKind::UnknownPeer, .. }) if endpoint.closed.is_some() => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Repeats a step until it has a result, and drives the connection in between.
    fn wait<T>(
        &mut self,
        deadline: Instant,
        mut step: impl FnMut(&mut Self) -> Result<Option<T>, EndpointError>,
    ) -> Result<T, EndpointError> {
        loop {
            if let Some(result) = step(self)? {
                self.events.clear();
                return Ok(result);
            }
            if let Some(reason) = self.closed {
                return Err(EndpointError::Closed(reason));
            }
            if Instant::now() >= deadline {
                return Err(EndpointError::TimedOut);
            }
            self.drive(deadline)?;
        }
    }

    /// Moves the connection, and sleeps before if there is nothing to move.
    fn drive(&mut self, deadline: Instant) -> Result<(), EndpointError> {
        self.events.clear();
        if self.fabric.poll(&mut self.events) == 0 && !self.fabric.has_moved_bytes() {
            if self.fabric.arm() {
                let slept = self.sleep(deadline);
                self.fabric.disarm();
                slept?;
            }
            self.fabric.poll(&mut self.events);
        }
        for event in self.events.iter() {
            match event {
                Event::Message { peer, bytes, .. } if peer == self.peer => {
                    if self.messages.len() >= MESSAGES_MAX {
                        return Err(EndpointError::Flooded);
                    }
                    self.messages.push_back(bytes.to_vec());
                }
                Event::Done { peer, tag, outcome } if peer == self.peer && tag == self.call.0 => {
                    self.call.1 = Some(outcome);
                }
                Event::Closed { peer, reason, .. } if peer == self.peer => self.closed = Some(reason),
                // The first request is the caller's.
                Event::ConnectRequest { peer, .. } if self.peer != NO_PEER && peer != self.peer => {
                    // A failure means that the peer has gone.
                    let _ = self.fabric.reject(peer, TAKEN);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn sleep(&self, deadline: Instant) -> io::Result<()> {
        let until = self.fabric.next_deadline().map_or(deadline, |at| at.min(deadline));
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(self.fabric.descriptor(), PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
