//! From the kill of a consumer to the first of its messages that another one gets.

use std::env;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Strategy};
use ddss_benches::baseline::line_ping_pong;
use ddss_benches::harness::{Bench, Sample, StandaloneResult, on_all_cores};
use ddss_benches::system::Cluster;
use ddss_river::{Queue, QueueOptions};

/// Argument with which this program starts itself as a consumer: the daemon's directory and the queue follow.
const FLAG: &str = "--consumer-of";
/// Time in which a message comes.
const MESSAGE_MAX: Duration = Duration::from_secs(30);

/// Takes one message and keeps it, if this program was started for that. It returns when it is killed.
pub(super) fn run_as_consumer() -> bool {
    let arguments: Vec<String> = env::args().collect();
    let Some(at) = arguments.iter().position(|argument| argument == FLAG) else { return false };
    let [directory, name] = &arguments[at + 1..] else { panic!("{FLAG} DIRECTORY QUEUE") };
    let client = connect(Path::new(directory));
    let queue = Queue::open(&client, name, QueueOptions::new()).expect("the queue is open");
    let mut consumer = queue.consumer().expect("the queue is open");
    let message = consumer.take().expect("a message comes");
    let mut out = io::stdout().lock();
    writeln!(out, "taken").and_then(|()| out.flush()).expect("the parent reads the pipe");
    // The parent kills this process. If the parent is gone, its standard input has ended.
    let _ended = io::stdin().lines().next();
    drop(message);
    true
}

fn connect(directory: &Path) -> Client {
    Client::connect_with(ConnectOptions::new().directory(directory)).expect("the daemon takes clients")
}

/// Measures some kills.
pub(super) fn measure(bench: &mut Bench) {
    let label = "ddss,redelivery,64,tcp-lo/auto/t1,1";
    if !bench.options.wants(label) {
        return;
    }
    let kills = match (bench.options.bench, bench.options.quick) {
        (false, _) => 1,
        (true, true) => 5,
        (true, false) => 25,
    };
    let cluster = Cluster::single(bench.cores);
    let mut limit = line_ping_pong(bench.cores);
    bench.by_itself(&mut limit, label, Duration::ZERO, |_| {
        let mut sample = Sample::empty();
        on_all_cores(|| (0..kills).for_each(|number| sample.record(kill_one(&cluster, number), 1, 1)));
        StandaloneResult::new(sample)
    });
}

/// A process that is killed when this is dropped.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // An error means that it has ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn kill_one(cluster: &Cluster, number: u32) -> Duration {
    let (client, name) = (cluster.client(Strategy::Auto), format!("kill-{number}"));
    let queue = Queue::open(&client, &name, QueueOptions::new().timeout(MESSAGE_MAX)).expect("the queue opens");
    let producer = queue.producer().expect("the queue is open");
    let program = env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.arg(FLAG).arg(cluster.own().folder()).arg(&name).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut victim = Victim(command.spawn().expect("this program starts"));
    producer.put(&[5; 64]).expect("the consumer makes room");
    let output = victim.0.stdout.take().expect("its output is a pipe");
    let line = io::BufReader::new(output).lines().next().expect("it takes the message").expect("it writes lines");
    assert_eq!(line, "taken");
    let mut consumer = queue.consumer().expect("the queue is open");
    let killed = Instant::now();
    drop(victim);
    let message = consumer.take().expect("the message comes again").expect("the queue is open");
    let took = killed.elapsed();
    assert!(message.is_redelivered(), "a message of a killed consumer is flagged");
    message.acknowledge();
    drop((producer, consumer));
    queue.close().expect("the message is acknowledged");
    took
}
