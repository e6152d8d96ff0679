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
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use tracing::{debug, error};

use super::Iwarp;
use super::poll::PORCH;
use crate::events::{Event, Events};
use crate::fabric::{Admission, AdmissionFilter, AdmissionToken, Fabric, FabricError, PeerId};
use crate::iwarp::peer::Peer;
use crate::iwarp::socket;
use ddss_core::RateLimiter;
use ddss_core::limits::HELLO_BYTES_MAX;

/// Admitted peers that the polling thread has not adopted yet.
const NEWCOMERS_MAX: usize = 16;
/// Peers that one address may have admitted at once.
const BURST: u32 = 8;
/// Interval of further admissions from one address. Each costs the polling thread some tens of microseconds in three
/// or four pieces, and at most one client call in a hundred should wait for one.
const PACE: Duration = Duration::from_millis(100);
/// Addresses in the rate limiter. Beyond that, the least recently admitted address is forgotten.
const ADDRESSES_MAX: usize = 256;

/// The polling thread's end of the acceptor.
pub(super) struct Acceptor {
    newcomers: Receiver<Box<Peer>>,
    /// Eventfd that signals admitted peers to the fabric's epoll.
    bell: Arc<OwnedFd>,
    listeners: SyncSender<OwnedFd>,
    leave: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Hands another listener to the acceptor thread.
    pub(super) fn watch(&self, listener: OwnedFd) -> io::Result<()> {
        let taken = self.listeners.try_send(listener);
        ring(&self.wake);
        taken.map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.leave.store(true, Ordering::Relaxed);
        ring(&self.wake);
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread already.
            let _ = thread.join();
        }
    }
}

/// Adds to an eventfd. Its counter never fills up, because the reader resets it.
fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

