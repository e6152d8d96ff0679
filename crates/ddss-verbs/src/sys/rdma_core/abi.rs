//! Binary interface of rdma-core's two libraries: the used structures of `infiniband/verbs.h` and `rdma/rdma_cma.h`,
//! in the layout of 64-bit Linux.
//!
//! rdma-core guarantees that these never change (its symbols are versioned). The asserts below pin our copy; the build
//! of the emulated machine compares it with the installed headers (`tests/vm/layout.c`).

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A library object that is only passed around.
#[repr(C)]
pub(super) struct Opaque {
    _private: [u8; 0],
}

/// A function that is called through the context; the call site states its real type.
pub(super) type Untyped = Option<unsafe extern "C" fn()>;

#[repr(C)]
pub(super) struct Device {
    _ops: [Untyped; 2],
    pub(super) node_type: c_int,
    pub(super) transport_type: c_int,
    pub(super) name: [c_char; 64],
    _dev_name: [c_char; 64],
    _dev_path: [c_char; 256],
    pub(super) ibdev_path: [c_char; 256],
}

pub(super) type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut WorkCompletion) -> c_int;
pub(super) type NotifyCq = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
pub(super) type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendRequest, *mut *mut SendRequest) -> c_int;
pub(super) type PostReceive = unsafe extern "C" fn(*mut Qp, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int;

/// `struct ibv_context`, including the table of `struct ibv_context_ops`.
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    _ops_before_poll: [Untyped; 11],
    pub(super) poll_cq: Option<PollCq>,
    pub(super) req_notify_cq: Option<NotifyCq>,
    _ops_before_send: [Untyped; 12],
    pub(super) post_send: Option<PostSend>,
    pub(super) post_recv: Option<PostReceive>,
    _ops_after: [Untyped; 5],
    pub(super) cmd_fd: c_int,
    pub(super) async_fd: c_int,
    pub(super) num_comp_vectors: c_int,
    // A mutex and a pointer follow; a context is only accessed by reference.
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceAttributes {
    pub(super) fw_ver: [u8; 64],
    pub(super) node_guid: u64,
    pub(super) sys_image_guid: u64,
    pub(super) max_mr_size: u64,
    pub(super) page_size_cap: u64,
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    pub(super) hw_ver: u32,
    pub(super) max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    pub(super) device_cap_flags: c_uint,
    pub(super) max_sge: c_int,
    pub(super) max_sge_rd: c_int,
    pub(super) max_cq: c_int,
    pub(super) max_cqe: c_int,
    pub(super) max_mr: c_int,
    pub(super) max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    pub(super) max_ee_rd_atom: c_int,
    pub(super) max_res_rd_atom: c_int,
    pub(super) max_qp_init_rd_atom: c_int,
    pub(super) max_ee_init_rd_atom: c_int,
    pub(super) atomic_cap: c_int,
    _rest: [c_int; 14],
    pub(super) max_pkeys: u16,
    pub(super) local_ca_ack_delay: u8,
    pub(super) phys_port_cnt: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PortAttributes {
    pub(super) state: c_int,
    pub(super) max_mtu: c_int,
    pub(super) active_mtu: c_int,
    pub(super) gid_tbl_len: c_int,
    pub(super) port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    _counters: [u32; 2],
    _lids: [u16; 3],
    _bytes: [u8; 8],
    pub(super) link_layer: u8,
    pub(super) flags: u8,
    pub(super) port_cap_flags2: u16,
}

#[repr(C)]
pub(super) struct Pd {
    pub(super) context: *mut Context,
    pub(super) handle: u32,
}

#[repr(C)]
pub(super) struct Mr {
    pub(super) context: *mut Context,
    pub(super) pd: *mut Pd,
    pub(super) addr: *mut c_void,
    pub(super) length: usize,
    pub(super) handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

#[repr(C)]
pub(super) struct CompletionChannel {
    pub(super) context: *mut Context,
    pub(super) fd: c_int,
    pub(super) refcnt: c_int,
}

/// `struct ibv_cq`, as far as it is used.
#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
    pub(super) channel: *mut CompletionChannel,
    pub(super) cq_context: *mut c_void,
    pub(super) handle: u32,
    pub(super) cqe: c_int,
}

/// `struct ibv_qp`, as far as it is used.
#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
    pub(super) qp_context: *mut c_void,
    pub(super) pd: *mut Pd,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut Opaque,
    pub(super) handle: u32,
    pub(super) qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QpCapabilities {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

#[repr(C)]
pub(super) struct QpInit {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut Opaque,
    pub(super) cap: QpCapabilities,
    pub(super) qp_type: c_int,
    pub(super) sq_sig_all: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkCompletion {
    pub(super) wr_id: u64,
    pub(super) status: c_int,
    pub(super) opcode: c_int,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    pub(super) immediate: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_send_wr`. The union for reads, writes and atomics is declared as the four fields of atomics: the key of
/// reads and writes is at the start of `compare_add`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct SendRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut SendRequest,
    pub(super) sg_list: *mut Piece,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_int,
    pub(super) send_flags: c_uint,
    pub(super) immediate: u32,
    pub(super) remote_addr: u64,
    pub(super) compare_add: u64,
    pub(super) swap: u64,
    pub(super) atomic_rkey: u32,
    pub(super) _padding: u32,
    pub(super) _qp_type: u64,
    pub(super) _bind: [u64; 6],
}

impl SendRequest {
    /// An empty request.
    pub(super) const EMPTY: Self = Self {
        wr_id: 0,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode: 0,
        send_flags: 0,
        immediate: 0,
        remote_addr: 0,
        compare_add: 0,
        swap: 0,
        atomic_rkey: 0,
        _padding: 0,
        _qp_type: 0,
        _bind: [0; 6],
    };
}

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut ReceiveRequest,
    pub(super) sg_list: *mut Piece,
    pub(super) num_sge: c_int,
}

/// `struct ibv_async_event`: a queue pair, a completion queue or a port, and its event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct AsyncEvent {
    pub(super) element: *mut c_void,
    pub(super) event_type: c_int,
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// `struct rdma_cm_id`, as far as it is used.
#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    pub(super) channel: *mut EventChannel,
    pub(super) context: *mut c_void,
    pub(super) qp: *mut Qp,
    pub(super) source: SocketAddress,
    pub(super) target: SocketAddress,
}

/// `struct sockaddr_storage`: family, port, address.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct SocketAddress {
    pub(super) bytes: [u8; 128],
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionParameters {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// `struct rdma_cm_event`.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    pub(super) listen_id: *mut CmId,
    pub(super) event: c_int,
    pub(super) status: c_int,
    pub(super) connection: ConnectionParameters,
    // The other member of the union is longer; an event is only accessed by reference.
}

/// Vendor id of Soft-iWARP, "bmt".
pub(super) const VENDOR_SOFT_IWARP: u32 = 0x62_6d74;
/// Vendor id of Soft-RoCE: no vendor has all bits.
pub(super) const VENDOR_SOFT_ROCE: u32 = 0xff_ffff;

macro_rules! values {
    ($($name:ident = $value:expr;)*) => {
        $(pub(super) const $name: c_int = $value;)*
    };
}

values! {
    TRANSPORT_IWARP = 1;
    LINK_ETHERNET = 2;
    ATOMIC_NONE = 0;
    PORT_ACTIVE = 4;

    ACCESS_LOCAL_WRITE = 1;
    ACCESS_REMOTE_WRITE = 2;
    ACCESS_REMOTE_READ = 4;
    ACCESS_REMOTE_ATOMIC = 8;

    QP_CONNECTED = 2;

    OP_WRITE = 0;
    OP_SEND = 2;
    OP_READ = 4;
    OP_COMPARE_SWAP = 5;
    OP_FETCH_ADD = 6;

    SEND_FENCE = 1;
    SEND_SIGNALED = 2;
    SEND_SOLICITED = 4;
    SEND_INLINE = 8;

    DONE_SUCCESS = 0;
    DONE_FLUSHED = 5;
    DONE_BAD_REQUEST = 9;
    DONE_BAD_ACCESS = 10;
    DONE_BAD_OPERATION = 11;
    DONE_RETRIES = 12;
    DONE_NOT_READY = 13;

    ASYNC_CQ_ERROR = 0;
    ASYNC_QP_FATAL = 1;
    ASYNC_QP_REQUEST = 2;
    ASYNC_QP_ACCESS = 3;
    ASYNC_ESTABLISHED = 4;
    ASYNC_DEVICE_FATAL = 8;
    ASYNC_PORT_ACTIVE = 9;
    ASYNC_PORT_ERROR = 10;

    CM_ADDRESS_RESOLVED = 0;
    CM_ADDRESS_ERROR = 1;
    CM_ROUTE_RESOLVED = 2;
    CM_ROUTE_ERROR = 3;
    CM_CONNECT_REQUEST = 4;
    CM_CONNECT_ERROR = 6;
    CM_UNREACHABLE = 7;
    CM_REJECTED = 8;
    CM_ESTABLISHED = 9;
    CM_DISCONNECTED = 10;
    CM_DEVICE_REMOVAL = 11;

    CM_SPACE_TCP = 0x106;
    CM_OPTION_LEVEL_ID = 0;
    CM_OPTION_REUSE_ADDRESS = 1;
    CM_OPTION_ACK_TIMEOUT = 3;
}

/// Asserts the offsets of fields and the sizes of structures: the same numbers are in `tests/vm/layout.c`.
macro_rules! pinned {
    ($($type:ident { $($field:ident = $offset:literal),* $(,)? } $(size = $size:literal)?;)*) => {
        $(
            $(const _: () = assert!(std::mem::offset_of!($type, $field) == $offset);)*
            $(const _: () = assert!(size_of::<$type>() == $size);)?
        )*
    };
}

pinned! {
    Device { node_type = 16, transport_type = 20, name = 24, ibdev_path = 408 } size = 664;
    Context { device = 0, poll_cq = 96, req_notify_cq = 104, post_send = 208, post_recv = 216, cmd_fd = 264, async_fd = 268, num_comp_vectors = 272 };
    DeviceAttributes { max_mr_size = 80, max_qp = 108, max_qp_wr = 112, max_cqe = 132, max_mr = 136, max_qp_rd_atom = 144, max_qp_init_rd_atom = 156, atomic_cap = 164, max_pkeys = 224, phys_port_cnt = 227 } size = 232;
    PortAttributes { state = 0, active_mtu = 8, gid_tbl_len = 12, max_msg_sz = 20, link_layer = 46, flags = 47, port_cap_flags2 = 48 } size = 52;
    Pd { context = 0, handle = 8 } size = 16;
    Mr { context = 0, pd = 8, addr = 16, length = 24, handle = 32, lkey = 36, rkey = 40 } size = 48;
    CompletionChannel { context = 0, fd = 8, refcnt = 12 } size = 16;
    Cq { context = 0, channel = 8, cq_context = 16, handle = 24, cqe = 28 };
    Qp { context = 0, pd = 16, send_cq = 24, recv_cq = 32, handle = 48, qp_num = 52 };
    QpCapabilities { max_send_wr = 0, max_inline_data = 16 } size = 20;
    QpInit { send_cq = 8, recv_cq = 16, srq = 24, cap = 32, qp_type = 52, sq_sig_all = 56 } size = 64;
    WorkCompletion { wr_id = 0, status = 8, opcode = 12, byte_len = 20, qp_num = 28, wc_flags = 36 } size = 48;
    Piece { addr = 0, length = 8, lkey = 12 } size = 16;
    SendRequest { wr_id = 0, next = 8, sg_list = 16, num_sge = 24, opcode = 28, send_flags = 32, immediate = 36, remote_addr = 40, compare_add = 48, swap = 56, atomic_rkey = 64 } size = 128;
    ReceiveRequest { wr_id = 0, next = 8, sg_list = 16, num_sge = 24 } size = 32;
    AsyncEvent { element = 0, event_type = 8 } size = 16;
    EventChannel { fd = 0 } size = 4;
    CmId { verbs = 0, channel = 8, context = 16, qp = 24, source = 32, target = 160 };
    SocketAddress { bytes = 0 } size = 128;
    ConnectionParameters { private_data = 0, private_data_len = 8, responder_resources = 9, initiator_depth = 10, flow_control = 11, retry_count = 12, rnr_retry_count = 13, srq = 14, qp_num = 16 } size = 24;
    CmEvent { id = 0, listen_id = 8, event = 16, status = 20, connection = 24 };
}
