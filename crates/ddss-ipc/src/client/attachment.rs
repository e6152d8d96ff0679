//! A client's side of the attach.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ddss_core::limits::ARENA_BYTES_DEFAULT;
use ddss_core::{ClientId, NodeId};
use rustix::io::Errno;

use super::channel::{Channel, ChannelState};
use super::connection::Connection;
use super::hangup_monitor::HangupMonitor;
use crate::handshake::{ANSWER_BYTES, BadFrame, HandshakeReply, HandshakeRequest, Hello, Welcome};
use crate::shm::layout::{HEADER_BYTES, LAYOUT_VERSION, Layout};
use crate::shm::service_page::ServicePage;
use crate::socket;
use crate::strategy::Strategy;
use crate::sys::{Access, MemoryError, Queue, SharedMemory};
use crate::transport::channel_transport::ChannelTransport;
use crate::transport::ring_transport::{Auto, Rcq, RingEnds};
use crate::transport::sysv::{Mq, Rmq, SysvParts};
use crate::transport::sysv_timeout::TimeoutThread;

/// What a client asks for when it attaches.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttachOptions {
    /// How to talk.
    pub strategy: Strategy,
    /// How many lanes: one for each thread that calls at the same time.
    pub lanes: usize,
    /// How much memory for payloads.
    pub arena_bytes: usize,
    /// How long the whole attach may take.
    pub timeout: Duration,
    /// Under `Auto` on a machine with more callers than cores: true (the default) has callers hand the core over to
    /// each other, so that all get their share; false leaves that to the kernel, which lets one caller run for
    /// milliseconds while the others wait, for the last few percent of throughput.
    pub fair: bool,
}

impl Default for AttachOptions {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            lanes: 8,
            arena_bytes: ARENA_BYTES_DEFAULT,
            timeout: Duration::from_secs(2),
            fair: true,
        }
    }
}

