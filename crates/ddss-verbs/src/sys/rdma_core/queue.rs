//! Completion channels, completion queues and queue pairs.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::abi;
use super::abi::{CompletionChannel, Cq, Piece, Qp, ReceiveRequest, SendRequest, WorkCompletion};
use super::adapter::Adapter;
use super::async_events::AsyncErrors;
use super::in_flight::{FailureCause, FinishedWork, InFlight, Kind};
use super::library::outcome;
use super::memory::{Domain, Registered};

/// Completions taken from the adapter in one call.
const COMPLETION_BATCH: usize = 32;
/// Calls of one poll, before other queues are served.
const COMPLETION_BATCHES_MAX: usize = 8;
/// Operations of a batch between two requests for a completion.
const SIGNAL_EVERY: usize = 32;
/// Marks the number of a receive; the rest is its slot.
const RECEIVE: u64 = 1 << 63;

/// Channel on which the adapter reports that a completion queue is not empty.
pub(crate) struct Channel {
    adapter: Adapter,
    channel: NonNull<CompletionChannel>,
}

// SAFETY: rdma-core's functions may be called from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    pub(crate) fn new(adapter: &Adapter) -> io::Result<Arc<Self>> {
        // SAFETY: an open context.
        let channel = unsafe { (adapter.library().ibv_create_comp_channel)(adapter.context()) };
        let channel = NonNull::new(channel).ok_or_else(io::Error::last_os_error)?;
        let channel = Arc::new(Self { adapter: adapter.clone(), channel });
        rustix::io::ioctl_fionbio(channel.descriptor(), true)?;
        Ok(channel)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel's descriptor, which never changes.
        let fd = unsafe { (*self.channel.as_ptr()).fd };
        // SAFETY: open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Removes all pending notices: a leftover one would hide the next.
    pub(crate) fn drain(&self) {
        loop {
            let (mut cq, mut context): (*mut Cq, *mut c_void) = (null_mut(), null_mut());
            // SAFETY: a live channel and room for the answer; the descriptor does not block.
            let answer = unsafe {
                (self.adapter.library().ibv_get_cq_event)(self.channel.as_ptr(), &raw mut cq, &raw mut context)
            };
            if answer != 0 {
                return;
            }
            // SAFETY: the queue of the notice waits for this call before it can be destroyed.
            unsafe { (self.adapter.library().ibv_ack_cq_events)(cq, 1) };
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: every completion queue of the channel holds an `Arc` of it.
        let answer = unsafe { (self.adapter.library().ibv_destroy_comp_channel)(self.channel.as_ptr()) };
        if let Err(error) = outcome(answer) {
            tracing::warn!(%error, "cannot destroy a completion channel");
        }
    }
}

/// Completion queue of one queue pair, large enough that it never overruns.
pub(crate) struct Completions {
    cq: NonNull<Cq>,
    channel: Arc<Channel>,
}

// SAFETY: rdma-core's functions may be called from any thread.
unsafe impl Send for Completions {}

impl Completions {
    pub(crate) fn new(channel: &Arc<Channel>, entries: u32) -> io::Result<Self> {
        let adapter = &channel.adapter;
        // SAFETY: an open context and a live channel of it, which the result keeps.
        let cq = unsafe {
            (adapter.library().ibv_create_cq)(
                adapter.context(),
                entries as c_int,
                null_mut(),
                channel.channel.as_ptr(),
                0,
            )
        };
        let cq = NonNull::new(cq).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { cq, channel: Arc::clone(channel) })
    }

    pub(super) fn raw(&self) -> *mut Cq {
        self.cq.as_ptr()
    }

    fn poll_batch(&self, found: &mut [WorkCompletion; COMPLETION_BATCH]) -> io::Result<usize> {
        let poll = self.channel.adapter.view().poll_cq.expect("every driver can be polled");
        // SAFETY: a live queue, and room for this many.
        let count = unsafe { poll(self.raw(), COMPLETION_BATCH as c_int, found.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| io::Error::from_raw_os_error(libc::EIO))
    }

    fn arm(&self) -> io::Result<()> {
        let notify = self.channel.adapter.view().req_notify_cq.expect("every driver can be armed");
        // SAFETY: a live queue.
        outcome(unsafe { notify(self.raw(), 0) })
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: its queue pair was destroyed before, as `Endpoint` documents.
        let answer = unsafe { (self.channel.adapter.library().ibv_destroy_cq)(self.raw()) };
        if let Err(error) = outcome(answer) {
            tracing::warn!(%error, "cannot destroy a completion queue");
        }
    }
}

