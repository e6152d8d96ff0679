//! Pages of another rank, beside reads over the same fabric.

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ddss_apps::dsm::Settings;
use ddss_benches::harness::{Bench, Figure, RoundTrip};
use ddss_benches::system::{FabricOp, FabricPair, one_sided};

use super::peer::{Pair, path};

/// Pages in one view.
const TOGETHER: usize = 32;

struct Fetch {
    pair: Rc<RefCell<Pair>>,
    count: usize,
    took: Duration,
}

impl RoundTrip for Fetch {
    fn once(&mut self) {
        let mut pair = self.pair.borrow_mut();
        if !pair.has(self.count) {
            pair.refresh();
        }
        let begin = Instant::now();
        black_box(pair.fetch(self.count));
        self.took = begin.elapsed();
    }

    fn took(&self) -> Option<Duration> {
        Some(self.took)
    }

    fn operations(&self) -> u64 {
        self.count as u64
    }
}

pub(super) fn measure(bench: &mut Bench, way: Settings) {
    let label = |count: usize| format!("ddss,page_fetch,4096,{},{count}", path(way));
    if ![1, TOGETHER].into_iter().any(|count| bench.options.wants(&label(count))) {
        return;
    }
    let pair = Rc::new(RefCell::new(Pair::start(way)));
    let fabric = FabricPair::connect(bench.cores, true);
    for count in [1, TOGETHER] {
        let trip = Fetch { pair: Rc::clone(&pair), count, took: Duration::ZERO };
        let figure = Figure::new("ddss", "page_fetch", 4096, path(way), trip).outstanding(count);
        bench.family(one_sided(&fabric, FabricOp::Read, "tcp-lo", 4096, count), vec![figure]);
    }
}
