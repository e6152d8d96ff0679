//! Flows between real processes and daemons: deaths, stops, and other attempts.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, ReplicationInfo};
use ddss_river::flow::{FlowError, FlowInfo, FlowStatus, cancel, prepare};
use ddss_river::{Guarantee, UnitQueue, UnitStatus};
use ddss_testkit::{Daemon, DaemonOptions, Process};

use super::flow_members::*;

/// Starts two members of which the second one is killed while it holds a message. Returns the first one's error.
fn error_behind_a_kill(test: &str, graph: &str, guarantee: Guarantee) -> String {
    let nodes = Daemon::pair().unwrap();
    let mut first = start(test, &nodes[0], "first", graph, 2, guarantee);
    until_joined(&nodes[0], 1);
    let mut victim = start(test, &nodes[1], "victim", graph, 2, guarantee);
    line(&mut victim, "holds ");
    victim.kill().unwrap();
    release(&nodes[0], "begin");
    let error = line(&mut first, "error ");
    first.wait(PATIENCE).unwrap();
    // It failed, and says why, until it is cancelled.
    let client = connect(nodes[0].folder());
    let info = FlowInfo::read(&client, NAME).unwrap().unwrap();
    assert_eq!((info.status, info.failure), (FlowStatus::Failed, Some(error.clone())));
    let late = build(graph, &client, nodes[0].folder(), options(2).guarantee(guarantee), false);
    assert!(matches!(late.go().unwrap_err(), FlowError::Over { .. }));
    assert!(cancel(&client, NAME).unwrap());
    assert_removed(&nodes[0]);
    error
}

fn done_units(list: &UnitQueue) -> usize {
    list.list().unwrap().filter(|unit| unit.as_ref().unwrap().status == UnitStatus::Done).count()
}

// If this failed, work would be lost with a member, or with what it had put when it died.
#[test]
fn nothing_is_lost_when_a_member_with_a_worker_is_killed() {
    if is_child() {
        return;
    }
    let test = "flows::nothing_is_lost_when_a_member_with_a_worker_is_killed";
    let nodes = Daemon::pair().unwrap();
    // The first member that joins has the source. Its worker, and the sink, are at both or at the first.
    let mut first = start(test, &nodes[0], "first", "chain", 2, Guarantee::AtLeastOnce);
    until_joined(&nodes[0], 1);
    let mut victim = start(test, &nodes[1], "victim", "chain", 2, Guarantee::AtLeastOnce);
    let held = line(&mut victim, "holds ");
    victim.kill().unwrap();
    release(&nodes[0], "begin");
    finish(&mut first);
    assert!(first.stdout().contains(&format!("again {held}\n")), "the message of the dead one is flagged");
    let all: Vec<_> = [&first, &victim].into_iter().flat_map(taken).collect();
    let flags = assert_complete(&all);
    let doubled = flags.values().filter(|flags| flags.len() > 1).count();
    assert!(doubled <= 20, "{doubled} of {MESSAGES} twice");
    assert_removed(&nodes[0]);
}

// If this failed, a flow would go on without what a dead module had in its memory.
#[test]
fn loss_of_a_module_that_holds_data_ends_the_flow_by_name() {
    if is_child() {
        return;
    }
    let error = error_behind_a_kill(
        "flows::loss_of_a_module_that_holds_data_ends_the_flow_by_name",
        "held",
        Guarantee::AtLeastOnce,
    );
    assert_eq!(error, "flow tokens has ended: module pass of member 1 on node 2 was lost: its process is gone");
}

// If this failed, a query engine would return a wrong result after a death.
#[test]
fn loss_of_a_member_ends_a_fail_stop_flow_by_name() {
    if is_child() {
        return;
    }
    let error =
        error_behind_a_kill("flows::loss_of_a_member_ends_a_fail_stop_flow_by_name", "chain", Guarantee::FailStop);
    assert_eq!(error, "flow tokens has ended: module pass of member 1 on node 2 was lost: its process is gone");
}

