//! Unix sockets of the handshake: packets with descriptors, and detection of the peer's end.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::time::Timespec;

/// Maximum of descriptors in one packet.
pub(crate) const DESCRIPTORS_MAX: usize = 4;

fn fresh() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Listens at a path without a socket.
pub(crate) fn listen(path: &Path, backlog: i32) -> Result<OwnedFd, Errno> {
    let socket = fresh()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Adopts an inherited socket after checking that clients of `path` connect to it.
pub(crate) fn adopt(listener: &OwnedFd, path: &Path) -> Result<(), String> {
    let wrong = |errno: Errno| format!("cannot use the inherited socket: {errno}");
    let kind = rustix::net::sockopt::socket_type(listener).map_err(wrong)?;
    if kind != SocketType::SEQPACKET || !rustix::net::sockopt::socket_acceptconn(listener).map_err(wrong)? {
        return Err(
            "the inherited socket does not listen for packets: set ListenSequentialPacket= in its unit".to_owned()
        );
    }
    let address = SocketAddrUnix::try_from(rustix::net::getsockname(listener).map_err(wrong)?).map_err(wrong)?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let found = address.path().map(|found| std::path::PathBuf::from(std::ffi::OsStr::from_bytes(found.to_bytes())));
    if found.as_deref().map(real) != Some(real(path)) {
        let found = found.map_or_else(|| "nowhere".to_owned(), |found| found.display().to_string());
        return Err(format!("the inherited socket listens at {found}, but clients connect to {}", path.display()));
    }
    rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::CLOEXEC).map_err(wrong)?;
    rustix::io::ioctl_fionbio(listener, true).map_err(wrong)
}

/// Accepts one connection, if there is one.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// Connects. A full backlog is retried until the deadline.
pub(crate) fn connect(path: &Path, deadline: Instant) -> Result<OwnedFd, Errno> {
    const RETRY: Duration = Duration::from_millis(1);
    let address = SocketAddrUnix::new(path)?;
    let socket = fresh()?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY),
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
            Err(errno) => return Err(errno),
        }
    }
}

/// Sends one packet with descriptors; never blocks.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = rustix::io::retry_on_intr(|| rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags))?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// Receives one packet without descriptors (the kernel closes any that came along). Zero bytes is the end.
pub(crate) fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    // With TRUNC the kernel returns the packet's real length, which reveals an oversized packet.
    rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut *into, flags)).map(|(_, bytes)| bytes)
}

/// Receives one packet with its descriptors.
pub(crate) fn receive_with_descriptors(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received =
        rustix::io::retry_on_intr(|| rustix::net::recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags))?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    Ok((received.bytes, descriptors))
}

/// Waits until a packet, or the end, is there. Returns false at the deadline.
pub(crate) fn wait_readable(socket: BorrowedFd<'_>, deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = timespec(deadline.saturating_duration_since(Instant::now()));
        let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        match rustix::event::poll(&mut asked, Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Returns true if the peer is connected.
pub(crate) fn is_open(socket: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut asked, Some(&now)) {
        Ok(0) => true,
        Ok(_) => !asked[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
        Err(_) => true,
    }
}

/// Ends the connection for both sides, even if other processes hold the descriptor.
pub(crate) fn shut(socket: &OwnedFd) {
    // It only fails when the peer is gone already, which is the goal.
    let _ = rustix::net::shutdown(socket.as_fd(), rustix::net::Shutdown::Both);
}

/// Converts a duration for the kernel.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