fn hush(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

impl Iwarp {
    pub(super) fn open_porch(&mut self, guard: Box<dyn AdmissionFilter>) -> io::Result<()> {
        if self.porch.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut fabric = Iwarp::new((*self.config).clone())?;
        let new_bell = || Ok::<_, io::Error>(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        let (bell, wake) = (new_bell()?, new_bell()?);
        epoll::add(&self.epoll, &bell, epoll::EventData::new_u64(PORCH), epoll::EventFlags::IN)?;
        for listener in self.listeners.drain(..) {
            if self.listen_again.is_none() {
                epoll::delete(&self.epoll, &listener)?;
            }
            fabric.watch_listener(&listener)?;
            fabric.listeners.push(listener);
        }
        self.listen_again = None;
        let (admit, newcomers) = sync_channel(NEWCOMERS_MAX);
        let (listeners, more) = sync_channel(8);
        let leave = Arc::new(AtomicBool::new(false));
        let warden = AcceptorThread {
            fabric,
            guard,
            admit,
            more,
            bell: Arc::clone(&bell),
            wake: Arc::clone(&wake),
            leave: Arc::clone(&leave),
            waiting: VecDeque::new(),
            pace: RateLimiter::new(BURST, PACE, ADDRESSES_MAX),
            began: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("ddss-porch".to_owned()).spawn(move || warden.run())?;
        self.porch = Some(Acceptor { newcomers, bell, listeners, leave, wake, thread: Some(thread) });
        Ok(())
    }

    /// Adopts one admitted peer.
    pub(super) fn take_newcomer(&mut self, events: &mut Events) {
        let Some(porch) = &self.porch else { return };
        let next = match porch.newcomers.try_recv() {
            Ok(peer) => Some(peer),
            Err(TryRecvError::Empty) => {
                // Cleared before the last check, so that a later peer signals again.
                hush(&porch.bell);
                porch.newcomers.try_recv().ok()
            }
            Err(TryRecvError::Disconnected) => {
                error!("the thread that lets other nodes in has ended: nobody can connect any more");
                let _ = epoll::delete(&self.epoll, &porch.bell);
                None
            }
        };
        if let Some(peer) = next {
            self.crowded = true;
            self.adopt(peer, events);
        }
    }
}

/// A peer that waits for its turn in the rate limiter.
struct PendingPeer {
    peer: PeerId,
    from: IpAddr,
    pass: AdmissionToken,
}

/// State of the acceptor thread.
struct AcceptorThread {
    fabric: Iwarp,
    guard: Box<dyn AdmissionFilter>,
    admit: SyncSender<Box<Peer>>,
    more: Receiver<OwnedFd>,
    bell: Arc<OwnedFd>,
    wake: Arc<OwnedFd>,
    leave: Arc<AtomicBool>,
    /// In order of arrival.
    waiting: VecDeque<PendingPeer>,
    pace: RateLimiter<IpAddr>,
    /// Start of the rate limiter's clock.
    began: Instant,
}

impl AcceptorThread {
    fn run(mut self) {
        let mut events = Events::new();
        while !self.leave.load(Ordering::Relaxed) {
            self.fabric.poll(&mut events);
            for event in events.iter() {
                match event {
                    Event::Asked { peer, address, hello } => self.hear(peer, address, hello),
                    Event::Closed { peer, .. } => self.waiting.retain(|waiting| waiting.peer != peer),
                    _ => {}
                }
            }
            events.clear();
            let next = self.let_in(Instant::now());
            if self.fabric.arm() {
                self.sleep(next);
            }
            self.fabric.disarm();
        }
    }

    fn hear(&mut self, peer: PeerId, address: SocketAddr, hello: &[u8]) {
        let judged = catch_unwind(AssertUnwindSafe(|| self.guard.judge(address, hello)));
        let refused = match judged {
            Ok(Admission::Admit(pass)) => {
                return self.waiting.push_back(PendingPeer { peer, from: address.ip(), pass });
            }
            Ok(Admission::TurnAway(why)) => why,
            Err(_) => "its first message cannot be judged".to_owned(),
        };
        let reason = &refused.as_bytes()[..refused.len().min(HELLO_BYTES_MAX)];
        match self.fabric.reject(peer, reason) {
            // A peer that is gone needs no reason.
            Ok(()) | Err(FabricError::UnknownPeer(_)) => {}
            Err(error) => debug!(%address, %error, "cannot turn a peer away"),
        }
    }

    /// Admits the peers whose turn has come; returns the time of the next turn.
    fn let_in(&mut self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index) {
            let turn = self.began + self.pace.turn_of(waiting.from, now - self.began);
            if turn > now {
                next = Some(next.map_or(turn, |other| other.min(turn)));
                index += 1;
                continue;
            }
            let Some(PendingPeer { peer, from, pass }) = self.waiting.remove(index) else { break };
            let Some(mut peer) = self.fabric.let_go(peer) else { continue };
            // A failure here repeats when the owner accepts the peer, and is reported then.
            peer.tuned = socket::tune(&peer.socket).is_ok();
            peer.pass = Some(pass);
            self.pace.took_turn(from, now - self.began);
            match self.admit.try_send(peer) {
                Ok(()) => ring(&self.bell),
                // The polling thread is stalled. The other peers wait here; this one has to reconnect.
                Err(TrySendError::Full(peer)) => debug!(peer = %peer.id(), "dropped a connection: nobody takes it in"),
                Err(TrySendError::Disconnected(_)) => return None,
            }
        }
        next
    }

    fn sleep(&mut self, next: Option<Instant>) {
        let until = [next, self.fabric.next_deadline()].into_iter().flatten().min();
        let patience = until.map(|until| until.saturating_duration_since(Instant::now()));
        let patience =
            patience.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let descriptors = &mut [
            PollFd::from_borrowed_fd(self.fabric.descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        // An interrupted sleep is a short one.
        let _ = poll(descriptors, patience.as_ref());
        if !descriptors[1].revents().is_empty() {
            hush(&self.wake);
            while let Ok(listener) = self.more.try_recv() {
                match self.fabric.watch_listener(&listener) {
                    Ok(()) => self.fabric.listeners.push(listener),
                    Err(error) => error!(%error, "cannot watch a listener"),
                }
            }
        }
    }
}
