//! Flows between real processes: edges, refusals, failures of modules.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use ddss_river::flow::{Each, Edge, Flow, FlowError, FlowInfo, cancel};
use ddss_river::{Guarantee, UnitOptions, UnitQueue};
use ddss_testkit::{Daemon, block_on};

use super::flow_members::*;

// If this failed, no flow would run, or its members would not learn that it has ended.
#[test]
fn flow_of_two_processes_on_two_nodes_ends_in_both_and_leaves_no_name() {
    if is_child() {
        return;
    }
    let test = "flow_graphs::flow_of_two_processes_on_two_nodes_ends_in_both_and_leaves_no_name";
    let nodes = Daemon::pair().unwrap();
    for round in ["first", "second"] {
        let mut members =
            [0, 1].map(|node: usize| start(test, &nodes[node], round, "queue", 2, Guarantee::AtLeastOnce));
        members.iter_mut().for_each(finish);
        let all: Vec<_> = members.iter().flat_map(taken).collect();
        assert_eq!(all.len(), MESSAGES as usize, "none twice");
        assert!(members.iter().any(|member| taken(member).is_empty()), "one puts, the other one takes");
        assert_complete(&all);
        assert_removed(&nodes[0]);
    }
}

// If this failed, messages would reach other instances than their edge says.
#[test]
fn messages_reach_the_instances_that_their_edge_names() {
    if is_child() {
        return;
    }
    let test = "flow_graphs::messages_reach_the_instances_that_their_edge_names";
    let nodes = Daemon::pair().unwrap();
    for graph in ["key", "one", "all"] {
        let mut members = [0, 1].map(|node: usize| start(test, &nodes[node], graph, graph, 2, Guarantee::AtLeastOnce));
        members.iter_mut().for_each(finish);
        let all: Vec<_> = members.iter().flat_map(taken).collect();
        let flags = assert_complete(&all);
        let mut at: BTreeMap<u32, BTreeSet<u16>> = BTreeMap::new();
        all.iter().for_each(|(number, _, instance)| {
            at.entry(*number).or_default().insert(*instance);
        });
        let copies = if graph == "all" { 3 } else { 1 };
        assert!(flags.values().all(|flags| flags.len() == copies), "{graph}: {flags:?}");
        match graph {
            "key" => (0..MESSAGES).for_each(|number| assert_eq!(at[&number], at[&(number % 256)], "{number}")),
            "one" => (0..MESSAGES).for_each(|number| assert_eq!(at[&number], BTreeSet::from([(number % 3) as u16]))),
            _ => assert!(at.values().all(|instances| instances.len() == 3), "{at:?}"),
        }
        assert_eq!(all.iter().map(|(.., instance)| *instance).collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2]));
        assert_removed(&nodes[0]);
    }
}

// If this failed, members with other programs would exchange messages, or a flow would wait for itself for ever.
#[test]
fn graphs_that_cannot_run_are_refused_by_name() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let refused = |flow: Flow| flow.go().map(drop).unwrap_err().to_string();
    let flow = || Flow::join_with(&client, NAME, options(1)).unwrap();
    let place = |flow: &mut Flow, name: &str| flow.place(name, Each::Flow, |_, _, _| Ok(())).unwrap();

    let mut lonely = flow();
    let (a, b) = (place(&mut lonely, "a"), place(&mut lonely, "b"));
    place(&mut lonely, "c");
    lonely.attach(a, b, Edge::queue()).unwrap();
    assert_eq!(refused(lonely), "cannot run a flow with the unattached module \"c\": attach it, or do not place it");

    let mut cycle = flow();
    let (a, b) = (place(&mut cycle, "a"), place(&mut cycle, "b"));
    cycle.attach(a, b, Edge::queue()).unwrap();
    cycle.attach(b, a, Edge::by_key(|message| message)).unwrap();
    let said = refused(cycle);
    assert!(said.starts_with("cannot run a flow with the cycle ") && said.contains("a -> b"), "{said}");

    let mut unequal = flow();
    let (a, b) = (place(&mut unequal, "a"), unequal.place("b", Each::Count(2), |_, _, _| Ok(())).unwrap());
    unequal.attach(a, b, Edge::one_to_one()).unwrap();
    let said = refused(unequal);
    let reason = "cannot join 1 instances of \"a\" one to one with 2 of \"b\"";
    assert_eq!(said, format!("flow tokens cannot begin: {reason}"));
    assert!(cancel(&client, NAME).unwrap());

    // Two programs: the first one waits for a second process.
    let two = || Flow::join_with(&client, NAME, options(2).timeout(Duration::from_secs(3))).unwrap();
    let mut one = two();
    let (a, b) = (place(&mut one, "a"), place(&mut one, "b"));
    one.attach(a, b, Edge::queue()).unwrap();
    let mut other = two();
    let (a, b) = (place(&mut other, "a"), place(&mut other, "b"));
    other.attach(a, b, Edge::units()).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| refused(one));
        until_joined(&daemon, 1);
        let hash = FlowInfo::read(&client, NAME).unwrap().unwrap().hash;
        let said = refused(other);
        assert!(said.starts_with(&format!("cannot join the flow: its graph is {hash:016x} and this one ")), "{said}");
        let said = waiting.join().unwrap();
        assert_eq!(said, "1 of 2 processes of flow tokens have joined within 3s");
    });
    assert!(matches!(cancel(&client, "none").unwrap_err(), FlowError::Unknown { .. }));
}

