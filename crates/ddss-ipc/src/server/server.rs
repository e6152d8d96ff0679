//! The service's side of every lane, owned by the progress thread.
//!
//! Each call takes a bounded time and makes no system call unless somebody sleeps. The thread's loop is
//!
//! ```text
//!   arrivals -> adopt / dismiss
//!   poll     -> a batch of copied requests          (never a reference into shared memory)
//!   ...      -> reply, in any order, at any time
//!   flush    -> one fence for the whole batch, then wake one of those who sleep
//!   nothing for a while: arm, sleep on descriptor(), disarm
//! ```

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use ddss_core::limits::CLIENTS_MAX;
use ddss_core::{ChannelId, ClientId, Entry, NodeId};
use rustix::event::{EventfdFlags, epoll};

use super::acceptor::ArrivalSink;
use super::channel::ServerChannel;
use super::poll_scheduler::{ChannelKey, PollScheduler};
use super::session::{Arrival, Credentials, Session};
use crate::shm::service_page::ServicePage;
use crate::socket;
use crate::strategy::Strategy;
use crate::sync::order;
use crate::sys::{MemoryError, SharedMemory};
use crate::trace_sampling::TracedRequest;

/// Arrivals that may wait for the progress thread; a full inbox makes the reception wait.
const ARRIVALS_MAX: usize = 2 * CLIENTS_MAX;
/// Hot lanes that are few: among them somebody is looked for who yields on the service's core.
const FEW: usize = 4;
/// Events taken from the kernel at once when the service wakes up.
const EVENTS_MAX: usize = 64;

/// Answers requests, one after the other: [`IpcServer::serve`]. A function of the same arguments is
/// one that has nothing more to do once an answer is out.
pub trait RequestHandler {
    /// How much that request asks for, in requests that ask for little: what it counts for where several users call.
    #[inline(always)]
    fn weight(&self, _request: &Entry) -> usize {
        1
    }

    /// Answers a request, or gives nothing: then it is under way. With some of them comes when they were sent and taken.
    fn answer(&mut self, lane: ChannelId, request: &Entry, followed: Option<TracedRequest>) -> Option<Entry>;

    /// The answer is out: what the client does not have to wait for is done here.
    #[inline(always)]
    fn answered(&mut self, _lane: ChannelId, _request: &Entry, _answer: &Entry, _followed: Option<TracedRequest>) {}
}

impl<F: FnMut(ChannelId, &Entry, Option<TracedRequest>) -> Option<Entry>> RequestHandler for F {
    #[inline(always)]
    fn answer(&mut self, lane: ChannelId, request: &Entry, followed: Option<TracedRequest>) -> Option<Entry> {
        self(lane, request, followed)
    }
}

/// What a client did that no honest one does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolViolation {
    /// Its request ring holds a sequence from nowhere.
    #[error("lane {} of {} holds sequence {found} where {awaited} is next", lane.index, lane.client)]
    Sequence {
        /// Where.
        lane: ChannelId,
        /// What is there.
        found: u32,
        /// What should come.
        awaited: u32,
    },
    /// Its message queue does not hold what it announced, or holds what nobody of us sends, or was removed.
    #[error("the message queue of lane {} of {} was tampered with", lane.index, lane.client)]
    Queue {
        /// Where.
        lane: ChannelId,
    },
}

impl ProtocolViolation {
    /// Who did it.
    pub fn client(&self) -> ClientId {
        let (Self::Sequence { lane, .. } | Self::Queue { lane }) = self;
        lane.client
    }
}

/// How a service idles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleMode {
    /// A client counts on the service polling (`Rmq`, `Rcq`): sleep late, if at all.
    Poll,
    /// Spin a bounded time, then sleep (`Auto`, or nobody).
    Spin,
    /// Every client sleeps in the kernel (`Mq`): sleep as soon as there is nothing to do.
    Sleep,
}

/// Counts of what should not happen often.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ServerCounts {
    /// Replies to a client that was gone.
    pub replies_too_late: u64,
    /// Replies beyond the requests of a lane: a fault of the service's owner.
    pub replies_unasked: u64,
    /// Clients that were woken from a sleep.
    pub wakes: u64,
    /// Sleeps of the service.
    pub rests: u64,
}

/// What the reception needs of a station.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) node: NodeId,
    pub(crate) board: SharedMemory,
}

