//! Many iWARP connections over real sockets, driven by one thread.
//!
//! A poll sends posted work, receives from the few recently active connections without epoll, and sends the answers. It
//! asks epoll about the other connections only now and then, and immediately after a sleep. With an admission filter,
//! the [`acceptor_thread`] handles unauthenticated peers; [`connect`] holds the handshakes, [`poll`] the event loop,
//! [`peer_table`] the slots.

mod acceptor;
mod acceptor_thread;
mod connect;
mod peer_lists;
mod peer_table;
mod poll;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll;

use crate::events::Events;
use crate::fabric::{
    AdmissionFilter, AdmissionToken, AtomicScope, Capabilities, Fabric, FabricError, Rights, Trust, Window,
};
use crate::id::{PeerId, RegionId};
use crate::iwarp::config::IwarpConfig;
use crate::iwarp::connection::Context;
use crate::iwarp::peer::Scratch;
use crate::iwarp::socket;
use crate::limits::{HELLO_BYTES_MAX, PEERS_MAX, SNAPSHOT_BYTES, WORK_BYTES_MAX, is_message_limit};
use crate::memory::{KeySource, RegionTable};
use crate::parts::Parts;
use crate::sealing::Sealing;
use crate::work::{PostError, PostErrorKind, Work};

use acceptor::Acceptor;
use peer_table::PeerTable;

/// iWARP in user space. The crate documentation has an example.
pub struct Iwarp {
    config: Arc<IwarpConfig>,
    epoll: OwnedFd,
    listeners: Vec<OwnedFd>,
    /// Acceptor thread, if there is an admission filter.
    acceptor: Option<Acceptor>,
    /// End of a pause in accepting, after the system ran out of descriptors.
    listen_resume_at: Option<Instant>,
    memory: RegionTable,
    keys: KeySource,
    peers: PeerTable,
    scratch: Scratch,
    /// Slots with something to send.
    dirty: Vec<u32>,
    /// The dirty slots that the current poll works on.
    dirty_now: Vec<u32>,
    /// Slots that every poll receives from.
    hot: Vec<u32>,
    /// Slots with a deadline.
    timed: Vec<u32>,
    /// Peers that the next poll closes.
    closing: Vec<PeerId>,
    /// Abandoned reads, reported by the next poll.
    abandoned: Vec<(PeerId, u64)>,
    half_open: usize,
    lingering: usize,
    polls: u32,
    /// Bytes moved since the last epoll wait.
    bytes_moved: usize,
    /// The next poll waits on epoll and reads the clock.
    force_wait: bool,
    /// The last epoll wait left connection requests unserved.
    has_connect_backlog: bool,
    /// The last poll sent or received something.
    has_moved_bytes: bool,
}

impl Iwarp {
    /// Creates a fabric without peers.
    ///
    /// # Errors
    /// No epoll descriptor is available, or the limit of messages is not permitted.
    pub fn new(config: IwarpConfig) -> io::Result<Self> {
        if !is_message_limit(config.message_bytes_max) {
            return Err(message_limit_error(config.message_bytes_max));
        }
        Ok(Self {
            config: Arc::new(config),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listeners: Vec::new(),
            acceptor: None,
            listen_resume_at: None,
            memory: RegionTable::default(),
            keys: KeySource::default(),
            peers: PeerTable::new(PEERS_MAX),
            scratch: Scratch::new(),
            dirty: Vec::new(),
            dirty_now: Vec::new(),
            hot: Vec::new(),
            timed: Vec::new(),
            closing: Vec::new(),
            abandoned: Vec::new(),
            half_open: 0,
            lingering: 0,
            polls: 0,
            bytes_moved: 0,
            force_wait: false,
            has_connect_backlog: false,
            has_moved_bytes: false,
        })
    }

    /// Returns the number of mapped regions, including deregistered ones that operations in flight still use.
    #[must_use]
    pub fn mapped_region_count(&self) -> usize {
        self.memory.mapped_count()
    }

    /// Returns the number of open sockets, without listeners.
    #[must_use]
    pub fn open_socket_count(&self) -> usize {
        self.peers.len()
    }

    /// Returns the payload bytes received directly into registered memory, copied only by the kernel.
    #[must_use]
    pub fn zero_copy_bytes(&self) -> u64 {
        self.scratch.zero_copy_bytes
    }
}

