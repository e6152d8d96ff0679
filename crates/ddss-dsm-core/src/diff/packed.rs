//! Packed runs: a diff as the payload of a message.
//!
//! ```text
//!  0         2         4
//!  +---------+---------+----------------+----
//!  | offset  | bytes-1 | the run's bytes| next run
//!  +---------+---------+----------------+----
//! ```

use super::runs::Run;

/// Bytes in front of each packed run.
pub const PACKED_RUN_BYTES: usize = 4;

/// A packed diff that no sender produces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a packed diff has a run outside the page, or ends within a run")]
pub struct PackedError;

/// Packs runs from the front of `runs` until `capacity` bytes are full, and removes them. A run that does not fit is cut.
///
/// # Panics
/// If the capacity has no room for one byte.
pub fn pack(runs: &mut &[Run], cut: &mut u32, page: &[u8], capacity: usize, into: &mut Vec<u8>) {
    assert!(capacity > PACKED_RUN_BYTES, "a message has room for one byte of a diff");
    let end = into.len() + capacity;
    while let [run, rest @ ..] = *runs {
        let room = end - into.len();
        if room <= PACKED_RUN_BYTES {
            break;
        }
        let offset = run.offset + *cut;
        let bytes = (run.end() - offset).min((room - PACKED_RUN_BYTES) as u32);
        into.extend_from_slice(&(offset as u16).to_le_bytes());
        into.extend_from_slice(&((bytes - 1) as u16).to_le_bytes());
        into.extend_from_slice(&page[offset as usize..(offset + bytes) as usize]);
        if offset + bytes == run.end() {
            (*runs, *cut) = (rest, 0);
        } else {
            *cut += bytes;
        }
    }
}

/// Packed runs of a message, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedRuns<'a>(&'a [u8]);

impl<'a> PackedRuns<'a> {
    /// Checks that every run lies in the page.
    ///
    /// # Errors
    /// A run outside the page, or a run that the bytes do not contain.
    pub fn check(bytes: &'a [u8], page_bytes: u32) -> Result<Self, PackedError> {
        let runs = Self(bytes);
        let mut read = 0;
        for (offset, run) in runs.iter() {
            if offset as usize + run.len() > page_bytes as usize {
                return Err(PackedError);
            }
            read += PACKED_RUN_BYTES + run.len();
        }
        if read == bytes.len() { Ok(runs) } else { Err(PackedError) }
    }

    /// Returns the packed bytes.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns each run: its offset in the page, and its bytes.
    pub fn iter(self) -> impl Iterator<Item = (u32, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_first_chunk::<PACKED_RUN_BYTES>()?;
            let offset = u16::from_le_bytes([head[0], head[1]]);
            let (run, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes([head[2], head[3]])) + 1)?;
            rest = behind;
            Some((u32::from(offset), run))
        })
    }
}
