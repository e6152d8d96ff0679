//! Adapter resources of one peer: its protection domain, the memory of its messages, its windows, and the memory of
//! transfers to and from it.

mod slot_layout;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::frame::AtomicOp;
use super::regions::Regions;
use crate::fabric::{FabricError, Rights, Window};
use crate::id::RegionId;
use crate::limits::WINDOWS_PER_PEER_MAX;
use crate::sys::Mapping;
use crate::sys::rdma_core::{Access, Adapter, Channel, Completions, Domain, Endpoint, QueueDepths, Registered};
use crate::terminate_code::TerminateCode;

pub(super) use slot_layout::SlotLayout;

/// Writes and messages up to this length travel inside the work request.
const INLINE_BYTES: u32 = 64;

/// Part of a region that the peer may access.
struct OpenWindow {
    region: RegionId,
    rights: Rights,
    registered: Arc<Registered>,
}

/// Adapter resources of one peer.
pub(super) struct PeerResources {
    windows: HashMap<u32, OpenWindow>,
    /// Registrations by region index.
    local: Vec<Option<(RegionId, Arc<Registered>)>>,
    layout: SlotLayout,
    slots: Arc<Registered>,
    domain: Arc<Domain>,
    /// True if the adapter writes read responses with remote access rights, which an iWARP adapter may require.
    needs_remote_write_sinks: bool,
    adapter_atomics: bool,
}

impl PeerResources {
    pub(super) fn new(
        adapter: &Adapter,
        layout: SlotLayout,
        needs_remote_write_sinks: bool,
        adapter_atomics: bool,
    ) -> io::Result<Self> {
        let domain = Domain::new(adapter)?;
        let memory = Arc::new(Mapping::private(layout.bytes() as usize)?);
        let slots = domain.register(&memory, 0, layout.bytes(), Access { local_write: true, ..Access::default() })?;
        Ok(Self {
            windows: HashMap::new(),
            local: Vec::new(),
            layout,
            slots,
            domain,
            needs_remote_write_sinks,
            adapter_atomics,
        })
    }

    /// Creates the queue pair of the peer and posts its receive slots.
    pub(super) fn make_queue(&self, endpoint: &mut Endpoint, channel: &Arc<Channel>, in_order: bool) -> io::Result<()> {
        let (sends, receives) = (self.layout.count() as u32, self.layout.receives() as u32);
        let receive_bytes = self.layout.frame_bytes() as u32;
        let depths = QueueDepths { sends, receives, receive_bytes, inline_bytes: INLINE_BYTES };
        let completions = Completions::new(channel, sends + receives)?;
        endpoint.make_queue(&self.domain, completions, depths, Arc::clone(&self.slots), in_order)
    }

    /// Returns the memory of an outgoing message.
    pub(super) fn send_slot(&self, token: usize) -> (&Arc<Registered>, u64) {
        (&self.slots, self.layout.send_slot(token))
    }

    /// Returns the memory for the result of an atomic.
    pub(super) fn word_slot(&self, token: usize) -> (Arc<Registered>, u64) {
        (Arc::clone(&self.slots), self.layout.word_slot(token))
    }

    /// Copies bytes to a message's memory.
    pub(super) fn fill(&self, offset: u64, bytes: &[u8]) {
        let (memory, start) = self.slots.memory();
        memory.copy_in(start + offset as usize, bytes);
    }

    /// Reads the result of an atomic.
    pub(super) fn word(&self, token: usize) -> u64 {
        let (memory, start) = self.slots.memory();
        let mut word = [0; 8];
        memory.copy_out(start + self.layout.word_slot(token) as usize, &mut word);
        u64::from_ne_bytes(word)
    }

