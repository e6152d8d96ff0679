//! Segments and keys that a node holds: `cargo run --release -p ddss-benches --bin capacity`.
//!
//! One client allocates segments in a node and in a cluster of three nodes, one by one and many at a time. The program
//! reports how much memory each segment takes beside its data. Then it fills a map, and reports how many bytes a key
//! takes.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints to its user")]

use std::error::Error;
use std::time::{Duration, Instant};

use ddss::{Batch, Client, ConnectOptions, Spec};
use ddss_testkit::{Daemon, DaemonOptions, retry};

const USAGE: &str =
    "usage: capacity [SEGMENTS [KEYS [CLUSTER]]]   (20000 segments, 1000000 keys, 20000 segments in a cluster)";
const CALL_MAX: Duration = Duration::from_secs(60);
/// Segments that are allocated one by one, for comparison.
const SINGLE: usize = 500;
/// Calls of one batch, which share a deadline.
const TOGETHER: usize = 1024;
const SEGMENT_BYTES: u64 = 64;

type Value = [u64; 8];

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Result<Vec<usize>, _> = std::env::args().skip(1).map(|word| word.parse()).collect();
    let [segments, keys, in_cluster] = match numbers.as_deref() {
        Ok([]) => [20_000, 1_000_000, 20_000],
        Ok([segments]) => [*segments, 1_000_000, 20_000],
        Ok([segments, keys]) => [*segments, *keys, 20_000],
        Ok([segments, keys, in_cluster]) => [*segments, *keys, *in_cluster],
        _ => return Err(USAGE.into()),
    };
    for (nodes, segments) in [(1, segments), (3, in_cluster)] {
        if segments > 0 {
            allocate(&start(nodes, segments)?, segments)?;
        }
    }
    if keys > 0 { fill(&start(1, 1)?, keys as u64) } else { Ok(()) }
}

/// Starts nodes with room for that many segments each.
fn start(count: u16, segments: usize) -> Result<Vec<Daemon>, Box<dyn Error>> {
    let mut options = Vec::new();
    let most = segments.max(SINGLE);
    for node in 1..=count {
        let pool_bytes = most as u64 * 2 * SEGMENT_BYTES + (1 << 30);
        options
            .push(DaemonOptions::new(node)?.pool_bytes(pool_bytes).argument("--segments").argument(most.to_string()));
    }
    for index in 0..options.len() {
        let own = options.remove(index);
        options.insert(index, options.iter().fold(own, DaemonOptions::peer));
    }
    Ok(options.into_iter().map(DaemonOptions::start).collect::<Result<_, _>>()?)
}

fn client(daemon: &Daemon) -> Result<Client, ddss::Error> {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(CALL_MAX))
}

/// Returns the bytes of a process's memory of its own and of its shared memory.
fn memory_of(daemon: &Daemon) -> Result<[u64; 2], Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
    let of = |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such field")?;
        let kib = line.trim_start_matches(':').split_whitespace().next().ok_or("an empty field")?;
        Ok::<u64, Box<dyn Error>>(kib.parse::<u64>()? * 1024)
    };
    Ok([of("RssAnon")?, of("RssShmem")? + of("RssFile")?])
}

fn allocate(daemons: &[Daemon], count: usize) -> Result<(), Box<dyn Error>> {
    let client = client(&daemons[0])?;
    let first = retry(|| client.segment("capacity").allocate(Spec::new(SEGMENT_BYTES)));
    first.release()?;
    let names: Vec<String> = (0..count.max(SINGLE)).map(|number| format!("capacity/{number}")).collect();
    let before = memory_of(&daemons[0])?;
    let begin = Instant::now();
    let mut made = Vec::new();
    for name in &names[..SINGLE] {
        made.push(client.segment(name).allocate(Spec::new(SEGMENT_BYTES))?);
    }
    let single = SINGLE as f64 / begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for names in names[SINGLE..].chunks(TOGETHER) {
        let mut batch = Batch::new();
        let tickets = names.iter().map(|name| batch.allocate(name, SEGMENT_BYTES)).collect::<Result<Vec<_>, _>>()?;
        let mut replies = client.run(batch)?;
        for ticket in tickets {
            made.push(replies.take(ticket)?);
        }
    }
    let rate = (names.len() - SINGLE) as f64 / begin.elapsed().as_secs_f64();
    let after = memory_of(&daemons[0])?;
    let each = |index: usize| after[index].saturating_sub(before[index]) / made.len() as u64;
    println!("{} nodes: {single:.0} allocations a second one by one, {rate:.0} many at a time", daemons.len());
    let shared = each(1).saturating_sub(SEGMENT_BYTES);
    println!("  a segment beside its data: {} bytes of the daemon's own memory, {shared} shared", each(0));
    let (total, begin) = (made.len(), Instant::now());
    let mut failed = 0;
    for names in names.chunks(TOGETHER) {
        let mut batch = Batch::new();
        let tickets = names.iter().map(|name| batch.open(name)).collect::<Result<Vec<_>, _>>()?;
        let mut replies = client.run(batch)?;
        failed += tickets.into_iter().filter_map(|ticket| replies.take(ticket).err()).count();
    }
    println!("  {:.0} opens a second, {failed} failed", total as f64 / begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    for segments in made.chunks(TOGETHER) {
        let mut batch = Batch::new();
        for segment in segments {
            batch.release(segment)?;
        }
        client.run(batch)?.ok()?;
    }
    println!("  {:.0} releases a second", total as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

fn fill(daemons: &[Daemon], keys: u64) -> Result<(), Box<dyn Error>> {
    let client = client(&daemons[0])?;
    let before = memory_of(&daemons[0])?;
    let map = client.map::<u64, Value>("capacity").allocate(keys)?;
    let begin = Instant::now();
    for key in 0..keys {
        map.put(&key, &[key; 8])?;
    }
    let inserts = keys as f64 / begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for key in 0..keys {
        let key = key.wrapping_mul(0x9e37_79b9) % keys;
        if map.get(&key)?.is_none_or(|entry| entry.value != [key; 8]) {
            return Err(format!("key {key} has another value").into());
        }
    }
    let gets = keys as f64 / begin.elapsed().as_secs_f64();
    let (found, after) = (map.len()?, memory_of(&daemons[0])?);
    let [own, shared] = [0, 1].map(|index| after[index].saturating_sub(before[index]) / keys);
    let data = size_of::<u64>() + size_of::<Value>();
    println!("a map of {found} keys with {data} bytes of data each: {inserts:.0} inserts and {gets:.0} gets a second");
    println!("  a key: {shared} bytes of shared memory, {own} of the daemon's own");
    Ok(())
}
