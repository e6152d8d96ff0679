//! The two libraries of rdma-core, opened at the first request for an adapter and never closed.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use libloading::os::unix;

use super::abi::{
    AsyncEvent, CmEvent, CmId, CompletionChannel, ConnectionParameters, Context, Cq, DeviceAttributes, EventChannel,
    Mr, Pd, PortAttributes, QpInit, SocketAddress,
};

/// Reason why no adapter is available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// rdma-core is not installed.
    #[error("rdma-core is not installed: {0}")]
    NoLibrary(String),
    /// rdma-core is older than required.
    #[error("rdma-core is too old: it has no {0}")]
    TooOld(&'static str),
    /// The libraries exist, but the kernel knows no device.
    #[error("no rdma device: {0}")]
    NoDevice(String),
}

macro_rules! table {
    ($($field:ident in $library:ident: fn($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// Functions of the libraries, by their own names.
        pub(super) struct Library {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl Library {
            fn open() -> Result<Self, Unavailable> {
                // Never closed: the functions are called until the process ends.
                let verbs = ManuallyDrop::new(open("libibverbs.so.1")?);
                let cm = ManuallyDrop::new(open("librdmacm.so.1")?);
                $(
                    // SAFETY: the symbol is a function of this name in a library whose names guarantee this type
                    // (`infiniband/verbs.h`, `rdma/rdma_cma.h`).
                    let found = unsafe {
                        $library!(verbs, cm).get::<unsafe extern "C" fn($($argument),*) $(-> $answer)?>(stringify!($field))
                    };
                    let $field = *found.map_err(|_| Unavailable::TooOld(stringify!($field)))?;
                )*
                Ok(Self { $($field),* })
            }
        }
    };
}

macro_rules! verbs {
    ($verbs:ident, $cm:ident) => {
        $verbs
    };
}
macro_rules! cm {
    ($verbs:ident, $cm:ident) => {
        $cm
    };
}

table! {
    ibv_query_device in verbs: fn(*mut Context, *mut DeviceAttributes) -> c_int;
    ibv_query_port in verbs: fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    ibv_alloc_pd in verbs: fn(*mut Context) -> *mut Pd;
    ibv_dealloc_pd in verbs: fn(*mut Pd) -> c_int;
    ibv_reg_mr in verbs: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    ibv_dereg_mr in verbs: fn(*mut Mr) -> c_int;
    ibv_create_comp_channel in verbs: fn(*mut Context) -> *mut CompletionChannel;
    ibv_destroy_comp_channel in verbs: fn(*mut CompletionChannel) -> c_int;
    ibv_create_cq in verbs: fn(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut Cq;
    ibv_destroy_cq in verbs: fn(*mut Cq) -> c_int;
    ibv_get_cq_event in verbs: fn(*mut CompletionChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events in verbs: fn(*mut Cq, u32);
    ibv_get_async_event in verbs: fn(*mut Context, *mut AsyncEvent) -> c_int;
    ibv_ack_async_event in verbs: fn(*mut AsyncEvent);
    rdma_get_devices in cm: fn(*mut c_int) -> *mut *mut Context;
    rdma_free_devices in cm: fn(*mut *mut Context);
    rdma_create_event_channel in cm: fn() -> *mut EventChannel;
    rdma_destroy_event_channel in cm: fn(*mut EventChannel);
    rdma_create_id in cm: fn(*mut EventChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
    rdma_destroy_id in cm: fn(*mut CmId) -> c_int;
    rdma_bind_addr in cm: fn(*mut CmId, *mut SocketAddress) -> c_int;
    rdma_listen in cm: fn(*mut CmId, c_int) -> c_int;
    rdma_resolve_addr in cm: fn(*mut CmId, *mut SocketAddress, *mut SocketAddress, c_int) -> c_int;
    rdma_resolve_route in cm: fn(*mut CmId, c_int) -> c_int;
    rdma_create_qp in cm: fn(*mut CmId, *mut Pd, *mut QpInit) -> c_int;
    rdma_destroy_qp in cm: fn(*mut CmId);
    rdma_connect in cm: fn(*mut CmId, *mut ConnectionParameters) -> c_int;
    rdma_accept in cm: fn(*mut CmId, *mut ConnectionParameters) -> c_int;
    rdma_reject in cm: fn(*mut CmId, *const c_void, u8) -> c_int;
    rdma_disconnect in cm: fn(*mut CmId) -> c_int;
    rdma_notify in cm: fn(*mut CmId, c_int) -> c_int;
    rdma_set_option in cm: fn(*mut CmId, c_int, c_int, *mut c_void, usize) -> c_int;
    rdma_get_src_port in cm: fn(*mut CmId) -> u16;
    rdma_get_cm_event in cm: fn(*mut EventChannel, *mut *mut CmEvent) -> c_int;
    rdma_ack_cm_event in cm: fn(*mut CmEvent) -> c_int;
}

impl Library {
    /// Returns the libraries, opened once for the process. A failure is permanent: a program that was started without
    /// them has to be restarted.
    pub(super) fn get() -> Result<&'static Self, Unavailable> {
        static LIBRARY: OnceLock<Result<Library, Unavailable>> = OnceLock::new();
        LIBRARY.get_or_init(Library::open).as_ref().map_err(Clone::clone)
    }
}

fn open(name: &str) -> Result<unix::Library, Unavailable> {
    // SAFETY: the libraries may run code when they are loaded, and they are made to be opened like this by programs that
    // do not link them.
    unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | unix::RTLD_GLOBAL) }
        .map_err(|error| Unavailable::NoLibrary(error.to_string()))
}

/// Converts an answer that is -1 with `errno`, an errno, or (some drivers) a negative errno.
pub(super) fn outcome(answer: c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        other => Err(io::Error::from_raw_os_error(other.wrapping_abs())),
    }
}
