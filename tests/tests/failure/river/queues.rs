//! Queues between real processes and daemons: deaths, stops, full memory, and bad input.
//!
//! The test is a producer. The others are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stdout, reason = "a child tells its test what it took")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions};
use ddss_auth::Context;
use ddss_group::{Group, GroupEvent, JoinOptions, Member, Membership, NOTE_BYTES};
use ddss_river::{Guarantee, Message, Queue, QueueError, QueueOptions};
use ddss_testkit::{Daemon, DaemonOptions, LinkFault, NetworkNamespaces, Process, block_on, skipped};
use ddss_verbs::{Events, Fabric, Iwarp, IwarpConfig};

const CHILD: &str = "DDSS_TEST_QUEUE";
const NAME: &str = "frames";
/// Deadline of everything that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Deadline of a call that must not succeed.
const SHORT: Duration = Duration::from_millis(300);
/// Lease of a process that is stopped.
const LEASE: Duration = Duration::from_secs(4);
const MESSAGES: u32 = 200;
/// Message that kills its consumers.
const POISON: u32 = 7;

fn options(guarantee: Guarantee) -> QueueOptions {
    let options = QueueOptions::new().message_bytes_max(64 << 10).members(4).lease(LEASE);
    options.timeout(PATIENCE).guarantee(guarantee)
}

fn connect(folder: &Path) -> Client {
    Client::connect_with(ConnectOptions::new().directory(folder)).unwrap()
}

fn open(folder: &Path, options: QueueOptions) -> Queue {
    Queue::open(&connect(folder), NAME, options).unwrap()
}

/// Content of a message: some travel behind their header, most are written one-sided.
fn content(number: u32) -> Vec<u8> {
    let words = [1, 90, 3_000, 16_384][number as usize % 4];
    number.to_le_bytes().repeat(words)
}

/// Number of a message, whose content has to be complete.
fn number(message: &Message) -> u32 {
    let number = u32::from_le_bytes(message[..4].try_into().unwrap());
    assert_eq!(message[..], content(number));
    number
}

/// Starts this program again, as a process that does a job.
fn start(test: &str, daemon: &Daemon, job: &str, guarantee: Guarantee) -> Process {
    let command = Command::new(std::env::current_exe().unwrap());
    start_at(command, test, daemon, job, guarantee, Ipv4Addr::LOCALHOST.into())
}

/// Starts this program by a command, as a process that listens on an address.
fn start_at(
    mut command: Command,
    test: &str,
    daemon: &Daemon,
    job: &str,
    guarantee: Guarantee,
    address: IpAddr,
) -> Process {
    command.args(["--exact", &format!("river::queues::{test}"), "--nocapture"]);
    command.env(CHILD, format!("{job} {guarantee:?} {address} {}", daemon.folder().display()));
    Process::start(command, daemon.folder(), job).unwrap()
}

