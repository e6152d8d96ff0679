//! The door of a node: accepts, shakes hands, and sees clients leave.
//!
//! It runs on a thread of its own, so that neither a slow handshake nor a thousand new clients cost the progress
//! thread anything. Nobody waits for anybody: every socket is non-blocking, and who has not said hello in time is
//! dropped. The end of a client's socket is the end of the client, however it died.

use std::cmp::Reverse;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ddss_core::limits::CLIENTS_MAX;
use ddss_core::{ClientId, RateLimiter};
use rustix::event::{EventfdFlags, epoll};
use rustix::io::Errno;

use super::listen_socket::ListenSocket;
use super::server::IpcServer;
use super::session::{Arrival, Credentials, Session, make_memory};
use crate::handshake::{BadFrame, HELLO_BYTES, HandshakeReply, HandshakeRequest, Hello, Refusal, Welcome};
use crate::shm::area_mapping::AreaAccess;
use crate::shm::layout::{LAYOUT_VERSION, Layout, MEMORY_BYTES_MAX};
use crate::shm::service_page::place_of;
use crate::socket;
use crate::sys::{InheritedSocket, SharedMemory, credentials_of};
use crate::transport::sysv_journal::{OwnedQueue, QueueJournal, QueueRole};

/// Handshakes under way at the same time; the oldest of the user who has the most makes room.
const HANDSHAKES_MAX: usize = 64;
/// Connections that the kernel keeps for us.
const BACKLOG: i32 = 512;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 64;

/// How a reception works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcceptorConfig {
    /// The board that clients get, and the node that it speaks for.
    pub(crate) notice: super::server::Notice,
    /// Clients at the same time.
    pub clients_max: usize,
    /// Bytes that the memories of all clients may come to.
    pub memory_bytes_max: usize,
    /// How long a client may take to say hello.
    pub handshake_timeout: Duration,
    /// Permission bits of the socket: who may attach.
    pub socket_mode: u32,
    /// Who may map which area of the node's memory; nobody may unless this says so.
    pub views: AreaAccess,
    /// How many clients each user may have.
    pub per_user: UserLimit,
    /// How many planes the daemon has, which clients are told.
    pub planes: u8,
}

type Admit = dyn Fn(u32, usize) -> Result<(), String> + Send + Sync;

/// Decides whether a user who has so many clients may have one more; if not, says why. Without a word everybody may.
#[derive(Clone)]
pub struct UserLimit(Arc<Admit>);

impl UserLimit {
    /// Asks `admit` for each client that wants to attach. It runs on the reception's thread.
    pub fn new(admit: impl Fn(u32, usize) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(admit))
    }
}

impl std::fmt::Debug for UserLimit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("PerUser")
    }
}

impl AcceptorConfig {
    /// The usual bounds, for the clients of that station.
    pub fn new(station: &IpcServer) -> Self {
        Self {
            notice: station.notice(),
            clients_max: CLIENTS_MAX,
            memory_bytes_max: 64 * MEMORY_BYTES_MAX,
            handshake_timeout: Duration::from_secs(1),
            socket_mode: 0o600,
            views: AreaAccess::none(),
            per_user: UserLimit::new(|_, _| Ok(())),
            planes: 1,
        }
    }
}

/// Where arrivals go. It may block for a moment, not for long: nobody else is let in meanwhile.
pub type ArrivalSink = Box<dyn FnMut(Arrival) + Send>;

/// The reception of a node; ends when it is dropped.
#[derive(Debug)]
pub struct Acceptor {
    path: PathBuf,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

/// Tells the reception's thread what to do.
#[derive(Debug)]
struct Bell {
    wake: OwnedFd,
    /// Everything ends; if not, it is the door that closes.
    stop: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        // The counter of an eventfd that is written twice is never full.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Acceptor {
    /// Opens the door at `path`. A socket file that a dead daemon left there is removed; a daemon that is alive there
    /// is an error ([`io::ErrorKind::AddrInUse`]).
    pub fn start(path: &Path, config: AcceptorConfig, sink: ArrivalSink) -> io::Result<Self> {
        let door = ListenSocket::open(path, config.socket_mode, BACKLOG)?;
        Self::behind(door, path, config, sink)
    }

    /// The same at a socket that was made before: whoever has come to it meanwhile is let in now.
    pub fn start_at(
        socket: InheritedSocket,
        path: &Path,
        config: AcceptorConfig,
        sink: ArrivalSink,
    ) -> io::Result<Self> {
        Self::behind(ListenSocket::adopt(path, socket)?, path, config, sink)
    }

