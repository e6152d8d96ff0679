//! Functions of the program that rank 0 starts on the other ranks, each with the variables of rank 0 as they are then.

use crate::distribution::program_address;
use crate::error::CallError;
use crate::ffi::{Variables, copy_bytes};
use crate::heap::Heap;
use crate::process::{INDEX_END, own_address};
use ddss_dsm::{Homes, Region, Space};
use std::ffi::c_char;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const RANKS_MAX: usize = 16;
/// Semaphore of the end of functions.
const ENDS: u32 = INDEX_END;
/// Semaphore of rank 0. Those of the other ranks follow.
const STARTS: u32 = INDEX_END + 1;

unsafe extern "C" {
    /// Environment of the process. It may be one of the variables.
    static mut environ: *mut *mut c_char;
}

/// Function that a rank is to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Creation {
    /// Address of the function. 0: none.
    function: u64,
    /// Address and bytes of the variables.
    begin: u64,
    bytes: u64,
    /// Place of their values in the heap.
    offset: u64,
    /// Address of the program at rank 0.
    program: u64,
}

/// Functions on other ranks.
pub(crate) struct Program {
    creations: Region<Creation>,
    /// True if the other ranks wait for functions.
    is_used: bool,
    /// Rank of the next function.
    next: u16,
    /// Functions that run.
    running: u16,
    /// Offsets in the heap of the variables that they have got.
    values: Vec<u64>,
}

impl Program {
    /// Bytes of the pages.
    pub(crate) const BYTES: u64 = 4096;

    pub(crate) fn open(space: &mut Space) -> Result<Self, CallError> {
        let creations = space.region("ddss functions", RANKS_MAX, Homes::FirstTouch)?;
        Ok(Self { creations, is_used: false, next: 1, running: 0, values: Vec::new() })
    }

    /// Starts a function on the next rank.
    ///
    /// # Safety
    /// The variables can be read, and the others may replace theirs by them.
    pub(crate) unsafe fn create(
        &mut self,
        space: &mut Space,
        heap: &Heap,
        function: usize,
        variables: Variables,
    ) -> Result<(), CallError> {
        if space.rank() > 0 || self.next >= space.ranks() || !self.is_used {
            return Err(CallError::Creation(space.ranks() - 1));
        }
        if variables.contain(own_address()) {
            return Err(CallError::Static);
        }
        let value = heap.allocate(space, variables.bytes)?;
        // SAFETY: the caller promises that they can be read, and the heap has given so many bytes.
        unsafe { copy_bytes(variables.begin, value, variables.bytes) };
        let offset = heap.offset(value);
        self.values.push(offset);
        let (begin, bytes) = (variables.begin.addr() as u64, variables.bytes as u64);
        let creation = Creation { function: function as u64, begin, bytes, offset, program: program_address() };
        self.post(space, creation)?;
        self.running += 1;
        Ok(())
    }

    /// Waits for a function that rank 0 starts here, and takes its variables. Returns its address: `None` in rank 0, or if there is
    /// none for this rank.
    ///
    /// # Safety
    /// The variables can be written, and nothing else uses them.
    pub(crate) unsafe fn await_function(
        &mut self,
        space: &mut Space,
        heap: &Heap,
        variables: Variables,
    ) -> Result<Option<usize>, CallError> {
        self.is_used = true;
        let rank = space.rank();
        if rank == 0 {
            return Ok(None);
        }
        space.wait(STARTS + u32::from(rank))?;
        let creation = self.creations.cells(space, ..)?.get(rank.into());
        if creation.function == 0 {
            return Ok(None);
        }
        let ours = (program_address(), variables.begin.addr() as u64, variables.bytes as u64);
        let value = heap.address(creation.offset, creation.bytes);
        let Some(value) = value.filter(|_| (creation.program, creation.begin, creation.bytes) == ours) else {
            return Err(CallError::OtherAddresses(0));
        };
        // SAFETY: a variable of libc, which no other thread writes now.
        let environment = unsafe { environ };
        // SAFETY: the value is in the heap, and the caller promises that the variables can be written.
        unsafe { copy_bytes(value, variables.begin, variables.bytes) };
        // SAFETY: as above. The environment of rank 0 is none here.
        unsafe { environ = environment };
        Ok(Some(creation.function as usize))
    }

    /// Tells rank 0 that the function has ended.
    pub(crate) fn end(&mut self, space: &mut Space) -> Result<(), CallError> {
        Ok(space.post(ENDS)?)
    }

    /// Waits until all functions have ended.
    pub(crate) fn await_ends(&mut self, space: &mut Space, heap: &Heap) -> Result<(), CallError> {
        while self.running > 0 {
            space.wait(ENDS)?;
            self.running -= 1;
        }
        for offset in std::mem::take(&mut self.values) {
            if let Some(value) = heap.address(offset, 1) {
                heap.free(space, value)?;
            }
        }
        Ok(())
    }

    /// Lets the ranks leave that wait for a function.
    pub(crate) fn dismiss(&mut self, space: &mut Space) -> Result<(), CallError> {
        while space.rank() == 0 && self.is_used && self.next < space.ranks() {
            self.post(space, Creation { function: 0, begin: 0, bytes: 0, offset: 0, program: 0 })?;
        }
        Ok(())
    }

    fn post(&mut self, space: &mut Space, creation: Creation) -> Result<(), CallError> {
        self.creations.cells(space, ..)?.set(self.next.into(), creation);
        space.post(STARTS + u32::from(self.next))?;
        self.next += 1;
        Ok(())
    }
}
