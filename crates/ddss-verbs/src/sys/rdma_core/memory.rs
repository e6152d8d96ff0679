//! Protection domains, and memory registered with the adapter.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi;
use super::abi::{Mr, Pd};
use super::adapter::Adapter;
use super::library::outcome;
use crate::sys::Mapping;

/// A protection domain: a key is valid only in its own domain.
pub(crate) struct Domain {
    adapter: Adapter,
    pd: NonNull<Pd>,
}

// SAFETY: rdma-core's functions may be called from any thread, and this is only passed to them.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

/// Access rights to registered memory. Relaxed ordering is never requested: a value that is published after a write
/// has to become visible after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) local_write: bool,
    pub(crate) remote_read: bool,
    pub(crate) remote_write: bool,
    pub(crate) remote_atomic: bool,
}

impl Access {
    fn flags(self) -> c_int {
        let one = |wanted, flag| if wanted { flag } else { 0 };
        // The adapter requires local writes where remote writes are allowed.
        one(self.local_write || self.remote_write || self.remote_atomic, abi::ACCESS_LOCAL_WRITE)
            | one(self.remote_read, abi::ACCESS_REMOTE_READ)
            | one(self.remote_write, abi::ACCESS_REMOTE_WRITE)
            | one(self.remote_atomic, abi::ACCESS_REMOTE_ATOMIC)
    }
}

impl Domain {
    pub(crate) fn new(adapter: &Adapter) -> io::Result<Arc<Self>> {
        // SAFETY: an open context.
        let pd = unsafe { (adapter.library().ibv_alloc_pd)(adapter.context()) };
        let pd = NonNull::new(pd).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { adapter: adapter.clone(), pd }))
    }

    pub(crate) fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    pub(super) fn raw(&self) -> *mut Pd {
        self.pd.as_ptr()
    }

    /// Registers a range of a mapping with the adapter. Panics if the range is outside.
    pub(crate) fn register(
        self: &Arc<Self>,
        memory: &Arc<Mapping>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> io::Result<Arc<Registered>> {
        let start = memory.span(offset as usize, bytes as usize);
        // SAFETY: `span` checked that the range lies in the mapping, which the result keeps mapped until the adapter
        // has released it.
        let mr =
            unsafe { (self.adapter.library().ibv_reg_mr)(self.raw(), start.cast(), bytes as usize, access.flags()) };
        let mr = NonNull::new(mr).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the library's answer; its keys never change.
        let made = unsafe { mr.as_ref() };
        let (local_key, remote_key) = (made.lkey, made.rkey);
        Ok(Arc::new(Registered {
            mr,
            local_key,
            remote_key,
            address: start as u64,
            bytes,
            start: offset,
            memory: Arc::clone(memory),
            domain: Arc::clone(self),
        }))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: every object of this domain holds an `Arc` of it, so none exists.
        let answer = unsafe { (self.adapter.library().ibv_dealloc_pd)(self.raw()) };
        if let Err(error) = outcome(answer) {
            tracing::warn!(%error, device = ?self.adapter, "cannot free a protection domain");
        }
    }
}

/// A range of memory that the adapter may access. It is deregistered before it is unmapped: fields drop in order.
pub(crate) struct Registered {
    mr: NonNull<Mr>,
    local_key: u32,
    remote_key: u32,
    address: u64,
    bytes: u64,
    /// Offset in the mapping.
    start: u64,
    memory: Arc<Mapping>,
    domain: Arc<Domain>,
}

// SAFETY: rdma-core's functions may be called from any thread, and the memory is shared with other processes anyway.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    pub(super) fn local_key(&self) -> u32 {
        self.local_key
    }

    /// Returns the key for peers.
    pub(crate) fn remote_key(&self) -> u32 {
        self.remote_key
    }

    /// Returns the address of the first byte, for peers and for the adapter.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the mapping, and the offset of this range in it.
    pub(crate) fn memory(&self) -> (&Mapping, usize) {
        (&self.memory, self.start as usize)
    }

    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: made by `register`, and deregistered once: every operation in flight on it held an `Arc` of it.
        let answer = unsafe { (self.domain.adapter().library().ibv_dereg_mr)(self.mr.as_ptr()) };
        if let Err(error) = outcome(answer) {
            // The adapter may still access it: then it must stay mapped.
            tracing::error!(%error, "cannot deregister memory; it stays mapped");
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}
