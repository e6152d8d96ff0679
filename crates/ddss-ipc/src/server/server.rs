//! The service's side of every channel, owned by the progress thread.
//!
//! Each call takes a bounded time and makes no system call unless a client sleeps. The thread's loop is
//!
//! ```text
//!   next_event -> add_client / remove_client
//!   poll       -> a batch of copied requests        (never a reference into shared memory)
//!   ...        -> reply, in any order, at any time
//!   flush      -> one fence for the whole batch, then wake one sleeping client
//!   nothing for a while: arm, sleep on descriptor(), disarm
//! ```

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use ddss_core::limits::CLIENTS_MAX;
use ddss_core::{ChannelId, ClientId, Entry, NodeId};
use rustix::event::{EventfdFlags, epoll};

use super::channel::ServerChannel;
use super::poll_scheduler::{ChannelKey, PollScheduler};
use super::protocol_violation::ProtocolViolation;
use super::request_handler::RequestHandler;
use super::session::{ClientEvent, Session};
use crate::shm::service_page::ServicePage;
use crate::socket;
use crate::strategy::Strategy;
use crate::sync::order;
use crate::sys::{MemoryError, SharedMemory};
use crate::wait::back_off::allowed_cores;

/// Events that may wait for the progress thread; a full inbox makes the acceptor wait.
const INBOX_EVENTS_MAX: usize = 2 * CLIENTS_MAX;
/// Maximum number of events taken from the kernel when the service wakes up.
const EVENTS_MAX: usize = 64;

/// Idle strategy of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleMode {
    /// A client relies on the service polling (`Rmq`, `Rcq`): sleep late, if at all.
    Poll,
    /// Spin a bounded time, then sleep (`Auto`, or no client).
    Spin,
    /// Every client sleeps in the kernel (`Mq`): sleep as soon as there is nothing to do.
    Sleep,
}

/// Counters of infrequent events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ServerCounts {
    /// Replies to a client that was gone.
    pub replies_to_gone_clients: u64,
    /// Replies beyond the requests of a channel: a defect of the server's owner.
    pub replies_unsolicited: u64,
    /// Wake-ups of sleeping clients.
    pub wakes: u64,
    /// Sleeps of the service.
    pub sleeps: u64,
}

/// Data of a server that the acceptor passes to clients.
#[derive(Clone, Debug)]
pub(crate) struct ServiceInfo {
    pub(crate) node: NodeId,
    pub(crate) service_page: SharedMemory,
}

/// Queue of client events to a server; wakes the server.
#[derive(Clone, Debug)]
pub struct Inbox {
    sender: SyncSender<ClientEvent>,
    waiting: Arc<AtomicUsize>,
    wake: Arc<OwnedFd>,
}

impl Inbox {
    /// Delivers an event and wakes the server. If the server is gone, the event is dropped, which ends the session.
    pub fn deliver(&self, event: ClientEvent) {
        if self.sender.send(event).is_ok() {
            self.waiting.fetch_add(1, Ordering::Release);
        }
        self.wake_server();
    }

    /// Wakes the server out of its sleep.
    pub fn wake_server(&self) {
        // The write only fails when the counter is full, and then the server has a wake-up pending.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Returns this inbox as the sink for [`Acceptor::start`](crate::Acceptor::start).
    pub fn sink(&self) -> impl FnMut(ClientEvent) + Send + 'static {
        let inbox = self.clone();
        move |event| inbox.deliver(event)
    }
}

/// One attached client.
struct ClientEntry {
    session: Session,
    keys: Vec<ChannelKey>,
}

/// The service's side of every channel.
pub struct IpcServer {
    node: NodeId,
    service_page: ServicePage,
    /// Cores on which the process may run.
    cores: usize,
    epoll: OwnedFd,
    inbox: Inbox,
    arrivals: Receiver<ClientEvent>,
    slots: Vec<Option<ClientEntry>>,
    scheduler: PollScheduler,
    /// Number of the last sleep, and whether the service is in it.
    sleep_id: u64,
    is_sleeping: bool,
    polling_clients: usize,
    sleeping_clients: usize,
    clients_count: usize,
    counts: ServerCounts,
}

impl IpcServer {
    /// Creates a server without clients, with its service page.
    pub fn open(node: NodeId) -> io::Result<Self> {
        let service_page = ServicePage::create(node).map_err(io::Error::other)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        watch_eventfd(&epoll, &wake)?;
        let (sender, arrivals) = sync_channel(INBOX_EVENTS_MAX);
        let inbox = Inbox { sender, waiting: Arc::default(), wake };
        let slots = (0..CLIENTS_MAX).map(|_| None).collect();
        Ok(Self {
            node,
            service_page,
            cores: allowed_cores(),
            epoll,
            inbox,
            arrivals,
            slots,
            scheduler: PollScheduler::new(),
            sleep_id: 0,
            is_sleeping: false,
            polling_clients: 0,
            sleeping_clients: 0,
            clients_count: 0,
            counts: ServerCounts::default(),
        })
    }

