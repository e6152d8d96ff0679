//! A client that sends arbitrary bytes by its own code, without the client crate. It implements the handshake itself,
//! writes anywhere in shared memory, and searches all memory that it gets for foreign data.

use ddss_core::{Completion, Entry, Operation, Outcome, Request, RequestId, SegmentId};
use ddss_ipc::{Access, LAYOUT_VERSION, SharedMemory};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Result of an attack. An error names a defence that failed.
pub(crate) type AttackResult = Result<(), String>;

/// First word of every frame.
const MAGIC: u64 = u64::from_le_bytes(*b"DDSSIPC\0");
/// Strategy words of the hello: polled rings in both directions, and message queues.
pub(crate) const RCQ: u32 = 3;
pub(crate) const RMQ: u32 = 2;
pub(crate) const MQ: u32 = 1;
/// Time limit for any event on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Offset of the channels' control lines (drawn in `crates/ddss-ipc/src/shm/layout.rs`).
pub(crate) const CONTROL: usize = 4096;
const RINGS: usize = 8192;
const RING_BYTES: usize = 4096;
pub(crate) const SLOTS: u32 = 64;

/// Content of the legitimate client's closed segment: this word, repeated.
pub(crate) const SECRET: u64 = 0x5ec2_e79b_d13f_a46d;

/// The attacker's knowledge, which exceeds that of a real one.
pub(crate) struct Target {
    pub(crate) socket: PathBuf,
    /// A segment that is not the attacker's, full of [`SECRET`].
    pub(crate) secret: SegmentId,
    /// A segment open to all users, whose lock the legitimate client holds, and the lock token.
    pub(crate) held: SegmentId,
    pub(crate) token: u64,
    /// A message queue of the legitimate client.
    pub(crate) queue: i32,
}

/// Returns a closure for `map_err` that names the failed operation.
pub(crate) fn context<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String {
    let what = what.to_owned();
    move |error| format!("{what}: {error}")
}

/// Returns an error if `holds` is true.
pub(crate) fn expect_failure(what: &str, holds: bool) -> AttackResult {
    if holds { Err(what.to_owned()) } else { Ok(()) }
}

/// Returns true if bytes contain the secret, at any alignment.
pub(crate) fn contains_secret(bytes: &[u8]) -> bool {
    let word = SECRET.to_le_bytes();
    let turned: Vec<[u8; 8]> = (0..8).map(|by| std::array::from_fn(|i| word[(i + by) % 8])).collect();
    bytes.windows(8).any(|window| turned.iter().any(|turned| window == turned))
}

/// Opens a connection to the socket, without a hello.
pub(crate) fn open_socket(target: &Target) -> Result<OwnedFd, String> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.map_err(context("no socket"))?;
    let address = SocketAddrUnix::new(&*target.socket).map_err(context("no address"))?;
    rustix::net::connect(&socket, &address).map_err(context("the socket refuses connections"))?;
    Ok(socket)
}

/// Sends one packet. Returns false if the daemon has closed the socket or accepts no more.
pub(crate) fn send_packet(socket: &OwnedFd, bytes: &[u8]) -> bool {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
}

/// Sends a packet with descriptors.
pub(crate) fn send_with_descriptors(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors))
        && rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            .is_ok()
}

/// A hello of 64 bytes.
pub(crate) fn hello(version: u32, strategy: u32, channels: u32, arena_bytes: u64) -> [u8; 64] {
    let mut frame = [0; 64];
    frame[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
    frame[8..12].copy_from_slice(&version.to_ne_bytes());
    frame[12..16].copy_from_slice(&strategy.to_ne_bytes());
    frame[16..20].copy_from_slice(&channels.to_ne_bytes());
    frame[24..32].copy_from_slice(&arena_bytes.to_ne_bytes());
    frame
}

/// The hello of a correct client.
pub(crate) fn valid_hello() -> [u8; 64] {
    hello(LAYOUT_VERSION, RCQ, 1, 64 << 10)
}

/// Waits for one packet and its descriptors. Returns empty vectors if the socket is closed, or after a time limit.
pub(crate) fn receive_packet(socket: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut frame = [0; 512];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut frame)];
    let wait = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    if !matches!(rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)), Ok(1..)) {
        return (Vec::new(), Vec::new());
    }
    let Ok(received) = rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) else {
        return (Vec::new(), Vec::new());
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    (frame[..received.bytes].to_vec(), descriptors)
}

/// Returns true if a reply is a refusal.
pub(crate) fn is_refusal(frame: &[u8]) -> bool {
    frame.len() == 256 && frame[12] == 2
}

/// A client whose socket, rings and arena the attack writes directly.
pub(crate) struct ByzantineClient {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: SharedMemory,
    pub(crate) board: SharedMemory,
    pub(crate) wake: OwnedFd,
    arena_at: usize,
    asked: u32,
}

impl ByzantineClient {
    pub(crate) fn attach(target: &Target) -> Result<Self, String> {
        Self::attach_as(target, RCQ, 1, 64 << 10).map(|(liar, _)| liar)
    }

