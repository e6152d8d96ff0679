//! The client's side of the attach handshake.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ddss_core::limits::ARENA_BYTES_DEFAULT;
use ddss_core::{ClientId, NodeId};
use rustix::io::Errno;

use super::channel::Channel;
use super::free_channels::{ChannelState, FreeChannels};
use super::hangup_monitor::HangupMonitor;
use crate::client_handshake::{ANSWER_BYTES, BadFrame, HandshakeReply, HandshakeRequest, Hello, Welcome};
use crate::connection::Connection;
use crate::shm::layout::{HEADER_BYTES, LAYOUT_VERSION, Layout};
use crate::shm::service_page::ServicePage;
use crate::socket;
use crate::strategy::Strategy;
use crate::sys::{Access, MemoryError, Queue, SharedMemory};
use crate::transport::channel_transport::ChannelTransport;
use crate::transport::ring_ends::RingEnds;
use crate::transport::ring_transport::RingTransport;
use crate::transport::sysv::{Mq, Rmq, SysvParts};
use crate::transport::sysv_timeout::TimeoutThread;
use crate::transport::waiter::Waiter;
use crate::wait::back_off::BackOff;

/// Options of one attach.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttachOptions {
    /// How requests and replies travel.
    pub strategy: Strategy,
    /// Number of channels: one for each thread that calls at the same time.
    pub channels: usize,
    /// Size of the payload arena in bytes.
    pub arena_bytes: usize,
    /// Time limit of the whole attach.
    pub timeout: Duration,
    /// How a client of `Rcq` or `Auto` waits.
    pub back_off: BackOff,
}

impl Default for AttachOptions {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            channels: 8,
            arena_bytes: ARENA_BYTES_DEFAULT,
            timeout: Duration::from_secs(2),
            back_off: BackOff::default(),
        }
    }
}

/// Reasons for which an attach fails.
///
/// ```
/// # use ddss_ipc as ddss;
/// use ddss::AttachError;
///
/// # let nowhere = std::path::Path::new("/nowhere/ddssd.sock");
/// # let error = ddss::Attachment::connect(nowhere, &ddss::AttachOptions::default()).expect_err("no daemon listens there");
/// // The error of `Client::connect`, without a daemon:
/// assert!(matches!(error, AttachError::NoDaemon { .. }));
/// assert_eq!(error.to_string(), "no daemon listens at /nowhere/ddssd.sock");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// No daemon listens at the path.
    #[error("no daemon listens at {}", path.display())]
    NoDaemon {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The user may not connect to the socket.
    #[error("no permission to attach at {}", path.display())]
    Permission {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The daemon and the client were built with different layouts.
    #[error(
        "the daemon speaks layout version {theirs}, this client speaks version {ours}: use the same release of both: {text}"
    )]
    Version {
        /// Layout version of this client.
        ours: u32,
        /// Layout version of the daemon.
        theirs: u32,
        /// Reason that the daemon gave, with its release; empty if it gave none.
        text: String,
    },
    /// The daemon refused the client.
    #[error("the daemon refused: {text}")]
    Refused {
        /// Reason that the daemon gave.
        text: String,
    },
    /// The daemon did not reply in time.
    #[error("the daemon at {} did not answer within {timeout:?}", path.display())]
    TimedOut {
        /// Path of the socket.
        path: PathBuf,
        /// Time limit that passed.
        timeout: Duration,
    },
    /// The reply is not one of a DDSS daemon.
    #[error("malformed reply from {}: {why}", path.display())]
    Malformed {
        /// Path of the socket.
        path: PathBuf,
        /// Defect of the reply.
        why: &'static str,
    },
    /// The options exceed the limits.
    #[error("{channels} channels and {arena_bytes} bytes of arena exceed the limits")]
    Options {
        /// Channels that were requested.
        channels: usize,
        /// Arena bytes that were requested.
        arena_bytes: usize,
    },
    /// The memory that the daemon passed is unusable.
    #[error("cannot use the memory that the daemon passed")]
    Memory(#[from] MemoryError),
    /// Another system call failed.
    #[error("cannot {tried} the daemon at {}", path.display())]
    System {
        /// Operation that failed.
        tried: &'static str,
        /// Path of the socket.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
}

/// A client of this node's daemon, from the handshake to the end of the socket.
pub struct Attachment {
    connection: Arc<Connection>,
    free_channels: Arc<FreeChannels>,
    arena: SharedMemory,
    welcome: Welcome,
}

impl fmt::Debug for Attachment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Attachment").field("welcome", &self.welcome).finish_non_exhaustive()
    }
}

