//! Elements of a region, used by views or by page faults.

use crate::Error;
use ddss_dsm::{ReadView, Region, Space};
use std::ops::{Deref, RangeBounds};
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
    /// Reads elements of a region.
    pub(super) fn load<T>(
        self,
        space: &Space,
        region: Region<T>,
        range: impl RangeBounds<usize>,
    ) -> Result<Loaded<'_, T>, Error>
    where
        T: Copy + FromBytes + IntoBytes + Immutable,
    {
        if self == Self::Views {
            return Ok(Loaded::View(region.read(space, range)?));
        }
        let cells = region.cells(space, range)?;
        Ok(Loaded::Copy((0..cells.len()).map(|at| cells.get(at)).collect()))
    }

    /// Reads an element.
    pub(super) fn get<T>(self, space: &Space, region: Region<T>, index: usize) -> Result<T, Error>
    where
        T: Copy + FromBytes + IntoBytes + Immutable,
    {
        Ok(self.load(space, region, index..=index)?[0])
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

/// Elements that a program reads.
pub(super) enum Loaded<'a, T> {
    View(ReadView<'a, T>),
    Copy(Vec<T>),
}

impl<T> Deref for Loaded<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::View(view) => view,
            Self::Copy(copy) => copy,
        }
    }
}