// If this failed, the error of a module would be lost with its process, or the others would wait for ever.
#[test]
fn module_that_fails_or_panics_ends_the_flow_by_name() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    for panics in [false, true] {
        let mut flow = Flow::join_with(&client, NAME, options(1)).unwrap();
        let put = flow.source("put", Each::Flow, |_, output| {
            loop {
                output.put(b"more")?;
            }
        });
        let fail = flow.sink("fail", Each::Flow, move |_, input| {
            let message = input.take()?.ok_or("no message")?;
            assert!(!panics, "a wrong message");
            Err(format!("cannot read {} bytes", message.len()).into())
        });
        flow.attach(put.unwrap(), fail.unwrap(), Edge::queue()).unwrap();
        let error = flow.go().and_then(|running| running.wait()).unwrap_err().to_string();
        let reason = if panics { "it panicked: a wrong message" } else { "cannot read 4 bytes" };
        assert_eq!(error, format!("flow tokens has ended: module fail of member 0 on node 1 failed: {reason}"));
        assert!(cancel(&client, NAME).unwrap());
    }
}

// If this failed, a flow could not be stopped without killing its processes.
#[test]
fn cancelled_flow_ends_in_all_members() {
    if is_child() {
        return;
    }
    let test = "flow_graphs::cancelled_flow_ends_in_all_members";
    let nodes = Daemon::pair().unwrap();
    let mut first = start(test, &nodes[0], "first", "held", 2, Guarantee::AtLeastOnce);
    until_joined(&nodes[0], 1);
    // It never gets on, and blocks the flow in the end.
    let mut victim = start(test, &nodes[1], "victim", "held", 2, Guarantee::AtLeastOnce);
    line(&mut victim, "holds ");
    let client = connect(nodes[0].folder());
    release(&nodes[0], "begin");
    assert!(!cancel(&client, NAME).unwrap(), "its members live");
    assert_eq!(line(&mut first, "error "), "flow tokens was cancelled");
    release(&nodes[1], "go");
    assert_eq!(line(&mut victim, "error "), "flow tokens was cancelled");
    [&mut first, &mut victim].into_iter().for_each(|member| {
        member.wait(PATIENCE).unwrap();
    });
    let end = Instant::now() + PATIENCE;
    while !cancel(&client, NAME).unwrap() {
        assert!(Instant::now() < end, "members live");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_removed(&nodes[0]);
}

// If this failed, a message that ends every module that takes it would stop the flow, or be forgotten.
#[test]
fn message_that_is_dropped_three_times_is_reported_and_the_flow_ends() {
    let daemon = Daemon::start(1).unwrap();
    let mut flow = Flow::join_with(&connect(daemon.folder()), NAME, options(1)).unwrap();
    let put = put_all(&mut flow, Each::Flow);
    let take = flow.sink("take", Each::Flow, |_, input| {
        while let Some(message) = input.take()? {
            if number(&message) != 7 {
                message.acknowledge();
            }
        }
        Ok(())
    });
    flow.attach(put, take.unwrap(), Edge::queue()).unwrap();
    let error = flow.go().and_then(|running| running.wait()).unwrap_err().to_string();
    assert_eq!(error, "1 messages that this process put into flow tokens were not processed");
    assert_removed(&daemon);
}

// If this failed, a flow whose result needs every message would go on without one.
#[test]
fn message_that_is_dropped_three_times_ends_the_flow_if_asked_to() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let mut flow = Flow::join_with(&client, NAME, options(1).end_with_failed_messages()).unwrap();
    let put = flow.source("put", Each::Flow, |_, output| {
        loop {
            output.put(b"more")?;
        }
    });
    let take = flow.sink("take", Each::Flow, move |_, input| {
        let mut dropped = 0;
        while let Some(message) = input.take()? {
            if dropped < 3 && (dropped == 0 || message.is_redelivered()) {
                dropped += 1;
            } else {
                message.acknowledge();
            }
        }
        Ok(())
    });
    flow.attach(put.unwrap(), take.unwrap(), Edge::queue()).unwrap();
    let error = flow.go().and_then(|running| running.wait()).unwrap_err().to_string();
    let reason = "1 messages that this process put into flow tokens were not processed";
    assert_eq!(error, format!("flow tokens has ended: module put of member 0 on node 1 failed: {reason}"));
    assert!(cancel(&client, NAME).unwrap());
}

