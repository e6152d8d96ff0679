//! Accepts clients, performs handshakes and detects the end of clients.
//!
//! The acceptor has its own thread, so that neither a slow handshake nor a thousand new clients delay the progress
//! thread. All sockets are non-blocking; a connection without a timely hello is dropped. The end of a client's socket
//! is the end of the client, however it ended.

use std::cmp::Reverse;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ddss_admission::RateLimiter;
use ddss_core::ClientId;
use ddss_core::limits::CLIENTS_MAX;
use rustix::event::{EventfdFlags, epoll};
use rustix::io::Errno;

use super::event_token::EventToken;
use super::listen_socket::ListenSocket;
use super::server::IpcServer;
use super::session::{ClientEvent, ClientEventSink, Session, make_memory};
use crate::client_handshake::{BadFrame, HELLO_BYTES, HandshakeReply, HandshakeRequest, Hello, Refusal, Welcome};
use crate::server::area_access::AreaAccess;
use crate::shm::layout::{LAYOUT_VERSION, Layout, MEMORY_BYTES_MAX};
use crate::socket;
use crate::sys::{Credentials, InheritedSocket, SharedMemory, credentials_of};
use crate::transport::sysv_journal::{OwnedQueue, QueueJournal, QueueRole};

/// Handshakes in progress at the same time. When there are more, the oldest of the user with the most is dropped.
const HANDSHAKES_MAX: usize = 64;
/// Backlog of the listening socket.
const BACKLOG: i32 = 512;
/// Maximum number of events taken from the kernel in one call.
const EVENTS_MAX: usize = 64;
/// User id of root.
const ROOT: u32 = 0;

/// Configuration of an acceptor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcceptorConfig {
    /// Node id and service page that clients get.
    pub(crate) service_info: super::server::ServiceInfo,
    /// Maximum of clients at the same time.
    pub clients_max: usize,
    /// Maximum of bytes of all client memories together.
    pub memory_bytes_max: usize,
    /// Time limit for the hello of a client.
    pub handshake_timeout: Duration,
    /// Permission bits of the socket, which decide which users may attach.
    pub socket_mode: u32,
    /// Access rights to the areas of the node's memory. Without a rule, no user has access.
    pub area_access: AreaAccess,
    /// Limit of clients for each user.
    pub user_limit: UserLimit,
    /// Number of shards of the daemon, which clients learn.
    pub shards: u8,
    /// Release of the daemon, which clients of another layout are told.
    pub release: &'static str,
}

type Admit = dyn Fn(u32, usize) -> Result<(), String> + Send + Sync;

/// Decides whether a user with a number of clients may attach another one; an error is the reason. The default has no
/// limit.
#[derive(Clone)]
pub struct UserLimit(Arc<Admit>);

impl UserLimit {
    /// Calls `admit` with user id and client count for each client that attaches. It runs on the acceptor's thread.
    pub fn new(admit: impl Fn(u32, usize) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(admit))
    }
}

impl std::fmt::Debug for UserLimit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("UserLimit")
    }
}

impl AcceptorConfig {
    /// Creates the default configuration for the clients of `server`.
    pub fn new(server: &IpcServer) -> Self {
        Self {
            service_info: server.service_info(),
            clients_max: CLIENTS_MAX,
            memory_bytes_max: 64 * MEMORY_BYTES_MAX,
            handshake_timeout: Duration::from_secs(1),
            socket_mode: 0o600,
            area_access: AreaAccess::none(),
            user_limit: UserLimit::new(|_, _| Ok(())),
            shards: 1,
            release: "unknown",
        }
    }
}

/// Handle of a node's acceptor, which ends when this is dropped.
#[derive(Debug)]
pub struct Acceptor {
    path: PathBuf,
    signal: Arc<ThreadSignal>,
    thread: Option<JoinHandle<()>>,
}

/// Signal to the acceptor's thread.
#[derive(Debug)]
struct ThreadSignal {
    wake: OwnedFd,
    /// True: end all sessions. False: only stop accepting.
    stop: AtomicBool,
}

