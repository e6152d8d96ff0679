//! Checkpoint commits by an increasing number of processes (Fig. 6).
//!
//! Each is attached by itself, so its node sees as many clients as there are processes; they are threads of this one, which
//! spares the machine 64 of them. The command `checkpoint` of `ddss-apps` runs real processes, and kills them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, NodeId, Placement, Segment, Strategy};
use ddss_apps::checkpoint::{CommitCounts, Member};
use ddss_benches::harness::{Bench, Cores, ExtraColumns, Row, Sample};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::testbed::{Nodes, Placed, Testbed, report_progress, with_retries};

/// Bytes of a state.
const STATE_BYTES: usize = 1024;
/// Processes of one application.
const TOGETHER: usize = 4;
/// Maximum working time of a process before it commits.
const WORK: Duration = Duration::from_micros(10);

/// Placement of segments and processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    OneNode,
    OneHome,
    Spread,
}

impl Where {
    fn home(self, application: usize) -> NodeId {
        match self {
            Where::OneNode => NodeId(1),
            Where::OneHome => NodeId(2),
            Where::Spread => NodeId(1 + (application % 2) as u16),
        }
    }

    fn word(self, testbed: &Testbed) -> String {
        match self {
            Where::OneNode => "shm".to_owned(),
            Where::OneHome => testbed.path.to_owned(),
            Where::Spread => format!("{}-spread", testbed.path),
        }
    }
}

/// Measures all places, strategies and counts.
pub(crate) fn measure(bench: &mut Bench, testbed: &Testbed, placed: &[Placed]) {
    let (counts, time): (&[usize], _) = match (bench.options.bench, bench.options.quick) {
        (false, _) => (&[2], Duration::from_millis(5)),
        (true, true) => (&[1, 4, 16, 64], Duration::from_millis(80)),
        (true, false) => (&[1, 2, 4, 8, 16, 32, 64], Duration::from_millis(250)),
    };
    for place in [Where::OneNode, Where::OneHome, Where::Spread] {
        for &processes in counts {
            for Placed { strategy, nodes } in placed {
                let (sample, tally) = run(testbed, nodes, place, *strategy, processes, time);
                let label = format!("ddss,checkpoint,{STATE_BYTES},{}/{strategy}/t{processes},1", place.word(testbed));
                bench.row(row(label, &sample, tally));
            }
        }
    }
}

fn row(label: String, sample: &Sample, tally: CommitCounts) -> Row {
    let (p50_us, p99_us) = (sample.quantile_us(0.5), sample.quantile_us(0.99));
    let turns = (tally.commits + tally.conflicts + tally.failures).max(1);
    let late = 100.0 * tally.conflicts as f64 / turns as f64;
    let note =
        format!("{late:.0} of 100 came too late, {} failed, {} restarts consistent", tally.failures, tally.restarts);
    let operations_per_s = sample.operations_per_s();
    let (p999_us, more) = (sample.quantile_us(0.999), ExtraColumns::default());
    Row { label, p50_us, p99_us, operations_per_s, p999_us, ratio: None, rate_ratio: None, more, notes: vec![note] }
}

fn run(
    testbed: &Testbed,
    nodes: &Nodes,
    place: Where,
    strategy: Strategy,
    processes: usize,
    time: Duration,
) -> (Sample, CommitCounts) {
    nodes.wake();
    let maker = nodes.client(Strategy::Auto);
    let make = |application: usize| {
        let placement = Placement::Node(place.home(application));
        with_retries(|| Member::allocate(&maker, &format!("application/{application}"), STATE_BYTES, placement))
    };
    let applications: Vec<Segment> = (0..processes.div_ceil(TOGETHER)).map(make).collect();
    let client = |process: usize| -> Client {
        if place == Where::Spread && process % 2 == 1 { nodes.at_home_by(strategy) } else { nodes.client(strategy) }
    };
    let members: Vec<Member> = (0..processes)
        .map(|process| {
            let name = format!("application/{}", process / TOGETHER);
            let segment = with_retries(|| client(process).segment(&name).open());
            Member::join(segment, process as u64 + 1).expect("the state is consistent")
        })
        .collect();
    let (over, ready) = (AtomicBool::new(false), Barrier::new(processes + 1));
    let (laps, elapsed) = thread::scope(|scope| {
        let begin = |mut member: Member| {
            let (over, ready, cores) = (&over, &ready, testbed.cores);
            scope.spawn(move || {
                both_cores(cores);
                let mut laps = Vec::with_capacity(1 << 14);
                ready.wait();
                while !over.load(Ordering::Relaxed) {
                    laps.push(member.turn(WORK).expect("every restart is from a commit"));
                }
                (laps, member.tally())
            })
        };
        let threads: Vec<_> = members.into_iter().map(begin).collect();
        ready.wait();
        let begin = Instant::now();
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let elapsed = begin.elapsed();
        let laps: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a member does not panic")).collect();
        (laps, elapsed)
    });
    let (mut sample, mut tally) = (Sample::empty(), CommitCounts::default());
    for (laps, one) in laps {
        laps.into_iter().for_each(|lap| sample.record(lap, 1, 1));
        tally = tally.with(one);
    }
    sample.elapsed = elapsed;
    applications.into_iter().for_each(|segment| segment.release().expect("its owner releases it"));
    nodes.rest();
    if tally.commits == 0 {
        report_progress("no checkpoint was committed");
    }
    (sample, tally)
}

fn both_cores(cores: Cores) {
    let mut both = CpuSet::new();
    both.set(cores.client);
    both.set(cores.service);
    sched_setaffinity(None, &both).expect("the cores are among those that this process may use");
}
