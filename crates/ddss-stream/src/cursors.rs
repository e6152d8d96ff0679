//! The cursors of one direction of a stream, and the protocol by which its two sides sleep and wake each other.
//!
//! ```text
//!  field       stored by   meaning
//!  tail        writer      bytes written into the ring so far; the bytes before it are whole
//!  phase       writer      0, 2, 4: the writer uses TCP; 1, 3, 5: it uses the ring
//!  ends        writer      position on TCP where the last ended phase of TCP ends, and position in the ring for a phase of the ring
//!  space_rest  writer 1, reader 0    1: the writer sleeps until there is space
//!  head        reader      bytes taken from the ring so far; the bytes before it may be overwritten
//!  taken       reader      bytes taken from TCP so far
//!  phase       reader      phase whose bytes the reader takes
//!  wants_tcp   reader      1: the writer has to use TCP from now on
//!  data_rest   reader 1, writer 0    1: the reader sleeps until there are bytes
//! ```
//!
//! A writer leaves the ring for TCP whenever it wants: TCP takes more bytes, and the kernel tells of them by signals. It leaves TCP for the
//! ring only while the reader takes the bytes of this same phase. So the reader is never more than two phases behind, and the end of
//! its own phase is not overwritten before it has seen it.
//!
//! Either side may find anything in here: the peer maps the page and may store what it wants. Each side therefore keeps its own cursor in
//! memory that the peer does not have, passes it to these functions, and only publishes it here.
//!
//! A side that wants to sleep stores its rest word, then looks at the other side's cursor once more. The active side stores its
//! cursor, then swaps the rest word to 0; the side that swapped a 1 rings the bell. A fence on each side orders both steps.

use crate::sync::{AtomicU32, AtomicU64, Ordering, order};

/// A cursor of the peer that no correct peer can store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BrokenCursor;

#[derive(Debug)]
#[repr(C, align(64))]
struct WriterLine {
    tail: AtomicU64,
    ends: [AtomicU64; 2],
    phase: AtomicU32,
    space_rest: AtomicU32,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct ReaderLine {
    head: AtomicU64,
    taken: AtomicU64,
    phase: AtomicU32,
    wants_tcp: AtomicU32,
    data_rest: AtomicU32,
}

/// Returns true for a phase whose bytes are in the ring.
#[inline]
pub(crate) fn is_of_ring(phase: u32) -> bool {
    phase & 1 == 1
}

/// Cursors of one direction. All zero is the state of a new stream.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cursors {
    writer: WriterLine,
    reader: ReaderLine,
}

/// A part of the ring: it begins at a position and has a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) position: u64,
    pub(crate) bytes: usize,
}

