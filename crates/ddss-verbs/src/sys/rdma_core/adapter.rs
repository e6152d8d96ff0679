//! Devices: their list, their limits, and their events.

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

/// The library's list of opened devices: they stay open until the list is freed.
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
        // SAFETY: the library made the list, and each holder of one of its contexts also has an `Arc` of this value.
        unsafe { (self.library.rdma_free_devices)(self.contexts.as_ptr()) };
    }
}

/// One open device.
#[derive(Clone)]
pub(crate) struct Adapter {
    list: Arc<List>,
    context: NonNull<Context>,
}

// SAFETY: the list keeps the context open, and rdma-core's functions may be called from any thread.
unsafe impl Send for Adapter {}
// SAFETY: as above.
unsafe impl Sync for Adapter {}

/// Capabilities and limits of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdapterAttributes {
    pub(crate) is_iwarp: bool,
    /// True for the kernel's software devices, which access memory in request order.
    pub(crate) is_software: bool,
    pub(crate) has_atomics: bool,
    pub(crate) work_max: u32,
    pub(crate) completions_max: u32,
    /// Reads and atomics of peers in flight here, and local ones in flight to peers.
    pub(crate) reads_inbound_max: u32,
    pub(crate) reads_outbound_max: u32,
    pub(crate) ports: u8,
}

/// Attributes of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortState {
    pub(crate) is_active: bool,
    pub(crate) is_ethernet: bool,
    pub(crate) mtu_bytes: u32,
    pub(crate) message_bytes_max: u32,
}

/// Event of the device, as opposed to one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsyncNotice {
    /// Event of a connection, recorded in its [`AsyncErrors`](super::async_events::AsyncErrors).
    Recorded,
    PortUp(u32),
    PortDown(u32),
    DeviceLost,
    Other(i32),
}

impl Adapter {
    /// Lists all devices that the kernel knows.
    pub(crate) fn list() -> Result<Vec<Self>, Unavailable> {
        let library = Library::get()?;
        let mut count: c_int = 0;
        // SAFETY: the count is a local; the answer is a list that stays valid until `rdma_free_devices`.
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
        if found.is_empty() { Err(Unavailable::NoDevice("the kernel lists no device".to_owned())) } else { Ok(found) }
    }

    pub(super) fn library(&self) -> &'static Library {
        self.list.library
    }

    pub(super) fn context(&self) -> *mut Context {
        self.context.as_ptr()
    }

    /// Returns the context's fields, most of which never change; the fields that others write are behind pointers.
    pub(super) fn view(&self) -> &Context {
        // SAFETY: open as long as the list is, and the used fields are written only when the context is opened.
        unsafe { self.context.as_ref() }
    }

    /// Returns the device name, such as `mlx5_0`.
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

    pub(crate) fn attributes(&self) -> io::Result<AdapterAttributes> {
        let mut found = std::mem::MaybeUninit::<DeviceAttributes>::zeroed();
        // SAFETY: an open context, and room for the answer.
        let answer = unsafe { (self.library().ibv_query_device)(self.context(), found.as_mut_ptr()) };
        outcome(answer)?;
        // SAFETY: zeroed before and filled by the library; plain numbers have no invalid values.
        let found = unsafe { found.assume_init() };
        let number = |value: c_int| u32::try_from(value).unwrap_or(0);
        Ok(AdapterAttributes {
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

    /// Queries a port; ports are numbered from 1.
    pub(crate) fn port(&self, number: u8) -> io::Result<PortState> {
        let mut found = std::mem::MaybeUninit::<PortAttributes>::zeroed();
        // SAFETY: an open context, and room for an answer of today's length, of which the function fills what it
        // knows.
        let answer = unsafe { (self.library().ibv_query_port)(self.context(), number, found.as_mut_ptr()) };
        outcome(answer)?;
        // SAFETY: zeroed before and filled by the library; plain numbers have no invalid values.
        let found = unsafe { found.assume_init() };
        Ok(PortState {
            is_active: found.state == abi::PORT_ACTIVE,
            is_ethernet: i32::from(found.link_layer) == abi::LINK_ETHERNET,
            mtu_bytes: 128_u32.checked_shl(u32::try_from(found.active_mtu).unwrap_or(0)).unwrap_or(0),
            message_bytes_max: found.max_msg_sz,
        })
    }

    /// Returns a non-blocking descriptor that is readable after an event of the device or one of its queues.
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let fd = self.view().async_fd;
        // SAFETY: the context's own descriptor, open as long as the context, which `self` keeps open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::ioctl_fionbio(fd, true)?;
        Ok(fd)
    }

    /// Returns the next event, if any. An event of a queue is recorded in that queue's error set, regardless of its
    /// owner in this process: all users of the device share the descriptor.
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
                async_events::record(event.element as usize, event.event_type);
                AsyncNotice::Recorded
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
