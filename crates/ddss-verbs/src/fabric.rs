//! The `Fabric` trait and the types of its control operations.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::events::Events;
use crate::id::{PeerId, RegionId};
use crate::parts::Parts;
use crate::sealing::Sealing;
use crate::work::{PostError, Work};

/// Operations that a window allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rights(u8);

impl Rights {
    /// Read access.
    pub const READ: Rights = Rights(1);
    /// Write access.
    pub const WRITE: Rights = Rights(2);
    /// Atomic access: compare-and-swap, fetch-and-add.
    pub const ATOMIC: Rights = Rights(4);

    /// Returns the rights of both operands.
    #[must_use]
    pub const fn union(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// Returns true if every right in `required` is granted.
    #[must_use]
    pub const fn contains(self, required: Rights) -> bool {
        self.0 & required.0 == required.0
    }
}

/// Reason why a file descriptor may be mapped without the risk of a `SIGBUS`, and which threads write the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A memfd sealed against shrinking, which is checked. Any process may write it at any time.
    Sealed,
    /// Memory that only the caller can shrink and only the polling thread writes, as the caller guarantees. Nothing
    /// changes it during a poll except that poll, so payload need not be copied before it is checksummed. If the
    /// guarantee is false, checksums are wrong and connections end.
    Exclusive,
}

/// Part of a region that one peer may access with a key. The key is random and is valid for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Key that the peer presents.
    pub key: u32,
    /// Address of the first byte.
    pub base: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Capabilities and limits of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Name of the implementation: `iwarp`, `rdma` or `sim`.
    pub name: &'static str,
    /// Bytes of the largest read or write.
    pub work_bytes_max: u64,
    /// Bytes of the largest message.
    pub message_bytes_max: usize,
    /// Bytes of the largest hello.
    pub hello_bytes_max: usize,
    /// Reads and atomics in flight to one peer, before the peer's own limit is known; more are queued.
    pub reads_outstanding_max: usize,
    /// Largest read that the home's polling thread takes from memory in one go. Such a read is consistent with
    /// everything that this thread writes itself.
    pub snapshot_bytes: u64,
    /// True if each aligned 8-byte word of a transfer is atomic, regardless of the writer.
    pub has_atomic_words: bool,
    /// Unit that executes atomics on a word of this node.
    pub atomics: AtomicScope,
    /// True if [`Fabric::abandon`] works: a posted read can be stopped from touching local memory.
    pub can_abandon_reads: bool,
    /// True if the reads of one batch are in flight together and access the peer's memory in order: one round trip for
    /// all. Otherwise each read waits for its predecessor, which keeps the order as well.
    pub reads_overlap: bool,
    /// True if the completion of a write means that the bytes are in the peer's memory. False on iWARP.
    pub has_remote_write_completion: bool,
    /// True if a refused operation completes with [`Refused`](crate::WorkError::Refused) and both ends learn why the
    /// connection closes. Otherwise a refusal can look like a lost connection.
    pub can_report_refusals: bool,
    /// True if [`Fabric::set_admission_filter`] works: a thread of the fabric accepts and judges unauthenticated
    /// peers.
    pub has_admission_filter: bool,
    /// True if [`Fabric::connect_sealed`] and [`Fabric::seal`] work: the owner's ciphers seal every byte of a connection.
    pub can_seal: bool,
    /// Places where the fabric carries out its work.
    pub parts: Parts,
}

/// Unit that executes atomics on this node's memory. The two are never mixed on one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicScope {
    /// The thread that polls the fabric, with the processor's atomics.
    Thread,
    /// The RDMA adapter.
    Adapter,
}

