//! Reads of a peer's memory in place: memory that a call has borrowed is the source on one side and the sink on the other.
//!
//! ```text
//! source  advertised → requested → segments leave → requested … → outcome
//! sink    requested → segments arrive in the memory of the call → complete → taken by the call
//!                   → the call ended before: they arrive in a spill → read from there
//! ```
//!
//! The engine never holds the memory of a call: the call passes it to each step. A step of another thread leaves the socket alone
//! wherever the next byte belongs to that memory.

use std::io::{IoSlice, IoSliceMut};

use ddss_sdp::codec::Advertisement;
use ddss_sdp::{FrameReader, FrameWriter, IncomingSegment, OutgoingSegment, ReadRequest, SdpError, Segment, Source};

/// Advertised memory of this side, and the read in progress of the peer.
struct SourceMemory {
    key: u32,
    len: usize,
    request: Option<ReadRequest>,
    /// Segment that leaves, and its place in the memory.
    segment: Option<(OutgoingSegment, usize, usize)>,
}

/// Memory of this side that a read fills.
struct Sink {
    key: u32,
    len: usize,
    /// Bytes that arrived and were checked.
    placed: usize,
    segment: Option<IncomingSegment>,
    /// Memory for the bytes, once the call that lent its own has ended.
    spill: Option<Spill>,
}

struct Spill {
    memory: Vec<u8>,
    read: usize,
}

/// Reads in both directions, one at a time in each.
#[derive(Default)]
pub(super) struct RemoteReads {
    last_key: u32,
    source: Option<SourceMemory>,
    sink: Option<Sink>,
    /// Bytes that left from advertised memory.
    served: u64,
    /// Bytes copied because a call ended during its read.
    copied: u64,
}

impl RemoteReads {
    /// Returns the advertisement of `len` bytes of memory.
    pub(super) fn next_advertisement(&self, len: u32) -> Advertisement {
        // The address counts from the start of the memory: the peer learns nothing of this process.
        Advertisement { len, rkey: self.last_key.wrapping_add(1), vaddr: 0 }
    }

    /// Records that the memory was advertised.
    pub(super) fn advertised(&mut self, memory: Advertisement) {
        self.last_key = memory.rkey;
        self.source = Some(SourceMemory { key: memory.rkey, len: memory.len as usize, request: None, segment: None });
    }

    /// Ends the advertisement.
    pub(super) fn end_source(&mut self) {
        self.source = None;
    }

    /// Returns the bytes that left from advertised memory so far.
    pub(super) fn served(&self) -> u64 {
        self.served
    }

    /// Returns the bytes that were copied although they were read in place.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// Records a request of the peer.
    pub(super) fn requested(&mut self, request: ReadRequest) -> Result<(), SdpError> {
        let wrong = SdpError::ReadRequest(request.source_key);
        let source = self.source.as_mut().filter(|source| source.key == request.source_key).ok_or(wrong)?;
        let end = request.source_address.checked_add(u64::from(request.len));
        let fits = end.is_some_and(|end| end <= source.len as u64);
        if !fits || request.len == 0 || source.is_serving() {
            return Err(wrong);
        }
        source.request = Some(request);
        Ok(())
    }

    /// Returns true while a request of the peer has no complete response.
    pub(super) fn is_serving(&self) -> bool {
        self.source.as_ref().is_some_and(SourceMemory::is_serving)
    }

