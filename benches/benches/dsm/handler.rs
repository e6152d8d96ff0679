//! Time of the home's handler.

use std::time::Duration;

use ddss_apps::dsm::Settings;
use ddss_benches::baseline::memory_copy;
use ddss_benches::harness::{Bench, Sample, StandaloneResult};

use super::peer::{HomeCounts, PAGES, Page, Pair, path};

const OPERATIONS: [&str; 3] = ["handler_fetch", "handler_small", "handler_large"];

pub(super) fn measure(bench: &mut Bench, way: Settings) {
    let label = |operation: &str| format!("ddss,{operation},4096,{},{PAGES}", path(way));
    if !OPERATIONS.iter().any(|operation| bench.options.wants(&label(operation))) {
        return;
    }
    let rounds = match (bench.options.bench, bench.options.quick) {
        (false, _) => 1,
        (true, true) => 3,
        (true, false) => 15,
    };
    let mut pair = Pair::start(way);
    let mut limit = memory_copy(4096);
    for operation in OPERATIONS {
        bench.by_itself(&mut limit, &label(operation), Duration::ZERO, |_| {
            let all: Vec<HomeCounts> = (0..rounds).map(|round| run(&mut pair, operation, round)).collect();
            result(&all)
        });
    }
}

/// Fetches all pages, and then changes them. Returns what the home did for one of the two.
fn run(pair: &mut Pair, operation: &str, round: u64) -> HomeCounts {
    pair.refresh();
    pair.fetch(PAGES);
    pair.next();
    if operation == "handler_fetch" {
        return pair.counts_before();
    }
    // No byte keeps its value from one round to the next.
    let byte = round as u8 + 1;
    match operation {
        "handler_small" => pair.change(|page: &mut Page| page[100] ^= u64::from(byte)),
        _ => pair.change(|page: &mut Page| page.iter_mut().for_each(|number| *number ^= u64::from_ne_bytes([byte; 8]))),
    }
    pair.next();
    pair.counts_before()
}

fn result(all: &[HomeCounts]) -> StandaloneResult {
    let mut sample = Sample::empty();
    for [ns, ..] in all {
        sample.record(Duration::from_nanos(*ns), PAGES as u32, PAGES as u64);
    }
    let a_page = |index: usize| {
        let sum: u64 = all.iter().map(|counts| counts[index]).sum();
        sum as f64 / (all.len() * PAGES) as f64
    };
    let mut result = StandaloneResult::new(sample);
    result.notes.push(format!("{:.2} messages and {:.0} copied bytes a page", a_page(1), a_page(2)));
    result
}
