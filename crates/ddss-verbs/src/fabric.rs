//! The trait that every road between nodes fulfils.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::events::Events;
use crate::work::{PostError, Work};

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            pub(crate) index: u32,
            pub(crate) generation: u32,
        }

        impl $name {
            pub(crate) const fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }

            /// As one number, for tables and logs.
            #[must_use]
            pub const fn to_bits(self) -> u64 {
                ((self.generation as u64) << 32) | self.index as u64
            }

            /// Back from [`Self::to_bits`]. One that was never handed out names nothing.
            #[must_use]
            pub const fn from_bits(bits: u64) -> Self {
                Self { index: bits as u32, generation: (bits >> 32) as u32 }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}.{}"), self.index, self.generation)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}

handle! {
    /// One connection. A new connection to the same node is a new peer, and old ids name nothing.
    PeerId, "p"
}
handle! {
    /// One piece of registered memory.
    RegionId, "r"
}

/// What a window allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rights(u8);

impl Rights {
    /// Reads.
    pub const READ: Rights = Rights(1);
    /// Writes.
    pub const WRITE: Rights = Rights(2);
    /// Compare-and-swap, fetch-and-add.
    pub const ATOMIC: Rights = Rights(4);

    /// Both.
    #[must_use]
    pub const fn and(self, more: Rights) -> Rights {
        Rights(self.0 | more.0)
    }

    /// Whether all of `asked` is allowed.
    #[must_use]
    pub const fn allow(self, asked: Rights) -> bool {
        self.0 & asked.0 == asked.0
    }
}

/// Why memory behind a file descriptor may be mapped without fear of losing it (and of a `SIGBUS`), and who writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It is a memfd sealed against shrinking; that is checked. Anybody may write it at any time.
    Sealed,
    /// A file that no one but the caller can shrink; the caller vouches for that. Anybody may write it at any time.
    Vouched,
    /// The caller vouches that no one else can shrink it, and that no one but the thread that polls the fabric writes it:
    /// nothing changes it during a poll but that poll. So what is sent of it need not be copied to be summed. If that is
    /// not true, sums are wrong and connections end.
    Own,
}

/// A piece of a region that one peer may reach with a key. The key is random and dies with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// What the peer names it by.
    pub key: u32,
    /// The address of its first byte.
    pub base: u64,
    /// Its length.
    pub bytes: u64,
}

/// What a fabric can and cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// `iwarp`, `rdma`, `sim`.
    pub name: &'static str,
    /// Bytes of the largest read or write.
    pub work_bytes_max: u64,
    /// Bytes of the largest message.
    pub message_bytes_max: usize,
    /// Bytes of the largest hello.
    pub hello_bytes_max: usize,
    /// Reads and atomics that can be under way to one peer, before its own limit is known; more are queued.
    pub reads_outstanding_max: usize,
    /// A read of so many bytes is taken from the home's memory by the home's polling thread in one go, so
    /// it is whole against everything that thread writes itself.
    pub snapshot_bytes: u64,
    /// Each aligned 8-byte word of a transfer is whole, whoever writes it.
    pub words_whole: bool,
    /// Who executes atomics on a word of this node.
    pub atomics: AtomicScope,
    /// [`Fabric::abandon`] works: a posted read can be told not to touch local memory any more.
    pub reads_abandonable: bool,
    /// The reads of one batch are under way together and look at the peer's memory in their order: one round trip for all.
    /// Without it each waits for the one before it, which keeps the order as well.
    pub reads_overlap: bool,
    /// A write's completion says that the bytes are in the peer's memory. (Not so on iWARP.)
    pub write_done_is_placed: bool,
    /// An operation that the peer refuses comes back as
    /// [`Refused`](crate::WorkError::Refused), and both ends are told why they are
    /// closed. Without it, a refusal can look like a connection that was lost.
    pub refusals_named: bool,
    /// [`Fabric::guard`] works: strangers are heard and judged by a thread of the fabric's own.
    pub guarded: bool,
}

/// Who executes atomics on this node's memory. The two are never mixed on one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicScope {
    /// The thread that polls the fabric, with the processor's own atomics.
    Thread,
    /// The adapter.
    Adapter,
}

/// A control operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// A table is full.
    #[error("no room for another {0}")]
    Full(&'static str),
    /// There is no such peer.
    #[error("there is no peer {0}")]
    UnknownPeer(PeerId),
    /// The peer is not in a state in which this can be done.
    #[error("peer {0} is not waiting for this")]
    WrongState(PeerId),
    /// There is no such region.
    #[error("there is no region {0}")]
    UnknownRegion(RegionId),
    /// Outside of the memory.
    #[error("{bytes} bytes from {offset} are outside of the memory")]
    OutOfBounds {
        /// From where.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// An offset that cannot be mapped.
    #[error("offset {0} is not a multiple of the page")]
    Unaligned(u64),
    /// The memory could be taken away while it is used.
    #[error("the memory is not sealed against shrinking")]
    NotSealed,
    /// The adapter may not lock so much memory.
    #[error(
        "cannot lock {bytes} bytes of memory for the adapter: the limit is {limit}; raise it (ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit)"
    )]
    NotLocked {
        /// How much would be locked in all.
        bytes: u64,
        /// How much may be.
        limit: u64,
    },
    /// More private data than fits.
    #[error("a hello of {0} bytes is too long")]
    HelloTooLong(usize),
    /// The operating system said no.
    #[error("the system refused to {0}")]
    System(&'static str, #[source] io::Error),
}

