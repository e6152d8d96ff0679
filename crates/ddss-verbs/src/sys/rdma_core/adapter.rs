//! Devices: which there are, what they can do, and what happens to them.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi;
use super::abi::{AsyncEvent, Context, DeviceAttributes, PortAttributes};
use super::async_events;
use super::library::{Library, Unavailable, outcome};

/// The library's list of opened devices: they stay open as long as it is not given back.
struct List {
    library: &'static Library,
    contexts: NonNull<*mut Context>,
}

// SAFETY: the list is read only, and rdma-core's functions may be called from any thread.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the library made the list, and whoever has a context of it also has an `Arc` of this.
        unsafe { (self.library.rdma_free_devices)(self.contexts.as_ptr()) };
    }
}

/// One device, open.
#[derive(Clone)]
pub(crate) struct Adapter {
    list: Arc<List>,
    context: NonNull<Context>,
}

// SAFETY: the context is kept open by the list, and rdma-core's functions may be called from any thread.
unsafe impl Send for Adapter {}
// SAFETY: as above.
unsafe impl Sync for Adapter {}

/// What a device can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdapterFacts {
    pub(crate) is_iwarp: bool,
    /// The kernel's own, which looks at memory in the order in which it was asked.
    pub(crate) is_software: bool,
    pub(crate) has_atomics: bool,
    pub(crate) work_max: u32,
    pub(crate) completions_max: u32,
    /// Reads and atomics of others under way here, and ours elsewhere.
    pub(crate) reads_inbound_max: u32,
    pub(crate) reads_outbound_max: u32,
    pub(crate) ports: u8,
}

/// What a port is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortFacts {
    pub(crate) is_active: bool,
    pub(crate) is_ethernet: bool,
    pub(crate) mtu_bytes: u32,
    pub(crate) message_bytes_max: u32,
}

/// Something that happened to the device and not to one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsyncNotice {
    /// To a connection, whose [`Trouble`](super::Trouble) knows it now.
    Noted,
    PortUp(u32),
    PortDown(u32),
    DeviceLost,
    Other(i32),
}

impl Adapter {
    /// All devices that the kernel knows.
    pub(crate) fn all() -> Result<Vec<Self>, Unavailable> {
        let library = Library::get()?;
        let mut count: c_int = 0;
        // SAFETY: the count is ours; the answer is a list that stays valid until `rdma_free_devices`.
        let contexts = unsafe { (library.rdma_get_devices)(&raw mut count) };
        let Some(contexts) = NonNull::new(contexts) else {
            return Err(Unavailable::NoDevice(io::Error::last_os_error().to_string()));
        };
        let list = Arc::new(List { library, contexts });
        let count = usize::try_from(count).unwrap_or(0);
        let mut found = Vec::with_capacity(count);
        for index in 0..count {
            let at = contexts.as_ptr().wrapping_add(index);
            // SAFETY: the library said that the list has `count` entries.
            if let Some(context) = NonNull::new(unsafe { *at }) {
                found.push(Self { list: Arc::clone(&list), context });
            }
        }
        if found.is_empty() { Err(Unavailable::NoDevice("the kernel's list is empty".to_owned())) } else { Ok(found) }
    }