/// Why a client could not attach.
///
/// ```
/// use ddss_ipc::{AttachError, AttachOptions, Attachment};
/// use std::path::Path;
///
/// let attached = Attachment::connect(Path::new("/nowhere/ddssd.sock"), &AttachOptions::default());
/// let why = attached.expect_err("nobody listens there");
/// assert!(matches!(why, AttachError::NoDaemon { .. }));
/// assert_eq!(why.to_string(), "no daemon listens at /nowhere/ddssd.sock");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Nobody listens there.
    #[error("no daemon listens at {}", path.display())]
    NoDaemon {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The socket is not ours to use.
    #[error("no permission to attach at {}", path.display())]
    Permission {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The two were built with different layouts.
    #[error("the daemon speaks layout version {theirs}, this client speaks version {ours}")]
    Version {
        /// This client's.
        ours: u32,
        /// The daemon's.
        theirs: u32,
    },
    /// The daemon said no.
    #[error("the daemon refused: {text}")]
    Refused {
        /// Why, in the daemon's words.
        text: String,
    },
    /// The daemon did not answer in time.
    #[error("the daemon at {} did not answer within {timeout:?}", path.display())]
    TimedOut {
        /// Where.
        path: PathBuf,
        /// How long was waited.
        timeout: Duration,
    },
    /// What answered is not a daemon of ours.
    #[error("the answer from {} makes no sense: {why}", path.display())]
    Malformed {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// The options are beyond the limits.
    #[error("cannot ask for {lanes} lanes and {arena_bytes} bytes of arena")]
    Options {
        /// Lanes asked for.
        lanes: usize,
        /// Arena asked for.
        arena_bytes: usize,
    },
    /// The memory that came along could not be used.
    #[error("cannot use the memory that the daemon passed")]
    Memory(#[from] MemoryError),
    /// The kernel refused something else.
    #[error("cannot {tried} the daemon at {}", path.display())]
    System {
        /// What was tried.
        tried: &'static str,
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// The lanes that nobody holds. Dropped with the attachment and the last lane, whichever comes later.
pub(crate) struct FreeChannels {
    lanes: Mutex<Vec<Option<ChannelState>>>,
    /// Only under the strategies whose clients block on a queue.
    _watch: Option<TimeoutThread>,
    _sentry: Option<HangupMonitor>,
}

impl FreeChannels {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<ChannelState>>> {
        // A panic of another thread leaves the list as it was: it only moves whole lanes.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn give_back(&self, state: ChannelState) {
        let index = usize::from(state.index);
        self.lock()[index] = Some(state);
    }
}

/// A client of this node's daemon: from the handshake to the end of the socket.
pub struct Attachment {
    link: Arc<Connection>,
    pool: Arc<FreeChannels>,
    arena: SharedMemory,
    welcome: Welcome,
}

impl fmt::Debug for Attachment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Attachment").field("welcome", &self.welcome).finish_non_exhaustive()
    }
}

impl Attachment {
    /// Shakes hands with the daemon that listens at `path`.
    pub fn connect(path: &Path, options: &AttachOptions) -> Result<Self, AttachError> {
        let refused = AttachError::Options { lanes: options.lanes, arena_bytes: options.arena_bytes };
        let wanted = Layout::new(options.lanes, options.arena_bytes).ok_or(refused)?;
        let attempt = Attempt { path, deadline: Instant::now() + options.timeout, timeout: options.timeout };
        let socket = attempt.connect()?;
        let hello = Hello {
            strategy: options.strategy,
            lanes: wanted.lanes() as u32,
            arena_bytes: wanted.arena_bytes() as u64,
        };
        socket::send(socket.as_fd(), &HandshakeRequest::Attach(hello).encode(), &[])
            .map_err(attempt.system("greet"))?;
        let (HandshakeReply::Welcome(welcome), descriptors) = attempt.answer(&socket)? else {
            return Err(attempt.malformed("it is no welcome"));
        };
        let layout = Layout::new(welcome.lanes as usize, welcome.arena_bytes as usize);
        if layout != Some(wanted) {
            return Err(attempt.malformed("it grants another geometry than was asked for"));
        }
        attempt.settle(options, socket, welcome, wanted, descriptors)
    }

    /// Takes a lane that nobody holds. A lane that came back with requests under way is only handed out again when
    /// their completions are in (they are thrown away).
    pub fn take_lane(&self) -> Option<Channel> {
        let mut lanes = self.pool.lock();
        let state = lanes.iter_mut().find_map(|lane| lane.take_if(|lane| lane.drain()))?;
        Some(Channel::new(Arc::clone(&self.pool), state))
    }

    /// Memory for payloads, which the daemon sees as well; offset 0 is its first byte. Who uses which slot is up to
    /// the client.
    pub fn arena(&self) -> &SharedMemory {
        &self.arena
    }

    /// The node that this daemon serves.
    pub fn node(&self) -> NodeId {
        self.welcome.node
    }

    /// How many planes the daemon has: it has a door for each ([`socket_name`](crate::socket_name)).
    pub fn planes(&self) -> u8 {
        self.welcome.planes
    }

    /// What the daemon calls this client.
    pub fn client(&self) -> ClientId {
        self.welcome.client
    }

    /// What was chosen.
    pub fn strategy(&self) -> Strategy {
        self.link.strategy()
    }

    /// Whether somebody has seen the daemon's end, or heard that it takes nothing new. No system call.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.link.is_over()
    }

    /// Whether the daemon has said that it takes no new requests, and nobody has seen its end. No system call.
    pub fn is_leaving(&self) -> bool {
        self.link.is_leaving()
    }

    /// The daemon has said that it takes no new requests. What is under way is still answered.
    pub fn set_leaving(&self) {
        self.link.set_leaving();
    }

    /// Whether the daemon is there and has not cut this client off. One system call.
    pub fn is_alive(&self) -> bool {
        self.link.is_alive()
    }

    /// Becomes readable when a lane that was [armed](Channel::arm_async) gets a completion, and when the daemon goes.
    pub fn async_descriptor(&self) -> BorrowedFd<'_> {
        self.link.socket()
    }

    /// Takes the wake-ups that have come so far, so that the descriptor is not readable any more. Look at all armed
    /// lanes *after* this. False when the daemon is gone.
    pub fn clear_async(&self) -> bool {
        let mut byte = [0; 8];
        loop {
            match socket::receive(self.link.socket(), &mut byte) {
                Ok(bytes) if bytes > 0 => {}
                Err(Errno::AGAIN) => return self.link.is_alive(),
                _ => {
                    self.link.set_gone();
                    return false;
                }
            }
        }
    }
}

/// One try to attach, with what its errors need to say.
pub(crate) struct Attempt<'path> {
    pub(crate) path: &'path Path,
    pub(crate) deadline: Instant,
    pub(crate) timeout: Duration,
}