/// Where the reception puts arrivals; wakes the station.
#[derive(Clone, Debug)]
pub struct Inbox {
    sender: SyncSender<Arrival>,
    waiting: Arc<AtomicUsize>,
    bell: Arc<OwnedFd>,
}

impl Inbox {
    /// Passes an arrival on and wakes the station. After the station is gone it drops it, which ends the session.
    pub fn deliver(&self, arrival: Arrival) {
        if self.sender.send(arrival).is_ok() {
            self.waiting.fetch_add(1, Ordering::Release);
        }
        self.ring();
    }

    /// Wakes the station out of its sleep.
    pub fn ring(&self) {
        // It only fails when the counter is full, and then the station has a wake-up waiting.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// This inbox as what [`Reception::start`](crate::Acceptor::start) takes.
    pub fn sink(&self) -> ArrivalSink {
        let inbox = self.clone();
        Box::new(move |arrival| inbox.deliver(arrival))
    }
}

/// One attached client.
struct ClientEntry {
    session: Session,
    keys: Vec<ChannelKey>,
}

/// The service's side of every lane.
pub struct IpcServer {
    node: NodeId,
    board: ServicePage,
    epoll: OwnedFd,
    inbox: Inbox,
    arrivals: Receiver<Arrival>,
    seats: Vec<Option<ClientEntry>>,
    sweep: PollScheduler,
    /// The number of the last sleep, and whether the service is in it.
    rest: u64,
    resting: bool,
    polling_clients: usize,
    sleeping_clients: usize,
    clients_count: usize,
    counts: ServerCounts,
}

impl IpcServer {
    /// Makes a station without clients, with its notice board.
    pub fn open(node: NodeId) -> io::Result<Self> {
        let board = ServicePage::create(node).map_err(io::Error::other)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        watch(&epoll, &bell)?;
        let (sender, arrivals) = sync_channel(ARRIVALS_MAX);
        let inbox = Inbox { sender, waiting: Arc::default(), bell };
        let seats = (0..CLIENTS_MAX).map(|_| None).collect();
        Ok(Self {
            node,
            board,
            epoll,
            inbox,
            arrivals,
            seats,
            sweep: PollScheduler::new(),
            rest: 0,
            resting: false,
            polling_clients: 0,
            sleeping_clients: 0,
            clients_count: 0,
            counts: ServerCounts::default(),
        })
    }

    /// The node it serves.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Where arrivals go in.
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    pub(crate) fn notice(&self) -> Notice {
        Notice { node: self.node, board: self.board.memory().clone() }
    }

    /// The next arrival, if one waits. Costs one load when none does.
    #[inline]
    pub fn arrival(&mut self) -> Option<Arrival> {
        if self.inbox.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let arrival = self.arrivals.try_recv().ok()?;
        self.inbox.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(arrival)
    }

    /// Starts to serve a client. Who sat in its slot before is dismissed.
    pub fn adopt(&mut self, session: Session) -> Result<ClientId, MemoryError> {
        let client = session.client;
        if let Some(before) = self.seats[client.index as usize].as_ref().map(|seat| seat.session.client) {
            self.dismiss(before);
        }
        let lanes: Vec<ServerChannel> =
            (0..session.lanes()).map(|index| ServerChannel::new(&session, index)).collect::<Result<_, _>>()?;
        let tried = |errno: rustix::io::Errno| MemoryError::System { tried: "watch", source: errno.into() };
        watch(&self.epoll, &session.wake).map_err(tried)?;
        let uid = session.credentials.uid;
        let keys = lanes.into_iter().map(|lane| self.sweep.insert(lane, uid)).collect();
        self.polling_clients += usize::from(session.strategy.wants_polling());
        self.sleeping_clients += usize::from(session.strategy == Strategy::Mq);
        self.clients_count += 1;
        self.seats[client.index as usize] = Some(ClientEntry { session, keys });
        Ok(client)
    }

    /// Stops serving a client and ends its socket; its memory goes when the last clone of its arena does. False when
    /// it is not (or no longer) here.
    pub fn dismiss(&mut self, client: ClientId) -> bool {
        if self.seat(client).is_none() {
            return false;
        }
        let Some(seat) = self.seats[client.index as usize].take() else { return false };
        for key in &seat.keys {
            self.sweep.remove(*key);
        }
        self.polling_clients -= usize::from(seat.session.strategy.wants_polling());
        self.sleeping_clients -= usize::from(seat.session.strategy == Strategy::Mq);
        self.clients_count -= 1;
        // The client holds the eventfd as well, so closing ours would leave it in the epoll.
        let _ = epoll::delete(&self.epoll, &seat.session.wake);
        socket::shut(&seat.session.socket);
        true
    }