/// Error of a control operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// A table is full.
    #[error("no room for another {0}: the table is full")]
    Full(&'static str),
    /// The peer does not exist.
    #[error("unknown peer {0}")]
    UnknownPeer(PeerId),
    /// The peer is not in a state that permits the operation.
    #[error("peer {0} is in another state")]
    WrongState(PeerId),
    /// The region does not exist.
    #[error("unknown region {0}")]
    UnknownRegion(RegionId),
    /// The range is outside the memory.
    #[error("{bytes} bytes at offset {offset} are outside the memory")]
    OutOfBounds {
        /// Start of the range in bytes.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
    },
    /// The offset is not page-aligned.
    #[error("offset {0} is not a multiple of the page size")]
    Unaligned(u64),
    /// The memory could be truncated while it is used.
    #[error("the memory is not sealed against shrinking; add F_SEAL_SHRINK")]
    NotSealed,
    /// The process may not lock this much memory for the adapter.
    #[error(
        "cannot lock {bytes} bytes of memory for the adapter: the limit is {limit}; raise it (ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit)"
    )]
    NotLocked {
        /// Bytes that would be locked in all.
        bytes: u64,
        /// Limit on locked memory (`RLIMIT_MEMLOCK`) in bytes.
        limit: u64,
    },
    /// The hello exceeds the private data of a connection request.
    #[error("a hello of {0} bytes exceeds the limit")]
    HelloTooLong(usize),
    /// A system call failed.
    #[error("cannot {0}")]
    System(&'static str, #[source] io::Error),
}

/// Value that an admission filter attaches to an admitted peer, for the owner of the fabric.
pub type AdmissionToken = Box<dyn Any + Send>;

/// Decision of an admission filter on a first message.
pub enum Admission {
    /// Admits the peer.
    Admit(AdmissionToken),
    /// Rejects the peer with a reason that it receives; excess bytes are cut off.
    Reject(String),
}

/// Judges first messages, so that the polling thread does not have to.
pub trait AdmissionFilter: Send {
    /// Decides whether the peer at `address`, which sent `hello`, may connect. A panic rejects only this peer.
    fn evaluate(&mut self, address: SocketAddr, hello: &[u8]) -> Admission;
}

/// One transport between nodes. One thread owns and polls it; no method blocks.
///
/// Life of a peer: [`connect`](Self::connect) or [`Event::ConnectRequest`](crate::Event::ConnectRequest)
/// ([`Event::Admitted`](crate::Event::Admitted) with an [admission filter](Self::set_admission_filter)) →
/// [`accept`](Self::accept) → [`Event::Connected`](crate::Event::Connected) → work →
/// [`Event::Closed`](crate::Event::Closed). *Closed* comes exactly once for each peer, after the last *done* of that
/// peer, on every path. The id names nothing from then on.
pub trait Fabric: Send {
    /// Returns the capabilities of this fabric.
    fn capabilities(&self) -> Capabilities;

    /// Accepts connections on an address; returns the bound address (port 0 picks a free port).
    ///
    /// # Errors
    /// The error of the system.
    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr>;