impl Attempt<'_> {
    pub(crate) fn malformed(&self, why: &'static str) -> AttachError {
        AttachError::Malformed { path: self.path.to_owned(), why }
    }

    pub(crate) fn system(&self, tried: &'static str) -> impl Fn(Errno) -> AttachError {
        move |errno| {
            let path = self.path.to_owned();
            match errno {
                // The daemon went away, or closed the door, in the middle of the handshake.
                Errno::PIPE | Errno::CONNRESET => AttachError::NoDaemon { path, source: errno.into() },
                _ => AttachError::System { tried, path, source: errno.into() },
            }
        }
    }

    fn timed_out(&self) -> AttachError {
        AttachError::TimedOut { path: self.path.to_owned(), timeout: self.timeout }
    }

    pub(crate) fn connect(&self) -> Result<OwnedFd, AttachError> {
        socket::connect(self.path, self.deadline).map_err(|errno| {
            let path = self.path.to_owned();
            match errno {
                Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => {
                    AttachError::NoDaemon { path, source: errno.into() }
                }
                Errno::ACCESS | Errno::PERM => AttachError::Permission { path, source: errno.into() },
                Errno::TIMEDOUT => self.timed_out(),
                _ => AttachError::System { tried: "connect to", path, source: errno.into() },
            }
        })
    }

    /// What the daemon says, with what it passes; a refusal is an error.
    pub(crate) fn answer(&self, socket: &OwnedFd) -> Result<(HandshakeReply, Vec<OwnedFd>), AttachError> {
        if !socket::wait_readable(socket.as_fd(), self.deadline).map_err(self.system("wait for"))? {
            return Err(self.timed_out());
        }
        let mut frame = [0; ANSWER_BYTES + 1];
        let received = socket::receive_with_descriptors(socket.as_fd(), &mut frame);
        let (bytes, descriptors) = received.map_err(self.system("hear"))?;
        if bytes == 0 {
            return Err(self.system("hear")(Errno::CONNRESET));
        }
        match HandshakeReply::decode(&frame[..bytes]) {
            Ok(HandshakeReply::Refusal { text, .. }) => Err(AttachError::Refused { text }),
            Ok(answer) => Ok((answer, descriptors)),
            Err(BadFrame::Version(theirs)) => Err(AttachError::Version { ours: LAYOUT_VERSION, theirs }),
            Err(BadFrame::Malformed(why)) => Err(self.malformed(why)),
        }
    }

    fn settle(
        &self,
        options: &AttachOptions,
        socket: OwnedFd,
        welcome: Welcome,
        layout: Layout,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Attachment, AttachError> {
        let Ok([memory, board, wake]) = <[OwnedFd; 3]>::try_from(descriptors) else {
            return Err(self.malformed("it brings the wrong number of descriptors"));
        };
        let memory = SharedMemory::from_descriptor(memory, layout.bytes(), Access::ReadWrite)?;
        let mut header = [0; HEADER_BYTES];
        memory.read(0, &mut header)?;
        if header != layout.header() {
            return Err(self.malformed("the memory's header differs from the handshake"));
        }
        let board = ServicePage::open(board)?;
        if !board.is_genuine() {
            return Err(self.malformed("the notice board is not one"));
        }
        let arena = memory.slice(layout.arena_offset(), layout.arena_bytes())?;
        let link = Arc::new(Connection::new(options.strategy, options.fair, (board, welcome.place), socket, wake));
        let pool = Arc::new(self.furnish(&link, &welcome, &memory, &layout)?);
        Ok(Attachment { link, pool, arena, welcome })
    }

    /// Builds the road of each lane.
    fn furnish(
        &self,
        link: &Arc<Connection>,
        welcome: &Welcome,
        memory: &SharedMemory,
        layout: &Layout,
    ) -> Result<FreeChannels, AttachError> {
        let queue = |id: Option<i32>| {
            id.map(Queue::from_id)
                .ok_or_else(|| self.malformed("it brings no message queue, and the strategy needs one"))
        };
        let by_ring = link.strategy().replies_by_ring();
        let path = || self.path.to_owned();
        let failed = |source| AttachError::System { tried: "watch", path: path(), source };
        let sentry = if by_ring { Some(HangupMonitor::start(Arc::clone(link)).map_err(failed)?) } else { None };
        let watch = if by_ring {
            None
        } else {
            let started = TimeoutThread::start(Arc::clone(link), queue(welcome.reply_queue)?, layout.lanes());
            Some(started.map_err(failed)?)
        };
        let mut lanes = Vec::with_capacity(layout.lanes());
        for lane in 0..layout.lanes() {
            let road: Box<dyn ChannelTransport> = match (link.strategy(), &watch) {
                (Strategy::Rcq, _) => Box::new(Rcq(RingEnds::new(link, memory, layout, lane)?)),
                (Strategy::Mq, Some(watch)) => {
                    let parts = SysvParts { link, notes: watch.notes(), memory, layout, lane };
                    Box::new(Mq::new(&parts, queue(welcome.request_queue)?, queue(welcome.reply_queue)?)?)
                }
                (Strategy::Rmq, Some(watch)) => {
                    let parts = SysvParts { link, notes: watch.notes(), memory, layout, lane };
                    Box::new(Rmq::new(&parts, queue(welcome.reply_queue)?)?)
                }
                (Strategy::Auto | Strategy::Mq | Strategy::Rmq, _) => {
                    Box::new(Auto(RingEnds::new(link, memory, layout, lane)?))
                }
            };
            lanes.push(Some(ChannelState { index: lane as u8, outstanding: 0, road }));
        }
        Ok(FreeChannels { lanes: Mutex::new(lanes), _watch: watch, _sentry: sentry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acceptor, AcceptorConfig, Arrival, IpcServer, TracedRequest};
    use ddss_core::{ChannelId, Entry, NodeId};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn threads_of_another_user_and_clients_of_one_thread_make_nobody_a_crowd() {
        // If this broke, who calls by all his lanes would make each client of the node hand its core over all the time; or a
        // thread that calls by two clients in turn would take itself for two, and sleep in each call to another node.
        if !rustix::process::geteuid().is_root() {
            return eprintln!(
                "skipped: threads_of_another_user_and_clients_of_one_thread_make_nobody_a_crowd: not root, nobody else to be"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let path = folder.path().join("socket");
        let mut station = IpcServer::open(NodeId(7)).unwrap();
        let mut config = AcceptorConfig::new(&station);
        config.socket_mode = 0o666;
        let reception = Acceptor::start(&path, config, station.inbox().sink()).unwrap();
        let attach = |user: u32, lanes| {
            let path = path.clone();
            let attached = std::thread::spawn(move || {
                // Of this thread only, and it ends with this.
                let user = rustix::process::Uid::from_raw(user);
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                Attachment::connect(&path, &AttachOptions { lanes, arena_bytes: 4096, ..AttachOptions::default() })
                    .unwrap()
            });
            attached.join().unwrap()
        };
        let (loud, alone) = (attach(65534, 9), [attach(65532, 2), attach(65532, 1)]);
        let (friend, other) = (attach(65534, 1), attach(65533, 1));
        for _ in 0..5 {
            let Some(Arrival::Attached(session)) = (0..).find_map(|_| station.arrival()) else {
                panic!("somebody left")
            };
            station.adopt(session).unwrap();
        }
        let submit = |attachment: &Attachment| {
            let mut lane = attachment.take_lane().unwrap();
            lane.submit([0; 8]).unwrap();
            lane
        };
        let _lanes: Vec<_> = std::thread::scope(|scope| {
            let calling = (0..9).map(|_| scope.spawn(|| submit(&loud))).collect::<Vec<_>>();
            calling.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let _by_one_thread = [submit(&alone[0]), submit(&alone[0]), submit(&alone[1])];
        for _ in 0..1000 {
            station.serve(64, &mut |_: ChannelId, request: &Entry, _: Option<TracedRequest>| Some(*request));
        }
        let callers =
            [&loud, &friend, &other, &alone[0], &alone[1]].map(|attachment| attachment.link.present().callers);
        assert_eq!(callers, [9, 9, 0, 1, 1]);
        reception.stop();
    }
}