/// What a guard gives to one whom it admits, for the owner of the fabric.
pub type AdmissionToken = Box<dyn Any + Send>;

/// What a guard says of a first message.
pub enum Admission {
    /// Let in.
    Admit(AdmissionToken),
    /// Turned away, with what the other side is told; more than fits is cut off.
    TurnAway(String),
}

/// Judges first messages, so that the thread that polls does not have to.
pub trait AdmissionFilter: Send {
    /// Somebody at `address` wants to connect, and said `hello`. A panic turns only him away.
    fn judge(&mut self, address: SocketAddr, hello: &[u8]) -> Admission;
}

/// One road between nodes. One thread owns it and polls it; nothing in it blocks.
///
/// The life of a peer: [`connect`](Self::connect) or [`Event::Asked`](crate::Event::Asked)
/// ([`Event::Admitted`](crate::Event::Admitted) behind a [guard](Self::guard)) →
/// [`accept`](Self::accept) → [`Event::Connected`](crate::Event::Connected) → work →
/// [`Event::Closed`](crate::Event::Closed). *Closed* comes exactly once for each peer, after the last *done* of
/// that peer, whatever happened; the id names nothing from then on.
pub trait Fabric: Send {
    /// What this fabric can do.
    fn capabilities(&self) -> Capabilities;

    /// Takes connections on an address; returns the one that was bound (port 0 picks one).
    ///
    /// # Errors
    /// What the system says.
    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr>;

    /// Puts a guard in front of every address it listens on: who connects is heard and judged by a thread of the fabric's
    /// own, started on whatever cores the caller may use. Whoever polls hears only of those who were
    /// [admitted](crate::Event::Admitted), and of few at a time.
    ///
    /// # Errors
    /// No thread to be had; [`Unsupported`](io::ErrorKind::Unsupported) without the
    /// [capability](Capabilities::guarded).
    fn guard(&mut self, guard: Box<dyn AdmissionFilter>) -> io::Result<()> {
        drop(guard);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What the guard gave to one who was admitted. `None` if he was not, or it was taken already.
    fn take_pass(&mut self, peer: PeerId) -> Option<AdmissionToken> {
        let _ = peer;
        None
    }

    /// Starts to connect. How it ended comes as an event, within the configured deadline.
    ///
    /// # Errors
    /// No room for a peer, the hello too long, or no socket to be had.
    fn connect(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError>;

    /// Takes a peer that asked.
    ///
    /// # Errors
    /// The peer is gone or did not ask.
    fn accept(&mut self, peer: PeerId, hello: &[u8]) -> Result<(), FabricError>;

    /// Turns away a peer that asked, with a reason that it gets to read.
    ///
    /// # Errors
    /// The peer is gone or did not ask.
    fn reject(&mut self, peer: PeerId, reason: &[u8]) -> Result<(), FabricError>;

    /// Ends a connection. Its operations end, then comes *closed*.
    fn close(&mut self, peer: PeerId);

    /// Maps memory for transfers. The descriptor is not kept.
    ///
    /// # Errors
    /// The memory could shrink, the range is outside of it, or it cannot be mapped.
    fn register(
        &mut self,
        memory: BorrowedFd<'_>,
        trust: Trust,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionId, FabricError>;

    /// Ends a region and every window on it. What is under way keeps the mapping until it is done.
    fn deregister(&mut self, region: RegionId);

    /// Lets one peer reach a piece of a region.
    ///
    /// # Errors
    /// Unknown peer or region, out of bounds, no room.
    fn expose(
        &mut self,
        peer: PeerId,
        region: RegionId,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Window, FabricError>;

    /// Ends a window. Reads that were already asked for are still answered; whoever uses the key later breaks
    /// its connection.
    fn withdraw(&mut self, peer: PeerId, key: u32);

    /// Takes a batch, in order. Nothing blocks; it goes out with the next [`poll`](Self::poll).
    ///
    /// # Errors
    /// Names the first that was not taken. Those before it were.
    fn post(&mut self, work: &[Work<'_>]) -> Result<(), PostError>;

    /// Tells a posted read that its local memory is not to be touched any more. Its *done* says
    /// `Abandoned`. False if there is no such read or the fabric cannot do it.
    fn abandon(&mut self, peer: PeerId, tag: u64) -> bool;

    /// Reads, works and writes once, within a budget. Events are appended; returns how many.
    ///
    /// Made to be called without a pause: what has been silent is looked at only once in hundreds of calls, or thousands while
    /// nobody is connected. Who pauses between two calls has to [`arm`](Self::arm) before and [`disarm`](Self::disarm) behind, or
    /// whoever comes meanwhile is seen late.
    fn poll(&mut self, events: &mut Events) -> usize;

    /// Whether the last poll moved bytes. A peer's reads and writes are no events, but whoever polls for their sake is not
    /// idle; where an adapter serves them by itself, that is false.
    fn has_moved(&self) -> bool {
        false
    }

    /// Prepares to sleep on [`descriptor`](Self::descriptor): false if there is work right now.
    fn arm(&mut self) -> bool;

    /// Awake again.
    fn disarm(&mut self);

    /// Readable when [`poll`](Self::poll) has something to do, after [`arm`](Self::arm) returned true.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// When to call [`poll`](Self::poll) at the latest.
    fn next_deadline(&self) -> Option<Instant>;
}
