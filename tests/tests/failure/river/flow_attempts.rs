//! Other attempts of flows, and the names that flows leave.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use ddss::{Client, Model, Spec};
use ddss_river::flow::{Each, Edge, Flow, FlowError, FlowInfo, Module, cancel, prepare};
use ddss_river::{Guarantee, Queue, QueueOptions, UnitOptions, UnitQueue};
use ddss_testkit::Daemon;

use super::flow_members::*;

/// Creates the list of work `pages` with so many units.
fn fill(client: &Client, units: u32) -> UnitQueue {
    let list = UnitQueue::create(client, "pages", UnitOptions::new().lease(LEASE)).unwrap();
    list.add(&(0..units).map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    list
}

fn flow(client: &Client) -> Flow {
    Flow::join_with(client, NAME, options(1)).unwrap()
}

/// Places a module that passes units on, and fails if it is to.
fn passing(flow: &mut Flow, name: &str, fails: bool) -> Module {
    let body = flow.place(name, Each::Flow, move |_, input, output| {
        while let Some(unit) = input.take()? {
            if fails {
                return Err("on demand".into());
            }
            output.put(&unit)?;
            unit.acknowledge();
        }
        Ok(())
    });
    body.unwrap()
}

/// Places a sink that counts what it takes, and fails at its end if it is to.
fn counting(flow: &mut Flow, name: &str, taken: &Arc<AtomicU32>, fails: bool) -> Module {
    let taken = taken.clone();
    let body = flow.sink(name, Each::Flow, move |_, input| {
        while let Some(message) = input.take()? {
            taken.fetch_add(1, Ordering::Relaxed);
            message.acknowledge();
        }
        if fails { Err("on demand".into()) } else { Ok(()) }
    });
    body.unwrap()
}

fn run(flow: Flow) -> Result<(), FlowError> {
    flow.go().and_then(|running| running.wait())
}

/// Prepares another attempt, once the members of the last one have left.
fn prepare_patiently(client: &Client) {
    let end = Instant::now() + PATIENCE;
    while let Err(error) = prepare(client, NAME) {
        assert!(matches!(error, FlowError::Living { .. }) && Instant::now() < end, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

// If this failed, a changed program would skip modules that have not run, and take the units of other edges.
#[test]
fn another_program_does_not_resume_a_flow() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    fill(&client, 3);
    let taken = Arc::default();
    let build = |names: [&'static str; 2], fails| {
        let mut flow = flow(&client);
        let list = flow.list("pages").unwrap();
        let [a, b] = names.map(|name| passing(&mut flow, name, false));
        let sink = counting(&mut flow, "sink", &taken, fails);
        flow.attach(list, a, Edge::units()).unwrap();
        flow.attach(a, b, Edge::units()).unwrap();
        flow.attach(b, sink, Edge::units()).unwrap();
        flow
    };
    assert!(matches!(run(build(["a", "b"], true)).unwrap_err(), FlowError::Module { .. }));
    prepare_patiently(&client);
    for names in [["b", "a"], ["a", "a module with a longer name"]] {
        let said = run(build(names, false)).unwrap_err().to_string();
        assert!(said.starts_with("cannot join the flow: its graph is "), "{said}");
    }
    // The other program has left nothing behind.
    run(build(["a", "b"], false)).unwrap();
    assert_eq!(taken.load(Ordering::Relaxed), 3, "the units of the first attempt are done");
    assert_removed(&daemon);
}

// If this failed, the end of a flow would release lists and queues of users.
#[test]
fn end_of_a_flow_leaves_names_that_continue_its_own() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let list = UnitQueue::create(&client, &format!("{NAME}/0"), UnitOptions::new()).unwrap();
    list.add(&["mine"]).unwrap();
    let queue = Queue::open(&client, &format!("{NAME}/1"), QueueOptions::new()).unwrap();
    let mut own = flow(&client);
    let (put, taken) = (put_all(&mut own, Each::Flow), Arc::default());
    let take = counting(&mut own, "take", &taken, false);
    own.attach(put, take, Edge::queue()).unwrap();
    run(own).unwrap();
    assert_eq!(taken.load(Ordering::Relaxed), MESSAGES);
    assert_eq!(list.count().unwrap(), 1);
    assert!(Queue::inspect(&client, &format!("{NAME}/1")).unwrap().is_some());
    // And users cannot choose those of a flow.
    for name in ["tokens/flow", "tokens/flow/0", "tokens/units"] {
        let refused = Queue::open(&client, name, QueueOptions::new()).map(drop).unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
        assert!(UnitQueue::create(&client, name, UnitOptions::new()).is_err(), "{name}");
        assert!(Flow::join_with(&client, name, options(1)).is_err(), "{name}");
    }
    // Nor is a queue a flow that can be cancelled.
    assert!(matches!(cancel(&client, &format!("{NAME}/1")).unwrap_err(), FlowError::Unknown { .. }));
    drop(queue);
}

// If this failed, units that were in work when a flow was cancelled three times would be skipped, without a word.
#[test]
fn cancelled_flow_gives_its_units_back_without_a_strike() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let (list, taken) = (fill(&client, 5), Arc::default());
    for _ in 0..3 {
        let (has_unit, is_cancelled) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let mut own = flow(&client);
        let pages = own.list("pages").unwrap();
        let waits = (has_unit.clone(), is_cancelled.clone());
        let pass = own.place("pass", Each::Flow, move |cx, input, output| {
            let unit = input.take()?.ok_or("no unit")?;
            waits.0.wait();
            waits.1.wait();
            let end = Instant::now() + PATIENCE;
            while !cx.is_ending() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            output.put(&unit)?;
            unit.acknowledge();
            Ok(())
        });
        let take = counting(&mut own, "take", &taken, false);
        let pass = pass.unwrap();
        own.attach(pages, pass, Edge::units()).unwrap();
        own.attach(pass, take, Edge::queue()).unwrap();
        let running = own.go().unwrap();
        has_unit.wait();
        assert!(!cancel(&client, NAME).unwrap());
        is_cancelled.wait();
        assert!(matches!(running.wait().unwrap_err(), FlowError::Cancelled { .. }));
        prepare_patiently(&client);
    }
    assert!(list.list().unwrap().all(|unit| unit.unwrap().strikes == 0));
    let mut own = flow(&client);
    let pages = own.list("pages").unwrap();
    let (pass, take) = (passing(&mut own, "pass", false), counting(&mut own, "take", &taken, false));
    own.attach(pages, pass, Edge::units()).unwrap();
    own.attach(pass, take, Edge::queue()).unwrap();
    run(own).unwrap();
    assert_eq!(taken.load(Ordering::Relaxed), 5);
}

// If this failed, no attempt could ever succeed: a source would put into a queue without consumers.
#[test]
fn source_whose_results_are_in_a_list_does_not_run_again() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let (puts, taken) = (Arc::new(AtomicU32::new(0)), Arc::default());
    for fails in [true, false] {
        let mut own = Flow::join_with(&client, NAME, options(1).timeout(Duration::from_secs(10))).unwrap();
        let puts = puts.clone();
        let source = own.source("source", Each::Flow, move |_, output| {
            for number in 0..20_u32 {
                puts.fetch_add(1, Ordering::Relaxed);
                output.put(&number.to_le_bytes())?;
            }
            Ok(())
        });
        let source = source.unwrap();
        let (pass, sink) = (passing(&mut own, "pass", false), counting(&mut own, "sink", &taken, fails));
        own.attach(source, pass, Edge::queue()).unwrap();
        own.attach(pass, sink, Edge::units()).unwrap();
        let ended = run(own);
        assert_eq!(ended.is_err(), fails, "{ended:?}");
        if fails {
            prepare_patiently(&client);
        }
    }
    assert_eq!((puts.load(Ordering::Relaxed), taken.load(Ordering::Relaxed)), (20, 20));
    assert_removed(&daemon);
}