/// Capacities of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueDepths {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) receive_bytes: u32,
    pub(crate) inline_bytes: u32,
}

/// A request to the adapter.
pub(crate) enum Request {
    /// With `fenced`, it starts after every earlier read has been answered.
    Read {
        local: (Arc<Registered>, u64, u32),
        key: u32,
        address: u64,
        fenced: bool,
    },
    Write {
        local: (Arc<Registered>, u64, u32),
        key: u32,
        address: u64,
    },
    CompareSwap {
        local: (Arc<Registered>, u64),
        key: u32,
        address: u64,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        local: (Arc<Registered>, u64),
        key: u32,
        address: u64,
        add: u64,
    },
    Send {
        local: (Arc<Registered>, u64, u32),
        solicited: bool,
    },
}

/// A message in a receive slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) slot: u32,
    pub(crate) bytes: u32,
}

/// A queue pair with its memory. It belongs to an [`Endpoint`](super::Endpoint), which destroys the queue pair before
/// this value is dropped.
pub(crate) struct Queue {
    qp: NonNull<Qp>,
    async_errors: AsyncErrors,
    depths: QueueDepths,
    in_order: bool,
    batch: Vec<SendRequest>,
    pieces: Vec<Piece>,
    /// Index in the batch after the last request for a completion.
    signalled: usize,
    flight: InFlight<Arc<Registered>>,
    returned_slots: Vec<u32>,
    receive_batch: Vec<(ReceiveRequest, Piece)>,
    stash: Vec<WorkCompletion>,
    /// Buffer for completions, allocated once: an empty poll has no time to clear it.
    found: Box<[WorkCompletion; COMPLETION_BATCH]>,
    receives_flushed: bool,
    slots: Arc<Registered>,
    completions: Completions,
    domain: Arc<Domain>,
}

// SAFETY: rdma-core's functions may be called from any thread; the raw pointers in the batch are only set while it is
// posted.
unsafe impl Send for Queue {}

impl Queue {
    /// Wraps a queue pair that was created in `domain` with these completions and depths. The receive slots are not
    /// yet posted.
    pub(super) fn new(
        qp: NonNull<Qp>,
        domain: &Arc<Domain>,
        completions: Completions,
        depths: QueueDepths,
        slots: Arc<Registered>,
        in_order: bool,
    ) -> Self {
        assert!(slots.is_of(domain), "receive slots belong to the domain of their queue");
        assert!(u64::from(depths.receives) * u64::from(depths.receive_bytes) <= slots.bytes(), "the slots have room");
        let sends = depths.sends as usize;
        Self {
            qp,
            async_errors: AsyncErrors::watch(qp.as_ptr() as usize),
            depths,
            in_order,
            batch: Vec::with_capacity(sends),
            pieces: Vec::with_capacity(sends),
            signalled: 0,
            flight: InFlight::new(in_order, sends),
            returned_slots: (0..depths.receives).collect(),
            receive_batch: Vec::with_capacity(depths.receives as usize),
            stash: Vec::new(),
            found: Box::new([WorkCompletion::default(); COMPLETION_BATCH]),
            receives_flushed: false,
            slots,
            completions,
            domain: Arc::clone(domain),
        }
    }

    /// Returns the number of operations that still fit.
    pub(crate) fn room(&self) -> usize {
        self.depths.sends as usize - self.flight.len()
    }

    /// Returns the number of operations in flight.
    pub(crate) fn in_flight_count(&self) -> usize {
        self.flight.len()
    }

    pub(crate) fn async_errors(&self) -> &AsyncErrors {
        &self.async_errors
    }

    /// Returns true if the adapter has flushed the receives: the queue is dead.
    pub(crate) fn receives_flushed(&self) -> bool {
        self.receives_flushed
    }

