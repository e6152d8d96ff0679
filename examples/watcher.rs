//! **A watcher.** One client on one node serves thousands of event streams; the segments are at home on another node.
//!
//! ```sh
//! cargo run --release --example watcher
//! ```
//!
//! A waiting stream uses no room of calls, so one client is enough for any number of streams. An existing newer version
//! is reported immediately. Versions that follow each other quickly may be merged; the last one never is. Each wait is
//! bounded by the timeout of its handle, and a stream repeats the request after it.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{ErrorKind, Segment, Spec, Version, aio};
use ddss_examples::{Failed, Nodes, PATIENCE, check, open_soon};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

const TOPICS: u64 = 10;
const STREAMS_PER_TOPIC: u64 = 200;
const EVENTS: u64 = 20;
/// Time after which a wait without an event ends, and its stream has a moment for other work.
const BOUND: Duration = Duration::from_millis(500);

fn main() -> Result<(), Failed> {
    run(&Nodes::take(2)?)
}

#[tokio::main(flavor = "current_thread")]
async fn run(nodes: &Nodes) -> Result<(), Failed> {
    let (publisher, subscriber) = (nodes.client(0)?, nodes.client(1)?);
    let name = |topic: u64| format!("examples/topic-{topic}");
    let topics: Vec<Segment> =
        (0..TOPICS).map(|topic| publisher.segment(&name(topic)).allocate(Spec::new(8))).collect::<Result<_, _>>()?;
    let mut streams = JoinSet::new();
    for topic in 0..TOPICS {
        // A handle for threads becomes one for tasks.
        let segment = aio::Segment::from(&open_soon(&subscriber, &name(topic))?).with_timeout(BOUND);
        for _ in 0..STREAMS_PER_TOPIC {
            streams.spawn(follow(segment.clone()));
        }
    }
    for event in 1..=EVENTS {
        for topic in &topics {
            aio::Segment::from(topic).put(0, &event.to_le_bytes()).await?;
        }
        // The subscriber's client makes calls next to its waiting streams.
        let topic = aio::Segment::from(&open_soon(&subscriber, &name(event % TOPICS))?);
        let stamp = topic.get(0..8).await?.stamp;
        check(stamp.version == Version(event), || format!("event {event} has {}", stamp.version))?;
    }
    let (mut ended, mut wakes) = (0, 0);
    while let Some(stream) = timeout(PATIENCE, streams.join_next()).await? {
        wakes += stream??;
        ended += 1;
    }
    for topic in topics {
        topic.release()?;
    }
    check(ended == TOPICS * STREAMS_PER_TOPIC, || format!("{ended} streams saw the last event"))?;
    check(wakes <= ended * EVENTS, || format!("{wakes} wakes for {EVENTS} events in each of {ended} streams"))?;
    println!("{ended} event streams of one client saw the last of {EVENTS} events, with no wake in vain");
    Ok(())
}

/// Follows a topic until its last event. Returns the number of events that the stream has seen.
async fn follow(topic: aio::Segment) -> Result<u64, Failed> {
    let (mut seen, mut wakes) = (Version(0), 0);
    while seen < Version(EVENTS) {
        match topic.wait_newer_than(seen).await {
            Ok(stamp) => {
                check(stamp.version > seen, || format!("{} came after {seen}", stamp.version))?;
                (seen, wakes) = (stamp.version, wakes + 1);
            }
            // No event within the bound, or on a loaded node no room for the wait.
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::LimitReached) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(wakes)
}
