//! System calls of a steady state: none, as counted by strace.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, which says what it skips")]

mod support;

use std::process::Command;
use std::time::Instant;

use ddss_ipc::{Strategy, WaitClass, WaitOutcome};
use support::{Echo, NOW, TIMEOUT, attach, role};

/// Calls between two markers, in which no system call may occur.
const CALLS: u64 = 200;
/// Markers of one run.
const STRETCHES: usize = 250;
/// Stretches without a system call that suffice, over all runs. On a busy machine one side sometimes does not run, and
/// the other one sleeps. Code with a system call in each call, or in each hundredth, would have no silent stretch.
const SILENT_MIN: usize = 10;
/// Maximum of runs.
const RUNS: usize = 8;

/// Runs client and service as two threads of a traced process, with a marker before and after each stretch of calls.
#[test]
fn child_steady() {
    // A child that did nothing would make no system call either: the parent checks the line that it prints.
    let Some(strategy) = role() else { return };
    let echo = Echo::start();
    let attachment = attach(&echo.path, |options| options.strategy = strategy.parse::<Strategy>().unwrap());
    let mut channel = attachment.take_channel().unwrap();
    let marker = || drop(std::fs::metadata("/marker"));
    let run = |channel: &mut ddss_ipc::Channel, calls| {
        for value in 0..calls {
            channel.submit([0, value, 0, NOW, 0, 0, 0, 0]).unwrap();
            channel.ring_doorbell();
            assert_eq!(channel.wait(WaitClass::Polling, Instant::now() + TIMEOUT), WaitOutcome::Ready);
            assert_eq!(channel.reap().unwrap()[1], !value);
        }
    };
    run(&mut channel, 1000);
    marker();
    for _ in 0..STRETCHES {
        run(&mut channel, CALLS);
        marker();
    }
    println!("\nmade all calls");
}

/// Counts the system calls of each stretch.
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
fn polling_makes_no_system_call_in_steady_state() {
    // If this failed, a call would cost a system call, which takes several times as long as the call itself.
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
