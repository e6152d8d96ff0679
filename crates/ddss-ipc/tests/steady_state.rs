//! In the steady state nobody makes a system call: counted by the kernel, not by us.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, which says what it skips")]

mod support;

use std::process::Command;
use std::time::Instant;

use ddss_ipc::{Strategy, WaitClass, WaitOutcome};
use support::{Echo, NOW, PATIENCE, attach, role};

/// Calls between two markers. In so many there has to be no system call at all.
const CALLS: u64 = 200;
/// Markers of one run.
const STRETCHES: usize = 250;
/// Stretches without a system call that are enough, over all runs: on a machine that is busy with something else one side
/// does not run now and then, and the other one sleeps. Who asked the kernel for each call, or for each hundredth, would
/// have none that is silent.
const SILENT_MIN: usize = 10;
/// Runs at the most.
const RUNS: usize = 8;

/// Client and service as two threads of a process that is traced whole; a marker before and after each stretch of calls.
#[test]
fn child_steady() {
    // A child that did nothing would make no system call either: the parent looks for the count that it prints.
    let Some(strategy) = role() else { return };
    let echo = Echo::start();
    let attachment = attach(&echo.path, |options| options.strategy = strategy.parse::<Strategy>().unwrap());
    let mut lane = attachment.take_lane().unwrap();
    let marker = || drop(std::fs::metadata("/marker"));
    let run = |lane: &mut ddss_ipc::Channel, calls| {
        for value in 0..calls {
            lane.submit([0, value, 0, NOW, 0, 0, 0, 0]).unwrap();
            lane.ring();
            assert_eq!(lane.wait(WaitClass::Polling, Instant::now() + PATIENCE), WaitOutcome::Ready);
            assert_eq!(lane.reap().unwrap()[1], !value);
        }
    };
    run(&mut lane, 1000);
    marker();
    for _ in 0..STRETCHES {
        run(&mut lane, CALLS);
        marker();
    }
    println!("\nmade all calls");
}

/// System calls of each stretch.
fn system_calls(strategy: Strategy) -> Option<Vec<usize>> {
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
    assert!(said.contains("made all calls"), "{said}");
    let trace = std::fs::read_to_string(trace).unwrap();
    let lines: Vec<&str> = trace.lines().collect();
    let stretches = lines.split(|line| line.contains("/marker")).skip(1).take(STRETCHES);
    let counts: Vec<usize> = stretches.map(<[&str]>::len).collect();
    assert_eq!(counts.len(), STRETCHES, "a marker is missing");
    Some(counts)
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
        let (mut silent, mut made, mut runs) = (0, 0, 0);
        while silent < SILENT_MIN && runs < RUNS {
            let Some(counts) = system_calls(strategy) else { return };
            silent += counts.iter().filter(|count| **count == 0).count();
            made += counts.iter().sum::<usize>();
            runs += 1;
        }
        let stretches = runs * STRETCHES;
        println!("{strategy}: {silent} of {stretches} times {CALLS} calls without a system call, {made} in the others");
        assert!(silent >= SILENT_MIN, "{strategy}: {silent} of {stretches} stretches, {made} system calls");
    }
}
