//! Event channel of the connection manager.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi::EventChannel;
use super::library::{Library, Unavailable};

/// Event channel of the connection manager.
pub(crate) struct CmEventChannel {
    library: &'static Library,
    channel: NonNull<EventChannel>,
}

// SAFETY: rdma-core's functions may be called from any thread.
unsafe impl Send for CmEventChannel {}
// SAFETY: as above.
unsafe impl Sync for CmEventChannel {}

impl CmEventChannel {
    pub(crate) fn new() -> Result<Arc<Self>, Unavailable> {
        let library = Library::get()?;
        // SAFETY: no arguments; the call makes a descriptor.
        let channel = unsafe { (library.rdma_create_event_channel)() };
        let gone = || Unavailable::NoDevice(io::Error::last_os_error().to_string());
        let channel = NonNull::new(channel).ok_or_else(gone)?;
        let cm_events = Arc::new(Self { library, channel });
        rustix::io::ioctl_fionbio(cm_events.descriptor(), true)
            .map_err(|error| Unavailable::NoDevice(error.to_string()))?;
        Ok(cm_events)
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn raw(&self) -> *mut EventChannel {
        self.channel.as_ptr()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel's descriptor, which never changes.
        let fd = unsafe { (*self.raw()).fd };
        // SAFETY: open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for CmEventChannel {
    fn drop(&mut self) {
        // SAFETY: every endpoint of the channel holds an `Arc` of it, so all of them are gone.
        unsafe { (self.library.rdma_destroy_event_channel)(self.raw()) };
    }
}
