//! Acceptor thread in front of a fabric.
//!
//! The thread accepts each connection, reads its first message and asks the admission filter. Admitted peers reach the
//! polling thread at a limited rate for each address. Connected peers therefore feel neither a flood of connections
//! nor one of first messages, good or bad.
//!
//! ```text
//!   acceptor thread                                           polling thread
//!   accept ─► first message ─► filter ─┬► reject
//!                                      └► rate limiter ──────► adopt ─► Event::Admitted
//! ```
//!
//! The acceptor owns a fabric without memory, so the limits on half-open connections apply to it as well.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use ddss_admission::RateLimiter;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use tracing::{debug, error};

use super::Iwarp;
use super::acceptor::{Acceptor, clear, notify};
use super::poll::ACCEPTOR;
use crate::events::{Event, Events};
use crate::fabric::{Admission, AdmissionFilter, AdmissionToken, Fabric, FabricError};
use crate::id::PeerId;
use crate::iwarp::peer::Peer;
use crate::iwarp::socket;
use crate::limits::HELLO_BYTES_MAX;

/// Admitted peers that the polling thread has not adopted yet.
const ADMITTED_MAX: usize = 16;
/// Peers of one address that are admitted in a burst.
const ADMISSION_BURST: u32 = 8;
/// Interval of further admissions from one address. Each costs the polling thread some tens of microseconds in three
/// or four pieces, and at most one client call in a hundred should wait for one.
const ADMISSION_INTERVAL: Duration = Duration::from_millis(100);
/// Addresses in the rate limiter. Beyond that, the least recently admitted address is forgotten.
const ADDRESSES_MAX: usize = 256;