    /// Returns a region as registered for this peer; the first use registers it.
    pub(super) fn local(&mut self, regions: &Regions, region: RegionId) -> Option<io::Result<&Arc<Registered>>> {
        let index = region.index as usize;
        // Entries here are still registered: `forget` removes the others.
        if self.local.get(index).and_then(Option::as_ref).is_none_or(|(known, _)| *known != region) {
            let mapping = regions.get(region)?;
            let access = Access { local_write: true, remote_write: self.needs_remote_write_sinks, ..Access::default() };
            let made = match self.domain.register(mapping, 0, mapping.bytes() as u64, access) {
                Ok(made) => made,
                Err(error) => return Some(Err(error)),
            };
            self.local.resize_with(self.local.len().max(index + 1), || None);
            self.local[index] = Some((region, made));
        }
        self.local[index].as_ref().map(|(_, registered)| Ok(registered))
    }

    pub(super) fn expose(
        &mut self,
        regions: &Regions,
        region: RegionId,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Window, FabricError> {
        let mapping = regions.get(region).ok_or(FabricError::UnknownRegion(region))?;
        let end = offset.checked_add(bytes).filter(|end| *end <= mapping.bytes() as u64);
        if end.is_none() || bytes == 0 {
            return Err(FabricError::OutOfBounds { offset, bytes });
        }
        if self.windows.len() >= WINDOWS_PER_PEER_MAX {
            return Err(FabricError::Full("window"));
        }
        let access = Access {
            local_write: false,
            remote_read: rights.contains(Rights::READ),
            remote_write: rights.contains(Rights::WRITE),
            // A word has one unit that executes atomics: if that is the thread, the adapter gets no right to it.
            remote_atomic: self.adapter_atomics && rights.contains(Rights::ATOMIC),
        };
        let registered = self
            .domain
            .register(mapping, offset, bytes, access)
            .map_err(|error| FabricError::System("register memory with the adapter", explain_lock_limit(error)))?;
        let window = Window { key: registered.remote_key(), base: registered.address(), bytes };
        self.windows.insert(window.key, OpenWindow { region, rights, registered });
        Ok(window)
    }

    /// Closes a window; returns whether it existed.
    pub(super) fn withdraw(&mut self, key: u32) -> bool {
        self.windows.remove(&key).is_some()
    }

    /// Removes a deregistered region. Operations in flight keep their registrations.
    pub(super) fn forget(&mut self, region: RegionId) {
        self.windows.retain(|_, opening| opening.region != region);
        if let Some(place) = self.local.get_mut(region.index as usize) {
            place.take_if(|(known, _)| *known == region);
        }
    }

    /// Executes an atomic of the peer.
    pub(super) fn change(&self, key: u32, address: u64, change: AtomicOp) -> Result<u64, TerminateCode> {
        if self.adapter_atomics {
            return Err(TerminateCode::RDMAP_OPCODE);
        }
        let opening = self.windows.get(&key).ok_or(TerminateCode::RDMAP_KEY)?;
        let end = address.checked_add(8).ok_or(TerminateCode::RDMAP_WRAP)?;
        let registered = &opening.registered;
        if !opening.rights.contains(Rights::ATOMIC) {
            return Err(TerminateCode::RDMAP_RIGHTS);
        }
        let offset = address.checked_sub(registered.address()).ok_or(TerminateCode::RDMAP_BOUNDS)?;
        if end > registered.address() + registered.bytes() {
            return Err(TerminateCode::RDMAP_BOUNDS);
        }
        let (memory, start) = registered.memory();
        let offset = start + offset as usize;
        if !offset.is_multiple_of(8) {
            return Err(TerminateCode::RDMAP_UNSPECIFIED);
        }
        Ok(memory.update(offset, |word| match change {
            AtomicOp::CompareSwap { compare, swap } => (word == compare).then_some(swap),
            AtomicOp::FetchAdd { add } => Some(word.wrapping_add(add)),
        }))
    }
}

/// Names the limit behind the kernel's "out of memory".
pub(super) fn explain_lock_limit(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return error;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let limit = limit.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{bytes} bytes"));
    io::Error::other(format!(
        "{error}: the limit on locked memory is {limit}; raise it (ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit)"
    ))
}
