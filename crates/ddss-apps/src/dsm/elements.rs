//! Elements of a region, used by views or by page faults.

use crate::Error;
use ddss_dsm::{Region, Space};
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Way in which a program uses the elements of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elements {
    /// By views, whose pages are fetched together.
    Views,
    /// By page faults: each page is fetched at its first use.
    PageFaults,
}

impl Elements {
    /// Copies elements out of a region.
    pub(super) fn load<T>(self, space: &Space, region: Region<T>, range: Range<usize>) -> Result<Vec<T>, Error>
    where
        T: Copy + FromBytes + IntoBytes + Immutable,
    {
        if self == Self::Views {
            return Ok(region.read(space, range)?.to_vec());
        }
        let cells = region.cells(space, range)?;
        Ok((0..cells.len()).map(|at| cells.get(at)).collect())
    }

    /// Copies elements into a region, from `begin` on.
    pub(super) fn store<T>(self, space: &Space, region: Region<T>, begin: usize, elements: &[T]) -> Result<(), Error>
    where
        T: Copy + FromBytes + IntoBytes + Immutable,
    {
        let range = begin..begin + elements.len();
        if self == Self::Views {
            region.write(space, range)?.copy_from_slice(elements);
            return Ok(());
        }
        let cells = region.cells(space, range)?;
        elements.iter().enumerate().for_each(|(at, element)| cells.set(at, *element));
        Ok(())
    }
}