impl Iwarp {
    pub(super) fn start_acceptor(&mut self, filter: Box<dyn AdmissionFilter>) -> io::Result<()> {
        if self.acceptor.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut fabric = Iwarp::new((*self.config).clone())?;
        let new_eventfd = || Ok::<_, io::Error>(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        let (signal, wake) = (new_eventfd()?, new_eventfd()?);
        epoll::add(&self.epoll, &signal, epoll::EventData::new_u64(ACCEPTOR), epoll::EventFlags::IN)?;
        for listener in self.listeners.drain(..) {
            if self.listen_resume_at.is_none() {
                epoll::delete(&self.epoll, &listener)?;
            }
            fabric.watch_listener(&listener)?;
            fabric.listeners.push(listener);
        }
        self.listen_resume_at = None;
        let (admit, admitted) = sync_channel(ADMITTED_MAX);
        let (listeners, new_listeners) = sync_channel(8);
        let stop = Arc::new(AtomicBool::new(false));
        let body = AcceptorThread {
            fabric,
            filter,
            admit,
            new_listeners,
            signal: Arc::clone(&signal),
            wake: Arc::clone(&wake),
            stop: Arc::clone(&stop),
            pending: VecDeque::new(),
            rate_limiter: RateLimiter::new(ADMISSION_BURST, ADMISSION_INTERVAL, ADDRESSES_MAX),
            start: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("ddss-acceptor".to_owned()).spawn(move || body.run())?;
        self.acceptor = Some(Acceptor { admitted, signal, listeners, stop, wake, thread: Some(thread) });
        Ok(())
    }

    /// Adopts one admitted peer.
    pub(super) fn adopt_admitted(&mut self, events: &mut Events) {
        let Some(acceptor) = &self.acceptor else { return };
        let next = match acceptor.admitted.try_recv() {
            Ok(peer) => Some(peer),
            Err(TryRecvError::Empty) => {
                // Cleared before the last check, so that a later peer signals again.
                clear(&acceptor.signal);
                acceptor.admitted.try_recv().ok()
            }
            Err(TryRecvError::Disconnected) => {
                error!("the acceptor thread has ended: no node can connect; restart the daemon");
                let _ = epoll::delete(&self.epoll, &acceptor.signal);
                None
            }
        };
        if let Some(peer) = next {
            self.has_connect_backlog = true;
            self.adopt(peer, events);
        }
    }
}

/// A peer that waits for its turn in the rate limiter.
struct PendingPeer {
    peer: PeerId,
    from: IpAddr,
    admission_token: AdmissionToken,
}

/// State of the acceptor thread.
struct AcceptorThread {
    fabric: Iwarp,
    filter: Box<dyn AdmissionFilter>,
    admit: SyncSender<Box<Peer>>,
    new_listeners: Receiver<OwnedFd>,
    signal: Arc<OwnedFd>,
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    /// In order of arrival.
    pending: VecDeque<PendingPeer>,
    rate_limiter: RateLimiter<IpAddr>,
    /// Start of the rate limiter's clock.
    start: Instant,
}

impl AcceptorThread {
    fn run(mut self) {
        let mut events = Events::new();
        while !self.stop.load(Ordering::Relaxed) {
            self.fabric.poll(&mut events);
            for event in events.iter() {
                match event {
                    Event::ConnectRequest { peer, address, hello } => self.evaluate(peer, address, hello),
                    Event::Closed { peer, .. } => self.pending.retain(|pending| pending.peer != peer),
                    _ => {}
                }
            }
            events.clear();
            let next = self.admit_due(Instant::now());
            if self.fabric.arm() {
                self.sleep(next);
            }
            self.fabric.disarm();
        }
    }

    fn evaluate(&mut self, peer: PeerId, address: SocketAddr, hello: &[u8]) {
        let decision = catch_unwind(AssertUnwindSafe(|| self.filter.evaluate(address, hello)));
        let refused = match decision {
            Ok(Admission::Admit(admission_token)) => {
                return self.pending.push_back(PendingPeer { peer, from: address.ip(), admission_token });
            }
            Ok(Admission::Reject(reason)) => reason,
            Err(_) => "the first message cannot be evaluated".to_owned(),
        };
        let reason = &refused.as_bytes()[..refused.len().min(HELLO_BYTES_MAX)];
        match self.fabric.reject(peer, reason) {
            // A peer that is gone needs no reason.
            Ok(()) | Err(FabricError::UnknownPeer(_)) => {}
            Err(error) => debug!(%address, %error, "cannot reject a peer"),
        }
    }

    /// Admits the peers whose turn has come; returns the time of the next turn.
    fn admit_due(&mut self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let mut index = 0;
        while let Some(pending) = self.pending.get(index) {
            let turn = self.start + self.rate_limiter.turn_of(pending.from, now - self.start);
            if turn > now {
                next = Some(next.map_or(turn, |other| other.min(turn)));
                index += 1;
                continue;
            }
            let Some(PendingPeer { peer, from, admission_token }) = self.pending.remove(index) else { break };
            let Some(mut peer) = self.fabric.detach(peer) else { continue };
            // A failure here repeats when the owner accepts the peer, and is reported then.
            peer.has_options = socket::tune(&peer.socket).is_ok();
            peer.admission_token = Some(admission_token);
            self.rate_limiter.took_turn(from, now - self.start);
            match self.admit.try_send(peer) {
                Ok(()) => notify(&self.signal),
                // The polling thread is stalled. The other peers wait here; this one has to reconnect.
                Err(TrySendError::Full(peer)) => {
                    debug!(peer = %peer.id(), "dropped an admitted connection: the polling thread is stalled")
                }
                Err(TrySendError::Disconnected(_)) => return None,
            }
        }
        next
    }

    fn sleep(&mut self, next: Option<Instant>) {
        let until = [next, self.fabric.next_deadline()].into_iter().flatten().min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout =
            timeout.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let descriptors = &mut [
            PollFd::from_borrowed_fd(self.fabric.descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        // An interrupted sleep is a short one.
        let _ = poll(descriptors, timeout.as_ref());
        if !descriptors[1].revents().is_empty() {
            clear(&self.wake);
            while let Ok(listener) = self.new_listeners.try_recv() {
                match self.fabric.watch_listener(&listener) {
                    Ok(()) => self.fabric.listeners.push(listener),
                    Err(error) => error!(%error, "cannot add a listener to epoll"),
                }
            }
        }
    }
}