impl Cursors {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            writer: WriterLine {
                tail: AtomicU64::new(0),
                ends: [AtomicU64::new(0), AtomicU64::new(0)],
                phase: AtomicU32::new(0),
                space_rest: AtomicU32::new(0),
            },
            reader: ReaderLine {
                head: AtomicU64::new(0),
                taken: AtomicU64::new(0),
                phase: AtomicU32::new(0),
                wants_tcp: AtomicU32::new(0),
                data_rest: AtomicU32::new(0),
            },
        }
    }

    /// Returns the free part of a ring of `capacity` bytes, for its writer at `tail`. The head is read once and checked.
    #[inline]
    pub(crate) fn space(&self, tail: u64, capacity: usize) -> Result<Span, BrokenCursor> {
        let used = tail.wrapping_sub(self.reader.head.load(order::reuse()));
        if used > capacity as u64 {
            return Err(BrokenCursor);
        }
        Ok(Span { position: tail, bytes: capacity - used as usize })
    }

    /// Returns the filled part, for the reader at `head` in this phase of the ring. The tail, or the end of the phase, is read once and
    /// checked.
    #[inline]
    pub(crate) fn filled(&self, head: u64, phase: u32, capacity: usize) -> Result<Span, BrokenCursor> {
        // The tail comes first: one of a later phase is seen with its phase.
        let tail = self.writer.tail.load(order::take());
        let used = self.end(phase).unwrap_or(tail).wrapping_sub(head);
        if used > capacity as u64 {
            return Err(BrokenCursor);
        }
        Ok(Span { position: head, bytes: used as usize })
    }

    /// Publishes the bytes up to `tail`. Returns true if the writer has to ring the reader's bell.
    #[inline]
    #[must_use]
    pub(crate) fn publish(&self, tail: u64) -> bool {
        self.writer.tail.store(tail, order::publish());
        order::bell_fence();
        take_rest(&self.reader.data_rest)
    }

    /// Frees the bytes up to `head`. Returns true if the reader has to ring the writer's bell.
    #[inline]
    #[must_use]
    pub(crate) fn consume(&self, head: u64, is_worth_waking: bool) -> bool {
        self.reader.head.store(head, order::free());
        order::bell_fence();
        is_worth_waking && take_rest(&self.writer.space_rest)
    }

    /// Announces that the reader sleeps. The reader must look at [`filled`](Self::filled) before it does.
    #[inline]
    pub(crate) fn rest_for_data(&self) {
        self.reader.data_rest.store(1, Ordering::Relaxed);
        order::rest_fence();
    }

    /// Announces that the writer sleeps. The writer must look at [`space`](Self::space) before it does.
    #[inline]
    pub(crate) fn rest_for_space(&self) {
        self.writer.space_rest.store(1, Ordering::Relaxed);
        order::rest_fence();
    }

    /// Withdraws the reader's announcement; a bell may still ring once.
    #[inline]
    pub(crate) fn wake_reader(&self) {
        if self.is_reader_resting() {
            self.reader.data_rest.store(0, Ordering::Relaxed);
        }
    }

    /// Returns true while the reader's announcement stands: no byte arrived since.
    #[inline]
    pub(crate) fn is_reader_resting(&self) -> bool {
        self.reader.data_rest.load(Ordering::Relaxed) != 0
    }

    /// Returns true while the writer's announcement stands.
    #[inline]
    pub(crate) fn is_writer_resting(&self) -> bool {
        self.writer.space_rest.load(Ordering::Relaxed) != 0
    }

    /// Returns the position where a phase ends, for a reader in it. `None`: the writer has not ended it.
    #[inline]
    pub(crate) fn end(&self, phase: u32) -> Option<u64> {
        let is_ended = self.writer.phase.load(order::turn()) != phase;
        is_ended.then(|| self.writer.ends[(phase & 1) as usize].load(Ordering::Relaxed))
    }

    /// Begins a phase of the writer: the one before it ends at `end`.
    pub(crate) fn begin(&self, phase: u32, end: u64) {
        self.writer.ends[(phase & 1 ^ 1) as usize].store(end, Ordering::Relaxed);
        self.writer.phase.store(phase, order::switch());
    }

    /// Returns true if the writer began this phase, and no later one.
    #[inline]
    pub(crate) fn is_begun(&self, phase: u32) -> bool {
        self.writer.phase.load(Ordering::Relaxed) == phase
    }

    /// Moves the reader into a phase: it has taken every byte before.
    pub(crate) fn follow(&self, phase: u32) {
        self.reader.phase.store(phase, order::free());
    }

    /// Returns true if the reader takes the bytes of this phase.
    pub(crate) fn is_followed(&self, phase: u32) -> bool {
        self.reader.phase.load(order::reuse()) == phase
    }

    /// Publishes the number of bytes that the reader took from TCP.
    pub(crate) fn take_tcp(&self, taken: u64) {
        self.reader.taken.store(taken, Ordering::Relaxed);
    }

    /// Returns a number that changes whenever the reader takes bytes.
    pub(crate) fn progress(&self) -> u64 {
        self.reader.head.load(Ordering::Relaxed).wrapping_add(self.reader.taken.load(Ordering::Relaxed))
    }

    /// Asks the writer to use TCP from now on. A reader that rests afterwards hears of each byte that still comes by the ring.
    pub(crate) fn want_tcp(&self) {
        self.reader.wants_tcp.store(1, Ordering::Relaxed);
        order::rest_fence();
    }

    /// Returns true if the reader asked for TCP.
    #[inline]
    pub(crate) fn is_tcp_wanted(&self) -> bool {
        self.reader.wants_tcp.load(Ordering::Relaxed) != 0
    }
}

/// Takes a rest word. A plain load first: the word is nearly always 0.
#[inline]
fn take_rest(rest: &AtomicU32) -> bool {
    rest.load(Ordering::Relaxed) != 0 && rest.swap(0, Ordering::Acquire) != 0
}
