//! The figures with members of real queues. Disks and processors are clocks, so that two cores carry all of them.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, Strategy};
use ddss_benches::harness::{Bench, on_all_cores};
use ddss_benches::system::Cluster;
use ddss_river::{Queue, QueueOptions};
use ddss_sim::FigurePoint;

use super::{label, row};

/// Bytes of a message.
const MESSAGE_BYTES: usize = 64 << 10;
/// Time of a disk for a message: 2 MiB a second.
const DISK: Duration = Duration::from_micros(31_250);
/// Time of a processor for a message, of 0.55 of a disk's.
const PROCESSOR: Duration = DISK.saturating_mul(55).checked_div(100).expect("a hundred is not zero");
/// Largest difference to the virtual figure that needs no note.
const DIFFERENCE_MAX: f64 = 0.1;
/// Time in which all members of a point meet, and all of its messages travel.
const POINT_MAX: Duration = Duration::from_secs(120);

/// A point of a figure.
struct Setting {
    nodes: usize,
    slow: usize,
    source: Duration,
    sink: Duration,
    /// How much longer the slow sinks need.
    factor: u32,
    /// True if source i puts for sink i only.
    is_static: bool,
    messages: u32,
}

/// Measures the points of `virtual_points` that the options select, and compares them.
pub(super) fn measure(bench: &mut Bench, virtual_points: &[FigurePoint]) {
    let wanted: Vec<&FigurePoint> = virtual_points
        .iter()
        .filter(|point| is_paced(point, bench) && bench.options.wants(&label(point, "paced")))
        .collect();
    if wanted.is_empty() {
        return;
    }
    let cluster = Cluster::pair(ddss_benches::system::PLACEMENTS(bench.cores)[1]);
    let clients = [0, 1].map(|node| cluster.client_of(node, Strategy::Auto));
    let messages = match (bench.options.bench, bench.options.quick) {
        (false, _) => 2,
        (true, true) => 60,
        (true, false) => 200,
    };
    for (number, point) in wanted.into_iter().enumerate() {
        let setting = setting(point, messages);
        let fraction = on_all_cores(|| run(&clients, &format!("paced-{number}"), &setting));
        let mut notes = Vec::new();
        if (fraction - point.fraction).abs() > DIFFERENCE_MAX * point.fraction {
            notes.push(format!("DIFFERS: {:.3} in virtual time", point.fraction));
        }
        bench.row(row(&FigurePoint { fraction, ..*point }, "paced", notes));
    }
    cluster.rest();
}

/// Returns true for the points that a run of this length has.
fn is_paced(point: &FigurePoint, bench: &Bench) -> bool {
    let FigurePoint { figure, series, slow, nodes, .. } = *point;
    if !matches!((figure, series), (4, "queue" | "queue-writing") | (5 | 6, "queue" | "static")) {
        return false;
    }
    match (bench.options.bench, bench.options.quick) {
        (false, _) => figure == 4 && nodes == 2,
        (true, true) => (figure == 4 && nodes == 4) || (figure > 4 && [1, 4].contains(&slow)),
        (true, false) => figure == 4 || slow % 2 == 0,
    }
}

fn setting(point: &FigurePoint, messages: u32) -> Setting {
    let is_writing = point.figure == 6 || point.series == "queue-writing";
    let (source, sink, factor) = if is_writing { (PROCESSOR, DISK, 2) } else { (DISK, PROCESSOR, 4) };
    let (nodes, slow, is_static) = (point.nodes, point.slow, point.series == "static");
    Setting { nodes, slow, source, sink, factor, is_static, messages }
}

/// Runs one point, and returns its rate as a part of that of all disks.
fn run(clients: &[Client; 2], name: &str, setting: &Setting) -> f64 {
    let Setting { nodes, messages, is_static, .. } = *setting;
    let name_of = |node: usize| if is_static { format!("{name}-{node}") } else { name.to_owned() };
    let members = if is_static { 2 } else { 2 * nodes as u16 };
    let options = QueueOptions::new().members(members).message_bytes_max(MESSAGE_BYTES as u32).timeout(POINT_MAX);
    let open = |node: usize| {
        Queue::open(&clients[node % 2], &name_of(node), options).expect("the members of a queue find each other")
    };
    let start = Barrier::new(2 * nodes);
    let took = thread::scope(|scope| {
        let sinks: Vec<_> = (0..nodes)
            .map(|node| {
                let (start, queue) = (&start, open(node));
                scope.spawn(move || take_all(&queue, setting, node, start))
            })
            .collect();
        let sources: Vec<_> = (0..nodes)
            .map(|node| {
                let (start, queue) = (&start, open(node));
                scope.spawn(move || put_all(&queue, setting, start))
            })
            .collect();
        let begun = sources.into_iter().map(|source| source.join().expect("a source ends")).min();
        let ended = sinks.into_iter().map(|sink| sink.join().expect("a sink ends")).max();
        ended.zip(begun).map_or(Duration::ZERO, |(ended, begun)| ended - begun)
    });
    (DISK * messages).as_secs_f64() / took.as_secs_f64()
}

/// Returns when the source began.
fn put_all(queue: &Queue, setting: &Setting, start: &Barrier) -> Instant {
    let producer = queue.producer().expect("the queue is open");
    let bytes = vec![5; MESSAGE_BYTES];
    start.wait();
    let begun = Instant::now();
    let mut next = begun;
    for _ in 0..setting.messages {
        next = pass(next, setting.source);
        producer.put(&bytes).expect("a sink makes room");
    }
    producer.flush().expect("each message is acknowledged");
    drop(producer);
    // The last one to close ends the queue; the others have closed it already.
    queue.close().expect("all messages are acknowledged");
    begun
}

/// Returns when the sink had processed its last message.
fn take_all(queue: &Queue, setting: &Setting, node: usize, start: &Barrier) -> Instant {
    let service = if node < setting.slow { setting.sink * setting.factor } else { setting.sink };
    let mut consumer = queue.consumer().expect("the queue is open");
    start.wait();
    let mut next = Instant::now();
    let mut last = next;
    while let Some(message) = consumer.take().expect("messages come, or the end") {
        next = pass(next, service);
        last = Instant::now();
        message.acknowledge();
    }
    last
}

/// Sleeps until a clock that works in steps of `step` has made another one. `next` is the end of its last step. A clock that had
/// to wait begins now; a thread that slept too long is behind, and makes good for it.
fn pass(next: Instant, step: Duration) -> Instant {
    let now = Instant::now();
    let begin = if now - next.min(now) > step / 4 { now } else { next };
    let end = begin + step;
    thread::sleep(end.saturating_duration_since(Instant::now()));
    end
}
