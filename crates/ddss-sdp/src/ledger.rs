//! Count of the bytes that user code copies.

/// Bytes of a stream, and the copies that user code made of them. Headers do not count.
///
/// Basic over a fabric in software copies twice on each side, enhanced once, zero copy never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CopyLedger {
    /// Stream bytes that the application wrote.
    pub written: u64,
    /// Bytes copied on their way from the application to the socket.
    pub send_copied: u64,
    /// Stream bytes that the application read.
    pub read: u64,
    /// Bytes copied on their way from the socket to the application.
    pub receive_copied: u64,
}

impl CopyLedger {
    /// Returns the sum of two parts of one stream, such as the engine and the frame encoder below it.
    #[must_use]
    pub const fn with(self, other: CopyLedger) -> CopyLedger {
        CopyLedger {
            written: self.written + other.written,
            send_copied: self.send_copied + other.send_copied,
            read: self.read + other.read,
            receive_copied: self.receive_copied + other.receive_copied,
        }
    }

    /// Returns the modelled cache traffic of the sender in bytes.
    ///
    /// The application's buffer is in the cache; every buffer behind it is fetched when it is filled and flushed
    /// later, because it is dirty (section 5.3 of the paper).
    #[must_use]
    pub const fn send_cache_bytes(&self) -> u64 {
        2 * self.send_copied
    }

    /// Returns the modelled cache traffic of the receiver in bytes.
    ///
    /// The first buffer is fetched once and stays clean. Every buffer between it and the application is fetched and
    /// flushed; the application's buffer is in the cache.
    #[must_use]
    pub const fn receive_cache_bytes(&self) -> u64 {
        self.read + 2 * self.receive_copied.saturating_sub(self.read)
    }
}