    /// Adds an operation to the batch that the next [`ring`](Self::ring) posts. Panics if there is no room, or if the
    /// local range is not of this queue's domain or outside of its memory.
    pub(crate) fn push(&mut self, token: u64, request: Request) {
        assert!(self.room() > 0, "the caller checks for room");
        let mut wr = SendRequest { wr_id: self.flight.next(), ..SendRequest::EMPTY };
        let kind = if matches!(request, Request::Write { .. } | Request::Send { .. }) {
            Kind::OneWay
        } else {
            Kind::WithAnswer
        };
        let (memory, offset, bytes) = match request {
            Request::Read { local, key, address, fenced } => {
                wr.send_flags |= if fenced { abi::SEND_FENCE as u32 } else { 0 };
                (wr.opcode, wr.remote_addr, wr.compare_add) = (abi::OP_READ, address, key_field(key));
                local
            }
            Request::Write { local, key, address } => {
                (wr.opcode, wr.remote_addr, wr.compare_add) = (abi::OP_WRITE, address, key_field(key));
                local
            }
            Request::CompareSwap { local, key, address, compare, swap } => {
                (wr.opcode, wr.remote_addr, wr.atomic_rkey) = (abi::OP_COMPARE_SWAP, address, key);
                (wr.compare_add, wr.swap) = (compare, swap);
                (local.0, local.1, 8)
            }
            Request::FetchAdd { local, key, address, add } => {
                (wr.opcode, wr.remote_addr, wr.atomic_rkey) = (abi::OP_FETCH_ADD, address, key);
                wr.compare_add = add;
                (local.0, local.1, 8)
            }
            Request::Send { local, solicited } => {
                wr.opcode = abi::OP_SEND;
                wr.send_flags |= if solicited { abi::SEND_SOLICITED as u32 } else { 0 };
                local
            }
        };
        assert!(memory.is_of(&self.domain), "memory is used in the domain that it was registered in");
        let end = offset.checked_add(u64::from(bytes)).expect("a range that was checked does not wrap");
        assert!(end <= memory.bytes(), "{bytes} bytes at {offset} are outside {}", memory.bytes());
        if kind == Kind::OneWay && bytes <= self.depths.inline_bytes {
            wr.send_flags |= abi::SEND_INLINE as u32;
        }
        if self.batch.len() - self.signalled >= SIGNAL_EVERY {
            self.signal(self.batch.len() - 1);
            self.signalled = self.batch.len();
        }
        wr.num_sge = c_int::from(bytes > 0);
        self.pieces.push(Piece { addr: memory.address() + offset, length: bytes, lkey: memory.local_key() });
        self.batch.push(wr);
        self.flight.push(kind, token, Some(memory));
    }

    fn signal(&mut self, index: usize) {
        self.batch[index].send_flags |= abi::SEND_SIGNALED as u32;
    }

    /// Requests a completion of the last operation of the batch. Where a write does not cover a read, also of every
    /// read: if the second of two reads is refused, no other completion would cover the first.
    fn signal_last(&mut self) {
        let last = self.batch.len() - 1;
        self.signal(last);
        if !self.in_order {
            for wr in self.batch.iter_mut().filter(|wr| wr.opcode != abi::OP_WRITE && wr.opcode != abi::OP_SEND) {
                wr.send_flags |= abi::SEND_SIGNALED as u32;
            }
        }
    }