/// Does the job that `start` asked for. Returns false in the test itself.
fn is_child() -> bool {
    let Ok(words) = std::env::var(CHILD) else { return false };
    let [job, guarantee, address, folder] = words.splitn(4, ' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let all = [Guarantee::AtLeastOnce, Guarantee::AtMostOnce, Guarantee::FailStop];
    let guarantee = all.into_iter().find(|one| format!("{one:?}") == guarantee).unwrap();
    let queue = open(Path::new(folder), options(guarantee).listen(address.parse().unwrap()));
    match job {
        "take" => take_all(&queue),
        "hold" => hold(&queue, &Path::new(folder).join("go")),
        "put" => put_half(&queue),
        "poison" => hold_poison(&queue),
        other => panic!("{other}"),
    }
    true
}

/// Takes and acknowledges messages until the queue ends.
fn take_all(queue: &Queue) {
    let mut consumer = queue.consumer().unwrap();
    println!("begins");
    while let Some(message) = consumer.take().unwrap() {
        println!("took {} {}", number(&message), message.is_redelivered());
        assert!(message.acknowledge());
    }
    println!("ended");
}

/// Acknowledges some messages, and holds the next one until a file exists. Then goes on until the queue ends or fails.
fn hold(queue: &Queue, go: &Path) {
    let mut consumer = queue.consumer().unwrap();
    for _ in 0..10 {
        let message = consumer.take().unwrap().unwrap();
        println!("took {} {}", number(&message), message.is_redelivered());
        assert!(message.acknowledge());
    }
    let message = consumer.take().unwrap().unwrap();
    println!("holds {}", number(&message));
    let end = Instant::now() + PATIENCE;
    while !go.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("late {}", message.acknowledge());
    loop {
        match consumer.take() {
            Ok(Some(message)) => println!("late {}", message.acknowledge()),
            Ok(None) => return println!("ended"),
            Err(error) => return println!("error {error}"),
        }
    }
}

/// Takes and acknowledges messages up to one that it holds until it is killed.
fn hold_poison(queue: &Queue) {
    let mut consumer = queue.consumer().unwrap();
    while let Some(message) = consumer.take().unwrap() {
        if number(&message) == POISON {
            println!("holds {}", message.is_redelivered());
            std::thread::sleep(2 * PATIENCE);
        }
        message.acknowledge();
    }
}

/// Puts the first half of the messages, and waits for its end.
fn put_half(queue: &Queue) {
    let producer = queue.producer().unwrap();
    for number in 0..MESSAGES / 2 {
        producer.put(&content(number)).unwrap();
        println!("put {number}");
    }
    producer.flush().unwrap();
    println!("flushed");
    std::thread::sleep(2 * PATIENCE);
}

/// Messages that a process took, and whether they were flagged.
fn taken(process: &Process) -> BTreeMap<u32, bool> {
    let lines = process.stdout();
    let words = lines.lines().filter_map(|line| line.strip_prefix("took ")?.split_once(' '));
    words.map(|(number, flag)| (number.parse().unwrap(), flag.parse().unwrap())).collect()
}

/// Waits until a process has written a line that begins so. Returns the rest of it.
fn line(process: &mut Process, start: &str) -> String {
    let found = |process: &Process| {
        let text = process.stdout();
        // A line may be in work.
        text.split_inclusive('\n').find_map(|line| Some(line.strip_suffix('\n')?.strip_prefix(start)?.to_owned()))
    };
    process.wait_until(PATIENCE, |process| found(process).is_some()).unwrap();
    found(process).unwrap()
}

fn finish(process: &mut Process) {
    let status = process.wait(PATIENCE).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{} {}", process.stdout(), process.stderr());
}

/// A queue whose first consumer, on the other node, holds a message.
fn start_victim(test: &str, nodes: &[Daemon; 2], guarantee: Guarantee) -> (Queue, Process, u32) {
    let queue = open(nodes[0].folder(), options(guarantee));
    let producer = queue.producer().unwrap();
    let mut victim = start(test, &nodes[1], "hold", guarantee);
    (0..20).for_each(|number| producer.put(&content(number)).unwrap());
    let held = line(&mut victim, "holds ").parse().unwrap();
    (queue, victim, held)
}

fn put_rest(queue: &Queue) {
    let producer = queue.producer().unwrap();
    (20..MESSAGES).for_each(|number| producer.put(&content(number)).unwrap());
}

// If this failed, work would be lost with the process that does it, or be done twice without a warning.
#[test]
fn messages_of_a_killed_consumer_reach_another_one_with_a_flag() {
    if is_child() {
        return;
    }
    let test = "messages_of_a_killed_consumer_reach_another_one_with_a_flag";
    let nodes = Daemon::pair().unwrap();
    let (queue, mut victim, held) = start_victim(test, &nodes, Guarantee::AtLeastOnce);
    let mut other = start(test, &nodes[1], "take", Guarantee::AtLeastOnce);
    line(&mut other, "begins");
    victim.kill().unwrap();
    put_rest(&queue);
    queue.close().unwrap();
    finish(&mut other);

    let (first, second) = (taken(&victim), taken(&other));
    assert_eq!(second.get(&held), Some(&true), "the held message is flagged");
    let is_lost = |number: &u32| !first.contains_key(number) && !second.contains_key(number);
    let lost: Vec<_> = (0..MESSAGES).filter(is_lost).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    let unflagged: Vec<_> = first.keys().filter(|number| second.get(number) == Some(&false)).collect();
    assert!(unflagged.is_empty(), "twice without a flag: {unflagged:?}");
    assert!(first.len() == 10 && other.stdout().contains("ended"));
}

// If this failed, a message that must not be processed twice would be.
#[test]
fn messages_of_a_killed_consumer_are_dropped_under_at_most_once() {
    if is_child() {
        return;
    }
    let test = "messages_of_a_killed_consumer_are_dropped_under_at_most_once";
    let nodes = Daemon::pair().unwrap();
    let (queue, mut victim, held) = start_victim(test, &nodes, Guarantee::AtMostOnce);
    victim.kill().unwrap();
    let mut other = start(test, &nodes[0], "take", Guarantee::AtMostOnce);
    put_rest(&queue);
    let dropped = queue.close().unwrap_err();
    assert!(matches!(dropped, QueueError::Unprocessed { messages: 1..=2, .. }), "{dropped}");
    finish(&mut other);
    let (first, second) = (taken(&victim), taken(&other));
    assert!(!second.contains_key(&held), "the held message is not given to another consumer");
    assert!(first.keys().all(|number| !second.contains_key(number)), "no message comes twice");
    // The window of the victim is all that was there.
    assert!(first.len() + second.len() >= MESSAGES as usize - 2, "{} of {MESSAGES}", first.len() + second.len());
}

// If this failed, a computation would go on without what a dead process had in its memory.
#[test]
fn death_of_a_member_ends_a_fail_stop_queue_and_names_the_member() {
    if is_child() {
        return;
    }
    let test = "death_of_a_member_ends_a_fail_stop_queue_and_names_the_member";
    let nodes = Daemon::pair().unwrap();
    let (queue, mut victim, _) = start_victim(test, &nodes, Guarantee::FailStop);
    let producer = queue.producer().unwrap();
    victim.kill().unwrap();
    let error = producer.flush().unwrap_err();
    assert!(matches!(error, QueueError::Lost { member: 1, .. }), "{error}");
    let error = producer.put(b"more").unwrap_err();
    assert_eq!(error.to_string(), "queue frames has ended: member 1 is lost");
}

// If this failed, a producer would take messages along that it has sent, or the queue would never end after its death.
#[test]
fn messages_of_a_killed_producer_are_delivered_if_they_left_it() {
    if is_child() {
        return;
    }
    let test = "messages_of_a_killed_producer_are_delivered_if_they_left_it";
    let nodes = Daemon::pair().unwrap();
    let queue = open(nodes[0].folder(), options(Guarantee::AtLeastOnce));
    let mut consumer = queue.consumer().unwrap();
    for _ in 0..3 {
        let mut victim = start(test, &nodes[1], "put", Guarantee::AtLeastOnce);
        // It is killed while a message of it is with the application, and another one may be in the ring. The next producer
        // comes into the same place.
        loop {
            let message = consumer.take().unwrap().unwrap();
            let is_first = number(&message) == 0;
            if is_first {
                victim.kill().unwrap();
            }
            assert!(number(&message) < 2 && !message.is_redelivered());
            message.acknowledge();
            if is_first {
                break;
            }
        }
    }
    queue.close().unwrap();
    while let Some(message) = consumer.take().unwrap() {
        assert_eq!(number(&message), 1, "the window has room for two");
        message.acknowledge();
    }
}

// If this failed, a process that was stopped and returns would work on beside those that have its messages.
#[test]
fn stopped_consumer_that_returns_is_fenced_and_its_messages_are_with_others() {
    if is_child() {
        return;
    }
    let test = "stopped_consumer_that_returns_is_fenced_and_its_messages_are_with_others";
    let nodes = Daemon::pair().unwrap();
    let (queue, mut victim, held) = start_victim(test, &nodes, Guarantee::AtLeastOnce);
    victim.pause().unwrap();
    let mut other = start(test, &nodes[0], "take", Guarantee::AtLeastOnce);
    put_rest(&queue);
    line(&mut other, &format!("took {held} true"));
    std::fs::write(nodes[1].folder().join("go"), b"").unwrap();
    victim.resume().unwrap();
    let error = line(&mut victim, "error ");
    assert!(error.starts_with("queue frames goes on without this process"), "{error}");
    queue.close().unwrap();
    finish(&mut other);
    // Its late acknowledgements have changed nothing.
    assert_eq!(taken(&victim).len() + taken(&other).len(), MESSAGES as usize);
}

// If this failed, the messages of a node that is cut off would wait for it, or its processes would work on beside the others.
#[test]
fn messages_of_a_node_that_is_cut_off_reach_others_and_its_process_is_fenced() {
    if is_child() {
        return;
    }
    let test = "messages_of_a_node_that_is_cut_off_reach_others_and_its_process_is_fenced";
    let network = match NetworkNamespaces::new(2) {
        Ok(network) => network,
        Err(error) => return skipped(test, &format!("it needs root and network namespaces: {error}")),
    };
    let options = |node: u8| {
        let listen = SocketAddr::new(network.address(node), 7400);
        DaemonOptions::listening(node.into(), listen).inside(&network.inside(node))
    };
    let (a, b) = (options(1), options(2));
    let (a, b) = (options(1).peer(&b).start().unwrap(), options(2).peer(&a).start().unwrap());
    let start_in = |node: u8, daemon: &Daemon, job: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &network.inside(node)]).arg(std::env::current_exe().unwrap());
        start_at(command, test, daemon, job, Guarantee::AtLeastOnce, network.address(node))
    };
    // The node of the first process has the directory.
    let mut producer = start_in(1, &a, "put");
    line(&mut producer, "put 20");
    let mut victim = start_in(2, &b, "hold");
    let held: u32 = line(&mut victim, "holds ").parse().unwrap();
    network.cut(2, LinkFault::Both).unwrap();
    let mut other = start_in(1, &a, "take");
    line(&mut other, &format!("took {held} true"));
    line(&mut producer, "flushed");
    network.heal(2);
    std::fs::write(b.folder().join("go"), b"").unwrap();
    let error = line(&mut victim, "error ");
    assert!(error.starts_with("queue frames goes on without this process"), "{error}");
    assert_eq!(taken(&victim).len() + taken(&other).len(), MESSAGES as usize / 2);
}