    /// Attaches under the strategy with this number; also returns the welcome.
    pub(crate) fn attach_as(
        target: &Target,
        strategy: u32,
        channels: u32,
        arena: usize,
    ) -> Result<(Self, Vec<u8>), String> {
        let socket = open_socket(target)?;
        send_packet(&socket, &hello(LAYOUT_VERSION, strategy, channels, arena as u64));
        let (frame, descriptors) = receive_packet(&socket);
        if frame.len() != 256 || frame[12] != 1 {
            let text = frame.get(24..).map(String::from_utf8_lossy).unwrap_or_default();
            return Err(format!("was not let in: {text}"));
        }
        let descriptors = <[OwnedFd; 3]>::try_from(descriptors).map_err(|_| "no three descriptors came")?;
        let [memory, board, wake] = descriptors;
        let arena_at = RINGS + channels as usize * RING_BYTES;
        let memory = SharedMemory::from_descriptor(memory, arena_at + arena, Access::ReadWrite);
        let memory = memory.map_err(context("its memory"))?;
        let board = SharedMemory::from_descriptor(board, 4096, Access::ReadOnly).map_err(context("the board"))?;
        Ok((Self { socket, memory, board, wake, arena_at, asked: 0 }, frame))
    }

    /// Maps the client's arena.
    pub(crate) fn arena(&self) -> SharedMemory {
        let bytes = self.memory.len() - self.arena_at;
        self.memory.slice(self.arena_at, bytes).expect("it was measured when it was mapped")
    }

    /// Stores a word in the shared memory.
    pub(crate) fn store(&self, at: usize, word: u64) {
        self.memory.store(at, word, Ordering::Release).expect("the caller stays inside");
    }

    /// Fills a slot of a channel's ring as a correct client would, but with any position.
    pub(crate) fn fill(&self, channel: usize, slot: usize, entry: &Entry, position: u32) {
        let line = RINGS + channel * RING_BYTES + slot * 64;
        for (index, word) in entry.iter().enumerate().skip(1) {
            self.store(line + index * 8, *word);
        }
        self.store(line, (entry[0] & !0xffff_ffff) | u64::from(position << 1));
    }

    /// Rings the doorbell, even if the service does not sleep.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Returns the content of a slot if it is the completion of this position.
    pub(crate) fn completion(&self, channel: usize, position: u32) -> Option<Completion> {
        let line = RINGS + channel * RING_BYTES + (position - 1) as usize % SLOTS as usize * 64;
        let word = |index: usize| self.memory.load(line + index * 8, Ordering::Acquire).unwrap_or(0);
        let found = word(0);
        let there = found as u32 == position << 1 | 1;
        there.then(|| Completion::decode(&std::array::from_fn(|index| if index == 0 { found } else { word(index) })))
    }

    /// Publishes the next request of the first channel, and returns its position.
    pub(crate) fn post(&mut self, entry: &Entry) -> u32 {
        self.asked += 1;
        self.fill(0, (self.asked - 1) as usize % SLOTS as usize, entry, self.asked);
        self.ring();
        self.asked
    }

    /// Waits for the completion of a request of the first channel.
    pub(crate) fn wait(&self, position: u32) -> Result<Completion, String> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(completion) = self.completion(0, position) {
                return Ok(completion);
            }
            std::thread::yield_now();
        }
        Err(format!("request {position} was never answered"))
    }

    /// Submits on the first channel and waits for the completion.
    pub(crate) fn ask_raw(&mut self, entry: &Entry) -> Result<Completion, String> {
        let position = self.post(entry);
        self.wait(position)
    }

    pub(crate) fn ask(&mut self, operation: Operation) -> Result<Completion, String> {
        self.ask_raw(&Request::new(RequestId(u64::from(self.asked)), operation).encode())
    }

    /// Submits a forbidden request.
    pub(crate) fn is_denied(&mut self, what: &str, operation: Operation) -> AttackResult {
        let outcome = self.ask(operation)?.outcome;
        expect_failure(&format!("{what}: {outcome:?}"), outcome == Outcome::Done)
    }

    /// Waits until the daemon has disconnected the client.
    pub(crate) fn until_cut_off(&self) -> AttackResult {
        let (frame, _) = receive_packet(&self.socket);
        expect_failure("was not cut off", !frame.is_empty())?;
        expect_failure("was not cut off in time", !self.is_gone())
    }

    /// Returns true if the daemon has closed the socket.
    pub(crate) fn is_gone(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut asked = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::RDHUP)];
        let polled = rustix::event::poll(&mut asked, Some(&now));
        matches!(polled, Ok(1..)) && asked[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP)
    }

    /// Searches all memory from the daemon for foreign data.
    pub(crate) fn look_around(&self) -> AttackResult {
        for (what, memory) in [("its memory", &self.memory), ("the board", &self.board)] {
            let mut bytes = vec![0; memory.len()];
            memory.read(0, &mut bytes).map_err(context(what))?;
            expect_failure(&format!("{what} shows foreign bytes"), contains_secret(&bytes))?;
        }
        Ok(())
    }
}
