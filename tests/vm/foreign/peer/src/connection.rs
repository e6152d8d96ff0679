//! One reliable connection by rdma_cm, with a window that the peer may access.
//!
//! The program has one connection and ends with it, so the kernel frees all resources.

use std::io;
use std::mem::zeroed;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use rdma_sys::*;

/// Bytes of the window that the peer may access.
const WINDOW_BYTES: usize = 4096;
/// Messages that the peer may send before the first one is received, and the bytes of each.
const RECEIVES: usize = 16;
const RECEIVE_BYTES: usize = 1024;
/// The word for the results of atomics, behind the window and the messages.
const RESULT_AT: usize = WINDOW_BYTES + RECEIVES * RECEIVE_BYTES;
const MEMORY_BYTES: usize = RESULT_AT + 8;
/// Longest wait for a completion.
const WAIT_MAX: Duration = Duration::from_secs(20);
const RESOLVE_MS: i32 = 10_000;

/// Reason why an operation did not succeed.
pub(crate) enum Failure {
    /// The adapter completed it with this status.
    Status(u32),
    /// The adapter refused the operation.
    Refused(i32),
    /// The connection is over.
    Disconnected,
    /// The program cannot continue.
    Broken(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Broken(error)
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Read,
    Write,
    Send,
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

/// Memory that the peer may access.
pub(crate) struct Window {
    pub(crate) key: u32,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// Ends the process after this many seconds.
pub(crate) fn end_after(seconds: u32) {
    // SAFETY: the signal has its default effect, which ends the process.
    unsafe { libc::alarm(seconds) };
}

fn check(result: i32, what: &str) -> io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(io::Error::new(error.kind(), format!("{what}: {error}")))
}

fn check_pointer<T>(pointer: *mut T, what: &str) -> io::Result<*mut T> {
    check(if pointer.is_null() { -1 } else { 0 }, what).map(|()| pointer)
}

fn socket_address(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// An id of the connection manager whose calls wait for their end.
fn new_id() -> io::Result<*mut rdma_cm_id> {
    let mut id = null_mut();
    // SAFETY: without an event channel the library makes one for this id; `id` outlives the call.
    let made = unsafe { rdma_create_id(null_mut(), &mut id, null_mut(), rdma_port_space::RDMA_PS_TCP) };
    check(made, "rdma_create_id")?;
    Ok(id)
}

fn connection_parameters() -> rdma_conn_param {
    // SAFETY: the structure consists of numbers and of a pointer, for which null means no private data.
    let mut parameters: rdma_conn_param = unsafe { zeroed() };
    // The maximum number of concurrent reads of the adapter.
    (parameters.responder_resources, parameters.initiator_depth) = (u8::MAX, u8::MAX);
    (parameters.retry_count, parameters.rnr_retry_count) = (7, 7);
    parameters
}

/// Waits for one connection.
pub(crate) struct Listener(*mut rdma_cm_id);

impl Listener {
    pub(crate) fn new(address: Ipv4Addr) -> io::Result<Self> {
        let id = new_id()?;
        let mut address = socket_address(SocketAddrV4::new(address, 0));
        // SAFETY: `id` exists, and the address outlives the call, which copies it.
        check(unsafe { rdma_bind_addr(id, (&raw mut address).cast()) }, "rdma_bind_addr")?;
        // SAFETY: `id` exists and is bound.
        check(unsafe { rdma_listen(id, 1) }, "rdma_listen")?;
        Ok(Self(id))
    }

    pub(crate) fn port(&self) -> u16 {
        // SAFETY: the id exists. The library returns the port as it travels.
        u16::from_be(unsafe { rdma_get_src_port(self.0) })
    }

    pub(crate) fn accept(self) -> io::Result<Connection> {
        let mut id = null_mut();
        // SAFETY: the id listens; `id` outlives the call.
        check(unsafe { rdma_get_request(self.0, &mut id) }, "rdma_get_request")?;
        let connection = Connection::prepare(id)?;
        // SAFETY: the id belongs to a request and has a queue pair; the call copies the parameters.
        check(unsafe { rdma_accept(id, &mut connection_parameters()) }, "rdma_accept")?;
        Ok(connection)
    }
}

/// A connection, from the request on.
pub(crate) struct Connection {
    id: *mut rdma_cm_id,
    memory: *mut u8,
    window: *mut ibv_mr,
    /// The rest of the memory, which the peer may not access.
    private: *mut ibv_mr,
    has_atomics: bool,
    is_over: bool,
}

impl Connection {
    pub(crate) fn connect(source: Ipv4Addr, address: SocketAddrV4) -> io::Result<Self> {
        let id = new_id()?;
        let mut source = socket_address(SocketAddrV4::new(source, 0));
        let mut address = socket_address(address);
        let (source, address) = ((&raw mut source).cast(), (&raw mut address).cast());
        // SAFETY: `id` exists, and both addresses outlive the call, which copies them.
        check(unsafe { rdma_resolve_addr(id, source, address, RESOLVE_MS) }, "rdma_resolve_addr")?;
        // SAFETY: `id` exists and has an address.
        check(unsafe { rdma_resolve_route(id, RESOLVE_MS) }, "rdma_resolve_route")?;
        let connection = Self::prepare(id)?;
        // SAFETY: `id` has a route and a queue pair; the call copies the parameters.
        check(unsafe { rdma_connect(id, &mut connection_parameters()) }, "rdma_connect")?;
        Ok(connection)
    }

    /// Makes the queue pair and the memory of an id that has a device, and posts its receives.
    fn prepare(id: *mut rdma_cm_id) -> io::Result<Self> {
        // SAFETY: the structure consists of numbers and of pointers that may be null.
        let mut queues: ibv_qp_init_attr = unsafe { zeroed() };
        (queues.qp_type, queues.sq_sig_all) = (ibv_qp_type::IBV_QPT_RC, 1);
        (queues.cap.max_send_wr, queues.cap.max_recv_wr) = (8, RECEIVES as u32);
        (queues.cap.max_send_sge, queues.cap.max_recv_sge) = (1, 1);
        // SAFETY: the id has a device. Without a domain and completion queues the library makes them.
        check(unsafe { rdma_create_qp(id, null_mut(), &mut queues) }, "rdma_create_qp")?;
        // SAFETY: the structure consists of numbers and bytes.
        let mut device: ibv_device_attr = unsafe { zeroed() };
        // SAFETY: the id has a device, and the structure outlives the call.
        check(unsafe { ibv_query_device((*id).verbs, &mut device) }, "ibv_query_device")?;
        let has_atomics = device.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE;

        let memory = vec![0_u64; MEMORY_BYTES / 8].leak().as_mut_ptr().cast::<u8>();
        let local = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        let mut remote = local | ibv_access_flags::IBV_ACCESS_REMOTE_READ | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        if has_atomics {
            remote = remote | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        }
        let register = |offset: usize, bytes: usize, access: ibv_access_flags| {
            // SAFETY: the range is inside the memory, which is never freed; `prepare` made the domain.
            let region = unsafe { ibv_reg_mr((*id).pd, memory.add(offset).cast(), bytes, access.0 as i32) };
            check_pointer(region, "ibv_reg_mr")
        };
        let window = register(0, WINDOW_BYTES, remote)?;
        let private = register(WINDOW_BYTES, MEMORY_BYTES - WINDOW_BYTES, local)?;
        let connection = Self { id, memory, window, private, has_atomics, is_over: false };
        for slot in 0..RECEIVES {
            connection.post_receive(slot)?;
        }
        Ok(connection)
    }

    pub(crate) fn window(&self) -> Window {
        // SAFETY: the registration is never removed.
        let key = unsafe { (*self.window).rkey };
        Window { key, address: self.memory as u64, bytes: WINDOW_BYTES }
    }

    pub(crate) fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    pub(crate) fn fill(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let target = self.inside(offset, bytes.len())?;
        // SAFETY: the range was checked, and no operation on it is in flight: commands run one after another.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    pub(crate) fn show(&self, offset: usize, count: usize) -> io::Result<Vec<u8>> {
        self.inside(offset, count).map(|source| copy_out(source, count))
    }

    fn inside(&self, offset: usize, count: usize) -> io::Result<*mut u8> {
        let fits = offset.checked_add(count).is_some_and(|end| end <= WINDOW_BYTES);
        // SAFETY: the offset is inside the memory.
        if fits { Ok(unsafe { self.memory.add(offset) }) } else { Err(io::Error::other("outside the window")) }
    }

    /// Reads, writes or sends bytes of the window.
    pub(crate) fn transfer(
        &mut self,
        operation: Operation,
        key: u32,
        address: u64,
        offset: usize,
        count: usize,
    ) -> Result<(), Failure> {
        let place = self.inside(offset, count)?;
        // SAFETY: the registration is never removed.
        let lkey = unsafe { (*self.window).lkey };
        self.execute(operation, key, address, ibv_sge { addr: place as u64, length: count as u32, lkey })
    }

    /// Changes a word of the peer; returns the word before.
    pub(crate) fn change(&mut self, operation: Operation, key: u32, address: u64) -> Result<u64, Failure> {
        // SAFETY: the word lies at the end of the memory.
        let place = unsafe { self.memory.add(RESULT_AT) };
        // SAFETY: the registration is never removed.
        let lkey = unsafe { (*self.private).lkey };
        self.execute(operation, key, address, ibv_sge { addr: place as u64, length: 8, lkey })?;
        let word = copy_out(place, 8).try_into().map(u64::from_ne_bytes);
        Ok(word.expect("eight bytes were copied"))
    }

    /// Posts an operation and waits for its completion.
    fn execute(
        &mut self,
        operation: Operation,
        rkey: u32,
        remote_addr: u64,
        mut local: ibv_sge,
    ) -> Result<(), Failure> {
        // SAFETY: the structure consists of numbers, pointers that may be null, and unions of those.
        let mut work: ibv_send_wr = unsafe { zeroed() };
        (work.sg_list, work.num_sge) = (&mut local, 1);
        match operation {
            Operation::Read | Operation::Write => work.wr.rdma = rdma_t { remote_addr, rkey },
            Operation::Send => {}
            Operation::CompareSwap { compare, swap } => {
                work.wr.atomic = atomic_t { remote_addr, compare_add: compare, swap, rkey };
            }
            Operation::FetchAdd { add } => {
                work.wr.atomic = atomic_t { remote_addr, compare_add: add, swap: 0, rkey };
            }
        }
        work.opcode = match operation {
            Operation::Read => ibv_wr_opcode::IBV_WR_RDMA_READ,
            Operation::Write => ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            Operation::Send => ibv_wr_opcode::IBV_WR_SEND,
            Operation::CompareSwap { .. } => ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
            Operation::FetchAdd { .. } => ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
        };
        let mut bad = null_mut();
        // SAFETY: the queue pair exists, and the adapter copies the request. Its memory is never freed.
        let posted = unsafe { ibv_post_send((*self.id).qp, &mut work, &mut bad) };
        if posted != 0 {
            return Err(Failure::Refused(posted.abs()));
        }
        // SAFETY: the id has a queue pair, and so completion queues.
        let queue = unsafe { (*self.id).send_cq };
        self.wait(queue).map(drop)
    }

    /// Waits for a message.
    pub(crate) fn receive(&mut self) -> Result<Vec<u8>, Failure> {
        // SAFETY: the id has a queue pair, and so completion queues.
        let queue = unsafe { (*self.id).recv_cq };
        let done = self.wait(queue)?;
        let slot = done.wr_id as usize;
        let bytes = copy_out(self.slot(slot), (done.byte_len as usize).min(RECEIVE_BYTES));
        self.post_receive(slot)?;
        Ok(bytes)
    }

    fn slot(&self, slot: usize) -> *mut u8 {
        // SAFETY: there is room for `RECEIVES` messages behind the window.
        unsafe { self.memory.add(WINDOW_BYTES + slot * RECEIVE_BYTES) }
    }

    fn post_receive(&self, slot: usize) -> io::Result<()> {
        // SAFETY: the registration is never removed.
        let lkey = unsafe { (*self.private).lkey };
        let mut place = ibv_sge { addr: self.slot(slot) as u64, length: RECEIVE_BYTES as u32, lkey };
        let mut work = ibv_recv_wr { wr_id: slot as u64, next: null_mut(), sg_list: &mut place, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the queue pair exists, and the adapter copies the request. Its memory is never freed.
        let posted = unsafe { ibv_post_recv((*self.id).qp, &mut work, &mut bad) };
        if posted == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(posted.abs())) }
    }

    /// Waits for one completion, or for the end of the connection: Soft-iWARP leaves what was in flight without one.
    fn wait(&mut self, queue: *mut ibv_cq) -> Result<ibv_wc, Failure> {
        let start = Instant::now();
        // SAFETY: the structure consists of numbers.
        let mut done: ibv_wc = unsafe { zeroed() };
        loop {
            // SAFETY: the queue exists, and there is room for the one completion that is asked for.
            match unsafe { ibv_poll_cq(queue, 1, &mut done) } {
                0 if self.is_disconnected() => return Err(Failure::Disconnected),
                0 if start.elapsed() > WAIT_MAX => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
                0 => std::thread::yield_now(),
                1 if done.status == ibv_wc_status::IBV_WC_SUCCESS => return Ok(done),
                1 => return Err(Failure::Status(done.status)),
                _ => return Err(io::Error::other("ibv_poll_cq").into()),
            }
        }
    }

    /// Returns true if the connection manager has reported the end of the connection.
    fn is_disconnected(&mut self) -> bool {
        // SAFETY: the library has made a channel for this id.
        let channel = unsafe { (*self.id).channel };
        // SAFETY: as above.
        let mut ready = libc::pollfd { fd: unsafe { (*channel).fd }, events: libc::POLLIN, revents: 0 };
        // SAFETY: there is one entry, and the call does not wait.
        if !self.is_over && unsafe { libc::poll(&mut ready, 1, 0) } == 1 {
            let mut event = null_mut();
            // SAFETY: the channel exists and has an event, so that the call does not wait.
            if unsafe { rdma_get_cm_event(channel, &mut event) } == 0 {
                // SAFETY: the event exists until it is acknowledged.
                self.is_over = unsafe { (*event).event } == rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED;
                // SAFETY: the event is acknowledged once, and not used any more.
                unsafe { rdma_ack_cm_event(event) };
            }
        }
        self.is_over
    }

    /// Ends the connection, if the peer has not yet done so.
    pub(crate) fn disconnect(&mut self) {
        if !self.is_disconnected() {
            // SAFETY: the id exists. An error means that there is nothing left to end.
            let _ = unsafe { rdma_disconnect(self.id) };
        }
    }
}

fn copy_out(source: *const u8, count: usize) -> Vec<u8> {
    let mut out = vec![0; count];
    // SAFETY: callers name a range inside the memory; no operation of this program on it is in flight.
    unsafe { source.copy_to_nonoverlapping(out.as_mut_ptr(), count) };
    out
}