// If this failed, the restart of a daemon would end every flow on its node.
#[test]
fn queue_goes_on_while_its_daemon_is_dead() {
    if is_child() {
        return;
    }
    let test = "queue_goes_on_while_its_daemon_is_dead";
    let mut daemon = Daemon::start(1).unwrap();
    let queue = open(daemon.folder(), options(Guarantee::AtLeastOnce));
    let mut other = start(test, &daemon, "take", Guarantee::AtLeastOnce);
    let producer = queue.producer().unwrap();
    producer.put(&content(0)).unwrap();
    producer.flush().unwrap();
    daemon.kill().unwrap();
    (1..MESSAGES).for_each(|number| producer.put(&content(number)).unwrap());
    producer.flush().unwrap();
    daemon.restart().unwrap();
    queue.close().unwrap();
    finish(&mut other);
    assert_eq!(taken(&other), (0..MESSAGES).map(|number| (number, false)).collect());
}

// If this failed, a producer without a consumer would fill the memory of its node, or wait for ever.
#[test]
fn producer_waits_for_room_up_to_its_deadline_and_goes_on_afterwards() {
    let daemon = Daemon::start(1).unwrap();
    let options = options(Guarantee::AtLeastOnce).send_slots(8).timeout(SHORT);
    let queue = open(daemon.folder(), options);
    let producer = queue.producer().unwrap();
    (0..8).for_each(|number| producer.put(&content(number)).unwrap());
    for _ in 0..2 {
        let error = producer.put(&content(8)).unwrap_err();
        assert!(matches!(error, QueueError::TimedOut { .. }), "{error}");
    }
    assert!(matches!(producer.flush().unwrap_err(), QueueError::TimedOut { .. }));

    // One that never acknowledges gets its window and no more.
    let hoarder = open(daemon.folder(), options.timeout(PATIENCE));
    let mut hoarding = hoarder.consumer().unwrap();
    let held = [(); 2].map(|()| hoarding.take().unwrap().unwrap());
    assert!(matches!(producer.put(&content(8)).unwrap_err(), QueueError::TimedOut { .. }));
    // The others reach this process, which is a consumer too.
    let mut consumer = queue.consumer().unwrap();
    let mut numbers: Vec<_> = (0..6)
        .map(|_| {
            let message = consumer.take().unwrap().unwrap();
            let number = number(&message);
            assert!(message.acknowledge());
            number
        })
        .collect();
    producer.put(&content(8)).unwrap();
    numbers.extend(held.iter().map(number));
    numbers.sort_unstable();
    assert_eq!(numbers, (0..8).collect::<Vec<_>>());
    assert!(held.into_iter().all(Message::acknowledge));
}

