//! Page-based shared memory between two ranks on loopback, beside what the same bytes cost without it.
//!
//! The paths name protocol and ordering, such as `tcp-lo/newgendsm-stamped`.
//!
//! - `page_fetch`: pages of another rank in one view, beside a read of 4 KiB over the same fabric. `outstanding` is the
//!   number of pages.
//! - `handler_fetch`, `handler_small`, `handler_large`: time of the home's handler for a page that is fetched, and for a
//!   page of which another rank has changed one byte, or all.
//! - `barnes-hut`, `tsp`, `radix`, `3d-fft`: the paper's programs on two ranks. `size` is their number, the median the time
//!   of both handlers, and the notes have the counts.
//! - `diff_equal`, `diff_byte`, `diff_all`: a page compared with its twin, beside memcmp and memcpy.
//! - `view_sum`, `snapshot_sum`: numbers that this rank holds, beside a slice.
#![forbid(unsafe_code)]

mod diff;
mod fetch;
mod handler;
mod peer;
mod programs;
mod view;

use ddss_benches::harness::Bench;

fn main() {
    if peer::run_as_home() {
        return;
    }
    let mut bench = Bench::start("dsm", std::env::args_os().skip(1));
    diff::measure(&mut bench);
    view::measure(&mut bench);
    for way in peer::ways() {
        fetch::measure(&mut bench, way);
        handler::measure(&mut bench, way);
    }
    programs::measure(&mut bench);
    bench.finish();
}