    /// Returns true while a part of a segment may have left: nothing else may leave before its rest.
    pub(super) fn is_sending(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.segment.is_some())
    }

    /// Returns the next slices of the response, from `memory`. `None` if there is none, or messages have to leave before.
    pub(super) fn outgoing<'a>(&'a mut self, writer: &mut FrameWriter, memory: &'a [u8]) -> Option<Vec<IoSlice<'a>>> {
        let source = self.source.as_mut()?;
        if source.segment.is_none() {
            source.segment = Some(source.next_segment(writer, memory)?);
        }
        let (segment, start, end) = source.segment.as_ref()?;
        Some(segment.unsent(&memory[*start..*end]).map(IoSlice::new).collect())
    }

    /// Removes bytes that the socket took of [`outgoing`](Self::outgoing).
    pub(super) fn sent(&mut self, bytes: usize) {
        let Some(source) = &mut self.source else { return };
        if let Some((segment, start, end)) = &mut source.segment
            && segment.sent(bytes)
        {
            self.served += (*end - *start) as u64;
            source.segment = None;
        }
    }

    /// Requests the first bytes of the peer's memory. `None` if the request does not fit the ring.
    pub(super) fn begin(&mut self, writer: &mut FrameWriter, source: &Source, len: u32) -> Option<()> {
        let key = self.last_key.wrapping_add(1);
        let request =
            ReadRequest { sink_key: key, sink_offset: 0, len, source_key: source.rkey, source_address: source.vaddr };
        if !writer.request_read(&request) {
            return None;
        }
        self.last_key = key;
        self.sink = Some(Sink { key, len: len as usize, placed: 0, segment: None, spill: None });
        Some(())
    }

    /// Returns true while bytes of a read are on their way.
    pub(super) fn is_placing(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.placed < sink.len)
    }

    /// Returns true if only the call that lent its memory may receive.
    pub(super) fn is_sink_borrowed(&self) -> bool {
        self.is_placing() && self.sink.as_ref().is_some_and(|sink| sink.spill.is_none())
    }

    /// Returns true if a read is not finished: nothing behind it can be read.
    pub(super) fn has_sink(&self) -> bool {
        self.sink.is_some()
    }

    /// Returns the memory of the segment that arrives. `None`: the next bytes belong into the ring.
    pub(super) fn incoming<'a>(&'a mut self, place: Option<&'a mut [u8]>) -> Option<Vec<IoSliceMut<'a>>> {
        let Sink { placed, segment: Some(segment), spill, .. } = self.sink.as_mut()? else { return None };
        let memory = spill.as_mut().map(|spill| &mut spill.memory[..]).or(place)?;
        let end = *placed + segment.segment().bytes;
        Some(segment.unfilled(&mut memory[*placed..end]).map(IoSliceMut::new).collect())
    }

    /// Adds bytes that the socket wrote into [`incoming`](Self::incoming). Returns the bytes of the read once it is complete; `None` if
    /// no segment arrives.
    pub(super) fn filled(
        &mut self,
        reader: &mut FrameReader,
        bytes: usize,
        place: Option<&mut [u8]>,
    ) -> Result<Option<u32>, SdpError> {
        let Some(sink) = &mut self.sink else { return Ok(None) };
        let Some(segment) = &mut sink.segment else { return Ok(None) };
        if !segment.filled(bytes) {
            return Ok(None);
        }
        let memory = match (&sink.spill, place) {
            (Some(spill), _) => &spill.memory[..],
            (None, Some(place)) => place,
            (None, None) => return Err(SdpError::ReadResponse),
        };
        let end = sink.placed + segment.segment().bytes;
        segment.check(reader, &memory[sink.placed..end])?;
        (sink.placed, sink.segment) = (end, None);
        Ok((sink.placed == sink.len).then_some(sink.len as u32))
    }

    /// Returns true while the bytes of the socket belong to a segment.
    pub(super) fn has_segment(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.segment.is_some())
    }

    /// Begins the segment whose head is in the ring, if there is one. Returns true if so.
    pub(super) fn begin_segment(&mut self, reader: &FrameReader) -> Result<bool, SdpError> {
        let Some(sink) = self.sink.as_mut().filter(|sink| sink.placed < sink.len) else { return Ok(false) };
        let Some(incoming) = IncomingSegment::new(reader)? else { return Ok(false) };
        let Segment { key, offset, bytes, is_last } = incoming.segment();
        let left = sink.len - sink.placed;
        if key != sink.key || offset != sink.placed as u64 || bytes > left || is_last != (bytes == left) {
            return Err(SdpError::ReadResponse);
        }
        sink.segment = Some(incoming);
        Ok(true)
    }

    /// Returns the bytes of a complete read to the call that lent its memory.
    pub(super) fn take_placed(&mut self) -> Option<usize> {
        let len = self.sink.as_ref().filter(|sink| sink.placed == sink.len && sink.spill.is_none())?.len;
        self.sink = None;
        Some(len)
    }

    /// Takes the memory of a call away from a read that is not finished: the rest arrives in memory of its own.
    pub(super) fn end_borrow(&mut self, memory: &[u8]) {
        if let Some(sink) = self.sink.as_mut().filter(|sink| sink.spill.is_none()) {
            self.copied += sink.placed as u64;
            sink.spill = Some(Spill { memory: memory[..sink.len].to_vec(), read: 0 });
        }
    }

    /// Copies bytes of a complete read that has no call.
    pub(super) fn read_spill(&mut self, out: &mut [u8]) -> Option<usize> {
        let sink = self.sink.as_mut().filter(|sink| sink.placed == sink.len)?;
        let spill = sink.spill.as_mut()?;
        let bytes = out.len().min(sink.len - spill.read);
        out[..bytes].copy_from_slice(&spill.memory[spill.read..][..bytes]);
        spill.read += bytes;
        self.copied += bytes as u64;
        if spill.read == sink.len {
            self.sink = None;
        }
        Some(bytes)
    }

    /// Ends the read in progress with what has arrived. Returns false if there is none.
    pub(super) fn peer_ended(&mut self) -> bool {
        let Some(sink) = self.sink.as_mut().filter(|sink| sink.placed < sink.len) else { return false };
        (sink.len, sink.segment) = (sink.placed, None);
        if sink.len == 0 {
            self.sink = None;
        }
        true
    }
}

impl SourceMemory {
    fn is_serving(&self) -> bool {
        self.request.is_some() || self.segment.is_some()
    }

    /// Makes the next segment of the response.
    fn next_segment(&mut self, writer: &mut FrameWriter, memory: &[u8]) -> Option<(OutgoingSegment, usize, usize)> {
        let request = self.request?;
        let bytes = (request.len as usize).min(Segment::BYTES_MAX);
        let segment = Segment {
            key: request.sink_key,
            offset: request.sink_offset,
            bytes,
            is_last: bytes == request.len as usize,
        };
        let start = request.source_address as usize;
        let outgoing = OutgoingSegment::new(writer, segment, &memory[start..start + bytes])?;
        self.request = (!segment.is_last).then_some(ReadRequest {
            sink_offset: request.sink_offset.wrapping_add(bytes as u64),
            len: request.len - bytes as u32,
            source_address: request.source_address + bytes as u64,
            ..request
        });
        Some((outgoing, start, start + bytes))
    }
}