// If this failed, a message that ends every process that takes it would stop the queue.
#[test]
fn message_that_is_dropped_three_times_is_kept_aside() {
    let daemon = Daemon::start(1).unwrap();
    let queue = open(daemon.folder(), options(Guarantee::AtLeastOnce));
    queue.producer().unwrap().put(&content(2)).unwrap();
    let mut consumer = queue.consumer().unwrap();
    for round in 0..3 {
        assert!(queue.failed().is_empty());
        let message = consumer.take().unwrap().unwrap();
        assert_eq!((number(&message), message.is_redelivered()), (2, round > 0));
    }
    assert_eq!(queue.failed(), [content(2)]);
    let failed = queue.close().unwrap_err().to_string();
    assert_eq!(failed, "1 messages of queue frames were not processed: see Queue::failed");
    queue.close().expect("the failure was reported");
    assert!(consumer.take().unwrap().is_none());
}

// If this failed, a message that kills each process would kill one after the other, or take its neighbours along.
#[test]
fn message_that_kills_three_consumers_is_kept_aside_and_the_others_arrive() {
    if is_child() {
        return;
    }
    let test = "message_that_kills_three_consumers_is_kept_aside_and_the_others_arrive";
    let nodes = Daemon::pair().unwrap();
    let queue = open(nodes[0].folder(), options(Guarantee::AtLeastOnce));
    let producer = queue.producer().unwrap();
    (0..20).for_each(|number| producer.put(&content(number)).unwrap());
    // A process that dies before its producer learns that it has begun is none of the three.
    let (mut killed, mut failed, end) = (0, Vec::new(), Instant::now() + PATIENCE);
    while failed.is_empty() {
        let mut victim = start(test, &nodes[killed % 2], "poison", Guarantee::AtLeastOnce);
        while failed.is_empty() && !victim.stdout().contains("holds ") {
            assert!(Instant::now() < end, "{killed} processes were killed");
            std::thread::sleep(Duration::from_millis(5));
            failed = queue.failed();
        }
        if failed.is_empty() {
            assert_eq!(line(&mut victim, "holds "), (killed > 0).to_string());
            killed += 1;
        }
        victim.kill().unwrap();
    }
    assert!(killed >= 3 && failed == [content(POISON)], "{killed} processes were killed");
    let mut last = start(test, &nodes[0], "take", Guarantee::AtLeastOnce);
    let error = queue.close().unwrap_err().to_string();
    assert_eq!(error, "1 messages of queue frames were not processed: see Queue::failed");
    finish(&mut last);
    assert!(taken(&last).keys().all(|number| *number != POISON), "{:?}", taken(&last));
}