    /// Returns the id of the node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the inbox for client events.
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    pub(crate) fn service_info(&self) -> ServiceInfo {
        ServiceInfo { node: self.node, service_page: self.service_page.memory().clone() }
    }

    /// Returns the next event, if there is one. Costs one load when there is none.
    #[inline]
    pub fn next_event(&mut self) -> Option<ClientEvent> {
        if self.inbox.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let event = self.arrivals.try_recv().ok()?;
        self.inbox.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(event)
    }

    /// Starts to serve a client. Removes an earlier client of the same slot.
    pub fn add_client(&mut self, session: Session) -> Result<ClientId, MemoryError> {
        let client = session.client;
        if let Some(before) = self.slots[client.index as usize].as_ref().map(|slot| slot.session.client) {
            self.remove_client(before);
        }
        let channels: Vec<ServerChannel> =
            (0..session.channels()).map(|index| ServerChannel::new(&session, index)).collect::<Result<_, _>>()?;
        let tried =
            |errno: rustix::io::Errno| MemoryError::System { tried: "watch the eventfd of", source: errno.into() };
        watch_eventfd(&self.epoll, &session.wake).map_err(tried)?;
        let uid = session.credentials.uid;
        let keys = channels.into_iter().map(|channel| self.scheduler.insert(channel, uid)).collect();
        self.polling_clients += usize::from(session.strategy.wants_polling());
        self.sleeping_clients += usize::from(session.strategy == Strategy::Mq);
        self.clients_count += 1;
        self.slots[client.index as usize] = Some(ClientEntry { session, keys });
        Ok(client)
    }

    /// Stops serving a client and ends its socket. Its memory is unmapped with the last clone of its arena. Returns
    /// false if the client is not attached.
    pub fn remove_client(&mut self, client: ClientId) -> bool {
        if self.client_slot(client).is_none() {
            return false;
        }
        let Some(slot) = self.slots[client.index as usize].take() else { return false };
        for key in &slot.keys {
            self.scheduler.remove(*key);
        }
        self.polling_clients -= usize::from(slot.session.strategy.wants_polling());
        self.sleeping_clients -= usize::from(slot.session.strategy == Strategy::Mq);
        self.clients_count -= 1;
        // The client holds the eventfd as well, so closing ours would leave it in the epoll.
        let _ = epoll::delete(&self.epoll, &slot.session.wake);
        socket::shut(&slot.session.socket);
        true
    }

    /// Serves up to `budget` requests through `handler`, round robin over the channels, a few from each. Each reply is
    /// published before the next request is taken. A request without a reply is in flight, and
    /// [`reply`](Self::reply) answers it later.
    #[inline]
    pub fn serve(&mut self, budget: usize, handler: &mut impl RequestHandler) -> usize {
        self.scheduler.serve(budget, handler)
    }

