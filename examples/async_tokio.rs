//! **Async on tokio.** Many tasks on one node call at the same time through one client, while a task on the other node
//! follows a segment and gets each new version.
//!
//! ```sh
//! cargo run --example async_tokio
//! ```
//!
//! `Client::aio` gives the same calls as futures, for tokio or any other executor. Up to 52 of one client are in
//! flight at a time; more wait in a queue. A future may be dropped at any moment, as `select!` and `timeout` do.
//! `watch` sleeps until the home announces a newer version.
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss::{Spec, aio};
use ddss_examples::{Failed, Nodes, PATIENCE, check, may_come};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const TASKS: u64 = 200;
const SLOT_BYTES: u64 = 64;
const PRICES: u64 = 50;

fn main() -> Result<(), Failed> {
    run(&Nodes::take(2)?)
}

#[tokio::main(flavor = "current_thread")]
async fn run(nodes: &Nodes) -> Result<(), Failed> {
    let (here, there) = (nodes.client(0)?.aio()?, nodes.client(1)?.aio()?);
    many_at_once(&here).await?;
    follow(&here, &there).await?;
    give_up(&here).await
}

/// Each task has a slot of its own, and reads its left neighbour's, which may exist already or not.
async fn many_at_once(client: &aio::Client) -> Result<(), Failed> {
    let board = client.segment("examples/board").allocate(Spec::new(TASKS * SLOT_BYTES)).await?;
    let mut tasks = JoinSet::new();
    for index in 0..TASKS {
        let board = board.clone();
        tasks.spawn(async move {
            let place = |index: u64| index * SLOT_BYTES..(index + 1) * SLOT_BYTES;
            board.put(place(index).start, &[index as u8; SLOT_BYTES as usize]).await?;
            let left = (index + TASKS - 1) % TASKS;
            let slot = board.get(place(left)).await?;
            let whole = [[left as u8; SLOT_BYTES as usize], [0; SLOT_BYTES as usize]].contains(&slot[..].try_into()?);
            check(whole, || format!("slot {left} is {:?}", &slot[..]))
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let version = board.stat().await?.stamp.version.0;
    board.release().await?;
    check(version == TASKS, || format!("{TASKS} puts made version {version}"))?;
    println!("{TASKS} tasks put and got at the same time");
    Ok(())
}

/// Sets prices, while a task on the other node follows them. The follower may miss an intermediate version, never the
/// last.
async fn follow(here: &aio::Client, there: &aio::Client) -> Result<(), Failed> {
    let price = here.segment("examples/price").allocate(Spec::new(8)).await?;
    let follower = tokio::spawn(follower(open_soon(there, "examples/price").await?));
    for value in 1..=PRICES {
        price.put(0, &value.to_le_bytes()).await?;
        sleep(Duration::from_micros(200)).await;
    }
    let seen = timeout(PATIENCE, follower).await???;
    price.release().await?;
    println!("a task on the other node saw {seen} of {PRICES} prices, the last one among them");
    Ok(())
}

async fn follower(price: aio::Segment) -> Result<u64, Failed> {
    let (mut versions, mut seen, mut last) = (price.watch(), 0, 0);
    while last < PRICES {
        let stamp = versions.next().await.ok_or("the price is gone")??;
        let value = price.get(..).await?;
        let now = u64::from_le_bytes(value[..].try_into()?);
        check(now >= last && value.version() >= stamp.version, || format!("price {now} came after {last}"))?;
        (seen, last) = (seen + 1, now);
    }
    Ok(seen)
}

/// A cancelled call: after a drop of the future, its memory is free when the daemon has finished with it. An abandoned
/// lock goes to the next waiter.
async fn give_up(client: &aio::Client) -> Result<(), Failed> {
    let door = client.segment("examples/door").allocate(Spec::new(8)).await?;
    let held = door.lock().await?;
    let waited = timeout(Duration::from_millis(50), door.lock()).await;
    check(waited.is_err(), || "the lock was granted twice".to_owned())?;
    held.unlock().await?;
    door.lock().await?.unlock().await?;
    door.release().await?;
    println!("a task gave up waiting for a lock, and left nothing behind");
    Ok(())
}

/// Opens a segment whose name may not have reached this node yet.
async fn open_soon(client: &aio::Client, name: &str) -> Result<aio::Segment, Failed> {
    let open = async {
        loop {
            match client.segment(name).open().await {
                Err(error) if may_come(&error) => sleep(Duration::from_millis(5)).await,
                ended => return ended,
            }
        }
    };
    Ok(timeout(PATIENCE, open).await??)
}
