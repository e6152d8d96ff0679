//! The paper's programs: counts of all ranks, and the time of their handlers.

use ddss_apps::dsm::{Elements, Job, Program, Runner, Settings, Size};
use ddss_benches::harness::{Bench, ExtraColumns, Row, on_all_cores};
use ddss_dsm::Protocol;
use ddss_testkit::application;

use super::peer::{path, ways};

pub(super) fn measure(bench: &mut Bench) {
    let is_smoke = !bench.options.bench;
    let size = if is_smoke || bench.options.quick { Size::Small } else { Size::Paper };
    let all = Program::ALL.into_iter().flat_map(|program| ways().map(move |way| (program, way)));
    let mut jobs: Vec<_> = all.filter(|(program, way)| bench.options.wants(&label(*program, *way))).collect();
    if is_smoke {
        // The tests of the programs run all of them.
        jobs.retain(|(program, way)| *program == Program::Tsp && way.protocol == Protocol::NewGenDsm);
    }
    if jobs.is_empty() {
        return;
    }
    on_all_cores(|| {
        let runner = Runner::start(application("dsm-apps").expect("the programs are built")).expect("a node starts");
        for (program, way) in jobs {
            let job = Job { program, size, has_check: false, elements: Elements::Views };
            let outcome = runner.run(job, way).expect("the program has a result");
            bench.row(Row {
                label: label(program, way),
                p50_us: outcome.handlers().as_secs_f64() * 1e6,
                p99_us: 0.0,
                operations_per_s: 0.0,
                p999_us: 0.0,
                ratio: None,
                rate_ratio: None,
                more: ExtraColumns::default(),
                notes: vec![outcome.result, outcome.counts],
            });
        }
    });
}

fn label(program: Program, way: Settings) -> String {
    format!("ddss,{program},{},{},1", way.ranks, path(way))
}
