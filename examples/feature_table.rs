//! **A feature table with many readers.** One process writes rows of a table continuously. Readers on two nodes look
//! rows up as fast as they can, and never see half a row.
//!
//! ```sh
//! cargo run --release --example feature_table
//! ```
//!
//! A typed view (`Array`) works with any plain struct. Under the model `write` a get takes no lock and never
//! waits. Readers on the home's node read the table in place, by a mapping, without any daemon; readers on the other
//! node use one-sided transfers. Both are the same call.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{Array, Client, Model, Spec};
use ddss_examples::{Failed, Nodes, Task, check, open_soon};
use std::time::Instant;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const NAME: &str = "examples/features";
const USERS: usize = 1_000;
const ROUNDS: u64 = 10;
const READERS: usize = 4;

/// Features of one user: one line of 64 bytes.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
#[repr(C)]
struct Row {
    user: u64,
    round: u64,
    features: [f32; 12],
}

impl Row {
    fn new(user: usize, round: u64) -> Self {
        let feature = |index: usize| (user * 31 + index) as f32 * 0.5 + round as f32;
        Self { user: user as u64, round, features: std::array::from_fn(feature) }
    }
}

fn main() -> Result<(), Failed> {
    match Task::given() {
        Some(task) if task.name == "write" => write(&task.client()?),
        Some(task) => read(&task.client()?),
        None => start(),
    }
}

/// The writer of the features: it writes the whole table, row after row, ten times.
fn write(client: &Client) -> Result<(), Failed> {
    let table: Array<Row> = client.segment(NAME).open()?.array(0)?;
    for round in 1..=ROUNDS {
        for user in 0..USERS {
            table.put(user, &Row::new(user, round))?;
        }
    }
    Ok(())
}

/// A reader goes through the table until it has seen the last round everywhere.
fn read(client: &Client) -> Result<(), Failed> {
    let table: Array<Row> = open_soon(client, NAME)?.array(0)?;
    let (begin, mut gets) = (Instant::now(), 0);
    let mut seen = [0; USERS];
    while seen.iter().any(|&round| round < ROUNDS) {
        for (user, seen) in seen.iter_mut().enumerate() {
            let row = table.get(user)?.value;
            gets += 1;
            // Untorn, and never older than an earlier read.
            let whole = row.round == 0 || row == Row::new(user, row.round);
            check(whole && row.round >= *seen, || format!("a reader got {row:?} after round {seen}"))?;
            *seen = row.round;
        }
    }
    let rate = f64::from(gets) / begin.elapsed().as_secs_f64();
    println!("  a reader on {}: {gets} rows, all whole, {rate:.0} a second", client.node());
    Ok(())
}

fn start() -> Result<(), Failed> {
    let nodes = Nodes::take(2)?;
    let bytes = (USERS * size_of::<Row>()) as u64;
    let table = nodes.client(0)?.segment(NAME).allocate(Spec::new(bytes).model(Model::Write))?;
    let readers: Result<Vec<_>, _> = (0..READERS).map(|index| nodes.worker(index, "read")).collect();
    let writer = nodes.worker(0, "write")?;
    writer.finish()?;
    println!("the writer put {USERS} rows {ROUNDS} times");
    for reader in readers? {
        reader.finish()?;
    }
    let version = table.stat()?.stamp.version.0;
    table.release()?;
    check(version == USERS as u64 * ROUNDS, || format!("the table has version {version}"))?;
    println!("{READERS} readers on two nodes saw every row in its last round, version {version}, and no row in halves");
    Ok(())
}
