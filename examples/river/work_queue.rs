//! **A queue of work.** Two workers on two nodes take jobs and put results into a second queue. One of them is killed with jobs
//! in its hands: the other one gets those, flagged, and no job is lost.
//!
//! ```sh
//! cargo run --example work_queue
//! ```
//!
//! A producer keeps each message until a consumer has acknowledged it. Here a worker acknowledges a job behind its result.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::Client;
use ddss_examples::{Failed, Nodes, PATIENCE, Task, check};
use ddss_river::{Message, Queue, QueueOptions};
use std::collections::BTreeMap;
use std::time::Duration;

const JOBS: u32 = 60;

fn main() -> Result<(), Failed> {
    match Task::given() {
        Some(task) => work(&task),
        None => lead(),
    }
}

fn open(client: &Client, name: &str) -> Result<Queue, Failed> {
    Ok(Queue::open(client, name, QueueOptions::new().members(4).timeout(PATIENCE))?)
}

fn number(message: &Message) -> Result<u32, Failed> {
    Ok(u32::from_le_bytes(message[..].try_into()?))
}

/// Takes jobs until there are no more.
fn work(task: &Task) -> Result<(), Failed> {
    let client = task.client()?;
    let (jobs, results) = (open(&client, "examples/jobs")?, open(&client, "examples/results")?);
    let (mut consumer, producer) = (jobs.consumer()?, results.producer()?);
    while let Some(job) = consumer.take()? {
        std::thread::sleep(Duration::from_millis(2));
        producer.put(&(number(&job)? * 2).to_le_bytes())?;
        // The result is with the leader: only then is the job done.
        producer.flush()?;
        job.acknowledge();
    }
    Ok(())
}

fn lead() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    let client = nodes.client(0)?;
    let (jobs, results) = (open(&client, "examples/jobs")?, open(&client, "examples/results")?);
    let (producer, mut consumer) = (jobs.producer()?, results.consumer()?);
    let mut workers = vec![nodes.worker(0, "first")?, nodes.worker(1, "second")?];
    for job in 0..JOBS / 2 {
        producer.put(&job.to_le_bytes())?;
    }
    let mut counts = BTreeMap::new();
    let mut take = |wanted: u32| -> Result<(), Failed> {
        while counts.len() < wanted as usize {
            let result = consumer.take()?.ok_or("the queue is open")?;
            *counts.entry(number(&result)?).or_insert(0) += 1;
            result.acknowledge();
        }
        Ok(())
    };
    take(JOBS / 4)?;
    workers.remove(1).kill()?;
    for job in JOBS / 2..JOBS {
        producer.put(&job.to_le_bytes())?;
    }
    take(JOBS)?;
    check(counts.keys().copied().eq((0..JOBS).map(|job| job * 2)), || format!("other results: {counts:?}"))?;
    jobs.close()?;
    workers.remove(0).finish()?;
    let doubles = counts.values().filter(|count| **count > 1).count();
    println!("{JOBS} jobs by two workers, one of them killed: every job has its result, {doubles} have two");
    drop((producer, jobs, consumer, results));
    for name in ["river/examples/jobs", "river/examples/results"] {
        client.segment(name).open()?.release()?;
    }
    Ok(())
}