    /// Copies up to `budget` requests out, round robin over the lanes, a few from each. Appends to `into`, which never
    /// grows when it has room for `budget` more.
    #[inline]
    pub fn poll(&mut self, budget: usize, into: &mut Vec<(ChannelId, Entry)>) -> usize {
        let taken = self.sweep.poll(budget, into);
        self.tell_callers();
        taken
    }

    /// Like [`poll`](Self::poll), for what can be answered on the spot: passes each request to `answerer`, and what that
    /// answers is published before the next one is looked at. A request for which it gives nothing is under way, and is
    /// answered by [`reply`](Self::reply) later.
    #[inline]
    pub fn serve(&mut self, budget: usize, answerer: &mut impl RequestHandler) -> usize {
        let taken = self.sweep.serve(budget, answerer);
        self.tell_callers();
        taken
    }

    /// Whether some lane had requests of late.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.sweep.hot() > 0
    }

    #[inline(always)]
    fn tell_callers(&mut self) {
        if self.sweep.callers.has_changed() {
            self.tell_changes();
        }
    }

    #[cold]
    fn tell_changes(&mut self) {
        for (place, present) in self.sweep.callers.changes() {
            self.board.set_present(place, present);
        }
    }

    /// Has every lane with a request looked at in the next sweeps.
    pub fn warm(&mut self) {
        self.sweep.warm_all();
    }

    /// Whether any lane has a request to be taken.
    pub fn has_requests(&self) -> bool {
        self.sweep.has_requests()
    }

    /// Requests that were taken and not answered.
    pub fn under_way(&self) -> usize {
        self.sweep.owed().1
    }

    /// Whether each request that was taken is answered, and each answer is where it outlives this station.
    pub fn is_settled(&self) -> bool {
        self.sweep.owed().0 == 0 && !self.sweep.has_unflushed()
    }

    /// Publishes a completion (the low half of word 0 is overwritten). Everything that is published is seen at once by
    /// who spins; who sleeps is woken by [`flush`](Self::flush). False when the client is gone or the lane has no
    /// request under way; that is counted and otherwise harmless.
    #[inline]
    pub fn reply(&mut self, lane: ChannelId, entry: &Entry) -> bool {
        let Some(seat) = self.seats.get(lane.client.index as usize).and_then(Option::as_ref) else {
            self.counts.replies_too_late += 1;
            return false;
        };
        let key = seat.keys.get(usize::from(lane.index)).filter(|_| seat.session.client == lane.client);
        let Some(&key) = key else {
            self.counts.replies_too_late += 1;
            return false;
        };
        let published = self.sweep.reply(key, entry);
        self.counts.replies_unasked += u64::from(!published);
        published
    }

    /// Wakes one of those who sleep and whose completions are out. Call it in each round of the loop, whether there were
    /// replies or not: it costs nothing when nobody is left to be looked at, and [`arm`](Self::arm) wakes all others.
    #[inline]
    pub fn flush(&mut self) {
        if self.sweep.may_wake() {
            self.wake_one();
        }
    }

    fn wake_one(&mut self) {
        let seats = &self.seats;
        let woke = self.sweep.flush(|client| {
            let seat = seats.get(client.index as usize).and_then(Option::as_ref);
            if let Some(seat) = seat.filter(|seat| seat.session.client == client) {
                // Full means that it is readable already; gone means that nobody waits.
                let _ = socket::send(seat.session.socket.as_fd(), &[1], &[]);
            }
        });
        self.counts.wakes += u64::from(woke);
    }

    /// Says that the service sleeps, then looks everywhere once more. True: nothing came, sleep on
    /// [`descriptor`](Self::descriptor) now. False: there is work, and the service is said to be awake again.
    pub fn arm(&mut self) -> bool {
        while self.sweep.has_unflushed() {
            self.wake_one();
        }
        self.rest += 1;
        self.resting = true;
        self.board.set_rest(self.rest);
        order::before_rest();
        if self.sweep.has_requests() || self.inbox.waiting.load(Ordering::Acquire) != 0 {
            self.disarm();
            return false;
        }
        self.counts.rests += 1;
        true
    }

