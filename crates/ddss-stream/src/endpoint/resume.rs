//! Streams that a program image inherits through `exec`.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::endpoint::Endpoint;
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

impl Endpoint {
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
