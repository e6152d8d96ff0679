//! Processes that use a stream: those that `fork` creates, the close of the last one, and program images that inherit it through
//! `exec`.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::endpoint::{Endpoint, FREE, NEXT, each_used};
use crate::forks;
use crate::reason::Reason;
use crate::sys::{self, Descriptor, Hidden, HiddenDescriptor, Link};

/// A descriptor that a new image found open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inherited {
    /// Number of the descriptor.
    pub number: RawFd,
    /// Inode behind it.
    pub inode: u64,
    /// Kind of the descriptor.
    pub kind: InheritedKind,
}

/// Kind of an inherited descriptor, as the kernel names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InheritedKind {
    /// Memory that only one end of a stream has.
    Own,
    /// Memory of a stream that both ends have.
    Memory,
    /// Bell.
    Bell,
    /// Socket of any family.
    Socket,
}

impl Inherited {
    /// Looks at a descriptor with this link in `/proc/self/fd`. `None`: no stream needs it.
    #[must_use]
    pub fn look(number: RawFd, link: &str) -> Option<Self> {
        let kind = match link {
            "/memfd:ddss-stream-own (deleted)" => InheritedKind::Own,
            "/memfd:ddss-stream (deleted)" => InheritedKind::Memory,
            "anon_inode:[eventfd]" => InheritedKind::Bell,
            link if link.starts_with("socket:") => InheritedKind::Socket,
            _ => return None,
        };
        let inode = rustix::fs::fstat(Descriptor(number)).ok()?.st_ino;
        Some(Self { number, inode, kind })
    }
}

impl Drop for Endpoint {
    #[inline]
    fn drop(&mut self) {
        if self.local().users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.free();
        }
    }
}

impl Endpoint {
    /// Counts one more process for every stream of this process; called before `fork`. No stream begins until [`after_fork`](Self::after_fork).
    pub fn before_fork() {
        forks::before_fork();
        each_used(|endpoint| {
            endpoint.count_process();
        });
    }

    /// Lets streams begin again, in the process that forked.
    pub fn after_fork() {
        forks::after_fork();
    }

    /// Counts this process, which its parent made past the library. It waits for no decision: the parent may be gone.
    pub fn count_child() {
        each_used(|endpoint| _ = endpoint.processes().fetch_add(1, Ordering::SeqCst));
    }

    /// Takes the count of a failed `fork` back.
    pub fn after_failed_fork() {
        each_used(|endpoint| {
            endpoint.uncount_process();
        });
    }

    /// Counts a process that will inherit this stream past `fork`. Until it is counted, a close of the parent would mark the stream as
    /// closed, and the peer would discard what it writes.
    ///
    /// A decision of another thread ends before, so that the count reaches the memory that it makes. The next one finds two processes.
    pub fn count_process(&self) {
        let is_held = self.hold();
        self.processes().fetch_add(1, Ordering::SeqCst);
        if is_held {
            self.release();
        }
    }

    /// Takes the count of a process back that was not started.
    pub fn uncount_process(&self) {
        // A stream that another thread made after the count keeps its own process.
        let _ =
            self.processes().fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count > 1).then(|| count - 1));
    }

    /// Returns true if no other process that was counted uses this end.
    #[must_use]
    pub fn is_last_process(&self) -> bool {
        self.processes().load(Ordering::SeqCst) <= 1
    }

    fn processes(&self) -> &'static AtomicU32 {
        match self.local().link() {
            Some(link) if self.is_shared() => &link.own().processes,
            _ => &self.shared().processes,
        }
    }

    /// Prepares the close of the program's last descriptor: unread bytes make it a reset, as the kernel does.
    pub fn before_close(&self, socket: Descriptor) {
        // One use is the caller's, one is the table's.
        self.reset_if_unread(socket, 2);
    }

    /// Prepares the close of a socket whose only use is this one.
    pub(crate) fn before_drop(&self, socket: Descriptor) {
        self.reset_if_unread(socket, 1);
    }

    fn reset_if_unread(&self, socket: Descriptor, last_uses: u32) {
        let Some(link) = self.local().link().filter(|_| self.is_shared()) else { return };
        let is_last = self.local().users.load(Ordering::Relaxed) <= last_uses
            && link.own().processes.load(Ordering::Relaxed) <= 1;
        let unread = self.filled(link).is_ok_and(|span| span.bytes > 0);
        if is_last && unread {
            let _ = rustix::net::sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO));
        }
    }

    fn free(&self) {
        let (shared, local) = (self.shared(), self.local());
        let is_last = match local.take_link() {
            Some(link) => {
                let is_last = link.own().processes.fetch_sub(1, Ordering::AcqRel) == 1;
                if is_last {
                    link.header().sides[link.side()].is_closed.store(1, Ordering::Release);
                    self.ring_peer();
                }
                link.unmap();
                is_last
            }
            None => shared.processes.fetch_sub(1, Ordering::AcqRel) == 1,
        };
        for place in [Hidden::Own, Hidden::Memory, Hidden::Bell, Hidden::Control, Hidden::Listener] {
            local.close_hidden(place);
        }
        if is_last && !self.is_entry_lost() {
            shared.state.store(FREE, Ordering::Release);
        }
        NEXT.store(self.index(), Ordering::Relaxed);
    }

    /// Takes over the stream of which an earlier image left its own memory at `own`. Returns the end and the inode of its socket.
    ///
    /// The own memory says which descriptors belong to the stream. A program may have received memory that only looks like it, so that
    /// each of them must be of the right kind, and hidden: no program gets such a number from the kernel. Memory of a stream without an
    /// inherited socket is closed.
    #[must_use]
    pub fn inherited(own: RawFd, found: &[Inherited]) -> Option<(Self, u64)> {
        use InheritedKind as Kind;
        let at = |number: RawFd, kind: Kind| {
            let is_hidden = number >= HiddenDescriptor::lowest();
            found.iter().find(|other| is_hidden && other.number == number && other.kind == kind)
        };
        at(own, Kind::Own)?;
        let words = Link::handover(Descriptor(own)).ok()?;
        let [listed, memory, bell, control] = words.hidden.map(|word| (word as RawFd).wrapping_sub(1));
        if listed != own || at(memory, Kind::Memory).is_none() {
            return None;
        }
        let is_inherited = found.iter().any(|other| other.kind == Kind::Socket && other.inode == words.inode);
        if !is_inherited || at(bell, Kind::Bell).is_none() || at(control, Kind::Socket).is_none() {
            for number in [own, memory] {
                HiddenDescriptor::adopt(number).close();
            }
            return None;
        }
        let endpoint = Self::allocate(words.side)?;
        let link = Link::inherit(Descriptor(own), Descriptor(memory)).ok()?;
        for (place, number) in
            [(Hidden::Own, own), (Hidden::Memory, memory), (Hidden::Bell, bell), (Hidden::Control, control)]
        {
            endpoint.local().set_hidden(place, HiddenDescriptor::adopt(number));
        }
        // An image that was started past this library was not counted. One count too many only means that the kernel alone tells the end.
        link.own().processes.fetch_add(1, Ordering::Relaxed);
        endpoint.local().set_link(link);
        endpoint.shared().reason.store(Reason::SharedMemory as u32, Ordering::Relaxed);
        endpoint.leave_tcp();
        let _ = sys::high_water(Some(endpoint.index()));
        Some((endpoint, words.inode))
    }
}