    /// Filters connections on every listening address. A thread of the fabric, which may run on any core of the
    /// caller, accepts each connection and reads and judges its first message. The polling thread sees only
    /// [admitted](crate::Event::Admitted) peers, at a limited rate.
    ///
    /// # Errors
    /// The thread cannot be started; [`Unsupported`](io::ErrorKind::Unsupported) without the
    /// [capability](Capabilities::has_admission_filter).
    fn set_admission_filter(&mut self, filter: Box<dyn AdmissionFilter>) -> io::Result<()> {
        drop(filter);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes the token that the admission filter attached to a peer. `None` if there is none or it was taken before.
    fn take_admission_token(&mut self, peer: PeerId) -> Option<AdmissionToken> {
        let _ = peer;
        None
    }

    /// Starts to connect. The result arrives as an event, within the configured deadline.
    ///
    /// # Errors
    /// The peer table is full, the hello is too long, or no socket can be created.
    fn connect(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError>;

    /// Starts to connect as [`connect`](Self::connect) does, for a connection that the owner [seals](Self::seal) at
    /// *connected*. Nothing can be posted before.
    ///
    /// # Errors
    /// As of [`connect`](Self::connect); [`Unsupported`](io::ErrorKind::Unsupported) without the
    /// [capability](Capabilities::can_seal).
    fn connect_sealed(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError> {
        let _ = (address, hello);
        Err(FabricError::System("seal a connection", io::ErrorKind::Unsupported.into()))
    }

    /// Seals every byte of a connection behind the hellos: on the connecting side at *connected*, on the accepting side
    /// before [`accept`](Self::accept). Both owners have to do so.
    ///
    /// # Errors
    /// The peer is gone or in another state; [`Unsupported`](io::ErrorKind::Unsupported) without the
    /// [capability](Capabilities::can_seal).
    fn seal(&mut self, peer: PeerId, sealing: Sealing) -> Result<(), FabricError> {
        let _ = (peer, sealing);
        Err(FabricError::System("seal a connection", io::ErrorKind::Unsupported.into()))
    }

    /// Accepts a peer that requested a connection.
    ///
    /// # Errors
    /// The peer is gone or has no pending request.
    fn accept(&mut self, peer: PeerId, hello: &[u8]) -> Result<(), FabricError>;

    /// Rejects a peer that requested a connection, with a reason that the peer receives.
    ///
    /// # Errors
    /// The peer is gone or has no pending request.
    fn reject(&mut self, peer: PeerId, reason: &[u8]) -> Result<(), FabricError>;

    /// Closes a connection. Its operations complete first, then *closed* follows.
    fn close(&mut self, peer: PeerId);

    /// Maps memory for transfers. The fabric does not retain the descriptor.
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

    /// Ends a region and every window on it. Operations in flight keep the mapping until they complete.
    fn deregister(&mut self, region: RegionId);

    /// Opens a window on a region for one peer.
    ///
    /// # Errors
    /// Unknown peer or region, range out of bounds, or the window table is full.
    fn expose(
        &mut self,
        peer: PeerId,
        region: RegionId,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Window, FabricError>;

    /// Closes a window. Reads that the peer requested before are still answered; a later use of the key ends the
    /// connection.
    fn withdraw(&mut self, peer: PeerId, key: u32);

    /// Posts a batch, in order and without blocking; the next [`poll`](Self::poll) sends it.
    ///
    /// # Errors
    /// The index of the first operation that was not posted. Earlier ones were.
    fn post(&mut self, work: &[Work<'_>]) -> Result<(), PostError>;

    /// Stops a posted read from touching local memory. The read completes as `Abandoned`. Returns false if there is no
    /// such read or the fabric lacks the capability.
    fn abandon(&mut self, peer: PeerId, tag: u64) -> bool;

    /// Receives, processes and sends once, within a budget. Appends events and returns their number.
    ///
    /// The caller is expected to poll without pause: silent connections are checked only once in hundreds of polls, or
    /// thousands while no peer is connected. A caller that pauses between two polls calls [`arm`](Self::arm) before
    /// and [`disarm`](Self::disarm) after the pause. Otherwise new connections and messages are noticed late.
    fn poll(&mut self, events: &mut Events) -> usize;

    /// Returns true if the last poll moved bytes. A peer's reads and writes cause no event, yet a thread that serves
    /// them is not idle. Always false if an adapter serves them without the thread.
    fn has_moved_bytes(&self) -> bool {
        false
    }

    /// Prepares to sleep on [`descriptor`](Self::descriptor). Returns false if there is work now.
    fn arm(&mut self) -> bool;

    /// Ends the sleep that [`arm`](Self::arm) prepared.
    fn disarm(&mut self);

    /// Returns a descriptor that is readable when [`poll`](Self::poll) has work, after [`arm`](Self::arm) returned
    /// true.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Returns the latest time of the next [`poll`](Self::poll).
    fn next_deadline(&self) -> Option<Instant>;
}
