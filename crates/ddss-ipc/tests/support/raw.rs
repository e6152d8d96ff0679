//! A client that keeps to no rule: it shakes hands by hand and writes where it likes.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use ddss_ipc::{Access, LAYOUT_VERSION, SharedMemory};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

/// The first word of every frame.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"DDSSIPC\0");

/// Where things lie in the memory of a client with one lane and one slot of arena (drawn in `shm/layout.rs`).
pub(crate) const CONTROL: usize = 4096;
pub(crate) const RING: usize = 8192;
pub(crate) const MEMORY_BYTES: usize = 12288 + 4096;

/// A connection to the door, nothing said yet.
pub(crate) fn knock(path: &Path) -> OwnedFd {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Sends one packet; false when the door is shut.
pub(crate) fn say(socket: &OwnedFd, bytes: &[u8]) -> bool {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL).is_ok()
}

/// A hello of 64 bytes.
pub(crate) fn hello(version: u32, strategy: u32, lanes: u32, arena_bytes: u64) -> [u8; 64] {
    let mut frame = [0; 64];
    frame[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
    frame[8..12].copy_from_slice(&version.to_ne_bytes());
    frame[12..16].copy_from_slice(&strategy.to_ne_bytes());
    frame[16..20].copy_from_slice(&lanes.to_ne_bytes());
    frame[24..32].copy_from_slice(&arena_bytes.to_ne_bytes());
    frame
}

/// Waits for one packet and its descriptors; empty when the door was shut.
pub(crate) fn hear(socket: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut frame = [0; 512];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut frame)];
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

/// The text of a refusal.
pub(crate) fn refusal(frame: &[u8]) -> String {
    assert_eq!(frame.len(), 256, "an answer");
    assert_eq!(frame[12], 2, "a refusal");
    let bytes = frame[20] as usize;
    String::from_utf8(frame[24..24 + bytes].to_vec()).unwrap()
}

/// Sends descriptors along with a packet.
pub(crate) fn say_with(socket: &OwnedFd, bytes: &[u8], descriptors: &[std::os::fd::BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(descriptors)));
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// A client with one lane, all of it in the open.
pub(crate) struct Liar {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: SharedMemory,
    pub(crate) board: SharedMemory,
    pub(crate) wake: OwnedFd,
}

impl Liar {
    pub(crate) fn attach(path: &Path) -> Self {
        let rcq = 3;
        Self::attach_as(path, rcq).0
    }

    /// Attaches under the strategy of that number; gives the welcome as well.
    pub(crate) fn attach_as(path: &Path, strategy: u32) -> (Self, Vec<u8>) {
        let socket = knock(path);
        assert!(say(&socket, &hello(LAYOUT_VERSION, strategy, 1, 4096)));
        let (frame, descriptors) = hear(&socket);
        assert_eq!((frame.len(), frame[12]), (256, 1), "a welcome");
        let [memory, board, wake] = <[OwnedFd; 3]>::try_from(descriptors).unwrap();
        let memory = SharedMemory::from_descriptor(memory, MEMORY_BYTES, Access::ReadWrite).unwrap();
        let board = SharedMemory::from_descriptor(board, 4096, Access::ReadOnly).unwrap();
        (Self { socket, memory, board, wake }, frame)
    }

    /// Fills a slot with a request the way that a ring does, with whatever position.
    pub(crate) fn publish(&self, slot: usize, position: u32, value: u64) {
        let line = RING + slot * 64;
        self.memory.store(line + 8, value, Ordering::Relaxed).unwrap();
        self.memory.store(line + 24, 0, Ordering::Relaxed).unwrap();
        self.memory.store(line, u64::from(position << 1), Ordering::Release).unwrap();
        self.ring();
    }

    /// Rings, whether the service sleeps or not.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// The position of the completion in a slot; zero as long as there is none.
    pub(crate) fn completion(&self, slot: usize) -> u32 {
        let sequence = self.memory.load(RING + slot * 64, Ordering::Acquire).unwrap() as u32;
        if sequence & 1 == 1 { sequence >> 1 } else { 0 }
    }

    /// Waits until the daemon has cut it off.
    pub(crate) fn until_cut_off(&self) {
        let (frame, _) = hear(&self.socket);
        assert!(frame.is_empty(), "the end of the socket");
    }
}