impl Attachment {
    /// Performs the handshake with the daemon that listens at `path`.
    pub fn connect(path: &Path, options: &AttachOptions) -> Result<Self, AttachError> {
        let refused = AttachError::Options { channels: options.channels, arena_bytes: options.arena_bytes };
        let wanted = Layout::new(options.channels, options.arena_bytes).ok_or(refused)?;
        let attempt = AttachAttempt { path, deadline: Instant::now() + options.timeout, timeout: options.timeout };
        let socket = attempt.connect()?;
        let hello = Hello {
            strategy: options.strategy,
            channels: wanted.channels() as u32,
            arena_bytes: wanted.arena_bytes() as u64,
        };
        socket::send(socket.as_fd(), &HandshakeRequest::Attach(hello).encode(), &[])
            .map_err(attempt.system("send the handshake to"))?;
        let (welcome, descriptors) = match attempt.answer(&socket)? {
            (HandshakeReply::Welcome(welcome), descriptors) => (welcome, descriptors),
            (HandshakeReply::Refusal { text, .. }, _) => return Err(AttachError::Refused { text }),
            (HandshakeReply::Area, _) => return Err(attempt.malformed("the reply is not a welcome")),
        };
        let layout = Layout::new(welcome.channels as usize, welcome.arena_bytes as usize);
        if layout != Some(wanted) {
            return Err(attempt.malformed("the reply grants other sizes than requested"));
        }
        attempt.finish(options, socket, welcome, wanted, descriptors)
    }

    /// Takes a free channel. A channel that was returned with requests in flight becomes free when their completions
    /// have arrived; they are discarded.
    pub fn take_channel(&self) -> Option<Channel> {
        let state = self.free_channels.take()?;
        Some(Channel::new(Arc::clone(&self.free_channels), state))
    }

    /// Returns the payload memory, which the daemon maps as well. Offset 0 is its first byte. The client allocates its
    /// slots.
    pub fn arena(&self) -> &SharedMemory {
        &self.arena
    }

    /// Returns the id of the node that the daemon serves.
    pub fn node(&self) -> NodeId {
        self.welcome.node
    }

    /// Returns the number of shards of the daemon. Each shard has its own socket ([`socket_name`](crate::socket_name)).
    pub fn shards(&self) -> u8 {
        self.welcome.shards
    }

    /// Returns the id that the daemon gave to this client.
    pub fn client(&self) -> ClientId {
        self.welcome.client
    }

    /// Returns the strategy of this attachment.
    pub fn strategy(&self) -> Strategy {
        self.connection.strategy()
    }

    /// Returns true if the daemon is known to be gone or to accept no new requests, or if a parent of this process has attached.
    /// No system call.
    #[inline]
    pub fn is_unusable(&self) -> bool {
        self.connection.is_unusable()
    }

    /// Returns true if a parent of this process has attached, whose channels this process may not use.
    pub fn is_inherited(&self) -> bool {
        self.connection.is_inherited()
    }

    /// Returns true if the daemon accepts no new requests and is not known to be gone. No system call.
    pub fn is_draining(&self) -> bool {
        self.connection.is_draining()
    }

    /// Records that the daemon accepts no new requests. It still answers those in flight.
    pub fn set_draining(&self) {
        self.connection.set_draining();
    }

    /// Returns true if the daemon lives and still serves this client. One system call.
    pub fn is_alive(&self) -> bool {
        self.connection.is_alive()
    }

    /// Returns a descriptor that becomes readable when an [armed](Channel::arm_async) channel gets a completion, and
    /// when the daemon ends.
    pub fn async_descriptor(&self) -> BorrowedFd<'_> {
        self.connection.socket()
    }

    /// Consumes pending wake-ups, so that the descriptor is no longer readable. Poll all armed channels *after* this
    /// call. Returns false when the daemon is gone.
    pub fn clear_async(&self) -> bool {
        let mut byte = [0; 8];
        loop {
            match socket::receive(self.connection.socket(), &mut byte) {
                Ok(bytes) if bytes > 0 => {}
                Err(Errno::AGAIN) => return self.connection.is_alive(),
                _ => {
                    self.connection.set_gone();
                    return false;
                }
            }
        }
    }
}

/// One attempt to attach, with the context that its errors need.
pub(crate) struct AttachAttempt<'path> {
    pub(crate) path: &'path Path,
    pub(crate) deadline: Instant,
    pub(crate) timeout: Duration,
}

