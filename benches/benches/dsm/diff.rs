//! A page compared with its twin.

use std::hint::black_box;

use ddss_benches::baseline::memory_copy;
use ddss_benches::harness::{Bench, Figure, RoundTrip};
use ddss_dsm_core::diff::{Run, find_runs};

const PAGE_BYTES: usize = 4096;
const PATH: &str = "near/spin/t1";

struct Compare {
    twin: Vec<u8>,
    page: Vec<u8>,
}

impl RoundTrip for Compare {
    fn once(&mut self) {
        black_box(black_box(&self.twin) == black_box(&self.page));
    }
}

struct Diff {
    twin: Vec<u8>,
    page: Vec<u8>,
    runs: Vec<Run>,
}

impl RoundTrip for Diff {
    fn once(&mut self) {
        find_runs(black_box(&self.twin), black_box(&self.page), &mut self.runs);
        black_box(&self.runs);
    }
}

fn diff(operation: &'static str, change: impl FnMut(&mut u8), each: usize) -> Figure {
    let twin: Vec<u8> = (0..PAGE_BYTES).map(|at| at as u8).collect();
    let mut page = twin.clone();
    page.iter_mut().step_by(each).for_each(change);
    Figure::new("ddss", operation, PAGE_BYTES, PATH, Diff { twin, page, runs: Vec::new() })
}

pub(super) fn measure(bench: &mut Bench) {
    let twin: Vec<u8> = (0..PAGE_BYTES).map(|at| at as u8).collect();
    let limit = Figure::new("raw", "memcmp", PAGE_BYTES, PATH, Compare { page: twin.clone(), twin });
    bench.family(limit, vec![diff("diff_equal", |_| (), 1), diff("diff_byte", |byte| *byte += 1, PAGE_BYTES)]);
    bench.family(memory_copy(PAGE_BYTES), vec![diff("diff_all", |byte| *byte ^= 0x55, 1)]);
}