// If this failed, another attempt of a flow would repeat what is done, or leave out what is not.
#[test]
fn another_attempt_does_the_units_that_are_left() {
    if is_child() {
        return;
    }
    let test = "flows::another_attempt_does_the_units_that_are_left";
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let list = fill_list(&client);
    // All members are killed.
    let mut victim = start(test, &daemon, "victim", "list", 1, Guarantee::AtLeastOnce);
    line(&mut victim, "holds ");
    let done = done_units(&list);
    assert!(matches!(prepare(&client, NAME).unwrap_err(), FlowError::Living { members: 1, .. }));
    victim.kill().unwrap();
    let end = Instant::now() + PATIENCE;
    while let Err(error) = prepare(&client, NAME) {
        assert!(matches!(error, FlowError::Living { .. }) && Instant::now() < end, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(done_units(&list) >= done, "what was done stays done");
    release(&daemon, "begin");
    let mut again = start(test, &daemon, "again", "list", 1, Guarantee::AtLeastOnce);
    finish(&mut again);
    assert_eq!(done_units(&list), MESSAGES as usize);
    let all: Vec<_> = [&victim, &again].into_iter().flat_map(taken).collect();
    let flags = assert_complete(&all);
    assert!(flags.values().filter(|flags| flags.len() > 1).count() <= 2, "twice: only what was in work");
    // The list is not the flow's.
    assert_removed(&daemon);
    assert_eq!(list.count().unwrap(), MESSAGES);
}

// If this failed, a flow could not grow, or would end with the process that began it.
#[test]
fn process_that_joins_later_goes_on_for_one_that_is_killed() {
    if is_child() {
        return;
    }
    let test = "flows::process_that_joins_later_goes_on_for_one_that_is_killed";
    let daemon = Daemon::start(1).unwrap();
    fill_list(&connect(daemon.folder()));
    let mut victim = start(test, &daemon, "victim", "list", 1, Guarantee::AtLeastOnce);
    line(&mut victim, "holds ");
    release(&daemon, "begin");
    let mut joiner = start(test, &daemon, "joiner", "list", 1, Guarantee::AtLeastOnce);
    line(&mut joiner, "took ");
    victim.kill().unwrap();
    finish(&mut joiner);
    let all: Vec<_> = [&victim, &joiner].into_iter().flat_map(taken).collect();
    assert_complete(&all);
    assert_removed(&daemon);
}

// If this failed, the restart of a daemon would end every flow on its node.
#[test]
fn flow_goes_on_while_its_daemon_is_dead() {
    if is_child() {
        return;
    }
    let test = "flows::flow_goes_on_while_its_daemon_is_dead";
    let mut daemon = Daemon::start(1).unwrap();
    let mut first = start(test, &daemon, "first", "chain", 2, Guarantee::AtLeastOnce);
    let mut second = start(test, &daemon, "victim", "chain", 2, Guarantee::AtLeastOnce);
    line(&mut second, "holds ");
    daemon.kill().unwrap();
    ["begin", "go"].iter().for_each(|file| release(&daemon, file));
    // Messages go on. Those for a process that this one had not met yet wait for the daemon: the window of one worker.
    let count = |process: &Process| process.stdout().matches("took ").count();
    let end = Instant::now() + PATIENCE;
    while count(&first) + count(&second) < MESSAGES as usize - 2 {
        assert!(Instant::now() < end, "{} {}", count(&first), count(&second));
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon.restart().unwrap();
    [&mut first, &mut second].into_iter().for_each(finish);
    let all: Vec<_> = [&first, &second].into_iter().flat_map(taken).collect();
    assert_eq!(all.len(), assert_complete(&all).len(), "none twice");
    assert_removed(&daemon);
}

// If this failed, a process that was stopped would work on beside those that have its messages.
#[test]
fn stopped_member_that_returns_is_fenced_and_the_flow_ends_without_it() {
    if is_child() {
        return;
    }
    let test = "flows::stopped_member_that_returns_is_fenced_and_the_flow_ends_without_it";
    let nodes = Daemon::pair().unwrap();
    let mut first = start(test, &nodes[0], "first", "chain", 2, Guarantee::AtLeastOnce);
    until_joined(&nodes[0], 1);
    let mut victim = start(test, &nodes[1], "victim", "chain", 2, Guarantee::AtLeastOnce);
    line(&mut victim, "holds ");
    victim.pause().unwrap();
    release(&nodes[0], "begin");
    finish(&mut first);
    assert_complete(&taken(&first));
    release(&nodes[1], "go");
    victim.resume().unwrap();
    let error = line(&mut victim, "error ");
    assert!(error.contains(" without this process"), "{error}");
}

// If this failed, the loss of the node with the tables of a flow would end it.
#[test]
fn flow_with_two_copies_survives_the_node_of_its_tables() {
    if is_child() {
        return;
    }
    let test = "flows::flow_with_two_copies_survives_the_node_of_its_tables";
    let first = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    let second = DaemonOptions::new(2).unwrap().joins(first.listen()).start().unwrap();
    let mut nodes = [first, second];
    // A process that gives up leaves the tables at its node. A table with two copies waits for its replica, at times for seconds.
    let patient = ConnectOptions::new().directory(nodes[1].folder()).timeout(PATIENCE / 4);
    let other = Client::connect_with(patient).unwrap();
    let alone = options(2).copies(2).timeout(Duration::from_secs(1));
    let gave_up = build("chain", &other, nodes[1].folder(), alone, false).go();
    assert!(matches!(gave_up.unwrap_err(), FlowError::TooFew { joined: 1, wanted: 2, .. }));
    let client = connect(nodes[0].folder());
    for table in ["river/tokens", "river/tokens/flow"] {
        let segment = client.segment(table).open().unwrap();
        let end = Instant::now() + PATIENCE;
        while segment.stat().unwrap().replication != ReplicationInfo::InSync {
            assert!(Instant::now() < end, "{:?}", segment.stat());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(segment.stat().unwrap().home.0, 2, "{table}");
    }
    let mut members =
        ["first-copied", "victim-copied"].map(|job| start(test, &nodes[0], job, "chain", 2, Guarantee::AtLeastOnce));
    line(&mut members[1], "holds ");
    nodes[1].kill().unwrap();
    ["begin", "go"].iter().for_each(|file| release(&nodes[0], file));
    members.iter_mut().for_each(finish);
    let all: Vec<_> = members.iter().flat_map(taken).collect();
    assert_eq!(all.len(), assert_complete(&all).len(), "none twice");
    assert_removed(&nodes[0]);
}

// If this failed, a flow whose processes die one after the other would lose work, or hang.
#[test]
fn processes_that_are_killed_one_after_the_other_lose_nothing() {
    if is_child() {
        return;
    }
    let test = "flows::processes_that_are_killed_one_after_the_other_lose_nothing";
    let nodes = Daemon::pair().unwrap();
    let list = fill_list(&connect(nodes[0].folder()));
    let mut alive = vec![start(test, &nodes[0], "0", "slow", 1, Guarantee::AtLeastOnce)];
    let mut dead = Vec::new();
    for round in 1..=5_usize {
        alive.push(start(test, &nodes[round % 2], &round.to_string(), "slow", 1, Guarantee::AtLeastOnce));
        alive.iter_mut().for_each(|member| drop(line(member, "took ")));
        // The oldest one, then the newest, and so on: also the one that marks others as dead.
        let mut victim = alive.remove(if round % 2 == 1 { 0 } else { alive.len() - 1 });
        victim.kill().unwrap();
        dead.push(victim);
    }
    alive.iter_mut().for_each(finish);
    assert_eq!(done_units(&list), MESSAGES as usize);
    let all: Vec<_> = alive.iter().chain(&dead).flat_map(taken).collect();
    let flags = assert_complete(&all);
    let doubled = flags.values().filter(|flags| flags.len() > 1).count();
    assert!(doubled <= 4 * dead.len(), "{doubled} twice: only what was in work");
    assert_removed(&nodes[0]);
}
