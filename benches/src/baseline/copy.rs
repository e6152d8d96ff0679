//! A plain copy of unshared memory: the minimal cost of moving bytes.

use std::hint::black_box;

use crate::harness::{Figure, RoundTrip};

struct Copy {
    from: Vec<u8>,
    to: Vec<u8>,
}

/// A `memcpy` of `size_bytes`.
pub fn memory_copy(size_bytes: usize) -> Figure {
    let trip = Copy { from: vec![3; size_bytes], to: vec![0; size_bytes] };
    Figure::new("raw", "memcpy", size_bytes, "near/spin/t1", trip)
}

impl RoundTrip for Copy {
    fn once(&mut self) {
        // Neither side is known to the compiler, or it would copy nothing the second time.
        self.to.copy_from_slice(black_box(&self.from));
        black_box(self.to.as_mut_slice());
    }
}