impl AttachAttempt<'_> {
    pub(crate) fn malformed(&self, why: &'static str) -> AttachError {
        AttachError::Malformed { path: self.path.to_owned(), why }
    }

    pub(crate) fn system(&self, tried: &'static str) -> impl Fn(Errno) -> AttachError {
        move |errno| {
            let path = self.path.to_owned();
            match errno {
                // The daemon ended, or stopped accepting clients, during the handshake.
                Errno::PIPE | Errno::CONNRESET => AttachError::NoDaemon { path, source: errno.into() },
                _ => AttachError::System { tried, path, source: errno.into() },
            }
        }
    }

    fn failed(&self, tried: &'static str, source: io::Error) -> AttachError {
        AttachError::System { tried, path: self.path.to_owned(), source }
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

    /// Receives the daemon's reply and its descriptors.
    pub(crate) fn answer(&self, socket: &OwnedFd) -> Result<(HandshakeReply, Vec<OwnedFd>), AttachError> {
        if !socket::wait_readable(socket.as_fd(), self.deadline).map_err(self.system("wait for"))? {
            return Err(self.timed_out());
        }
        let mut frame = [0; ANSWER_BYTES + 1];
        let received = socket::receive_with_descriptors(socket.as_fd(), &mut frame);
        let (bytes, descriptors) = received.map_err(self.system("receive the reply of"))?;
        if bytes == 0 {
            return Err(self.system("receive the reply of")(Errno::CONNRESET));
        }
        match HandshakeReply::decode(&frame[..bytes]) {
            Ok(answer) => Ok((answer, descriptors)),
            Err(BadFrame::Version { version: theirs, text }) => {
                Err(AttachError::Version { ours: LAYOUT_VERSION, theirs, text })
            }
            Err(BadFrame::Malformed(why)) => Err(self.malformed(why)),
        }
    }

    fn finish(
        &self,
        options: &AttachOptions,
        socket: OwnedFd,
        welcome: Welcome,
        layout: Layout,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Attachment, AttachError> {
        let Ok([memory, service_page, wake]) = <[OwnedFd; 3]>::try_from(descriptors) else {
            return Err(self.malformed("the reply has the wrong number of descriptors"));
        };
        let memory = SharedMemory::from_descriptor(memory, layout.bytes(), Access::ReadWrite)?;
        let mut header = [0; HEADER_BYTES];
        memory.read(0, &mut header)?;
        if header != layout.header() {
            return Err(self.malformed("the memory's header differs from the handshake"));
        }
        let service_page = ServicePage::open(service_page)?;
        if !service_page.is_genuine() {
            return Err(self.malformed("the service page has the wrong magic or version"));
        }
        let arena = memory.slice(layout.arena_offset(), layout.arena_bytes())?;
        let connection = Connection::new(options.strategy, service_page, socket, wake);
        let connection = Arc::new(connection.map_err(|source| self.failed("map a page for", source))?);
        let free_channels = Arc::new(self.build_channels(&connection, &welcome, &memory, &layout, options.back_off)?);
        Ok(Attachment { connection, free_channels, arena, welcome })
    }

    /// Builds the transport of each channel.
    fn build_channels(
        &self,
        connection: &Arc<Connection>,
        welcome: &Welcome,
        memory: &SharedMemory,
        layout: &Layout,
        back_off: BackOff,
    ) -> Result<FreeChannels, AttachError> {
        let queue = |id: Option<i32>| {
            id.map(Queue::from_id)
                .ok_or_else(|| self.malformed("the reply has no message queue, which the strategy needs"))
        };
        let by_ring = connection.strategy().replies_by_ring();
        let failed = |source| self.failed("monitor", source);
        let hangup_monitor =
            if by_ring { Some(HangupMonitor::start(Arc::clone(connection)).map_err(failed)?) } else { None };
        let timeout_thread = if by_ring {
            None
        } else {
            let started = TimeoutThread::start(Arc::clone(connection), queue(welcome.reply_queue)?, layout.channels());
            Some(started.map_err(failed)?)
        };
        let mut channels = Vec::with_capacity(layout.channels());
        for channel in 0..layout.channels() {
            let transport: Box<dyn ChannelTransport> = match (connection.strategy(), &timeout_thread) {
                (Strategy::Mq, Some(timeout_thread)) => {
                    let parts =
                        SysvParts { connection, timeout_slots: timeout_thread.slots(), memory, layout, channel };
                    Box::new(Mq::new(&parts, queue(welcome.request_queue)?, queue(welcome.reply_queue)?)?)
                }
                (Strategy::Rmq, Some(timeout_thread)) => {
                    let parts =
                        SysvParts { connection, timeout_slots: timeout_thread.slots(), memory, layout, channel };
                    Box::new(Rmq::new(&parts, queue(welcome.reply_queue)?)?)
                }
                (strategy, _) => {
                    let ends = RingEnds::new(connection, memory, layout, channel)?;
                    Box::new(RingTransport::new(ends, Waiter::new(back_off, strategy == Strategy::Rcq)))
                }
            };
            channels.push(ChannelState { index: channel as u8, outstanding: 0, transport });
        }
        Ok(FreeChannels::new(channels, timeout_thread, hangup_monitor))
    }
}
