//! In the steady state nobody makes a system call: counted by the kernel, not by us.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, which says what it skips")]

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use ddss_ipc::{Strategy, WaitClass, Waited};
use support::{Echo, NOW, PATIENCE, attach, role};

/// Calls of one run.
const CALLS: u64 = 50_000;
/// What is hoped for: one call in ten thousand meets a moment in which the other side does not run.
const HOPED_FOR: usize = CALLS as usize / 10_000;
/// What a machine that is busy with something else may make of it. A call that made one each time made 50,000.
const TOLERATED: usize = CALLS as usize / 50;
/// Runs of which the best one counts.
const RUNS: usize = 8;

/// Client and service as two threads of a process that is traced whole; a marker before and after the calls.
#[test]
fn child_steady() {
    // A child that did nothing would make no system call either: the parent looks for the count that it prints.
    let Some(strategy) = role() else { return };
    let echo = Echo::start();
    let attachment = attach(&echo.path, |options| options.strategy = strategy.parse::<Strategy>().unwrap());
    let mut lane = attachment.take_lane().unwrap();
    let marker = |name| drop(std::fs::metadata(format!("/marker-{name}")));
    let run = |lane: &mut ddss_ipc::Lane, calls| {
        for value in 0..calls {
            lane.submit([0, value, 0, NOW, 0, 0, 0, 0]).unwrap();
            lane.ring();
            assert_eq!(lane.wait(WaitClass::Polling, Instant::now() + PATIENCE), Waited::Ready);
            assert_eq!(lane.reap().unwrap()[1], !value);
        }
    };
    run(&mut lane, 1000);
    marker("begin");
    run(&mut lane, CALLS);
    marker("end");
    println!("\nmade {CALLS} calls");
}

fn system_calls(strategy: Strategy) -> Option<usize> {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(&trace).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "child_steady", "--nocapture", "--test-threads=1"]);
    command.env("DDSS_TEST_ROLE", strategy.to_string());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: cannot run strace ({error})");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() && !said.contains("made ") {
        println!("skipped: strace cannot trace here ({})", String::from_utf8_lossy(&output.stderr).trim());
        return None;
    }
    assert!(said.contains(&format!("made {CALLS} calls")), "{said}");
    let trace = std::fs::read_to_string(trace).unwrap();
    let between = trace.lines().skip_while(|line| !line.contains("/marker-begin")).skip(1);
    Some(between.take_while(|line| !line.contains("/marker-end")).count())
}

#[test]
fn polling_makes_no_system_call_in_the_steady_state() {
    // If this broke, a call would cost a trip into the kernel, which is several times the call itself.
    let cores = std::thread::available_parallelism().unwrap().get();
    if cores < 2 {
        println!("skipped: with one core the two sides must take turns");
        return;
    }
    for strategy in [Strategy::Rcq, Strategy::Auto] {
        // A machine that is busy with something else makes both sides sleep now and then: the best of some runs.
        let mut fewest = usize::MAX;
        for _ in 0..RUNS {
            match system_calls(strategy) {
                Some(count) => fewest = fewest.min(count),
                None => return,
            }
            if fewest <= HOPED_FOR {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("{strategy}: {fewest} system calls in {CALLS} calls");
        assert!(fewest <= TOLERATED, "{strategy}: {fewest} system calls in {CALLS} calls");
    }
}
