//! Queues between real processes and daemons.
//!
//! The test is a producer. The others are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stdout, reason = "a child tells its test what it took")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ddss::{Client, ConnectOptions};
use ddss_river::{Queue, QueueOptions};
use ddss_testkit::{Daemon, Process};

const CHILD: &str = "DDSS_TEST_QUEUE";
const NAME: &str = "frames";
/// Deadline of everything that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);

fn options() -> QueueOptions {
    QueueOptions::new().message_bytes_max(64 << 10).members(4).timeout(PATIENCE)
}

fn open(folder: &Path, options: QueueOptions) -> Queue {
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    Queue::open(&client, NAME, options).unwrap()
}

/// Content of a message: some travel behind their header, most are written one-sided.
fn content(number: u32) -> Vec<u8> {
    let words = [1, 90, 3_000, 16_384][number as usize % 4];
    number.to_le_bytes().repeat(words)
}

/// Starts this program again, as a process that does a job.
fn start(test: &str, daemon: &Daemon, job: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("groups::queues::{test}"), "--nocapture"]);
    command.env(CHILD, format!("{job} {}", daemon.folder().display()));
    Process::start(command, daemon.folder(), &format!("{job}-{}", std::process::id())).unwrap()
}

/// Does the job that `start` asked for. Returns false in the test itself.
fn is_child() -> bool {
    let Ok(words) = std::env::var(CHILD) else { return false };
    let [job, folder] = words.splitn(2, ' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let queue = open(Path::new(folder), options());
    match job {
        "take" => take_all(&queue),
        "hold" => hold(&queue),
        other => panic!("{other}"),
    }
    true
}

/// Takes and acknowledges messages until the queue ends.
fn take_all(queue: &Queue) {
    let mut consumer = queue.consumer().unwrap();
    while let Some(message) = consumer.take().unwrap() {
        let number = u32::from_le_bytes(message[..4].try_into().unwrap());
        assert_eq!(message[..], content(number));
        println!("took {number} {}", message.is_redelivered());
        assert!(message.acknowledge());
    }
    println!("ended");
}

/// Acknowledges some messages, and holds the next one for ever.
fn hold(queue: &Queue) {
    let mut consumer = queue.consumer().unwrap();
    for _ in 0..10 {
        let message = consumer.take().unwrap().unwrap();
        println!("took {} {}", u32::from_le_bytes(message[..4].try_into().unwrap()), message.is_redelivered());
        assert!(message.acknowledge());
    }
    let message = consumer.take().unwrap().unwrap();
    println!("holds {}", u32::from_le_bytes(message[..4].try_into().unwrap()));
    std::thread::sleep(5 * PATIENCE);
}

/// Messages that a process took, and whether they were flagged.
fn taken(process: &Process) -> BTreeMap<u32, bool> {
    let lines = process.stdout();
    let words = lines.lines().filter_map(|line| line.strip_prefix("took ")?.split_once(' '));
    words.map(|(number, flag)| (number.parse().unwrap(), flag.parse().unwrap())).collect()
}

// If this failed, work would be lost with the process that does it, or be done twice without a warning.
#[test]
fn messages_of_a_killed_consumer_reach_another_one_with_a_flag() {
    if is_child() {
        return;
    }
    const MESSAGES: u32 = 200;
    let test = "messages_of_a_killed_consumer_reach_another_one_with_a_flag";
    let [a, b] = Daemon::pair().unwrap();
    let queue = open(a.folder(), options());
    let producer = queue.producer().unwrap();
    let mut victim = start(test, &b, "hold");
    // It is the only consumer at first, so that it gets what it is to hold.
    let (mut numbers, held) = (0..MESSAGES, |process: &Process| process.stdout().contains("holds "));
    for number in numbers.by_ref().take(20) {
        producer.put(&content(number)).unwrap();
    }
    victim.wait_until(PATIENCE, held).unwrap();
    let mut other = start(test, &b, "take");
    for number in numbers {
        producer.put(&content(number)).unwrap();
        if number == MESSAGES / 2 {
            victim.kill().unwrap();
        }
    }
    queue.close().unwrap();
    assert!(other.wait(PATIENCE).unwrap().is_some_and(|status| status.success()), "{}", other.stderr());

    let (first, second) = (taken(&victim), taken(&other));
    let lines = victim.stdout();
    let held: u32 = lines.lines().find_map(|line| line.strip_prefix("holds ")).unwrap().parse().unwrap();
    assert_eq!(second.get(&held), Some(&true), "the held message is flagged");
    let lost: Vec<_> =
        (0..MESSAGES).filter(|number| !first.contains_key(number) && !second.contains_key(number)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    let unflagged: Vec<_> = first.keys().filter(|number| second.get(number) == Some(&false)).collect();
    assert!(unflagged.is_empty(), "twice without a flag: {unflagged:?}");
    assert!(first.len() == 10 && other.stdout().contains("ended"));
}
