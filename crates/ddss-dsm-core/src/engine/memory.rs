//! Memory of this rank, as the engine uses it.

use crate::limits::LINE_BYTES;
use crate::model::{Access, PageId, Rank};

/// Memory of this rank. The driver implements it over its own mapping and never over the application's view: the thread
/// that calls the engine would wait for itself at a closed page.
pub trait Memory {
    /// Sets the application's permission for a page. It holds when the call returns.
    fn set_access(&mut self, page: PageId, access: Access);

    /// Copies the cache frame of a page. The application may write during the copy if it may write the page.
    fn read_cache(&mut self, page: PageId, into: &mut [u8]);

    /// Copies the home frame of a page into its cache frame.
    fn fill_from_home(&mut self, page: PageId);

    /// Copies a landing slot into the cache frame of a page.
    fn fill_from_landing(&mut self, page: PageId, slot: u16);

    /// Writes bytes into the home frame of a page.
    fn write_home(&mut self, page: PageId, offset: u32, bytes: &[u8]);

    /// Replaces a home word of this rank if it is 0, and returns the value that it found. Atomic with the swaps of peers,
    /// which the fabric of this thread executes.
    fn claim_home(&mut self, page: PageId, word: u64) -> u64;

    /// Copies the version line of a page.
    fn read_stamps(&mut self, page: PageId) -> [u8; LINE_BYTES];

    /// Writes the stamp of a rank into the version line of a page.
    fn write_stamp(&mut self, page: PageId, rank: Rank, interval: u32);

    /// Copies a landing line.
    fn read_line(&mut self, slot: u16) -> [u8; LINE_BYTES];

    /// Writes into the log ring of this rank.
    fn write_log(&mut self, offset: u64, bytes: &[u8]);

    /// Copies from the image of a peer's log ring.
    fn read_log(&mut self, rank: Rank, offset: u64, into: &mut [u8]);
}