    /// Returns true if a channel had requests recently.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.scheduler.hot_count() > 0
    }

    /// Makes the next sweeps poll every channel that has a request.
    pub fn warm_ready_channels(&mut self) {
        self.scheduler.warm_ready_channels();
    }

    /// Returns true if any channel has a request to take.
    pub fn has_requests(&self) -> bool {
        self.scheduler.has_requests()
    }

    /// Returns the number of requests that were taken and not answered.
    pub fn requests_in_flight(&self) -> usize {
        self.scheduler.count_pending().1
    }

    /// Returns true if each request that was taken is answered, and each reply is where it outlives this server.
    pub fn is_settled(&self) -> bool {
        self.scheduler.count_pending().0 == 0 && !self.scheduler.has_unflushed()
    }

    /// Publishes a completion and overwrites the low half of its word 0. A spinning client sees it immediately;
    /// [`flush`](Self::flush) wakes a sleeping one. Returns false when the client is gone or the channel has no request
    /// in flight; that is counted and otherwise harmless.
    #[inline]
    pub fn reply(&mut self, channel: ChannelId, entry: &Entry) -> bool {
        let Some(slot) = self.slots.get(channel.client.index as usize).and_then(Option::as_ref) else {
            self.counts.replies_to_gone_clients += 1;
            return false;
        };
        let key = slot.keys.get(usize::from(channel.index)).filter(|_| slot.session.client == channel.client);
        let Some(&key) = key else {
            self.counts.replies_to_gone_clients += 1;
            return false;
        };
        let published = self.scheduler.reply(key, entry);
        self.counts.replies_unsolicited += u64::from(!published);
        published
    }

    /// Wakes every sleeping client whose completion is published. Call it before the thread gives up its core.
    pub fn flush_all(&mut self) {
        while self.scheduler.has_unflushed() {
            self.wake_one();
        }
    }

    /// Wakes one sleeping client whose completion is published. Call it in each iteration of the loop, with or without
    /// replies: it costs nothing when no client needs a check, and [`arm`](Self::arm) wakes all others.
    #[inline]
    pub fn flush(&mut self) {
        if self.scheduler.may_wake() {
            self.wake_one();
        }
    }

    fn wake_one(&mut self) {
        let slots = &self.slots;
        let has_woken = self.scheduler.flush(|client| {
            let slot = slots.get(client.index as usize).and_then(Option::as_ref);
            if let Some(slot) = slot.filter(|slot| slot.session.client == client) {
                // Full means that it is readable already; gone means that no task waits.
                let _ = socket::send(slot.session.socket.as_fd(), &[1], &[]);
            }
        });
        self.counts.wakes += u64::from(has_woken);
    }

    /// Announces the sleep of the service, then polls everything once more. True: there is no work; sleep on
    /// [`descriptor`](Self::descriptor). False: there is work, and the service is announced as awake again.
    pub fn arm(&mut self) -> bool {
        self.flush_all();
        self.sleep_id += 1;
        self.is_sleeping = true;
        self.service_page.set_sleep_id(self.sleep_id);
        order::before_service_sleep();
        if self.scheduler.has_requests() || self.inbox.waiting.load(Ordering::Acquire) != 0 {
            self.disarm();
            return false;
        }
        self.counts.sleeps += 1;
        true
    }

    /// Announces that the service is awake. Poll again after it.
    pub fn disarm(&mut self) {
        if !self.is_sleeping {
            return;
        }
        self.is_sleeping = false;
        self.service_page.set_sleep_id(0);
        order::after_service_sleep();
        self.scheduler.warm_ready_channels();
        // The eventfds are edge-triggered and never read: a hostile client owns half of its eventfd and could make a
        // read block. Taking the events is enough to make the descriptor quiet again.
        let mut space = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let no_wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..=CLIENTS_MAX / EVENTS_MAX {
            match epoll::wait(&self.epoll, &mut space, Some(&no_wait)) {
                Ok((events, _)) if events.len() == EVENTS_MAX => {}
                _ => break,
            }
        }
    }

    /// Returns a descriptor that becomes readable when a client rings while the service sleeps, and when an event
    /// arrives. Only meaningful between [`arm`](Self::arm) and [`disarm`](Self::disarm).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Publishes the core that the service runs on, and whether more clients call than there are cores: clients on the same
    /// core sleep instead of spinning, and many clients take turns. Call it from the service's thread every few milliseconds.
    pub fn publish_load(&mut self, now: Instant) {
        self.service_page.set_core(rustix::thread::sched_getcpu());
        if let Some(callers) = self.scheduler.steady_callers.end_window(now) {
            // The service needs a core as well.
            self.service_page.set_crowded(callers > 1 && callers >= self.cores);
        }
    }

    /// Returns the idle strategy for the attached clients: the most eager one decides.
    pub fn idle_mode(&self) -> IdleMode {
        if self.polling_clients > 0 {
            IdleMode::Poll
        } else if self.sleeping_clients > 0 && self.sleeping_clients == self.clients_count {
            IdleMode::Sleep
        } else {
            IdleMode::Spin
        }
    }

    /// Returns the next protocol violation. The caller removes the client and logs the reason.
    pub fn next_violation(&mut self) -> Option<ProtocolViolation> {
        self.scheduler.next_violation()
    }

    /// Returns a client's arena; offset 0 is its first byte. A clone keeps the memory after the client is gone.
    pub fn arena(&self, client: ClientId) -> Option<&SharedMemory> {
        self.client_slot(client).map(|slot| &slot.session.arena)
    }

    /// Iterates over the attached clients.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.slots.iter().flatten().map(|slot| slot.session.client)
    }

    /// Returns the counters of infrequent events.
    pub fn counts(&self) -> ServerCounts {
        self.counts
    }

    fn client_slot(&self, client: ClientId) -> Option<&ClientEntry> {
        self.slots.get(client.index as usize)?.as_ref().filter(|slot| slot.session.client == client)
    }
}

fn watch_eventfd(epoll: &OwnedFd, eventfd: &OwnedFd) -> rustix::io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(epoll, eventfd, epoll::EventData::new_u64(0), flags)
}

#[cfg(test)]
mod tests;