// If this failed, a source that died half way would add its units twice, until its list is full.
#[test]
fn source_that_failed_half_way_fills_its_list_once() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let taken = Arc::default();
    for fails in [true, false] {
        let mut own = flow(&client);
        let source = own.source("source", Each::Flow, move |_, output| {
            for number in 0..100_u32 {
                if fails && number == 60 {
                    return Err("on demand".into());
                }
                output.put(&number.to_le_bytes())?;
            }
            Ok(())
        });
        // Nobody takes before the source is at its end.
        let (source, sink) = (source.unwrap(), counting(&mut own, "sink", &taken, false));
        own.attach(source, sink, Edge::units_with(UnitOptions::new().capacity(100))).unwrap();
        let ended = run(own);
        assert_eq!(ended.is_err(), fails, "{ended:?}");
        if fails {
            taken.store(0, Ordering::Relaxed);
            prepare_patiently(&client);
        }
    }
    assert_eq!(taken.load(Ordering::Relaxed), 100);
    assert_removed(&daemon);
}

// If this failed, a process of an earlier attempt would end the next one, or hold it up for ever.
#[test]
fn process_of_an_earlier_attempt_is_fenced() {
    if is_child() {
        return;
    }
    let test = "flow_attempts::process_of_an_earlier_attempt_is_fenced";
    let daemon = Daemon::start(1).unwrap();
    let mut earlier = start(test, &daemon, "victim", "chain", 1, Guarantee::AtLeastOnce);
    line(&mut earlier, "holds ");
    earlier.pause().unwrap();
    prepare_patiently(&connect(daemon.folder()));
    // It holds its first message until the other one is back.
    let mut later = start(test, &daemon, "later", "chain", 1, Guarantee::AtLeastOnce);
    line(&mut later, "runs");
    earlier.resume().unwrap();
    release(&daemon, "go");
    let said = line(&mut earlier, "error ");
    assert!(said.contains(" goes on without this process"), "{said}");
    release(&daemon, "begin");
    finish(&mut later);
    assert_complete(&taken(&later));
    assert_removed(&daemon);
}

