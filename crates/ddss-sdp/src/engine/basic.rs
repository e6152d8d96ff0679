//! Basic stream: private buffers and credits, as in the specification.

use crate::codec::{Advertisement, Body, Flags, HEADER_BYTES, Header, SOURCE_BYTES};
use crate::engine::control::Control;
use crate::engine::handshake::{StreamConfig, Terms};
use crate::engine::private_buffers::{ReceiveBuffers, SendBuffers, SendEntry};
use crate::engine::zero_copy::{Source, ZeroCopyOutcome};
use crate::error::SdpError;
use crate::ledger::CopyLedger;
use crate::limits::NAGLE_MS;

/// A message that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    head: [u8; HEADER_BYTES + SOURCE_BYTES],
    head_bytes: usize,
    /// Stream bytes at the end of the message, in a private buffer.
    pub payload: &'a [u8],
}

impl Outgoing<'_> {
    /// Returns the bytes before the payload: the header and fixed fields.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }

    /// Returns the bytes of the whole message.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head_bytes + self.payload.len()
    }

    /// Returns false: every message has a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Stream with private buffers and credits.
///
/// The caller sends each message of [`next_message`](Self::next_message), lets the fabric place each message of the
/// peer in [`receive_buffer`](Self::receive_buffer), and reports it with [`received`](Self::received). Any call can
/// make a new message due.
pub struct BasicStream {
    control: Control,
    send: SendBuffers,
    receive: ReceiveBuffers,
    /// Size of a receive buffer that the peer knows, header included.
    receive_bytes: usize,
    no_delay: bool,
    /// Time until which a small message waits.
    delay_until: Option<u64>,
    /// True once larger buffers of the peer were requested.
    is_growth_requested: bool,
    ledger: CopyLedger,
    failed: Option<SdpError>,
}

impl BasicStream {
    /// Makes the stream of a new connection. `config` is that of the hello.
    ///
    /// # Errors
    /// A setting is outside its limits.
    pub fn new(config: &StreamConfig, terms: &Terms) -> Result<BasicStream, SdpError> {
        config.check()?;
        let bytes = config.buffer_bytes_max as usize;
        Ok(BasicStream {
            control: Control::new(terms, config.buffers),
            send: SendBuffers::new(config.buffers, bytes - HEADER_BYTES),
            receive: ReceiveBuffers::new(config.buffers, bytes),
            receive_bytes: config.buffer_bytes as usize,
            no_delay: config.no_delay,
            delay_until: None,
            is_growth_requested: false,
            ledger: CopyLedger::default(),
            failed: None,
        })
    }

