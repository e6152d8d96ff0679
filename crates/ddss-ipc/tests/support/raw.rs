//! A byzantine client: it performs the handshake without the library and writes anywhere.

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

/// First word of every frame.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"DDSSIPC\0");

/// Offsets in the memory of a client with one channel and one slot of arena (see `shm/layout.rs`).
pub(crate) const CONTROL: usize = 4096;
pub(crate) const RING: usize = 8192;
pub(crate) const MEMORY_BYTES: usize = 12288 + 4096;

/// Opens a connection without sending anything.
pub(crate) fn connect(path: &Path) -> OwnedFd {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Sends one packet. Returns false if the connection is closed.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8]) -> bool {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL).is_ok()
}

/// Returns a hello of 64 bytes.
pub(crate) fn hello(version: u32, strategy: u32, channels: u32, arena_bytes: u64) -> [u8; 64] {
    let mut frame = [0; 64];
    frame[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
    frame[8..12].copy_from_slice(&version.to_ne_bytes());
    frame[12..16].copy_from_slice(&strategy.to_ne_bytes());
    frame[16..20].copy_from_slice(&channels.to_ne_bytes());
    frame[24..32].copy_from_slice(&arena_bytes.to_ne_bytes());
    frame
}

/// Waits for one packet and its descriptors; empty if the connection is closed.
pub(crate) fn receive(socket: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
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

/// Returns the text of a refusal.
pub(crate) fn refusal(frame: &[u8]) -> String {
    assert_eq!(frame.len(), 256, "an answer");
    assert_eq!(frame[12], 2, "a refusal");
    let bytes = frame[20] as usize;
    String::from_utf8(frame[24..24 + bytes].to_vec()).unwrap()
}

/// Sends descriptors along with a packet.
pub(crate) fn send_with_descriptors(socket: &OwnedFd, bytes: &[u8], descriptors: &[std::os::fd::BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(descriptors)));
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// A client with one channel and direct access to its memory.
pub(crate) struct ByzantineClient {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: SharedMemory,
    pub(crate) service_page: SharedMemory,
    pub(crate) wake: OwnedFd,
}

impl ByzantineClient {
    pub(crate) fn attach(path: &Path) -> Self {
        let rcq = 3;
        Self::attach_as(path, rcq).0
    }

    /// Attaches under the strategy of that code. Returns the welcome as well.
    pub(crate) fn attach_as(path: &Path, strategy: u32) -> (Self, Vec<u8>) {
        let socket = connect(path);
        assert!(send(&socket, &hello(LAYOUT_VERSION, strategy, 1, 4096)));
        let (frame, descriptors) = receive(&socket);
        assert_eq!((frame.len(), frame[12]), (256, 1), "a welcome");
        let [memory, service_page, wake] = <[OwnedFd; 3]>::try_from(descriptors).unwrap();
        let memory = SharedMemory::from_descriptor(memory, MEMORY_BYTES, Access::ReadWrite).unwrap();
        let service_page = SharedMemory::from_descriptor(service_page, 4096, Access::ReadOnly).unwrap();
        (Self { socket, memory, service_page, wake }, frame)
    }

    /// Fills a slot with a request as a ring does, at any position.
    pub(crate) fn publish(&self, slot: usize, position: u32, value: u64) {
        let line = RING + slot * 64;
        self.memory.store(line + 8, value, Ordering::Relaxed).unwrap();
        self.memory.store(line + 24, 0, Ordering::Relaxed).unwrap();
        self.memory.store(line, u64::from(position << 1), Ordering::Release).unwrap();
        self.ring_doorbell();
    }

    /// Rings the doorbell, whether the service sleeps or not.
    pub(crate) fn ring_doorbell(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Returns the position of the completion in a slot; zero if there is none.
    pub(crate) fn completion(&self, slot: usize) -> u32 {
        let sequence = self.memory.load(RING + slot * 64, Ordering::Acquire).unwrap() as u32;
        if sequence & 1 == 1 { sequence >> 1 } else { 0 }
    }

    /// Waits until the daemon has disconnected the client.
    pub(crate) fn wait_for_disconnect(&self) {
        let (frame, _) = receive(&self.socket);
        assert!(frame.is_empty(), "the end of the socket");
    }
}