    fn behind(door: ListenSocket, path: &Path, config: AcceptorConfig, sink: ArrivalSink) -> io::Result<Self> {
        let left = QueueJournal::clean(path)?;
        if left > 0 {
            tracing::info!(left, path = %path.display(), "removed the message queues of a daemon that died");
        }
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(Bell { wake, stop: AtomicBool::new(false) });
        let desk = AcceptorThread::new(door, Arc::clone(&bell), config, sink)?;
        let thread = std::thread::Builder::new().name("ddss-reception".to_owned()).spawn(move || desk.run())?;
        Ok(Self { path: path.to_owned(), bell, thread: Some(thread) })
    }

    /// Where the door is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the door: nobody is let in any more. Who is in stays until [`stop`](Self::stop).
    pub fn close_door(&self) {
        self.bell.ring();
    }

    /// Closes the door and ends every session. Done when it returns.
    pub fn stop(mut self) {
        self.close();
    }

    fn close(&mut self) {
        // pairs with the Acquire of the reception's thread
        self.bell.stop.store(true, Ordering::Release);
        self.bell.ring();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(path = %self.path.display(), "the reception had panicked");
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.close();
    }
}

/// A connection that has not said hello yet.
struct PendingConnection {
    socket: Arc<OwnedFd>,
    credentials: Credentials,
    deadline: Instant,
    /// It has said hello, and its user is so often here that it waits until then.
    turn: Option<Instant>,
}

/// Guests of one user that are let in at once, and how often one is after that. Each makes work for those who serve, and who comes
/// and goes a thousand times a second does not have to be felt by who stays.
const USER_BURST: u32 = 512;
const USER_PACE: Duration = Duration::from_millis(1);
/// Users whose pace is known.
const USERS_MAX: usize = 256;

/// A client slot: which life it is in, and who sits there.
#[derive(Default)]
struct ClientSlot {
    generation: u32,
    taken: Option<Taken>,
}

struct Taken {
    socket: Arc<OwnedFd>,
    uid: u32,
    bytes: usize,
}

/// What an event is about, packed into its 64 bits: the kind, an index, and the low bits of a generation, so that an
/// event for somebody who is gone never hits who came after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EventToken {
    Bell,
    Door,
    Guest(u32),
    Seat(u32, u32),
}

impl EventToken {
    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Self::Bell => 0,
            Self::Door => 1 << 62,
            Self::Guest(index) => 2 << 62 | u64::from(index),
            Self::Seat(index, generation) => 3 << 62 | u64::from(generation & 0x3fff_ffff) << 32 | u64::from(index),
        })
    }

    fn of(data: epoll::EventData) -> Self {
        let bits = data.u64();
        match bits >> 62 {
            0 => Self::Bell,
            1 => Self::Door,
            2 => Self::Guest(bits as u32),
            _ => Self::Seat(bits as u32, (bits >> 32) as u32 & 0x3fff_ffff),
        }
    }
}

/// The reception's thread.
struct AcceptorThread {
    door: ListenSocket,
    epoll: OwnedFd,
    bell: Arc<Bell>,
    config: AcceptorConfig,
    sink: ArrivalSink,
    guests: Vec<Option<PendingConnection>>,
    seats: Vec<ClientSlot>,
    memory_bytes: usize,
    /// Opened for the first client that needs a message queue.
    ledger: Option<Arc<QueueJournal>>,
    /// Whose guests come how often, counted from a moment.
    pace: RateLimiter<u32>,
    began: Instant,
    /// Given up for a moment when descriptors run out, so that a guest can be accepted and told.
    spare: Option<OwnedFd>,
}

