//! The cursors of one direction of a stream, and the protocol by which its two sides sleep and wake each other.
//!
//! ```text
//!  field       stored by   meaning
//!  tail        writer      bytes written into the ring so far; the bytes before it are whole
//!  switch_at   writer      0: the writer still uses TCP; P + 1: its TCP bytes end at P, the ring follows
//!  space_rest  writer 1, reader 0    1: the writer sleeps until there is space
//!  head        reader      bytes taken from the ring so far; the bytes before it may be overwritten
//!  data_rest   reader 1, writer 0    1: the reader sleeps until there are bytes
//! ```
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
    switch_at: AtomicU64,
    space_rest: AtomicU32,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct ReaderLine {
    head: AtomicU64,
    data_rest: AtomicU32,
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
            writer: WriterLine { tail: AtomicU64::new(0), switch_at: AtomicU64::new(0), space_rest: AtomicU32::new(0) },
            reader: ReaderLine { head: AtomicU64::new(0), data_rest: AtomicU32::new(0) },
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

    /// Returns the filled part, for the reader at `head`. The tail is read once and checked.
    #[inline]
    pub(crate) fn filled(&self, head: u64, capacity: usize) -> Result<Span, BrokenCursor> {
        let used = self.writer.tail.load(order::take()).wrapping_sub(head);
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

    /// Returns the number of bytes that the writer sent over TCP, once the writer has changed to the ring. The writer itself knows better.
    #[inline]
    pub(crate) fn tcp_end(&self) -> Option<u64> {
        self.writer.switch_at.load(order::take()).checked_sub(1)
    }

    /// Changes the writer to the ring: its TCP bytes end at `tcp_end`.
    pub(crate) fn switch(&self, tcp_end: u64) {
        self.writer.switch_at.store(tcp_end.saturating_add(1), order::publish());
    }
}

/// Takes a rest word. A plain load first: the word is nearly always 0.
#[inline]
fn take_rest(rest: &AtomicU32) -> bool {
    rest.load(Ordering::Relaxed) != 0 && rest.swap(0, Ordering::Relaxed) != 0
}