// If this failed, a user would search for the reason of a refusal.
#[test]
fn calls_that_are_refused_name_limit_queue_and_setting() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(daemon.folder());
    let options = options(Guarantee::AtLeastOnce);
    let refused = |options: QueueOptions| Queue::open(&client, NAME, options).map(drop).unwrap_err().to_string();
    assert_eq!(refused(options.existing()), "there is no queue frames: open it without `existing` to create it");
    assert_eq!(refused(options.window(0)), "window is 0: use 1 to 64");
    let queue = open(daemon.folder(), options);
    let _same = open(daemon.folder(), options.existing());
    assert_eq!(
        refused(options.guarantee(Guarantee::FailStop)),
        "queue frames has guarantee 0, and this process wants 2: use the same in all processes"
    );
    let producer = queue.producer().unwrap();
    assert_eq!(
        producer.put(&vec![0; (64 << 10) + 1]).unwrap_err().to_string(),
        "a message of 65537 bytes is above message_bytes_max of queue frames, which is 65536"
    );
    queue.close().unwrap();
    let closed = "queue frames is closed: it takes no more messages";
    assert_eq!(producer.put(b"late").unwrap_err().to_string(), closed);
    assert_eq!(queue.producer().map(drop).unwrap_err().to_string(), closed);
    let late = open(daemon.folder(), options);
    assert_eq!(late.producer().map(drop).unwrap_err().to_string(), closed);
    assert!(late.consumer().unwrap().take().unwrap().is_none());
}