impl AcceptorThread {
    fn new(door: ListenSocket, bell: Arc<Bell>, config: AcceptorConfig, sink: ArrivalSink) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &bell.wake, EventToken::Bell.data(), epoll::EventFlags::IN)?;
        epoll::add(&epoll, door.listener(), EventToken::Door.data(), epoll::EventFlags::IN)?;
        let guests = (0..HANDSHAKES_MAX).map(|_| None).collect();
        let seats = (0..config.clients_max.min(CLIENTS_MAX)).map(|_| ClientSlot::default()).collect();
        let spare = bell.wake.try_clone().ok();
        let (pace, began) = (RateLimiter::new(USER_BURST, USER_PACE, USERS_MAX), Instant::now());
        Ok(Self { door, epoll, bell, config, sink, guests, seats, memory_bytes: 0, ledger: None, pace, began, spare })
    }

    fn run(mut self) {
        let mut space = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        loop {
            let limit = self.next_deadline().map(socket::timespec);
            let tokens: Vec<EventToken> = match epoll::wait(&self.epoll, &mut space, limit.as_ref()) {
                Ok((events, _)) => events.iter().map(|event| EventToken::of(event.data)).collect(),
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    tracing::error!(%errno, "the reception cannot wait for clients");
                    break;
                }
            };
            for token in tokens {
                match token {
                    EventToken::Bell if self.bell.stop.load(Ordering::Acquire) => return self.close(),
                    EventToken::Bell => self.close_door(),
                    EventToken::Door => self.let_in(),
                    EventToken::Guest(index) => self.greet(index),
                    EventToken::Seat(index, generation) => self.see_off(index, generation),
                }
            }
            self.greet_who_waited();
            self.drop_the_slow();
        }
        self.close();
    }

    fn close(self) {
        for taken in self.seats.iter().filter_map(|seat| seat.taken.as_ref()) {
            socket::shut(&taken.socket);
        }
    }

    /// Who stands in it has not been let in: it sees the end of its socket.
    fn close_door(&mut self) {
        let mut count = [0; 8];
        // It is rung once for this, and once more for the end.
        let _ = rustix::io::read(&self.bell.wake, &mut count);
        let _ = epoll::delete(&self.epoll, self.door.listener());
        self.door.close();
        self.guests.iter_mut().for_each(|guest| *guest = None);
    }

    fn next_deadline(&self) -> Option<Duration> {
        let first = self.guests.iter().flatten().map(|guest| guest.turn.unwrap_or(guest.deadline)).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    fn drop_the_slow(&mut self) {
        let now = Instant::now();
        for place in &mut self.guests {
            if let Some(guest) = place.take_if(|guest| guest.deadline <= now) {
                tracing::info!(pid = guest.credentials.pid, uid = guest.credentials.uid, "said no hello in time");
            }
        }
    }

    fn let_in(&mut self) {
        for _ in 0..HANDSHAKES_MAX {
            match socket::accept(self.door.listener()) {
                Ok(socket) => self.seat_guest(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => return self.turn_away(errno),
                Err(errno) => {
                    tracing::warn!(%errno, "cannot accept a client");
                    return;
                }
            }
        }
    }

    /// Out of descriptors: the spare one is given up to tell one guest so, or it would wait in the backlog and the
    /// event loop would spin.
    fn turn_away(&mut self, errno: Errno) {
        tracing::warn!(%errno, "no descriptor left for a client");
        self.spare = None;
        if let Ok(guest) = socket::accept(self.door.listener()) {
            refuse(&guest, Refusal::Busy, "the daemon has no descriptor left");
        }
        self.spare = self.bell.wake.try_clone().ok();
    }

    fn seat_guest(&mut self, socket: OwnedFd) {
        let credentials = match credentials_of(socket.as_fd()) {
            Ok(credentials) => credentials,
            Err(errno) => {
                tracing::warn!(%errno, "turned a guest away: the kernel does not say who it is");
                return refuse(&socket, Refusal::NotYours, "the kernel does not say who you are");
            }
        };
        let index = self.guest_place();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        if let Err(errno) = epoll::add(&self.epoll, &socket, EventToken::Guest(index as u32).data(), flags) {
            tracing::warn!(%errno, "cannot watch a guest");
            return;
        }
        let deadline = Instant::now() + self.config.handshake_timeout;
        // Whoever was in this place is dropped, which closes its socket and takes it out of the epoll.
        self.guests[index] = Some(PendingConnection { socket: Arc::new(socket), credentials, deadline, turn: None });
    }

    /// A free place; or, of the user who has the most guests waiting, the one that has waited longest: so whoever
    /// crowds the door stands in his own way only.
    fn guest_place(&self) -> usize {
        if let Some(free) = self.guests.iter().position(Option::is_none) {
            return free;
        }
        let uid_at = |index: usize| self.guests[index].as_ref().map(|guest| guest.credentials.uid);
        let crowd = |index: &usize| (0..self.guests.len()).filter(|&other| uid_at(other) == uid_at(*index)).count();
        let waited = |index: usize| self.guests[index].as_ref().map(|guest| guest.deadline);
        (0..self.guests.len()).max_by_key(|index| (crowd(index), Reverse(waited(*index)))).unwrap_or(0)
    }

    fn greet_who_waited(&mut self) {
        let now = Instant::now();
        for index in 0..self.guests.len() {
            let turn = self.guests[index].as_ref().and_then(|guest| guest.turn);
            if turn.is_some_and(|turn| turn <= now) {
                self.greet(index as u32);
            }
        }
    }

    /// Whether it is not yet the turn of a guest's user: then it waits, and what it says or does meanwhile is seen later.
    fn has_to_wait(&self, guest: &mut PendingConnection) -> bool {
        let now = self.began.elapsed();
        let turn = self.pace.turn_of(guest.credentials.uid, now);
        if turn <= now {
            return false;
        }
        if guest.turn.is_none() {
            let _ = epoll::delete(&self.epoll, &*guest.socket);
        }
        let turn = self.began + turn;
        (guest.turn, guest.deadline) = (Some(turn), turn + self.config.handshake_timeout);
        true
    }

    fn greet(&mut self, index: u32) {
        let Some(mut guest) = self.guests[index as usize].take() else { return };
        if self.has_to_wait(&mut guest) {
            self.guests[index as usize] = Some(guest);
            return;
        }
        let mut frame = [0; 2 * HELLO_BYTES];
        let bytes = match socket::receive(guest.socket.as_fd(), &mut frame) {
            Ok(0) => return,
            Ok(bytes) => bytes,
            // Who had to wait had something to say before that.
            Err(Errno::AGAIN) if guest.turn.is_none() => {
                self.guests[index as usize] = Some(guest);
                return;
            }
            Err(_) => return,
        };
        self.pace.took_turn(guest.credentials.uid, self.began.elapsed());
        // From here on it is a client or nobody. Taken out by hand, since a session keeps the socket open.
        let _ = epoll::delete(&self.epoll, &*guest.socket);
        let who = guest.credentials;
        // An oversized packet says its real length; what was cut off is not needed to say which version it is.
        let asked = frame.get(..bytes).map_or_else(|| HandshakeRequest::decode(&frame), HandshakeRequest::decode);
        let outcome = match asked {
            Ok(HandshakeRequest::Attach(hello)) => self.admit(&guest, hello),
            Ok(HandshakeRequest::Look { area }) => self.show(&guest, area),
            Err(BadFrame::Version(theirs)) => Err((
                Refusal::Version,
                format!("the daemon speaks layout version {LAYOUT_VERSION}, the client speaks version {theirs}"),
            )),
            Err(BadFrame::Malformed(why)) => Err((Refusal::Malformed, why.to_owned())),
        };
        if let Err((code, text)) = outcome {
            tracing::info!(pid = who.pid, uid = who.uid, %text, "refused a client");
            refuse(&guest.socket, code, &text);
        }
    }

    /// Shows an area to somebody who may look at it.
    fn show(&self, guest: &PendingConnection, area: u32) -> Result<(), (Refusal, String)> {
        let view = self.config.views.decide(area, &guest.credentials);
        let view = view.ok_or_else(|| (Refusal::NotYours, format!("area {area} is not there or not yours to read")))?;
        // Who has gone by now needs nothing.
        let _ = socket::send(guest.socket.as_fd(), &HandshakeReply::View.encode(), &[view.as_fd()]);
        Ok(())
    }

    fn admit(&mut self, guest: &PendingConnection, hello: Hello) -> Result<(), (Refusal, String)> {
        let busy = |text: String| (Refusal::Busy, text);
        let arena_bytes = usize::try_from(hello.arena_bytes).unwrap_or(usize::MAX);
        let Some(layout) = Layout::new(hello.lanes as usize, arena_bytes) else {
            let text = format!("{} lanes and {arena_bytes} bytes of arena are beyond the limits", hello.lanes);
            return Err((Refusal::Malformed, text));
        };
        let uid = guest.credentials.uid;
        let theirs = self.seats.iter().filter_map(|seat| seat.taken.as_ref()).filter(|taken| taken.uid == uid).count();
        (self.config.per_user.0)(uid, theirs).map_err(busy)?;
        let Some(index) = self.seats.iter().position(|seat| seat.taken.is_none()) else {
            return Err(busy(format!("all {} client slots are taken", self.seats.len())));
        };
        if layout.bytes() > self.config.memory_bytes_max.saturating_sub(self.memory_bytes) {
            return Err(busy(format!("no room for {} bytes of client memory", layout.bytes())));
        }
        let client = ClientId { index: index as u32, generation: self.seats[index].generation.wrapping_add(1) };
        let session = self.prepare(guest, hello, layout, client);
        let session = session.map_err(|error| busy(format!("cannot set up {client}: {error}")))?;
        self.welcome(index, session).map_err(|error| busy(format!("cannot welcome {client}: {error}")))
    }

    fn queue(&mut self, client: ClientId, role: QueueRole, who: Credentials, lanes: usize) -> io::Result<OwnedQueue> {
        if self.ledger.is_none() {
            self.ledger = Some(QueueJournal::open(self.door.path())?);
        }
        let ledger = self.ledger.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let queue = OwnedQueue::create(ledger, client.index as usize, role, who.uid)?;
        if queue.capacity() < lanes {
            let fit = queue.capacity();
            let text = format!("a message queue holds {fit} entries (kernel.msgmnb), too few for {lanes} lanes");
            return Err(io::Error::other(text));
        }
        Ok(queue)
    }

    fn prepare(
        &mut self,
        guest: &PendingConnection,
        hello: Hello,
        layout: Layout,
        client: ClientId,
    ) -> io::Result<Session> {
        let memory = make_memory(&layout).map_err(io::Error::other)?;
        let arena = memory.slice(layout.arena_offset(), layout.arena_bytes()).map_err(io::Error::other)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let socket = Arc::clone(&guest.socket);
        let strategy = hello.strategy;
        let credentials = guest.credentials;
        let reply_queue = match strategy.replies_by_ring() {
            true => None,
            false => Some(self.queue(client, QueueRole::Replies, credentials, layout.lanes())?),
        };
        let request_queue = match strategy.requests_by_ring() {
            true => None,
            false => Some(self.queue(client, QueueRole::Requests, credentials, layout.lanes())?),
        };
        Ok(Session { client, strategy, credentials, layout, memory, arena, socket, wake, reply_queue, request_queue })
    }

    fn welcome(&mut self, index: usize, session: Session) -> Result<(), Errno> {
        let answer = HandshakeReply::Welcome(Welcome {
            node: self.config.notice.node,
            planes: self.config.planes,
            place: place_of(session.credentials.uid),
            client: session.client,
            lanes: session.layout.lanes() as u32,
            arena_bytes: session.layout.arena_bytes() as u64,
            reply_queue: session.reply_queue.as_ref().map(|queue| queue.queue().id()),
            request_queue: session.request_queue.as_ref().map(|queue| queue.queue().id()),
        });
        let board: &SharedMemory = &self.config.notice.board;
        let descriptors = [session.memory.descriptor(), board.descriptor(), session.wake.as_fd()];
        let token = EventToken::Seat(session.client.index, session.client.generation);
        epoll::add(&self.epoll, &*session.socket, token.data(), epoll::EventFlags::RDHUP)?;
        if let Err(errno) = socket::send(session.socket.as_fd(), &answer.encode(), &descriptors) {
            let _ = epoll::delete(&self.epoll, &*session.socket);
            return Err(errno);
        }
        let bytes = session.layout.bytes();
        self.memory_bytes += bytes;
        let seat = &mut self.seats[index];
        seat.generation = session.client.generation;
        let uid = session.credentials.uid;
        seat.taken = Some(Taken { socket: Arc::clone(&session.socket), uid, bytes });
        (self.sink)(Arrival::Attached(session));
        Ok(())
    }

    fn see_off(&mut self, index: u32, generation: u32) {
        let Some(seat) = self.seats.get_mut(index as usize) else { return };
        if seat.generation & 0x3fff_ffff != generation {
            return;
        }
        let Some(taken) = seat.taken.take() else { return };
        let client = ClientId { index, generation: seat.generation };
        // The station may hold the socket a little longer, so closing our end does not take it out of the epoll.
        let _ = epoll::delete(&self.epoll, &*taken.socket);
        self.memory_bytes -= taken.bytes;
        // Before it is told: when the station has let go of it as well, nothing of it is left.
        drop(taken);
        (self.sink)(Arrival::Left(client));
    }
}

fn refuse(socket: &OwnedFd, code: Refusal, text: &str) {
    let answer = HandshakeReply::Refusal { code: code as u32, text: text.to_owned() };
    // If it cannot be told, it still sees the end of its socket.
    let _ = socket::send(socket.as_fd(), &answer.encode(), &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_keeps_its_parts() {
        // If this broke, the death of one client would free the seat of another.
        for token in [
            EventToken::Bell,
            EventToken::Door,
            EventToken::Guest(63),
            EventToken::Seat(1023, 0x3fff_ffff),
            EventToken::Seat(0, 1),
        ] {
            assert_eq!(EventToken::of(token.data()), token);
        }
    }
}
