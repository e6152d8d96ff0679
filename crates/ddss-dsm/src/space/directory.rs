//! Records of regions in the last pages of a space.

use crate::error::SpaceError;
use crate::report::REGION_ROWS;
use ddss_dsm_core::{Homes, PageId, Rank};
use std::any::type_name;
use std::ops::Range;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of the name of a region at most.
const NAME_BYTES_MAX: usize = 88;
/// Regions of a space at most.
pub(crate) const REGIONS_MAX: usize = REGION_ROWS as usize;
/// Pages of the directory.
pub(super) const DIRECTORY_PAGES: u32 = (REGIONS_MAX * size_of::<Record>()).div_ceil(4096) as u32;

/// A region, as its first asker describes it.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Record {
    name_bytes: U32,
    element_bytes: U32,
    offset: U64,
    count: U64,
    /// 0: the first rank that touches a page; 1: blocks of so many pages; 2: that rank.
    homes_kind: U32,
    homes: U32,
    name: [u8; NAME_BYTES_MAX],
    /// Checksum of the name of the element's type.
    element_type: U32,
    reserved: U32,
}

impl Record {
    /// Describes a region whose place is not decided.
    pub(crate) fn new<T>(name: &str, count: u64, homes: Homes) -> Result<Self, SpaceError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(SpaceError::RegionName { bytes: name.len(), max: NAME_BYTES_MAX });
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        let (homes_kind, homes) = match homes {
            Homes::FirstTouch => (0, 0),
            Homes::Blocks(pages) => (1, pages),
            Homes::Rank(rank) => (2, rank.index() as u32),
        };
        Ok(Self {
            name_bytes: (name.len() as u32).into(),
            element_bytes: u32::try_from(size_of::<T>()).unwrap_or(u32::MAX).into(),
            offset: 0.into(),
            count: count.into(),
            homes_kind: homes_kind.into(),
            homes: homes.into(),
            name: bytes,
            element_type: checksum_of_type(type_name::<T>()).into(),
            reserved: 0.into(),
        })
    }

    /// Finds a region among the records of a space of so many bytes, or gives it the next place. Returns its record, and its
    /// index if it is new.
    pub(crate) fn find_or_place(self, all: &[Self], bytes: u64) -> Result<(Self, Option<usize>), SpaceError> {
        let used = all.iter().take_while(|record| record.name_bytes.get() > 0);
        let (mut end, mut count) = (0, 0);
        for record in used {
            if record.name == self.name {
                record.compare(&self)?;
                return Ok((*record, None));
            }
            (end, count) = (record.end(), count + 1);
        }
        if count == all.len() {
            return Err(SpaceError::RegionsFull { max: REGIONS_MAX });
        }
        let placed = Self { offset: end.into(), ..self };
        if self.count.get() == 0 || placed.end() > bytes {
            let (region, asked) = (self.name(), self.count.get().saturating_mul(self.element_bytes.get().into()));
            return Err(SpaceError::NoRoom { region, asked, left: bytes.saturating_sub(end) });
        }
        Ok((placed, Some(count)))
    }

    fn compare(&self, ours: &Self) -> Result<(), SpaceError> {
        let differs = |what, theirs: u64, ours: u64| {
            let region = self.name();
            if theirs == ours { Ok(()) } else { Err(SpaceError::RegionMismatch { region, what, theirs, ours }) }
        };
        differs("elements", self.count.get(), ours.count.get())?;
        differs("bytes an element", self.element_bytes.get().into(), ours.element_bytes.get().into())?;
        if self.element_type != ours.element_type {
            return Err(SpaceError::RegionType { region: self.name() });
        }
        differs("kind of homes", self.homes_kind.get().into(), ours.homes_kind.get().into())?;
        differs("homes", self.homes.get().into(), ours.homes.get().into())
    }

    /// Returns the elements that have bytes in a page. `None` if the page is outside the region.
    pub(crate) fn elements_in(&self, page: PageId) -> Option<Range<u64>> {
        let (start, each) = (page.offset(4096), u64::from(self.element_bytes.get()));
        if self.name_bytes.get() == 0 || each == 0 || start < self.offset() || start >= self.end() {
            return None;
        }
        let inside = start - self.offset();
        Some(inside / each..(inside + 4096).div_ceil(each).min(self.count.get()))
    }

    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.name[..(self.name_bytes.get() as usize).min(NAME_BYTES_MAX)]).into_owned()
    }

    /// Returns the place of the first byte: the begin of a page.
    pub(crate) fn offset(&self) -> u64 {
        self.offset.get()
    }

    /// Returns the number of elements, and the bytes of each.
    pub(crate) fn elements(&self) -> (u64, u64) {
        (self.count.get(), self.element_bytes.get().into())
    }

    /// Returns the begin of the next page behind the region.
    pub(crate) fn end(&self) -> u64 {
        let bytes = self.count.get().saturating_mul(self.element_bytes.get().into());
        self.offset.get().saturating_add(bytes).checked_next_multiple_of(4096).unwrap_or(u64::MAX)
    }

    /// Returns the homes of the region. `None` if the record names none that this release knows.
    pub(crate) fn homes(&self) -> Option<Homes> {
        match self.homes_kind.get() {
            0 => Some(Homes::FirstTouch),
            1 => Some(Homes::Blocks(self.homes.get())),
            2 => Rank::new(self.homes.get() as usize).map(Homes::Rank),
            _ => None,
        }
    }
}

