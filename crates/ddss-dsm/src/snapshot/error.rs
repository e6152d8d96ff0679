//! Errors of snapshots.

/// Error of a publisher or of a reader.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A call of the client failed.
    #[error(transparent)]
    Client(#[from] ddss::Error),
    /// The table is none of a snapshot, or one of another release.
    #[error("the table is no snapshot of this release: publish under another name, or release it")]
    Format,
    /// Nothing has been published.
    #[error("nothing has been published under this name: open it again later")]
    Unpublished,
    /// Frames of this generation are used for a newer one.
    #[error("a newer generation has replaced pages of this one: refresh the snapshot, and read again")]
    Superseded,
    /// Another publisher has taken the name, or the fate of the last generation is unknown.
    #[error("another publisher has this snapshot, or the last call ended without an answer: open the publisher again")]
    Replaced,
    /// The table has too few free frames.
    #[error("{needed} pages have changed, and {free} frames are free: create the snapshot with more spare pages")]
    NoRoom {
        /// Frames that the generation needs.
        needed: usize,
        /// Free frames.
        free: usize,
    },
    /// The array is too large, or has no element.
    #[error("{elements} elements of {bytes} bytes are no snapshot: it has up to 1.7 GiB")]
    Size {
        /// Elements.
        elements: usize,
        /// Bytes of each.
        bytes: usize,
    },
    /// The snapshot has other elements.
    #[error("the snapshot has {theirs} {what}, and not {ours}: use the same, or another name")]
    Mismatch {
        /// Property that differs.
        what: &'static str,
        /// Value of the snapshot.
        theirs: u64,
        /// Value of the caller.
        ours: u64,
    },
    /// Elements are outside the array.
    #[error("elements {start} to {end} are none of the snapshot, which has {len}")]
    OutOfRange {
        /// First element.
        start: usize,
        /// Behind the last element.
        end: usize,
        /// Elements of the array.
        len: usize,
    },
}
