//! Messages from one process to another, beside blocks over a bare socket.

use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, Strategy};
use ddss_benches::baseline::tcp_stream;
use ddss_benches::harness::{Bench, Cores, Sample, StandaloneResult, pin};
use ddss_benches::system::{Cluster, PLACEMENTS};
use ddss_river::{Guarantee, Queue, QueueOptions};
use rustix::time::{ClockId, clock_gettime};

const SIZES: [usize; 3] = [64, 4 << 10, 256 << 10];
const GUARANTEES: [(&str, Guarantee); 2] =
    [("at-least-once", Guarantee::AtLeastOnce), ("at-most-once", Guarantee::AtMostOnce)];
/// Messages that are put before the first one counts.
const WARM_UP: u32 = 64;

/// Measures each size under each guarantee.
pub(super) fn measure(bench: &mut Bench) {
    let label = |size: usize, word: &str| format!("ddss,queue,{size},tcp-lo/{word}/t1,1");
    let all = || SIZES.into_iter().flat_map(|size| GUARANTEES.map(|(word, guarantee)| (size, word, guarantee)));
    if !all().any(|(size, word, _)| bench.options.wants(&label(size, word))) {
        return;
    }
    let time = match (bench.options.bench, bench.options.quick) {
        (false, _) => Duration::from_millis(5),
        (true, true) => Duration::from_millis(300),
        (true, false) => Duration::from_secs(2),
    };
    let cluster = Cluster::pair(PLACEMENTS(bench.cores)[1]);
    let clients = [0, 1].map(|node| cluster.client_of(node, Strategy::Auto));
    for (size, word, guarantee) in all() {
        let mut limit = tcp_stream(bench.cores, size);
        let cores = bench.cores;
        bench.by_itself(&mut limit, &label(size, word), time, |time| {
            cluster.wake();
            run(&clients, cores, &format!("queue-{size}-{word}"), size, guarantee, time)
        });
    }
    cluster.rest();
}

fn run(
    clients: &[Client; 2],
    cores: Cores,
    name: &str,
    size: usize,
    guarantee: Guarantee,
    time: Duration,
) -> StandaloneResult {
    let options = QueueOptions::new().members(2).message_bytes_max(size as u32).guarantee(guarantee);
    thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            pin(cores.service).expect("the core is one of those that this process may use");
            let queue = Queue::open(&clients[1], name, options).expect("the members of a queue find each other");
            let mut consumer = queue.consumer().expect("the queue is open");
            let mut taken = 0_u64;
            while let Some(message) = consumer.take().expect("messages come, or the end") {
                assert_eq!(message.len(), size);
                message.acknowledge();
                taken += 1;
            }
            taken
        });
        let queue = Queue::open(&clients[0], name, options).expect("the members of a queue find each other");
        let producer = queue.producer().expect("the queue is open");
        let bytes = vec![5; size];
        let put = |count: &mut u64| {
            producer.put(&bytes).expect("the consumer makes room");
            *count += 1;
        };
        let mut all = 0;
        (0..WARM_UP).for_each(|_| put(&mut all));
        producer.flush().expect("each message is acknowledged");
        let (begun, cpu, mut last) = (Instant::now(), cpu_time(), Instant::now());
        let mut sample = Sample::empty();
        while begun.elapsed() < time {
            put(&mut all);
            let now = Instant::now();
            sample.record(now - last, 1, 1);
            last = now;
        }
        producer.flush().expect("each message is acknowledged");
        sample.elapsed = begun.elapsed();
        let cpu = cpu_time().saturating_sub(cpu);
        queue.close().expect("all messages are acknowledged");
        assert_eq!(consumer.join().expect("the consumer ends"), all, "messages that were taken");
        let mut result = StandaloneResult::new(sample);
        let each = cpu.as_secs_f64() / result.sample.operations as f64;
        result.more.client_cpu_us = Some(each * 1e6);
        result.notes.push(format!("{:.2} s of processor time a GB", each / size as f64 * 1e9));
        result
    })
}

/// Processor time of all threads of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
