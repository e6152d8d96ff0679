//! Variables that a rank copies to the same address of all other ranks: they take them at the next barrier.
//!
//! Each rank has two rows of its own, which it writes in turns: the others read one behind a barrier, while a rank that is ahead writes
//! the other one. No lock is needed.

use crate::error::CallError;
use crate::ffi::copy_bytes;
use crate::heap::Heap;
use ddss_dsm::{Homes, Region, Space};
use std::ptr;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const RANKS_MAX: usize = 16;
const ROWS: usize = 2 * RANKS_MAX;
/// Variables that a rank distributes between two barriers at most.
const EACH: usize = 64;

/// Number of variables that a rank has distributed before a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Row {
    /// Number of the barrier. Others are old.
    barrier: u64,
    count: u64,
    /// Address of the program at this rank.
    program: u64,
}

/// A variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Record {
    address: u64,
    bytes: u64,
    /// Place of its value in the heap.
    offset: u64,
}

/// Distribution of variables.
pub(crate) struct Distribution {
    rows: Region<Row>,
    records: Region<Record>,
    /// Barriers that this rank has passed.
    barriers: u64,
    /// Variables since then.
    sent: usize,
    /// Offsets of values in the heap, and the barrier behind which no rank needs them.
    values: Vec<(u64, u64)>,
}

impl Distribution {
    /// Bytes of the pages.
    pub(crate) const BYTES: u64 = 4096 + ((ROWS * EACH * size_of::<Record>()) as u64).next_multiple_of(4096);

    /// Opens the rows of a space. All ranks meet at a barrier afterwards.
    pub(crate) fn open(space: &mut Space) -> Result<Self, CallError> {
        let rows = space.region::<Row>("ddss distributions", ROWS, Homes::FirstTouch)?;
        let records = space.region("ddss distributed", ROWS * EACH, Homes::FirstTouch)?;
        let cells = rows.cells(space, ..)?;
        let rank = usize::from(space.rank());
        // A checkpoint may have brought back old ones.
        for row in [rank, RANKS_MAX + rank] {
            cells.set(row, Row { barrier: 0, count: 0, program: 0 });
        }
        drop(cells);
        Ok(Self { rows, records, barriers: 0, sent: 0, values: Vec::new() })
    }

    /// Lets all other ranks take bytes of this process at the next barrier.
    ///
    /// # Safety
    /// So many bytes can be read at the address, and the others have a variable of this size there if they have the same program.
    pub(crate) unsafe fn distribute(
        &mut self,
        space: &mut Space,
        heap: &Heap,
        address: *mut u8,
        bytes: usize,
    ) -> Result<(), CallError> {
        if self.sent == EACH {
            return Err(CallError::DistributionsFull(EACH));
        }
        let value = heap.allocate(space, bytes)?;
        // SAFETY: the caller promises that the bytes can be read, and the heap has given so many.
        unsafe { copy_bytes(address, value, bytes) };
        let (row, offset) = (self.row(self.barriers, space.rank().into()), heap.offset(value));
        let (rows, records) = (self.rows.cells(space, ..)?, self.records.cells(space, ..)?);
        records.set(row * EACH + self.sent, Record { address: address.addr() as u64, bytes: bytes as u64, offset });
        self.sent += 1;
        rows.set(row, Row { barrier: self.barriers + 1, count: self.sent as u64, program: program_address() });
        self.values.push((offset, self.barriers + 2));
        Ok(())
    }

    /// Takes what the others have distributed before a barrier that this rank has just passed.
    pub(crate) fn pass_barrier(&mut self, space: &mut Space, heap: &Heap) -> Result<(), CallError> {
        let passed = self.barriers;
        self.barriers += 1;
        self.sent = 0;
        let rows = self.rows.cells(space, ..)?;
        for rank in (0..space.ranks()).filter(|rank| *rank != space.rank()) {
            let number = self.row(passed, rank.into());
            let row = rows.get(number);
            if row.barrier != self.barriers {
                continue;
            }
            if row.program != program_address() {
                return Err(CallError::OtherAddresses(rank));
            }
            let records = self.records.cells(space, ..)?;
            for index in 0..(row.count as usize).min(EACH) {
                let Record { address, bytes, offset } = records.get(number * EACH + index);
                let value = heap.address(offset, bytes).ok_or(CallError::OtherAddresses(rank))?;
                let to = ptr::with_exposed_provenance_mut(address as usize);
                // SAFETY: the other rank has the same program at the same address, and promises that this one has such a variable
                // there. Ranks trust each other. The value is in the heap.
                unsafe { copy_bytes(value, to, bytes as usize) };
            }
        }
        drop(rows);
        while let Some((offset, _)) = self.values.first().filter(|(_, until)| *until <= self.barriers).copied() {
            self.values.remove(0);
            if let Some(value) = heap.address(offset, 1) {
                heap.free(space, value)?;
            }
        }
        Ok(())
    }

    fn row(&self, barrier: u64, rank: usize) -> usize {
        (barrier % 2) as usize * RANKS_MAX + rank
    }
}

/// Returns an address of the program of this process.
pub(crate) fn program_address() -> u64 {
    // SAFETY: the call takes no memory.
    unsafe { libc::getauxval(libc::AT_PHDR) }
}