    /// Says that the service is awake. Poll again after it.
    pub fn disarm(&mut self) {
        if !self.resting {
            return;
        }
        self.resting = false;
        self.board.set_rest(0);
        order::after_rest();
        self.sweep.warm_all();
        // The bells are edge-triggered and never read: a hostile client owns half of its eventfd and could make a
        // read block. Taking the events is enough to make the descriptor quiet again.
        let mut space = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..=CLIENTS_MAX / EVENTS_MAX {
            match epoll::wait(&self.epoll, &mut space, Some(&at_once)) {
                Ok((events, _)) if events.len() == EVENTS_MAX => {}
                _ => break,
            }
        }
    }

    /// Becomes readable when a client rings while the service sleeps, and when an arrival comes in. Only meaningful
    /// between [`arm`](Self::arm) and [`disarm`](Self::disarm).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Tells the clients on which core the service runs: who shares it yields instead of spinning. Call it from the
    /// service's thread now and then (once, when it is pinned).
    pub fn tell_core(&self) {
        self.board.set_core(rustix::thread::sched_getcpu());
    }

    /// Tells the clients whether nobody else is known to want that core: who waits on it yields then, and does not sleep.
    pub fn tell_core_unwanted(&self, unwanted: bool) {
        self.board.set_core_unwanted(unwanted);
    }

    /// Whether a client that yields on the service's core has its answer since the last time: it is to have the core now.
    #[inline]
    pub fn take_owed_core(&mut self) -> bool {
        self.sweep.take_owed_core()
    }

    /// Whether a client was woken since the last time, or may have been.
    pub fn take_woken(&mut self) -> bool {
        self.sweep.take_woken()
    }

    /// Whether one lane had requests of late, and no other.
    pub fn serves_one(&self) -> bool {
        self.sweep.hot() == 1
    }

    /// Whether few lanes had requests of late: of a crowd, many may be on the service's core.
    pub fn serves_few(&self) -> bool {
        self.sweep.hot() <= FEW
    }

    /// Whether a client that has requests under way yields on the service's core.
    pub fn has_one_beside(&self) -> bool {
        self.serves_few() && self.sweep.has_one_beside()
    }

    /// Tells the clients what an operation takes on average: they spin or sleep by it. Call it now and then, not for
    /// each operation.
    pub fn tell_latency_ns(&self, latency_ns: u64) {
        self.board.set_latency_ns(latency_ns);
    }

    /// How the service should idle, by the strategies of the clients that are attached: the most eager one decides.
    pub fn idling(&self) -> IdleMode {
        if self.polling_clients > 0 {
            IdleMode::Poll
        } else if self.sleeping_clients > 0 && self.sleeping_clients == self.clients_count {
            IdleMode::Sleep
        } else {
            IdleMode::Spin
        }
    }

    /// The next offence that was noticed. Dismiss the client, and say why in the log.
    pub fn offence(&mut self) -> Option<ProtocolViolation> {
        self.sweep.offence()
    }

    /// A client's arena; offset 0 is the arena's first byte. A clone keeps the memory after the client is gone.
    pub fn arena(&self, client: ClientId) -> Option<&SharedMemory> {
        self.seat(client).map(|seat| &seat.session.arena)
    }

    /// The file behind a client's arena, where in it the arena starts, and how long it is: so that a fabric can map
    /// and register the same memory by itself.
    pub fn arena_file(&self, client: ClientId) -> Option<(BorrowedFd<'_>, usize, usize)> {
        let arena = self.arena(client)?;
        Some((arena.descriptor(), arena.offset(), arena.len()))
    }

    /// Who a client is.
    pub fn credentials(&self, client: ClientId) -> Option<Credentials> {
        self.seat(client).map(|seat| seat.session.credentials)
    }

    /// What a client chose.
    pub fn strategy(&self, client: ClientId) -> Option<Strategy> {
        self.seat(client).map(|seat| seat.session.strategy)
    }

    /// The clients that are attached.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.seats.iter().flatten().map(|seat| seat.session.client)
    }

    /// Counts of what should not happen often.
    pub fn counts(&self) -> ServerCounts {
        self.counts
    }

    fn seat(&self, client: ClientId) -> Option<&ClientEntry> {
        self.seats.get(client.index as usize)?.as_ref().filter(|seat| seat.session.client == client)
    }
}

fn watch(epoll: &OwnedFd, eventfd: &OwnedFd) -> rustix::io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(epoll, eventfd, epoll::EventData::new_u64(0), flags)
}

#[cfg(test)]
mod tests;
