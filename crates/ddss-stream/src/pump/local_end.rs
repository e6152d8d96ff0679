//! The pump's end of the socket pair.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, recvmsg, send,
    shutdown, socketpair,
};

use super::handover::keep_byte;

/// Bytes that stay unread.
const KEPT: usize = 1;

/// The pump's end of the socket pair of one program.
///
/// ```text
/// queue of the kernel:  kept byte, new bytes ...      the kept byte was forwarded before (the first one is the library's)
/// a read takes          kept byte, new bytes but the last; the last is copied and stays as the kept byte
/// ```
///
/// A close with an unread byte resets the program's end. Only an end in order takes the kept byte before.
///
/// ```
/// use std::io::Read;
/// use std::os::unix::net::UnixStream;
///
/// use ddss_stream::pump::LocalEnd;
///
/// let (program, pump) = LocalEnd::pair()?;
/// drop(pump);
/// let error = UnixStream::from(program).read(&mut [0; 8]).unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct LocalEnd {
    socket: OwnedFd,
    /// True once the program writes no more: everything it wrote is in the queue.
    has_ended: bool,
    /// True once the program has no descriptor of its end left.
    is_closed: bool,
    /// True once the program reads no more.
    is_refusing: bool,
    /// True once the program closed its end with bytes unread.
    is_reset: bool,
}

impl LocalEnd {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, has_ended: false, is_closed: false, is_refusing: false, is_reset: false }
    }

    /// Returns a program's end, and the pump's.
    ///
    /// # Errors
    /// The system has no descriptor or memory for it.
    pub fn pair() -> io::Result<(OwnedFd, Self)> {
        let (pumps, programs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        keep_byte(&programs)?;
        Ok((programs, Self::new(pumps)))
    }

    /// Takes what `epoll` reports.
    pub fn note(&mut self, events: EventFlags) {
        self.has_ended |= events.intersects(EventFlags::RDHUP | EventFlags::HUP);
        self.is_closed |= events.contains(EventFlags::HUP);
        if events.contains(EventFlags::ERR) {
            self.is_reset |= !matches!(rustix::net::sockopt::socket_error(&self.socket), Ok(Ok(())));
        }
    }

    /// Returns true if the program wrote bytes that were not read, or ended.
    pub(super) fn has_news(&self) -> bool {
        self.has_ended || self.unread().is_ok_and(|bytes| bytes > 0)
    }

    /// Returns true once the program has no descriptor of its end left.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn is_refusing(&self) -> bool {
        self.is_refusing
    }

    pub(super) fn is_reset(&self) -> bool {
        self.is_reset
    }

    fn unread(&self) -> io::Result<usize> {
        Ok((rustix::io::ioctl_fionread(&self.socket)? as usize).saturating_sub(KEPT))
    }

    /// Reads bytes of the program: `Some(0)` at the end, `None` if there are none yet.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        // The end is looked at first: bytes that came before it are then in the queue.
        let has_ended = self.has_ended;
        let wanted = self.unread()?.min(room.len());
        if wanted == 0 {
            return Ok(has_ended.then_some(0));
        }
        let mut kept = [0; KEPT];
        let mut parts = [IoSliceMut::new(&mut kept), IoSliceMut::new(&mut room[..wanted - 1])];
        let message = recvmsg(&self.socket, &mut parts, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT)?;
        let Some(taken) = message.bytes.checked_sub(KEPT) else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        let last = &mut room[taken..=taken];
        match recv(&self.socket, last, RecvFlags::DONTWAIT | RecvFlags::PEEK)? {
            (1, _) => Ok(Some(taken + 1)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes bytes for the program. `None`: it has to read first. Bytes for a program that reads no more are dropped, as TCP does.
    ///
    /// # Errors
    /// The kernel refuses the write.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        if self.is_refusing {
            return Ok(Some(bytes.len()));
        }
        loop {
            match send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(Some(sent)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    self.is_refusing = true;
                    return Ok(Some(bytes.len()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tells the program that the peer writes no more.
    pub fn shutdown_write(&self) {
        // A failure means that the program is gone.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Closes the end of a stream whose directions both ended. Without this call a drop resets the program's end.
    pub fn close_in_order(self) {
        let _ = recv(&self.socket, &mut [0; KEPT][..], RecvFlags::DONTWAIT);
    }
}

impl AsFd for LocalEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (LocalEnd, UnixStream) {
        let (programs, pumps) = LocalEnd::pair().unwrap();
        (pumps, programs.into())
    }

    // If this failed, bytes would be lost or doubled where the pump leaves one unread.
    #[test]
    fn every_byte_is_read_once_with_room_of_any_size() {
        for room in [1, 2, 3, 7, 100] {
            let (mut local, mut program) = pair();
            let (mut sent, mut got, mut buffer) = (Vec::new(), Vec::new(), vec![0; room]);
            for piece in 0..40_usize {
                let bytes: Vec<u8> = (0..piece % 9).map(|at| (piece * 16 + at) as u8).collect();
                program.write_all(&bytes).unwrap();
                sent.extend(bytes);
                while let Some(bytes) = local.read(&mut buffer).unwrap() {
                    got.extend_from_slice(&buffer[..bytes]);
                }
            }
            assert_eq!(got, sent);
            drop(program);
            local.note(EventFlags::RDHUP);
            assert_eq!(local.read(&mut buffer).unwrap(), Some(0));
        }
    }

    // If this failed, a program would take the death of its pump for the end of the stream.
    #[test]
    fn only_an_end_in_order_is_an_end_for_the_program() {
        let (mut local, mut program) = pair();
        local.write(b"cut").unwrap();
        local.shutdown_write();
        drop(local);
        let mut bytes = Vec::new();
        let error = program.read_to_end(&mut bytes).unwrap_err();
        assert_eq!((bytes.as_slice(), error.kind()), (&b"cut"[..], io::ErrorKind::ConnectionReset));

        let (mut local, mut program) = pair();
        program.write_all(b"question").unwrap();
        assert_eq!(local.read(&mut [0; 64]).unwrap(), Some(8));
        local.write(b"whole").unwrap();
        local.shutdown_write();
        local.close_in_order();
        let mut bytes = Vec::new();
        program.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"whole");
    }

    // If this failed, a program that sends files would wait for ever: the kept byte would keep too much memory.
    #[test]
    fn program_that_filled_its_end_can_write_again_once_it_is_read() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4 << 20).unwrap();
        for is_file in [true, false] {
            let (mut local, program) = pair();
            program.set_nonblocking(true).unwrap();
            let (mut offset, mut sent, mut got, mut room) = (0, 0, 0, vec![0; 64 << 10]);
            for _ in 0..20 {
                loop {
                    let result = if is_file {
                        rustix::fs::sendfile(&program, &file, Some(&mut offset), 4 << 20)
                    } else {
                        rustix::io::write(&program, &room)
                    };
                    match result {
                        Ok(bytes) => sent += bytes,
                        Err(error) => break assert_eq!(error, Errno::AGAIN),
                    }
                    offset %= 1 << 20;
                }
                while let Some(bytes) = local.read(&mut room).unwrap() {
                    got += bytes;
                }
                let long = Timespec { tv_sec: 20, tv_nsec: 0 };
                let writable = poll(&mut [PollFd::new(&program, PollFlags::OUT)], Some(&long)).unwrap();
                assert_eq!((writable, got), (1, sent));
            }
        }
    }
}