// If this failed, a worker that starts late, or again, could not take what a closed queue still has.
#[test]
fn closed_queue_is_drained_by_a_process_that_opens_it_later() {
    let daemon = Daemon::start(1).unwrap();
    let queue = open(daemon.folder(), options(Guarantee::AtLeastOnce));
    queue.producer().unwrap().put(&content(7)).unwrap();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| queue.close());
        while queue.producer().is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let late = open(daemon.folder(), options(Guarantee::AtLeastOnce));
        let mut consumer = late.consumer().unwrap();
        let message = consumer.take().unwrap().expect("the queue has a message");
        assert_eq!(number(&message), 7);
        assert!(message.acknowledge());
        assert!(consumer.take().unwrap().is_none());
        closing.join().unwrap().unwrap();
    });
}

// If this failed, tasks of any executor would need a thread for each wait.
#[test]
fn futures_put_and_take_without_a_runtime() {
    let daemon = Daemon::start(1).unwrap();
    let queue = open(daemon.folder(), options(Guarantee::AtLeastOnce).send_slots(2));
    let other = open(daemon.folder(), options(Guarantee::AtLeastOnce));
    let (producer, mut consumer) = (queue.producer().unwrap().aio(), other.consumer().unwrap().aio());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                for number in 0..MESSAGES {
                    producer.put(&content(number)).await.unwrap();
                }
                producer.flush().await.unwrap();
            });
        });
        block_on(async {
            for expected in 0..MESSAGES {
                let message = consumer.take().await.unwrap().unwrap();
                assert_eq!(number(&message), expected);
                assert!(message.acknowledge());
            }
        });
    });
    let late = open(daemon.folder(), options(Guarantee::AtLeastOnce).timeout(SHORT));
    let mut late = late.consumer().unwrap().aio();
    assert!(matches!(block_on(late.take()).unwrap_err(), QueueError::TimedOut { .. }));
}

// If this failed, one broken process could end the queue of all others.
#[test]
fn member_that_breaks_the_protocol_is_disconnected_and_the_others_go_on() {
    let daemon = Daemon::start(1).unwrap();
    let queue = open(daemon.folder(), options(Guarantee::AtLeastOnce));
    let client = connect(daemon.folder());
    let row = client.table::<[u8]>(&format!("river/{NAME}")).open().unwrap().row(0).get().unwrap();
    let settings: [u8; NOTE_BYTES] = row[40..120].try_into().unwrap();
    for (round, message) in [&b""[..], &[7], &[0; 20], &[1, 99], &[1, 1, 0, 0]].into_iter().enumerate() {
        let mut config = IwarpConfig::default();
        config.message_bytes_max = 1024;
        let mut fabric = Iwarp::new(config).unwrap();
        let address = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let join = JoinOptions::new(4, address).settings(settings).lease(LEASE);
        let membership = Membership::join(&client, &format!("river/{NAME}"), &join).unwrap();
        let context = Context { name: *b"DDSS queue", release: 1 };
        let mut group = Group::new(membership, &mut fabric, context, LEASE).unwrap();
        let (mut events, begin, mut is_lost) = (Events::new(), Instant::now(), false);
        while !is_lost {
            assert!(begin.elapsed() < PATIENCE, "round {round}");
            fabric.poll(&mut events);
            let mut is_up = false;
            for event in events.iter() {
                match group.handle(&mut fabric, &event, begin.elapsed()) {
                    Some(GroupEvent::Up(Member(0))) => is_up = true,
                    Some(GroupEvent::Lost(Member(0), _)) => is_lost = true,
                    _ => {}
                }
            }
            events.clear();
            while group.tick(&mut fabric, begin.elapsed()).is_some() {}
            if is_up {
                group.send(&mut fabric, Member(0), &[message]).unwrap();
            }
        }
    }
    let mut consumer = queue.consumer().unwrap();
    queue.producer().unwrap().put(b"1234").unwrap();
    assert_eq!(consumer.take().unwrap().unwrap()[..], *b"1234");
}