    pub(super) fn library(&self) -> &'static Library {
        self.list.library
    }

    pub(super) fn context(&self) -> *mut Context {
        self.context.as_ptr()
    }

    /// The context's fields, most of which never change; those that others write are behind pointers.
    pub(super) fn view(&self) -> &Context {
        // SAFETY: open as long as the list is, and the fields that we know are written only when it is opened.
        unsafe { self.context.as_ref() }
    }

    /// Its name, such as `mlx5_0`.
    pub(crate) fn name(&self) -> String {
        let device = self.view().device;
        // SAFETY: a context's device lives as long as the context, and its name never changes.
        let name = unsafe { &raw const (*device).name };
        // SAFETY: the kernel's names are C strings shorter than the field.
        unsafe { CStr::from_ptr(name.cast()) }.to_string_lossy().into_owned()
    }

    fn is_iwarp(&self) -> bool {
        let device = self.view().device;
        // SAFETY: as for the name.
        let transport = unsafe { (*device).transport_type };
        transport == abi::TRANSPORT_IWARP
    }

    pub(crate) fn facts(&self) -> io::Result<AdapterFacts> {
        let mut found = std::mem::MaybeUninit::<DeviceAttributes>::zeroed();
        // SAFETY: an open context, and room for the answer.
        let answer = unsafe { (self.library().ibv_query_device)(self.context(), found.as_mut_ptr()) };
        outcome(answer)?;
        // SAFETY: zeroed before and filled by the library; plain numbers have no invalid values.
        let found = unsafe { found.assume_init() };
        let number = |value: c_int| u32::try_from(value).unwrap_or(0);
        Ok(AdapterFacts {
            is_iwarp: self.is_iwarp(),
            is_software: [abi::VENDOR_SOFT_IWARP, abi::VENDOR_SOFT_ROCE].contains(&found.vendor_id),
            has_atomics: found.atomic_cap != abi::ATOMIC_NONE,
            work_max: number(found.max_qp_wr),
            completions_max: number(found.max_cqe),
            reads_inbound_max: number(found.max_qp_rd_atom),
            reads_outbound_max: number(found.max_qp_init_rd_atom),
            ports: found.phys_port_cnt,
        })
    }

    /// What one of its ports (they are numbered from 1) is like.
    pub(crate) fn port(&self, number: u8) -> io::Result<PortFacts> {
        let mut found = std::mem::MaybeUninit::<PortAttributes>::zeroed();
        // SAFETY: an open context, and room for an answer of today's length, of which the function fills what it knows.
        let answer = unsafe { (self.library().ibv_query_port)(self.context(), number, found.as_mut_ptr()) };
        outcome(answer)?;
        // SAFETY: zeroed before and filled by the library; plain numbers have no invalid values.
        let found = unsafe { found.assume_init() };
        Ok(PortFacts {
            is_active: found.state == abi::PORT_ACTIVE,
            is_ethernet: i32::from(found.link_layer) == abi::LINK_ETHERNET,
            mtu_bytes: 128_u32.checked_shl(u32::try_from(found.active_mtu).unwrap_or(0)).unwrap_or(0),
            message_bytes_max: found.max_msg_sz,
        })
    }

    /// Readable when something happened to the device or one of its queues. Nobody is kept waiting by a read of it.
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let fd = self.view().async_fd;
        // SAFETY: the context's own descriptor, open as long as the context is, which `self` keeps.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::ioctl_fionbio(fd, true)?;
        Ok(fd)
    }

    /// The next thing that happened, if any. What concerns one queue is noted in its trouble, whoever of this process
    /// owns it: the descriptor is shared by everybody who uses the device.
    pub(crate) fn next_notice(&self) -> Option<AsyncNotice> {
        let mut event = AsyncEvent { element: std::ptr::null_mut(), event_type: -1 };
        // SAFETY: an open context, and room for the answer. The descriptor does not block.
        let answer = unsafe { (self.library().ibv_get_async_event)(self.context(), &raw mut event) };
        if answer != 0 {
            return None;
        }
        let port = event.element as usize as u32;
        let notice = match event.event_type {
            abi::ASYNC_PORT_ACTIVE => AsyncNotice::PortUp(port),
            abi::ASYNC_PORT_ERROR => AsyncNotice::PortDown(port),
            abi::ASYNC_DEVICE_FATAL => AsyncNotice::DeviceLost,
            abi::ASYNC_CQ_ERROR
            | abi::ASYNC_QP_FATAL
            | abi::ASYNC_QP_REQUEST
            | abi::ASYNC_QP_ACCESS
            | abi::ASYNC_ESTABLISHED => {
                async_events::note(event.element as usize, event.event_type);
                AsyncNotice::Noted
            }
            other => AsyncNotice::Other(other),
        };
        // SAFETY: the event that was just taken, acknowledged once; its queue is not destroyed before that.
        unsafe { (self.library().ibv_ack_async_event)(&raw mut event) };
        Some(notice)
    }
}

impl PartialEq for Adapter {
    fn eq(&self, other: &Self) -> bool {
        self.context == other.context
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())
    }
}