    /// Copies bytes into the private buffers; returns how many fitted. While an advertisement is outstanding none do.
    ///
    /// # Errors
    /// The stream was reset, or this side has closed its direction.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, SdpError> {
        self.check_writable()?;
        if self.control.zero_copy.blocks_data() {
            return Ok(0);
        }
        let payload = self.message_payload();
        if bytes.len() >= 2 * payload && !self.is_growth_requested && self.can_grow() {
            self.is_growth_requested = true;
            self.control.pending.receive_buffer = Some((self.send.buffer_bytes() + HEADER_BYTES) as u32);
        }
        let taken = self.send.append(bytes, payload);
        self.ledger.written += taken as u64;
        self.ledger.send_copied += taken as u64;
        Ok(taken)
    }

    /// Reads bytes; `Some(0)` means the end of the stream, `None` that nothing has arrived yet.
    ///
    /// Advertised memory at this place of the stream is requested through the buffers; call [`source`](Self::source)
    /// before to read it in place.
    ///
    /// # Errors
    /// The stream was reset, or the peer broke the protocol.
    pub fn read(&mut self, out: &mut [u8]) -> Result<Option<usize>, SdpError> {
        self.check()?;
        let taken = self.receive.read(out);
        self.ledger.read += taken as u64;
        self.ledger.receive_copied += taken as u64;
        if taken > 0 || out.is_empty() {
            return Ok(Some(taken));
        }
        self.control.zero_copy.decline(&mut self.control.pending);
        Ok(self.control.close.is_peer_closed.then_some(0))
    }

    /// Returns the message to send next; the caller has to send it. `now_ms` is any clock that never goes back.
    pub fn next_message(&mut self, now_ms: u64) -> Option<Outgoing<'_>> {
        if self.failed.is_some() {
            return None;
        }
        let posted = self.receive.posted();
        let is_data_sent = self.send.count() == 0 && !self.control.zero_copy.blocks_data();
        if let Some(body) = self.control.next_pending(is_data_sent) {
            let header = self.control.header(&body, Flags::default(), posted);
            return Some(outgoing(&header, &body, &[]));
        }
        if let Some(entry) = self.send.front()
            && !self.control.close.is_reset
            && self.control.may_send_data()
            && !self.is_delayed(entry, now_ms)
        {
            let body = entry.body();
            let header = self.control.header(&body, Flags::default(), posted);
            return Some(outgoing(&header, &body, self.send.pop()));
        }
        if !self.control.is_credit_update_due(posted) {
            return None;
        }
        let body = Body::Data(0);
        let header = self.control.header(&body, Flags::default(), posted);
        Some(outgoing(&header, &body, &[]))
    }

    /// Returns true if stream bytes or the half close of this side wait for credits, the clock or the next call.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.control.close.is_reset && (self.send.count() > 0 || self.control.pending.disconnect)
    }

    /// Returns the time of the next call of [`next_message`](Self::next_message), if a small message waits for it.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.delay_until
    }

    /// Returns memory for the next message of the peer, as long as the receive buffer that the peer knows.
    ///
    /// # Errors
    /// The peer sent more messages than it had credits for, or the stream failed before.
    pub fn receive_buffer(&mut self) -> Result<&mut [u8], SdpError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let bytes = self.receive_bytes;
        self.receive.next_free().map(|buffer| &mut buffer[..bytes]).ok_or(SdpError::NoBuffer)
    }

    /// Handles the message of `bytes` bytes in [`receive_buffer`](Self::receive_buffer).
    ///
    /// # Errors
    /// The peer broke the protocol. The stream is then at its end.
    pub fn received(&mut self, bytes: usize) -> Result<(), SdpError> {
        let result = self.receive_message(bytes);
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
        result
    }

    fn receive_message(&mut self, bytes: usize) -> Result<(), SdpError> {
        let message = self.receive_buffer()?;
        let wrong = SdpError::MessageLength { mid: 0, len: bytes as u32 };
        let message = message.get(..bytes).ok_or(wrong)?;
        let (head, rest) = message.split_first_chunk::<HEADER_BYTES>().ok_or(wrong)?;
        let header = Header::decode(head)?;
        if header.len as usize != bytes {
            return Err(SdpError::MessageLength { mid: header.kind.mid(), len: header.len });
        }
        let body = Body::decode(&header, rest)?;
        self.control.receive(&header, &body)?;
        if self.control.close.is_reset {
            self.send.clear();
            return Ok(());
        }
        if let Body::ChRcvBuf(wanted) = body {
            self.grow(wanted);
        }
        self.receive.take(&body);
        Ok(())
    }

    /// Closes the direction of this side behind everything written.
    pub fn shutdown(&mut self) {
        self.control.shutdown();
    }

    /// Resets the stream. What was not sent is lost.
    pub fn abort(&mut self) {
        self.control.abort();
        self.send.clear();
    }

    /// Returns true if both sides have closed, or the stream was reset: the connection can be closed once nothing
    /// waits.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.control.is_finished()
    }

    /// Advertises memory as the next bytes of the stream, with its first bytes in the message. Nothing can be written
    /// until there is an [outcome](Self::take_outcome).
    ///
    /// The memory stays as it is until then. The engine has no clock for this: the caller [withdraws](Self::withdraw)
    /// after [`ADVERTISEMENT_MS`](crate::limits::ADVERTISEMENT_MS), and closes the connection if it gives up before the
    /// outcome.
    ///
    /// # Errors
    /// The plan has no zero copy, another advertisement is outstanding, there is no buffer, or the lengths are wrong.
    pub fn advertise(&mut self, memory: Advertisement, first: &[u8]) -> Result<(), SdpError> {
        self.check_writable()?;
        let is_too_long = first.len() + SOURCE_BYTES > self.message_payload();
        if !self.control.plan.zero_copy || self.control.zero_copy.blocks_data() || is_too_long || self.send.is_full() {
            return Err(SdpError::CannotAdvertise);
        }
        if memory.len == 0 || first.len() > memory.len as usize {
            return Err(SdpError::AdvertisedBytes(memory.len));
        }
        let entry = SendEntry { advertisement: Some(memory), ..SendEntry::default() };
        self.send.append_message(first, entry);
        self.control.zero_copy.advertise(memory.len, first.len() as u32);
        self.ledger.written += u64::from(memory.len);
        self.ledger.send_copied += first.len() as u64;
        Ok(())
    }

    /// Withdraws the advertisement of this side. An outcome still follows.
    pub fn withdraw(&mut self) {
        self.control.pending.source_cancel |= self.control.zero_copy.blocks_data();
    }

    /// Takes the outcome of an advertisement. Bytes that the peer did not take have to be written next; they count as
    /// written once.
    pub fn take_outcome(&mut self) -> Option<ZeroCopyOutcome> {
        if self.send.front().is_some_and(|entry| entry.advertisement.is_some()) {
            return None;
        }
        let outcome = self.control.zero_copy.take_outcome(&mut self.control.pending)?;
        self.ledger.written -= u64::from(outcome.rest);
        Some(outcome)
    }

    /// Returns advertised memory that continues the stream, once everything before it was read.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        self.control.zero_copy.source().filter(|_| self.receive.bytes() == 0)
    }

    /// Begins to read the first `bytes` of the source in place. The caller carries out the read.
    ///
    /// # Errors
    /// There is no source of this length.
    pub fn begin_source_read(&mut self, bytes: u32) -> Result<Source, SdpError> {
        self.check()?;
        if self.receive.bytes() > 0 {
            return Err(SdpError::NoSource(bytes));
        }
        self.control.zero_copy.begin_read(bytes)
    }

    /// Ends the read in progress. After a short read the rest is requested through the buffers.
    ///
    /// # Errors
    /// No read of this length is in progress.
    pub fn end_source_read(&mut self, bytes: u32) -> Result<(), SdpError> {
        self.control.zero_copy.end_read(bytes, &mut self.control.pending)?;
        self.ledger.read += u64::from(bytes);
        Ok(())
    }

    /// Returns the copies made so far. A fabric in software adds its own.
    #[must_use]
    pub fn ledger(&self) -> CopyLedger {
        self.ledger
    }

    /// Returns the messages that the peer can take now.
    #[must_use]
    pub fn credits(&self) -> u32 {
        self.control.credits()
    }

    /// Returns the plan.
    #[must_use]
    pub fn plan(&self) -> crate::Plan {
        self.control.plan
    }

    fn check(&self) -> Result<(), SdpError> {
        match self.failed {
            Some(error) => Err(error),
            // What arrived before a reset is lost, as it is with TCP.
            None if self.control.close.is_reset => Err(SdpError::Reset),
            None => Ok(()),
        }
    }

    fn check_writable(&self) -> Result<(), SdpError> {
        self.check()?;
        self.control.check_writable()
    }

    /// Returns the payload of the largest message.
    fn message_payload(&self) -> usize {
        (self.control.peer_payload as usize).min(self.send.buffer_bytes())
    }

    /// Returns true if the first buffer waits for an acknowledgement or the clock.
    fn is_delayed(&mut self, entry: SendEntry, now_ms: u64) -> bool {
        let is_complete =
            entry.advertisement.is_some() || entry.bytes >= self.message_payload() || self.send.count() > 1;
        let is_pushed = self.no_delay || self.control.close.is_write_closed || self.control.is_all_acknowledged();
        let until = *self.delay_until.get_or_insert(now_ms.saturating_add(NAGLE_MS));
        let is_delayed = !is_complete && !is_pushed && now_ms < until;
        if !is_delayed {
            self.delay_until = None;
        }
        is_delayed
    }

    /// Returns true if this side has buffers for larger messages than the peer takes.
    fn can_grow(&self) -> bool {
        (self.control.peer_payload as usize) < self.send.buffer_bytes()
    }

    /// Answers a request for larger receive buffers. Every buffer has memory for the largest message.
    fn grow(&mut self, wanted: u32) {
        let most = self.receive.buffer_bytes();
        self.receive_bytes = self.receive_bytes.max((wanted as usize).min(most));
        self.control.pending.receive_buffer_ack = Some((self.receive_bytes - HEADER_BYTES) as u32);
    }
}

fn outgoing<'a>(header: &Header, body: &Body, payload: &'a [u8]) -> Outgoing<'a> {
    let mut head = [0; HEADER_BYTES + SOURCE_BYTES];
    head[..HEADER_BYTES].copy_from_slice(&header.encode());
    let (fixed, fixed_bytes) = body.encode_fixed();
    head[HEADER_BYTES..].copy_from_slice(&fixed);
    Outgoing { head, head_bytes: HEADER_BYTES + fixed_bytes, payload }
}
