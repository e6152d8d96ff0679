//! Streams that a program image inherits through `exec`.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::endpoint::{Endpoint, SHARED};
use crate::reason::Reason;
use crate::sys::{self, Descriptor, Hidden, HiddenDescriptor, Link};

impl Endpoint {
    /// Takes over the stream whose memory an earlier image left at `memory`. The program's descriptors of it are among `sockets`, pairs of
    /// number and inode. Returns the end and the number of its side's first descriptor.
    ///
    /// Descriptors that belong to no inherited socket are closed.
    pub fn inherited(memory: RawFd, sockets: &[(RawFd, u64)]) -> Option<(Self, u64)> {
        let link = Link::open(Descriptor(memory)).ok()?;
        let found = (0..2).find_map(|side| {
            let inode = link.header().sides[side].inode.load(Ordering::Relaxed);
            let is_here = link.header().sides[side].hidden[0].load(Ordering::Relaxed) == memory as u32 + 1;
            (is_here && sockets.iter().any(|(_, other)| *other == inode)).then_some((side, inode))
        });
        let Some((side, inode)) = found else {
            link.unmap();
            HiddenDescriptor::adopt(memory).close();
            return None;
        };
        let Some(endpoint) = Self::allocate(side as u32) else {
            link.unmap();
            return None;
        };
        let places = [Hidden::Memory, Hidden::Bell, Hidden::PeerBell, Hidden::Control];
        for (place, word) in places.into_iter().zip(&link.header().sides[side].hidden) {
            let number = word.load(Ordering::Relaxed);
            if number > 0 && number < 65_536 {
                endpoint.local().set_hidden(place, HiddenDescriptor::adopt(number as RawFd - 1));
            }
        }
        // An image that was started past this library was not counted. One count too many only means that the kernel alone tells the end.
        link.header().sides[side].processes.fetch_add(1, Ordering::Relaxed);
        endpoint.local().set_link(link);
        endpoint.shared().reason.store(Reason::SharedMemory as u32, Ordering::Relaxed);
        endpoint.shared().state.store(SHARED, Ordering::Release);
        let _ = sys::high_water(Some(endpoint.index()));
        Some((endpoint, inode))
    }
}
