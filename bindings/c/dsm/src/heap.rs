//! Allocator of shared memory, which all ranks use under a lock.
//!
//! The table of blocks lies in pages of its own, so that a block of whole pages begins at a page: what two ranks write apart does not
//! meet in one page.

use crate::error::CallError;
use crate::process::INDEX_END;
use ddss_dsm::{Homes, Region, Space};
use std::ptr;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Lock of the heap.
const LOCK: u32 = INDEX_END + 1;
/// Blocks at most, also free ones.
const BLOCKS_MAX: usize = 1 << 16;
const PAGE_BYTES: u64 = 4096;
/// Unit of smaller blocks: a line of a processor's cache.
const LINE_BYTES: u64 = 64;
/// Bit of a block that is in use: sizes are multiples of lines.
const USED: u64 = 1;

/// A block of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Block {
    offset: u64,
    bytes: u64,
}

/// State of the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Head {
    /// Begin of memory that was in no block yet.
    next: u64,
    blocks: u64,
    /// Blocks that are free.
    free: u64,
}

/// The shared heap.
pub(crate) struct Heap {
    /// Address of the memory.
    memory: usize,
    bytes: u64,
    head: Region<Head>,
    blocks: Region<Block>,
}

impl Heap {
    /// Bytes of the pages beside those of the memory.
    pub(crate) const TABLE_BYTES: u64 = PAGE_BYTES + (BLOCKS_MAX * size_of::<Block>()) as u64;

    /// Opens the heap of a space.
    pub(crate) fn open(space: &mut Space, bytes: u64) -> Result<Self, CallError> {
        let head = space.region("ddss heap", 1, Homes::FirstTouch)?;
        let blocks = space.region("ddss heap blocks", BLOCKS_MAX, Homes::FirstTouch)?;
        let memory = space.region::<u8>("ddss heap memory", bytes as usize, Homes::FirstTouch)?;
        let memory = memory.in_place(space, ..)?.as_mut_ptr().expose_provenance();
        Ok(Self { memory, bytes, head, blocks })
    }

    /// Allocates memory, which has been used before or is zero. A block of a page or more begins at a page.
    pub(crate) fn allocate(&self, space: &mut Space, bytes: usize) -> Result<*mut u8, CallError> {
        let too_many = || CallError::NoRoom(bytes);
        let unit = if bytes as u64 >= PAGE_BYTES { PAGE_BYTES } else { LINE_BYTES };
        let size = (bytes as u64).max(1).checked_next_multiple_of(unit).ok_or_else(too_many)?;
        let offset = self.locked(space, |space| self.find(space, size, unit, bytes))?;
        Ok(self.pointer(offset))
    }

    /// Frees memory.
    pub(crate) fn free(&self, space: &mut Space, address: *mut u8) -> Result<(), CallError> {
        let unknown = CallError::NotAllocated(address.addr());
        let Some(offset) = address.addr().checked_sub(self.memory) else { return Err(unknown) };
        self.locked(space, |space| {
            let (heads, blocks) = (self.head.cells(space, ..)?, self.blocks.cells(space, ..)?);
            let head = heads.get(0);
            let is_it = |block: &Block| block.offset == offset as u64 && block.bytes & USED != 0;
            let count = (head.blocks as usize).min(BLOCKS_MAX);
            let Some(index) = (0..count).rfind(|index| is_it(&blocks.get(*index))) else { return Err(unknown) };
            let block = blocks.get(index);
            blocks.set(index, Block { bytes: block.bytes & !USED, ..block });
            heads.set(0, Head { free: head.free + 1, ..head });
            Ok(())
        })
    }

    /// Returns the offset of memory that was allocated.
    pub(crate) fn offset(&self, allocated: *mut u8) -> u64 {
        (allocated.addr() - self.memory) as u64
    }

    /// Returns the address of an offset, if so many bytes from there on are in the memory.
    pub(crate) fn address(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        (offset.checked_add(bytes)? <= self.bytes).then(|| self.pointer(offset))
    }

    fn pointer(&self, offset: u64) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.memory + offset as usize)
    }

    fn find(&self, space: &Space, size: u64, unit: u64, asked: usize) -> Result<u64, CallError> {
        let (heads, blocks) = (self.head.cells(space, ..)?, self.blocks.cells(space, ..)?);
        let (head, count) = (heads.get(0), (heads.get(0).blocks as usize).min(BLOCKS_MAX));
        let reuse = |most: u64| {
            let fits = |block: &Block| {
                let is_free = block.bytes & USED == 0;
                is_free && (size..=most).contains(&block.bytes) && block.offset.is_multiple_of(unit)
            };
            let searched = if head.free > 0 { count } else { 0 };
            let index = (0..searched).find(|index| fits(&blocks.get(*index)))?;
            let block = blocks.get(index);
            blocks.set(index, Block { bytes: block.bytes | USED, ..block });
            heads.set(0, Head { free: head.free - 1, ..head });
            Some(block.offset)
        };
        // One that wastes little, or new memory, or any.
        if let Some(offset) = reuse(size.saturating_mul(2)) {
            return Ok(offset);
        }
        let begin = head.next.next_multiple_of(unit);
        let end = begin.checked_add(size).filter(|end| *end <= self.bytes);
        match end {
            Some(end) if count < BLOCKS_MAX => {
                blocks.set(count, Block { offset: begin, bytes: size | USED });
                heads.set(0, Head { next: end, blocks: head.blocks + 1, ..head });
                Ok(begin)
            }
            _ => reuse(u64::MAX).ok_or(match end {
                Some(_) => CallError::BlocksFull(BLOCKS_MAX),
                None => CallError::NoRoom(asked),
            }),
        }
    }

    fn locked<T>(&self, space: &mut Space, call: impl FnOnce(&Space) -> Result<T, CallError>) -> Result<T, CallError> {
        space.acquire(LOCK)?;
        let result = call(space);
        space.release(LOCK)?;
        result
    }
}