/// Returns the checksum of a type's name without the paths in it: programs of other crates may define the same type.
fn checksum_of_type(name: &str) -> u32 {
    let words = name.split_inclusive(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
    words.fold(0, |sum, word| crc32c::crc32c_append(sum, word.rsplit("::").next().unwrap_or(word).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn regions_lie_side_by_side_and_only_equal_ones_are_found() {
        // If this broke, two regions would share bytes, or two ranks would see different elements in one region.
        let empty = || Record::read_from_bytes(&[0; size_of::<Record>()]).unwrap();
        let mut all = [empty(), empty()];
        let ask = |name: &str, count| Record::new::<f32>(name, count, Homes::FirstTouch).unwrap();
        let small = |name: &str, count| Record::new::<u8>(name, count, Homes::FirstTouch).unwrap();
        let (first, index) = ask("grid", 1025).find_or_place(&all, 3 * 4096).unwrap();
        assert_eq!((first.offset(), first.end(), index), (0, 8192, Some(0)));
        all[0] = first;
        assert_eq!(ask("grid", 1025).find_or_place(&all, 3 * 4096).unwrap().1, None);
        let said = |record: Record| record.find_or_place(&all, 3 * 4096).map(drop).unwrap_err().to_string();
        assert_eq!(said(ask("grid", 7)), "region grid has 1025 elements, and this rank asks for 7: ask for the same");
        let wide = Record::new::<f64>("grid", 1025, Homes::FirstTouch).unwrap();
        assert!(said(wide).starts_with("region grid has 4 bytes an element"));
        assert!(said(Record::new::<f32>("grid", 1025, Homes::Blocks(2)).unwrap()).contains("kind of homes"));
        for other in [Record::new::<u32>, Record::new::<[u8; 4]>, Record::new::<[u16; 2]>] {
            let said = said(other("grid", 1025, Homes::FirstTouch).unwrap());
            assert!(said.starts_with("region grid has elements of another type of the same size"), "{said}");
        }
        assert_eq!(
            said(small("more", 4097)),
            "no room for region more: 4097 bytes of 4096 left; join with more bytes on all ranks"
        );
        assert!(said(ask("none", 0)).starts_with("no room for region none: 0 bytes"));
        assert!(said(ask("huge", u64::MAX)).starts_with("no room"));
        let elements = |page| first.elements_in(PageId(page));
        assert_eq!([0, 1, 2].map(elements), [Some(0..1024), Some(1024..1025), None]);
        assert_eq!(empty().elements_in(PageId(0)), None);
        all[1] = small("more", 4096).find_or_place(&all, 3 * 4096).unwrap().0;
        assert_eq!(all[1].offset(), 8192);
        let full = small("third", 1).find_or_place(&all, u64::MAX).map(drop).unwrap_err();
        assert_eq!(full.to_string(), "no room for another region: a space has 128");
        assert!(Record::new::<u8>(&"x".repeat(89), 1, Homes::FirstTouch).is_err());
    }

    #[test]
    fn types_are_compared_without_their_paths() {
        // If this broke, two programs that share a type could not share a region, or `f64` would be taken for `u64`.
        let sum = checksum_of_type;
        assert_eq!(sum("heat::grid::Cell"), sum("Cell"));
        assert_eq!(sum("[(a::Cell, b::Cell); 4]"), sum("[(c::d::Cell, Cell); 4]"));
        assert_eq!(BTreeSet::from(["Cell", "Cells", "[Cell; 4]", "f64", "u64", "(u64)"].map(sum)).len(), 6);
    }
}