    /// Posts the batch to the adapter, in one call.
    ///
    /// # Errors
    /// The adapter refused a part of it, which completes as not posted.
    pub(crate) fn ring(&mut self, completions: &mut Vec<FinishedWork>) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.signal_last();
        let (first, pieces) = (self.batch.as_mut_ptr(), self.pieces.as_mut_ptr());
        let count = self.batch.len();
        for (index, wr) in self.batch.iter_mut().enumerate() {
            wr.sg_list = pieces.wrapping_add(index);
            wr.next = if index + 1 == count { null_mut() } else { first.wrapping_add(index + 1) };
        }
        let post = self.domain.adapter().view().post_send.expect("every driver can send");
        let mut bad: *mut SendRequest = null_mut();
        // SAFETY: a live queue pair, a terminated list, ranges of registered memory that `flight` keeps until the
        // adapter has completed them, and no more of them than the queue has room for.
        let answer = unsafe { post(self.qp.as_ptr(), first, &raw mut bad) };
        let result = outcome(answer);
        if result.is_err() {
            let number = self
                .batch
                .iter()
                .position(|wr| std::ptr::eq(wr, bad))
                .map_or(self.batch[0].wr_id, |index| self.batch[index].wr_id);
            self.flight.cancel_unposted(number, completions);
        }
        self.batch.clear();
        self.pieces.clear();
        self.signalled = 0;
        result
    }

    /// Collects completions and received messages. Returns whether there were any.
    ///
    /// # Errors
    /// The adapter cannot be polled any more.
    pub(crate) fn poll(
        &mut self,
        completions: &mut Vec<FinishedWork>,
        received: &mut Vec<ReceivedMessage>,
    ) -> io::Result<bool> {
        let mut any = !self.stash.is_empty();
        for index in 0..self.stash.len() {
            self.take(self.stash[index], completions, received);
        }
        self.stash.clear();
        for _ in 0..COMPLETION_BATCHES_MAX {
            let count = self.completions.poll_batch(&mut self.found)?;
            for index in 0..count {
                self.take(self.found[index], completions, received);
            }
            any |= count > 0;
            if count < COMPLETION_BATCH {
                break;
            }
        }
        Ok(any)
    }

    fn take(
        &mut self,
        completion: WorkCompletion,
        completions: &mut Vec<FinishedWork>,
        received: &mut Vec<ReceivedMessage>,
    ) {
        if completion.wr_id & RECEIVE != 0 {
            let slot = (completion.wr_id & !RECEIVE) as u32;
            if completion.status == abi::DONE_SUCCESS && slot < self.depths.receives {
                received.push(ReceivedMessage { slot, bytes: completion.byte_len.min(self.depths.receive_bytes) });
            } else {
                self.receives_flushed = true;
            }
            return;
        }
        let result = match completion.status {
            abi::DONE_SUCCESS => Ok(()),
            abi::DONE_FLUSHED => Err(FailureCause::Flushed),
            abi::DONE_BAD_REQUEST | abi::DONE_BAD_ACCESS | abi::DONE_BAD_OPERATION => Err(FailureCause::Refused),
            abi::DONE_RETRIES | abi::DONE_NOT_READY => Err(FailureCause::NoAnswer),
            other => Err(FailureCause::Other(other)),
        };
        self.flight.end(completion.wr_id, result, completions);
    }

    /// Requests a notice for the next completion; false if there is one already.
    pub(crate) fn arm(&mut self) -> io::Result<bool> {
        self.completions.arm()?;
        let count = self.completions.poll_batch(&mut self.found)?;
        self.stash.extend_from_slice(&self.found[..count]);
        Ok(self.stash.is_empty())
    }

    /// Copies a received message out of its slot.
    pub(crate) fn copy_out(&self, received: ReceivedMessage, out: &mut Vec<u8>) {
        let (memory, start) = self.slots.memory();
        out.resize(received.bytes as usize, 0);
        memory.copy_out(start + (received.slot * self.depths.receive_bytes) as usize, out);
    }

    /// Queues a slot to be posted again, by the next [`ring_receives`](Self::ring_receives).
    pub(crate) fn return_slot(&mut self, slot: u32) {
        assert!(self.returned_slots.len() < self.depths.receives as usize, "each slot is returned once");
        self.returned_slots.push(slot);
    }

    /// Posts the returned slots to the adapter.
    pub(crate) fn ring_receives(&mut self) -> io::Result<()> {
        if self.returned_slots.is_empty() {
            return Ok(());
        }
        let bytes = self.depths.receive_bytes;
        self.receive_batch.clear();
        for slot in self.returned_slots.drain(..) {
            let address = self.slots.address() + u64::from(slot * bytes);
            let piece = Piece { addr: address, length: bytes, lkey: self.slots.local_key() };
            let wr_id = RECEIVE | u64::from(slot);
            self.receive_batch
                .push((ReceiveRequest { wr_id, next: null_mut(), sg_list: null_mut(), num_sge: 1 }, piece));
        }
        let first = self.receive_batch.as_mut_ptr();
        let count = self.receive_batch.len();
        for (index, (wr, piece)) in self.receive_batch.iter_mut().enumerate() {
            wr.sg_list = piece;
            let next = first.wrapping_add(index + 1);
            // Only the address of the field is computed; nothing is read there.
            wr.next = if index + 1 == count { null_mut() } else { next.cast() };
        }
        let post = self.domain.adapter().view().post_recv.expect("every driver can receive");
        let mut bad: *mut ReceiveRequest = null_mut();
        // SAFETY: a live queue pair, a terminated list, and slots of registered memory that this value keeps, each of
        // which the adapter has once.
        outcome(unsafe { post(self.qp.as_ptr(), first.cast(), &raw mut bad) })
    }

    /// Completes the rest with an unknown result: the queue pair is gone, or will be.
    pub(super) fn abandon_pending(&mut self, completions: &mut Vec<FinishedWork>) {
        self.flight.abandon_pending(completions);
    }
}

/// Encodes the key of a read or write in the first four bytes of the field that atomics use for their first operand.
fn key_field(key: u32) -> u64 {
    let mut field = [0; 8];
    field[..4].copy_from_slice(&key.to_ne_bytes());
    u64::from_ne_bytes(field)
}

/// A receive and its piece lie side by side, the receive first: a pointer to the pair is a pointer to the receive.
const _: () = assert!(std::mem::offset_of!((ReceiveRequest, Piece), 0) == 0);