// If this failed, the same command on a second host would tear down what the first one has begun.
#[test]
fn two_processes_prepare_one_attempt() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    fill(&client, 1);
    let (fails, taken) = (AtomicBool::new(true), Arc::default());
    let attempt = || {
        let mut own = flow(&client);
        let (list, fails) = (own.list("pages").unwrap(), fails.swap(true, Ordering::Relaxed));
        let (pass, sink) = (passing(&mut own, "pass", false), counting(&mut own, "sink", &taken, fails));
        own.attach(list, pass, Edge::units()).unwrap();
        own.attach(pass, sink, Edge::queue()).unwrap();
        run(own)
    };
    for round in 0..20 {
        assert!(matches!(attempt().unwrap_err(), FlowError::Module { .. }), "round {round}");
        prepare_patiently(&client);
        // The second host is late: processes of the first one have joined, or the flow has failed again.
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                barrier.wait();
                let prepared = prepare(&client, NAME);
                assert!(prepared.is_ok() || matches!(prepared, Err(FlowError::Living { .. })), "{prepared:?}");
            });
            barrier.wait();
            let ended = attempt().unwrap_err();
            assert!(matches!(ended, FlowError::Module { .. }), "round {round}: {ended}");
            other.join().unwrap();
        });
        prepare_patiently(&client);
    }
    fails.store(false, Ordering::Relaxed);
    attempt().unwrap();
    assert_removed(&daemon);
}

// If this failed, a restart of the daemon would make a healthy flow look dead, and `--resume` tear it down.
#[test]
fn flow_whose_daemon_has_just_restarted_is_not_prepared() {
    if is_child() {
        return;
    }
    let test = "flow_attempts::flow_whose_daemon_has_just_restarted_is_not_prepared";
    let mut daemon = Daemon::start(1).unwrap();
    let mut member = start(test, &daemon, "victim", "chain", 1, Guarantee::AtLeastOnce);
    line(&mut member, "holds ");
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    let refused = prepare(&connect(daemon.folder()), NAME);
    assert!(matches!(refused, Err(FlowError::Living { members: 1, .. })), "{refused:?}");
    ["begin", "go"].iter().for_each(|file| release(&daemon, file));
    finish(&mut member);
    assert_complete(&taken(&member));
}

// If this failed, a run would be refused because a process of the last one was killed at its end.
#[test]
fn names_of_a_flow_whose_member_was_killed_at_its_end_do_not_refuse_the_next_one() {
    if is_child() {
        return;
    }
    let test = "flow_attempts::names_of_a_flow_whose_member_was_killed_at_its_end_do_not_refuse_the_next_one";
    let daemon = Daemon::start(1).unwrap();
    for round in ["first", "second"] {
        let mut victim = start(test, &daemon, round, "late", 2, Guarantee::AtLeastOnce);
        // The dead one of the first round may have its place yet.
        until_member(&daemon, &victim);
        // Its sink waits behind its last message: all that the victim had to do is done.
        let mut sink = start(test, &daemon, &format!("sink-{round}"), "late", 2, Guarantee::AtLeastOnce);
        line(&mut sink, "at its end");
        victim.kill().unwrap();
        release(&daemon, "late");
        finish(&mut sink);
        std::fs::remove_file(daemon.folder().join("late")).unwrap();
    }
    assert!(cancel(&connect(daemon.folder()), NAME).unwrap());
    assert_removed(&daemon);
}

// If this failed, a process that dies while it creates a flow would leave a name that nothing removes.
#[test]
fn flow_that_never_began_is_cancelled() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let spec = Spec::new(66).row_len(1024).model(Model::Write);
    client.table::<[u8]>(&format!("river/{NAME}/flow")).allocate(spec).unwrap();
    assert!(FlowInfo::read(&client, NAME).unwrap().is_none());
    assert!(cancel(&client, NAME).unwrap());
    assert_removed(&daemon);
    assert!(matches!(cancel(&client, NAME).unwrap_err(), FlowError::Unknown { .. }));
}
