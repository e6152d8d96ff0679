//! Processes that join flows, and flows whose tables are lost.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::time::Duration;

use ddss::Client;
use ddss_river::Guarantee;
use ddss_river::flow::{Each, Edge, Flow, FlowError};
use ddss_testkit::Daemon;

use super::flow_members::*;

// If this failed, a process that joins near the end of a flow would fail it, or run again what has ended.
#[test]
fn process_that_joins_behind_the_end_of_a_module_does_not_run_it() {
    if is_child() {
        return;
    }
    let test = "flow_joins::process_that_joins_behind_the_end_of_a_module_does_not_run_it";
    let daemon = Daemon::start(1).unwrap();
    fill_list(&connect(daemon.folder()));
    let mut first = start(test, &daemon, "first", "late-list", 1, Guarantee::AtLeastOnce);
    line(&mut first, "at its end");
    let mut joiner = start(test, &daemon, "joiner", "late-list", 1, Guarantee::AtLeastOnce);
    line(&mut joiner, "runs");
    // Its rounds, in which it may do what it should not.
    std::thread::sleep(Duration::from_secs(1));
    release(&daemon, "late");
    [&mut first, &mut joiner].into_iter().for_each(finish);
    assert_complete(&taken(&first));
    assert!(!joiner.stdout().contains("at its end"), "the sink has run twice");
    assert_removed(&daemon);
}

// If this failed, a process that joins would put into a queue that no instance reads, and the flow would never end.
#[test]
fn process_that_joins_leaves_modules_with_receivers_of_their_own_alone() {
    if is_child() {
        return;
    }
    let test = "flow_joins::process_that_joins_leaves_modules_with_receivers_of_their_own_alone";
    let daemon = Daemon::start(1).unwrap();
    fill_list(&connect(daemon.folder()));
    let mut first = start(test, &daemon, "first", "pairs", 1, Guarantee::AtLeastOnce);
    line(&mut first, "took ");
    let mut joiner = start(test, &daemon, "joiner", "pairs", 1, Guarantee::AtLeastOnce);
    [&mut first, &mut joiner].into_iter().for_each(finish);
    assert_complete(&taken(&first));
    assert_removed(&daemon);
}

// If this failed, two processes would run what is to run once.
#[test]
fn surplus_process_does_not_run_what_another_one_is_about_to_run() {
    if is_child() {
        return;
    }
    let test = "flow_joins::surplus_process_does_not_run_what_another_one_is_about_to_run";
    let daemon = Daemon::start(1).unwrap();
    // They wait for a third one, for which two are enough: it begins the flow, and has no part in it.
    let mut members: Vec<_> = ["one", "two"]
        .into_iter()
        .enumerate()
        .map(|(before, job)| {
            let member = start(test, &daemon, job, "queue", 3, Guarantee::AtLeastOnce);
            until_joined(&daemon, before + 1);
            member
        })
        .collect();
    members.push(start(test, &daemon, "three", "queue", 2, Guarantee::AtLeastOnce));
    members.iter_mut().for_each(finish);
    let sinks: Vec<usize> = members.iter().map(|member| member.stdout().matches("ended ").count()).collect();
    // Each of them also says that the flow ended.
    assert_eq!(members.iter().filter(|member| member.stdout().contains("\nended ")).count(), 1, "{sinks:?}");
    assert_removed(&daemon);
}

/// Runs a flow that never ends in two members, until its tables are changed. Returns their errors.
fn errors_behind(daemon: &Daemon, change: impl FnOnce(&Client)) -> Vec<FlowError> {
    let run = || {
        let client = connect(daemon.folder());
        let mut flow = Flow::join_with(&client, NAME, options(2)).unwrap();
        let put = flow.source("put", Each::Flow, |cx, _| {
            while !cx.is_ending() {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        });
        let take = take_all(&mut flow, Each::Flow);
        flow.attach(put.unwrap(), take, Edge::queue()).unwrap();
        flow.go().unwrap()
    };
    std::thread::scope(|scope| {
        let starting: Vec<_> = (0..2).map(|_| scope.spawn(run)).collect();
        let running: Vec<_> = starting.into_iter().map(|member| member.join().unwrap()).collect();
        change(&connect(daemon.folder()));
        running.into_iter().map(|member| member.wait().unwrap_err()).collect()
    })
}

// If this failed, the members of a flow whose tables are lost would wait for ever.
#[test]
fn flow_ends_with_its_tables() {
    let daemon = Daemon::start(1).unwrap();
    let errors = errors_behind(&daemon, |client| {
        let table = client.table::<[u8]>(&format!("river/{NAME}/flow")).open().unwrap();
        table.row(0).put(&[9; 64]).unwrap();
    });
    let damaged = "row 0 of flow tokens is of another release";
    assert!(errors.iter().all(|error| error.to_string().contains(damaged)), "{errors:?}");
    for name in [format!("river/{NAME}"), format!("river/{NAME}/flow")] {
        let daemon = Daemon::start(1).unwrap();
        let release = |client: &Client| client.segment(&name).open().unwrap().release().unwrap();
        let errors = errors_behind(&daemon, release);
        assert!(errors.iter().any(|error| matches!(error, FlowError::Removed { .. })), "{name}: {errors:?}");
    }
}
