//! A client's side of the attach.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ddss_core::limits::{ARENA_BYTES_DEFAULT, LANES_PER_CLIENT_MAX};
use ddss_core::{ClientId, NodeId};
use rustix::io::Errno;

use crate::board::Board;
use crate::lane::{Lane, LaneState};
use crate::layout::{HEADER_BYTES, LAYOUT_VERSION, Layout};
use crate::ring::{Consumer, Producer};
use crate::socket;
use crate::strategy::Strategy;
use crate::sys::{Access, MemoryError, SharedMemory};
use crate::wire::{ANSWER_BYTES, Answer, BadFrame, Hello, Welcome};

/// On a full machine, nobody spins for operations that take longer than this.
const LATENCY_WORTH_SPINNING_NS: u64 = 2_000;

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
}

impl Default for AttachOptions {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            lanes: 8,
            arena_bytes: ARENA_BYTES_DEFAULT,
            timeout: Duration::from_secs(2),
        }
    }
}

/// Why a client could not attach.
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

/// What all lanes of a client share.
pub(crate) struct Shared {
    strategy: Strategy,
    board: Board,
    socket: OwnedFd,
    wake: OwnedFd,
    gone: AtomicBool,
    cores: u64,
    lanes: Mutex<Vec<Option<LaneState>>>,
}

impl Shared {
    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    #[inline(always)]
    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    /// Whether the daemon is there. Costs a system call as long as it is.
    pub(crate) fn is_alive(&self) -> bool {
        if self.gone.load(Ordering::Relaxed) {
            return false;
        }
        let alive = socket::is_open(self.socket.as_fd());
        if !alive {
            self.gone.store(true, Ordering::Relaxed);
        }
        alive
    }

    pub(crate) fn wake_service(&self) {
        // It only fails when the counter is full, and then the service has a wake-up waiting.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Whether spinning for an answer can pay: the service runs on another core, and either an operation is short or
    /// there are cores to spare.
    pub(crate) fn spinning_pays(&self) -> bool {
        if self.board.core() == Some(rustix::thread::sched_getcpu()) {
            return false;
        }
        self.board.latency_ns() <= LATENCY_WORTH_SPINNING_NS || self.board.active() < self.cores
    }

    pub(crate) fn give_back(&self, state: LaneState) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::from(state.index);
        lanes[index] = Some(state);
    }
}

/// A client of this node's daemon: from the handshake to the end of the socket.
pub struct Attachment {
    shared: Arc<Shared>,
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
        socket::send(socket.as_fd(), &hello.encode(), &[]).map_err(attempt.system("greet"))?;
        let (welcome, descriptors) = attempt.answer(&socket)?;
        let layout = Layout::new(welcome.lanes as usize, welcome.arena_bytes as usize);
        if layout != Some(wanted) {
            return Err(attempt.malformed("it grants another geometry than was asked for"));
        }
        attempt.settle(options.strategy, socket, welcome, wanted, descriptors)
    }

    /// Takes a lane that nobody holds. A lane that came back with requests under way is only handed out again when
    /// their completions are in (they are thrown away).
    pub fn take_lane(&self) -> Option<Lane> {
        let mut lanes = self.shared.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let state = lanes.iter_mut().find_map(|lane| lane.take_if(|lane| lane.drain()))?;
        Some(Lane::new(Arc::clone(&self.shared), state))
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

    /// What the daemon calls this client.
    pub fn client(&self) -> ClientId {
        self.welcome.client
    }

    /// What was chosen.
    pub fn strategy(&self) -> Strategy {
        self.shared.strategy
    }

    /// Whether the daemon is there and has not cut this client off. One system call.
    pub fn is_alive(&self) -> bool {
        self.shared.is_alive()
    }

    /// Becomes readable when a lane that was [armed](Lane::arm_async) gets a completion, and when the daemon goes.
    pub fn async_descriptor(&self) -> BorrowedFd<'_> {
        self.shared.socket.as_fd()
    }

    /// Takes the wake-ups that have come so far, so that the descriptor is not readable any more. Look at all armed
    /// lanes *after* this. False when the daemon is gone.
    pub fn clear_async(&self) -> bool {
        let mut byte = [0; 8];
        loop {
            match socket::receive(self.shared.socket.as_fd(), &mut byte) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(Errno::AGAIN) => return self.shared.is_alive(),
                Err(_) => return false,
            }
        }
    }
}

/// One try to attach, with what its errors need to say.
struct Attempt<'path> {
    path: &'path Path,
    deadline: Instant,
    timeout: Duration,
}

impl Attempt<'_> {
    fn malformed(&self, why: &'static str) -> AttachError {
        AttachError::Malformed { path: self.path.to_owned(), why }
    }

    fn system(&self, tried: &'static str) -> impl Fn(Errno) -> AttachError {
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

    fn connect(&self) -> Result<OwnedFd, AttachError> {
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

    fn answer(&self, socket: &OwnedFd) -> Result<(Welcome, Vec<OwnedFd>), AttachError> {
        if !socket::wait_readable(socket.as_fd(), self.deadline).map_err(self.system("wait for"))? {
            return Err(self.timed_out());
        }
        let mut frame = [0; ANSWER_BYTES + 1];
        let received = socket::receive_with_descriptors(socket.as_fd(), &mut frame);
        let (bytes, descriptors) = received.map_err(self.system("hear"))?;
        if bytes == 0 {
            return Err(self.system("hear")(Errno::CONNRESET));
        }
        match Answer::decode(&frame[..bytes]) {
            Ok(Answer::Welcome(welcome)) => Ok((welcome, descriptors)),
            Ok(Answer::Refusal { text, .. }) => Err(AttachError::Refused { text }),
            Err(BadFrame::Version(theirs)) => Err(AttachError::Version { ours: LAYOUT_VERSION, theirs }),
            Err(BadFrame::Malformed(why)) => Err(self.malformed(why)),
        }
    }

    fn settle(
        &self,
        strategy: Strategy,
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
        let board = Board::open(board)?;
        if !board.is_genuine() {
            return Err(self.malformed("the notice board is not one"));
        }
        let lanes = (0..layout.lanes().min(LANES_PER_CLIENT_MAX)).map(|index| {
            Ok(Some(LaneState {
                index: index as u8,
                requests: Producer::new(memory.ring_at(layout.requests(index))?, 0),
                completions: Consumer::new(memory.ring_at(layout.completions(index))?, 0),
                control: memory.word_at(layout.control(index))?,
                outstanding: 0,
                rung: 0,
            }))
        });
        let lanes = Mutex::new(lanes.collect::<Result<_, MemoryError>>()?);
        let arena = memory.slice(layout.arena_offset(), layout.arena_bytes())?;
        let gone = AtomicBool::new(false);
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let shared = Arc::new(Shared { strategy, board, socket, wake, gone, cores, lanes });
        Ok(Attachment { shared, arena, welcome })
    }
}