/// Error of a configuration whose limit of messages is not permitted.
fn message_limit_error(bytes: usize) -> io::Error {
    let why = format!("message_bytes_max of {bytes} is no power of two from 512 to 65536");
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl Fabric for Iwarp {
    fn capabilities(&self) -> Capabilities {
        let snapshot =
            if self.config.crc { SNAPSHOT_BYTES as u64 } else { crate::iwarp::connection::GATHERED_SNAPSHOT_BYTES };
        Capabilities {
            name: "iwarp",
            work_bytes_max: WORK_BYTES_MAX,
            message_bytes_max: self.config.message_bytes_max,
            hello_bytes_max: HELLO_BYTES_MAX,
            reads_outstanding_max: usize::from(self.config.reads_outbound),
            snapshot_bytes: snapshot,
            has_atomic_words: self.config.crc,
            atomics: AtomicScope::Thread,
            can_abandon_reads: true,
            reads_overlap: true,
            has_remote_write_completion: false,
            can_report_refusals: true,
            has_admission_filter: true,
            can_seal: true,
            parts: Parts::of_user_space(self.config.crc, self.config.markers),
        }
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let (listener, bound) = socket::listen(address)?;
        if let Some(acceptor) = &self.acceptor {
            acceptor.watch(listener)?;
        } else {
            self.watch_listener(&listener)?;
            self.listeners.push(listener);
        }
        Ok(bound)
    }

    fn set_admission_filter(&mut self, filter: Box<dyn AdmissionFilter>) -> io::Result<()> {
        self.start_acceptor(filter)
    }

    fn take_admission_token(&mut self, peer: PeerId) -> Option<AdmissionToken> {
        self.peers.known(peer)?.admission_token.take()
    }

    fn connect(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError> {
        self.start_connect(address, hello, false)
    }

    fn connect_sealed(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError> {
        self.start_connect(address, hello, true)
    }

    fn seal(&mut self, peer: PeerId, sealing: Sealing) -> Result<(), FabricError> {
        self.seal_connection(peer, sealing)
    }

    fn accept(&mut self, peer: PeerId, hello: &[u8]) -> Result<(), FabricError> {
        self.answer_request(peer, hello, true)
    }

    fn reject(&mut self, peer: PeerId, reason: &[u8]) -> Result<(), FabricError> {
        self.answer_request(peer, reason, false)
    }

    fn close(&mut self, peer: PeerId) {
        if let Some(found) = self.peers.known(peer)
            && !found.closing
        {
            found.closing = true;
            self.closing.push(peer);
        }
    }

    fn register(
        &mut self,
        memory: BorrowedFd<'_>,
        trust: Trust,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionId, FabricError> {
        self.memory.register(memory, trust, offset, bytes)
    }

    fn deregister(&mut self, region: RegionId) {
        self.memory.deregister(region);
    }

    fn expose(
        &mut self,
        peer: PeerId,
        region: RegionId,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Window, FabricError> {
        let found = self.peers.known(peer).ok_or(FabricError::UnknownPeer(peer))?;
        found.connection.windows.expose(&self.memory, &mut self.keys, region, offset, bytes, rights)
    }

    fn withdraw(&mut self, peer: PeerId, key: u32) {
        if let Some(found) = self.peers.known(peer) {
            found.connection.withdraw(key, &mut self.memory);
        }
    }

    fn post(&mut self, work: &[Work<'_>]) -> Result<(), PostError> {
        for (index, work) in work.iter().enumerate() {
            let id = work.peer();
            let Some(peer) = self.peers.known(id).filter(|peer| !peer.closing) else {
                return Err(PostError { index, kind: PostErrorKind::UnknownPeer });
            };
            peer.connection.post(work, &mut self.memory).map_err(|kind| PostError { index, kind })?;
            if !peer.dirty {
                peer.dirty = true;
                self.dirty.push(id.index);
            }
        }
        Ok(())
    }

    fn abandon(&mut self, peer: PeerId, tag: u64) -> bool {
        let Some(found) = self.peers.known(peer) else { return false };
        if !found.connection.abandon(tag, &mut self.memory) {
            return false;
        }
        self.abandoned.push((peer, tag));
        true
    }

    fn poll(&mut self, events: &mut Events) -> usize {
        let before = events.len();
        self.poll_once(events);
        events.len() - before
    }

    fn has_moved_bytes(&self) -> bool {
        self.has_moved_bytes
    }

    fn arm(&mut self) -> bool {
        self.prepare_to_sleep()
    }

    fn disarm(&mut self) {
        self.force_wait = true;
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let timed = self.timed.iter().filter_map(|slot| self.peers.at(*slot)?.deadline);
        timed.chain(self.listen_resume_at).min()
    }
}

impl Drop for Iwarp {
    fn drop(&mut self) {
        // A waiting peer learns of the end from the end of the stream; unsent bytes are lost.
        let mut events = Events::new();
        for peer in self.peers.iter_mut() {
            let mut cx = Context { memory: &mut self.memory, events: &mut events };
            peer.abort(crate::events::CloseReason::Local, &mut cx);
        }
    }
}