impl ThreadSignal {
    fn notify(&self) {
        // The counter of an eventfd that is written twice is never full.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Acceptor {
    /// Listens at `path`. Removes a socket file of a dead daemon; a live daemon there is an error
    /// ([`io::ErrorKind::AddrInUse`]). The sink may block briefly; no client is accepted meanwhile.
    pub fn start(
        path: &Path,
        config: AcceptorConfig,
        sink: impl FnMut(ClientEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let listen_socket = ListenSocket::open(path, config.socket_mode, BACKLOG)?;
        Self::spawn(listen_socket, path, config, Box::new(sink))
    }

    /// Accepts clients at a socket that was created earlier, including connections that wait in its backlog.
    pub fn start_at(
        socket: InheritedSocket,
        path: &Path,
        config: AcceptorConfig,
        sink: impl FnMut(ClientEvent) + Send + 'static,
    ) -> io::Result<Self> {
        Self::spawn(ListenSocket::adopt(path, socket)?, path, config, Box::new(sink))
    }

    fn spawn(
        listen_socket: ListenSocket,
        path: &Path,
        config: AcceptorConfig,
        sink: ClientEventSink,
    ) -> io::Result<Self> {
        let removed = QueueJournal::clean(path)?;
        if removed > 0 {
            tracing::info!(removed, path = %path.display(), "removed the message queues of a dead daemon");
        }
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let signal = Arc::new(ThreadSignal { wake, stop: AtomicBool::new(false) });
        let worker = AcceptorThread::new(listen_socket, Arc::clone(&signal), config, sink)?;
        let thread = std::thread::Builder::new().name("ddss-acceptor".to_owned()).spawn(move || worker.run())?;
        Ok(Self { path: path.to_owned(), signal, thread: Some(thread) })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts no more clients. Attached clients stay until [`stop`](Self::stop).
    pub fn stop_accepting(&self) {
        self.signal.notify();
    }

    /// Accepts no more clients and ends every session. Complete when it returns.
    pub fn stop(mut self) {
        self.close();
    }

    fn close(&mut self) {
        // Pairs with the Acquire of the acceptor's thread.
        self.signal.stop.store(true, Ordering::Release);
        self.signal.notify();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(path = %self.path.display(), "the acceptor thread panicked");
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.close();
    }
}

/// A connection that has not completed its handshake.
struct PendingConnection {
    socket: Arc<OwnedFd>,
    credentials: Credentials,
    deadline: Instant,
    /// Time until which a connection with a hello is delayed, because its user attaches too often.
    not_before: Option<Instant>,
}

/// Handshakes of one user that are served at once, and the interval of further ones. Each handshake makes work for the
/// progress thread; a user that attaches and detaches a thousand times a second must not slow down others.
const USER_BURST: u32 = 512;
const USER_INTERVAL: Duration = Duration::from_millis(1);
/// Users that the rate limiter tracks.
const USERS_MAX: usize = 256;

/// Slot of a client, with its generation.
#[derive(Default)]
struct ClientSlot {
    generation: u32,
    client: Option<AttachedClient>,
}

/// Client that occupies a slot.
struct AttachedClient {
    socket: Arc<OwnedFd>,
    uid: u32,
    bytes: usize,
}

/// State of the acceptor's thread.
struct AcceptorThread {
    listen_socket: ListenSocket,
    epoll: OwnedFd,
    signal: Arc<ThreadSignal>,
    config: AcceptorConfig,
    sink: ClientEventSink,
    handshakes: Vec<Option<PendingConnection>>,
    slots: Vec<ClientSlot>,
    memory_bytes: usize,
    /// Opened for the first client that needs a message queue.
    journal: Option<Arc<QueueJournal>>,
    /// Rate limiter of handshakes; its clock starts at `started_at`.
    rate_limiter: RateLimiter<u32>,
    started_at: Instant,
    /// Spare descriptor, closed briefly when descriptors run out, so that one connection can be accepted and refused.
    spare: Option<OwnedFd>,
}

impl AcceptorThread {
    fn new(
        listen_socket: ListenSocket,
        signal: Arc<ThreadSignal>,
        config: AcceptorConfig,
        sink: ClientEventSink,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &signal.wake, EventToken::Signal.data(), epoll::EventFlags::IN)?;
        epoll::add(&epoll, listen_socket.listener(), EventToken::Listener.data(), epoll::EventFlags::IN)?;
        let handshakes = (0..HANDSHAKES_MAX).map(|_| None).collect();
        let slots = (0..config.clients_max.min(CLIENTS_MAX)).map(|_| ClientSlot::default()).collect();
        let spare = signal.wake.try_clone().ok();
        let (rate_limiter, started_at) = (RateLimiter::new(USER_BURST, USER_INTERVAL, USERS_MAX), Instant::now());
        Ok(Self {
            listen_socket,
            epoll,
            signal,
            config,
            sink,
            handshakes,
            slots,
            memory_bytes: 0,
            journal: None,
            rate_limiter,
            started_at,
            spare,
        })
    }

    fn run(mut self) {
        let mut space = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        loop {
            let limit = self.next_deadline().map(socket::timespec);
            let tokens: Vec<EventToken> = match epoll::wait(&self.epoll, &mut space, limit.as_ref()) {
                Ok((events, _)) => events.iter().map(|event| EventToken::of(event.data)).collect(),
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    tracing::error!(%errno, "cannot wait for client events");
                    break;
                }
            };
            for token in tokens {
                match token {
                    EventToken::Signal if self.signal.stop.load(Ordering::Acquire) => return self.close(),
                    EventToken::Signal => self.stop_accepting(),
                    EventToken::Listener => self.accept_pending(),
                    EventToken::Handshake(index) => self.continue_handshake(index),
                    EventToken::Client(index, generation) => self.detach_client(index, generation),
                }
            }
            self.continue_delayed();
            self.drop_expired();
        }
        self.close();
    }

    fn close(self) {
        for taken in self.slots.iter().filter_map(|slot| slot.client.as_ref()) {
            socket::shut(&taken.socket);
        }
    }

    /// Stops listening. Connections without a completed handshake see the end of their socket.
    fn stop_accepting(&mut self) {
        let mut count = [0; 8];
        // The signal is sent once for this and once more for the end.
        let _ = rustix::io::read(&self.signal.wake, &mut count);
        let _ = epoll::delete(&self.epoll, self.listen_socket.listener());
        self.listen_socket.close();
        self.handshakes.iter_mut().for_each(|pending| *pending = None);
    }

    fn next_deadline(&self) -> Option<Duration> {
        let first =
            self.handshakes.iter().flatten().map(|pending| pending.not_before.unwrap_or(pending.deadline)).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    fn drop_expired(&mut self) {
        let now = Instant::now();
        for slot in &mut self.handshakes {
            if let Some(pending) = slot.take_if(|pending| pending.deadline <= now) {
                tracing::info!(
                    pid = pending.credentials.pid,
                    uid = pending.credentials.uid,
                    "closed a connection without a timely hello"
                );
            }
        }
    }

    fn accept_pending(&mut self) {
        for _ in 0..HANDSHAKES_MAX {
            match socket::accept(self.listen_socket.listener()) {
                Ok(socket) => self.begin_handshake(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => return self.refuse_without_descriptor(errno),
                Err(errno) => {
                    tracing::warn!(%errno, "cannot accept a client");
                    return;
                }
            }
        }
    }

    /// Refuses one connection with the spare descriptor. Otherwise the connection would wait in the backlog and the
    /// event loop would spin.
    fn refuse_without_descriptor(&mut self, errno: Errno) {
        tracing::warn!(%errno, "cannot accept a client: out of descriptors");
        self.spare = None;
        if let Ok(pending) = socket::accept(self.listen_socket.listener()) {
            refuse(&pending, Refusal::Busy, "the daemon is out of file descriptors");
        }
        self.spare = self.signal.wake.try_clone().ok();
    }

    fn begin_handshake(&mut self, socket: OwnedFd) {
        let credentials = match credentials_of(socket.as_fd()) {
            Ok(credentials) => credentials,
            Err(errno) => {
                tracing::warn!(%errno, "refused a connection: cannot read its credentials");
                return refuse(&socket, Refusal::Forbidden, "the daemon cannot read your credentials");
            }
        };
        let index = self.find_handshake_slot();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        if let Err(errno) = epoll::add(&self.epoll, &socket, EventToken::Handshake(index as u32).data(), flags) {
            tracing::warn!(%errno, "cannot watch a connection");
            return;
        }
        let deadline = Instant::now() + self.config.handshake_timeout;
        // Replacing a connection drops it, which closes its socket and removes it from the epoll.
        self.handshakes[index] =
            Some(PendingConnection { socket: Arc::new(socket), credentials, deadline, not_before: None });
    }

    /// Returns a free slot, or that of the oldest handshake of the user with the most handshakes, so that a user who
    /// floods the socket only hinders itself.
    fn find_handshake_slot(&self) -> usize {
        if let Some(free) = self.handshakes.iter().position(Option::is_none) {
            return free;
        }
        let uid_at = |index: usize| self.handshakes[index].as_ref().map(|pending| pending.credentials.uid);
        let user_handshakes =
            |index: &usize| (0..self.handshakes.len()).filter(|&other| uid_at(other) == uid_at(*index)).count();
        let waited = |index: usize| self.handshakes[index].as_ref().map(|pending| pending.deadline);
        (0..self.handshakes.len()).max_by_key(|index| (user_handshakes(index), Reverse(waited(*index)))).unwrap_or(0)
    }

    fn continue_delayed(&mut self) {
        let now = Instant::now();
        for index in 0..self.handshakes.len() {
            let turn = self.handshakes[index].as_ref().and_then(|pending| pending.not_before);
            if turn.is_some_and(|turn| turn <= now) {
                self.continue_handshake(index as u32);
            }
        }
    }

    /// Delays a connection whose user exceeds its rate. Its data and its end are seen later.
    fn is_rate_limited(&self, pending: &mut PendingConnection) -> bool {
        let now = self.started_at.elapsed();
        let turn = self.rate_limiter.turn_of(pending.credentials.uid, now);
        if turn <= now {
            return false;
        }
        if pending.not_before.is_none() {
            let _ = epoll::delete(&self.epoll, &*pending.socket);
        }
        let turn = self.started_at + turn;
        (pending.not_before, pending.deadline) = (Some(turn), turn + self.config.handshake_timeout);
        true
    }

    fn continue_handshake(&mut self, index: u32) {
        let Some(mut pending) = self.handshakes[index as usize].take() else { return };
        if self.is_rate_limited(&mut pending) {
            self.handshakes[index as usize] = Some(pending);
            return;
        }
        let mut frame = [0; 2 * HELLO_BYTES];
        let bytes = match socket::receive(pending.socket.as_fd(), &mut frame) {
            Ok(0) => return,
            Ok(bytes) => bytes,
            // A delayed connection had data before the delay.
            Err(Errno::AGAIN) if pending.not_before.is_none() => {
                self.handshakes[index as usize] = Some(pending);
                return;
            }
            Err(_) => return,
        };
        self.rate_limiter.took_turn(pending.credentials.uid, self.started_at.elapsed());
        // From here on this is a client or nothing. It is removed from the epoll explicitly, since a session keeps the
        // socket open.
        let _ = epoll::delete(&self.epoll, &*pending.socket);
        let peer = pending.credentials;
        // An oversized packet reports its real length. The truncated part is not needed to name its version.
        let asked = frame.get(..bytes).map_or_else(|| HandshakeRequest::decode(&frame), HandshakeRequest::decode);
        let outcome = match asked {
            Ok(HandshakeRequest::Attach(hello)) => self.admit(&pending, hello),
            Ok(HandshakeRequest::MapArea { area }) => self.grant_area(&pending, area),
            Err(BadFrame::Version { version, .. }) => Err((Refusal::Version, self.other_version_text(version))),
            Err(BadFrame::Malformed(why)) => Err((Refusal::Malformed, why.to_owned())),
        };
        if let Err((code, text)) = outcome {
            tracing::info!(pid = peer.pid, uid = peer.uid, %text, "refused a client");
            refuse(&pending.socket, code, &text);
        }
    }

    fn other_version_text(&self, theirs: u32) -> String {
        let ours = self.config.release;
        format!("the daemon of release {ours} speaks layout version {LAYOUT_VERSION}, the client version {theirs}")
    }

    /// Passes an area's descriptor to a process that may read it.
    fn grant_area(&self, pending: &PendingConnection, area: u32) -> Result<(), (Refusal, String)> {
        let area_file = self.config.area_access.decide(area, &pending.credentials);
        let area_file = area_file
            .ok_or_else(|| (Refusal::Forbidden, format!("area {area} does not exist or this user may not read it")))?;
        // A process that is gone needs no reply.
        let _ = socket::send(pending.socket.as_fd(), &HandshakeReply::Area.encode(), &[area_file.as_fd()]);
        Ok(())
    }

    fn admit(&mut self, pending: &PendingConnection, hello: Hello) -> Result<(), (Refusal, String)> {
        let busy = |text: String| (Refusal::Busy, text);
        let arena_bytes = usize::try_from(hello.arena_bytes).unwrap_or(usize::MAX);
        let Some(layout) = Layout::new(hello.channels as usize, arena_bytes) else {
            let text = format!("{} channels and {arena_bytes} bytes of arena exceed the limits", hello.channels);
            return Err((Refusal::Malformed, text));
        };
        let uid = pending.credentials.uid;
        let client_count =
            self.slots.iter().filter_map(|slot| slot.client.as_ref()).filter(|taken| taken.uid == uid).count();
        (self.config.user_limit.0)(uid, client_count).map_err(busy)?;
        let slots = self.slots.len();
        // The last one is root's, for the commands that find out who has all the others.
        let is_reserved = |index: usize| slots > 1 && index == slots - 1;
        let mut free = (0..slots).filter(|&index| self.slots[index].client.is_none());
        let Some(index) = free.find(|&index| uid == ROOT || !is_reserved(index)) else {
            return Err(busy(format!("all {} client slots are taken", slots - usize::from(is_reserved(slots - 1)))));
        };
        let room = self.config.memory_bytes_max.saturating_sub(self.memory_bytes);
        if layout.bytes() > room && !is_reserved(index) {
            return Err(busy(format!(
                "cannot allocate {} bytes of client memory: the limit of all clients is reached",
                layout.bytes()
            )));
        }
        let client = ClientId { index: index as u32, generation: self.slots[index].generation.wrapping_add(1) };
        let session = self.create_session(pending, hello, layout, client);
        let session = session.map_err(|error| busy(format!("cannot set up {client}: {error}")))?;
        self.register_client(index, session).map_err(|error| busy(format!("cannot attach {client}: {error}")))
    }

    fn queue(
        &mut self,
        client: ClientId,
        role: QueueRole,
        peer: Credentials,
        channels: usize,
    ) -> io::Result<OwnedQueue> {
        if self.journal.is_none() {
            self.journal = Some(QueueJournal::open(self.listen_socket.path())?);
        }
        let journal = self.journal.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let queue = OwnedQueue::create(journal, client.index as usize, role, peer.uid)?;
        if queue.capacity() < channels {
            let fit = queue.capacity();
            let text = format!(
                "a message queue holds {fit} entries (kernel.msgmnb), too few for {channels} channels: raise it or use fewer channels"
            );
            return Err(io::Error::other(text));
        }
        Ok(queue)
    }

    fn create_session(
        &mut self,
        pending: &PendingConnection,
        hello: Hello,
        layout: Layout,
        client: ClientId,
    ) -> io::Result<Session> {
        let memory = make_memory(&layout).map_err(io::Error::other)?;
        let arena = memory.slice(layout.arena_offset(), layout.arena_bytes()).map_err(io::Error::other)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let socket = Arc::clone(&pending.socket);
        let strategy = hello.strategy;
        let credentials = pending.credentials;
        let reply_queue = match strategy.replies_by_ring() {
            true => None,
            false => Some(self.queue(client, QueueRole::Replies, credentials, layout.channels())?),
        };
        let request_queue = match strategy.requests_by_ring() {
            true => None,
            false => Some(self.queue(client, QueueRole::Requests, credentials, layout.channels())?),
        };
        Ok(Session { client, strategy, credentials, layout, memory, arena, socket, wake, reply_queue, request_queue })
    }

    fn register_client(&mut self, index: usize, session: Session) -> Result<(), Errno> {
        let answer = HandshakeReply::Welcome(Welcome {
            node: self.config.service_info.node,
            shards: self.config.shards,
            client: session.client,
            channels: session.layout.channels() as u32,
            arena_bytes: session.layout.arena_bytes() as u64,
            reply_queue: session.reply_queue.as_ref().map(|queue| queue.queue().id()),
            request_queue: session.request_queue.as_ref().map(|queue| queue.queue().id()),
        });
        let service_page: &SharedMemory = &self.config.service_info.service_page;
        let descriptors = [session.memory.descriptor(), service_page.descriptor(), session.wake.as_fd()];
        let token = EventToken::Client(session.client.index, session.client.generation);
        epoll::add(&self.epoll, &*session.socket, token.data(), epoll::EventFlags::RDHUP)?;
        if let Err(errno) = socket::send(session.socket.as_fd(), &answer.encode(), &descriptors) {
            let _ = epoll::delete(&self.epoll, &*session.socket);
            return Err(errno);
        }
        let bytes = session.layout.bytes();
        self.memory_bytes += bytes;
        let slot = &mut self.slots[index];
        slot.generation = session.client.generation;
        let uid = session.credentials.uid;
        slot.client = Some(AttachedClient { socket: Arc::clone(&session.socket), uid, bytes });
        (self.sink)(ClientEvent::Attached(session));
        Ok(())
    }

    fn detach_client(&mut self, index: u32, generation: u32) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        if slot.generation & 0x3fff_ffff != generation {
            return;
        }
        let Some(taken) = slot.client.take() else { return };
        let client = ClientId { index, generation: slot.generation };
        // The server may hold the socket a little longer, so closing this end would not remove it from the epoll.
        let _ = epoll::delete(&self.epoll, &*taken.socket);
        self.memory_bytes -= taken.bytes;
        // Dropped before the event is sent: when the server has dropped it as well, nothing remains.
        drop(taken);
        (self.sink)(ClientEvent::Detached(client));
    }
}

fn refuse(socket: &OwnedFd, code: Refusal, text: &str) {
    let answer = HandshakeReply::Refusal { code: code as u32, text: text.to_owned() };
    // If the send fails, the client still sees the end of its socket.
    let _ = socket::send(socket.as_fd(), &answer.encode(), &[]);
}