// If this failed, one task that looks for a unit would stop all tasks of its thread.
#[test]
fn futures_of_a_flow_wait_without_their_thread() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    UnitQueue::create(&client, "pages", UnitOptions::new()).unwrap().add(&[b"1"]).unwrap();
    let mut flow = Flow::join_with(&client, NAME, options(1)).unwrap();
    let list = flow.list("pages").unwrap();
    let read = flow.place("read", Each::Flow, |_, input, output| {
        block_on(async {
            let page = input.take_async().await?.ok_or("no page")?;
            // While the only page is in work, the next attempt returns to its thread, and waits.
            let attempt = {
                let mut take = pin!(input.take_async());
                poll_fn(|context| Poll::Ready(take.as_mut().poll(context).is_pending())).await
            };
            output.put_async(&[&page[..], &[u8::from(attempt)]].concat()).await?;
            page.acknowledge();
            assert!(input.take_async().await?.is_none());
            Ok(())
        })
    });
    let (send, taken) = std::sync::mpsc::channel();
    let take = flow.sink("take", Each::Flow, move |_, input| {
        block_on(async {
            while let Some(page) = input.take_async().await? {
                send.send(page.to_vec())?;
                page.acknowledge();
            }
            Ok(())
        })
    });
    let (read, take) = (read.unwrap(), take.unwrap());
    flow.attach(list, read, Edge::units()).unwrap();
    flow.attach(read, take, Edge::queue()).unwrap();
    flow.go().and_then(|running| running.wait()).unwrap();
    assert_eq!(taken.try_iter().collect::<Vec<_>>(), [b"1\x01"]);
    assert_removed(&daemon);
}

// If this failed, a module that wants only the first messages would fail the flow a minute later.
#[test]
fn module_that_returns_early_ends_the_flow_in_order() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let short = options(1).timeout(Duration::from_secs(3));
    let mut flow = Flow::join_with(&client, NAME, short).unwrap();
    // More than the send slots of the process hold.
    let put = put_all(&mut flow, Each::Flow);
    let head = flow.sink("head", Each::Flow, |_, input| {
        for _ in 0..10 {
            input.take()?.ok_or("too few messages")?.acknowledge();
        }
        Ok(())
    });
    flow.attach(put, head.unwrap(), Edge::queue()).unwrap();
    flow.go().and_then(|running| running.wait()).unwrap();
    assert_removed(&daemon);
}

// If this failed, a slow consumer would fail the flow: an instance that is done refilled the slots, and looked stuck.
#[test]
fn slow_consumer_of_two_producers_in_a_process_is_waited_for() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let short = options(1).timeout(Duration::from_secs(1));
    let mut flow = Flow::join_with(&client, NAME, short).unwrap();
    let put = flow.source("put", Each::Count(2), |cx, output| {
        let messages = if cx.instance() == 0 { 150 } else { 10 };
        for number in 0..messages {
            output.put(&content(number))?;
            if cx.instance() == 1 {
                // It ends while the slots are full.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    });
    let slow = flow.sink("slow", Each::Flow, |_, input| {
        while let Some(message) = input.take()? {
            std::thread::sleep(Duration::from_millis(40));
            message.acknowledge();
        }
        Ok(())
    });
    flow.attach(put.unwrap(), slow.unwrap(), Edge::queue()).unwrap();
    flow.go().and_then(|running| running.wait()).unwrap();
    assert_removed(&daemon);
}
