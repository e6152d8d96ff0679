//! Snapshots: a builder publishes an array, and readers on two nodes hold pages of it.
//!
//! The builder that is killed is this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Spec};
use ddss_dsm::snapshot::{Publisher, PublisherOptions, Snapshot, SnapshotError, aio};
use ddss_testkit::{Daemon, DaemonOptions, Random};

const CHILD: &str = "DDSS_TEST_BUILDER";
const PATIENCE: Duration = Duration::from_secs(60);
/// Elements of a page.
const EACH: usize = 512;

fn connect(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap()
}

fn pair(pool_bytes: u64) -> [Daemon; 2] {
    let [a, b] = [1, 2].map(|node| DaemonOptions::new(node).unwrap().pool_bytes(pool_bytes));
    let a = a.peer(&b);
    let b = b.peer(&a);
    [a.start().unwrap(), b.start().unwrap()]
}

// If this failed, a reader would read a whole index again for each small change of it.
#[test]
fn snapshot_reader_fetches_only_the_pages_that_have_changed() {
    const PAGES: usize = 4096;
    let [a, b] = pair(64 << 20);
    let mut index: Vec<u64> = (0..(PAGES * EACH) as u64).collect();
    let options = PublisherOptions::new().spare_pages(100);
    let client = connect(&a);
    let mut publisher = Publisher::open(&client, "index", index.len(), options).unwrap();
    let reader = connect(&b);
    assert!(matches!(Snapshot::<u64>::open(&reader, "index"), Err(SnapshotError::Unpublished)));
    // The first generation needs a frame for each page.
    assert_eq!(publisher.publish(&index).unwrap(), 1);
    assert_eq!(publisher.publish(&index).unwrap(), 1, "nothing has changed");
    let mut snapshot = Snapshot::<u64>::open(&reader, "index").unwrap();
    assert_eq!((snapshot.len(), snapshot.generation()), (index.len(), 1));
    assert_eq!(snapshot.read(600..602).unwrap(), [600, 601]);
    assert_eq!(snapshot.fetched(), 3, "root, map and page");
    assert_eq!(snapshot.read(..).unwrap(), index);
    let mut random = Random::new(7);
    for generation in 2..6 {
        for page in (0..PAGES).step_by(PAGES / 40).take(40) {
            index[page * EACH + random.below(EACH as u64) as usize] += 1;
        }
        assert_eq!(publisher.publish(&index).unwrap(), generation);
        let before = snapshot.fetched();
        assert!(snapshot.refresh().unwrap());
        assert_eq!(snapshot.read(..).unwrap(), index);
        let fetched = snapshot.fetched() - before;
        assert!(fetched * 1000 <= PAGES as u64 * 12, "{fetched} rows for 40 of {PAGES} pages");
        assert!(!snapshot.refresh().unwrap());
    }
    // A reader that was away for some generations.
    let mut late = Snapshot::<u64>::open(&reader, "index").unwrap();
    assert_eq!(late.read(..).unwrap(), index);
    let others: Range<usize> = 7 * EACH..8 * EACH;
    for value in 0..3 {
        index[others.clone()].fill(value);
        publisher.publish(&index).unwrap();
    }
    let before = late.fetched();
    assert!(late.refresh().unwrap());
    assert_eq!(late.read(..).unwrap(), index);
    assert_eq!(late.fetched() - before, 3, "root, map and page");
}

// If this failed, an asynchronous reader would see other bytes than a blocking one.
#[test]
fn snapshot_is_read_without_blocking_a_thread() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(&daemon);
    let mut index = vec![1_u32; 3 * 1024 + 5];
    let mut publisher = Publisher::open(&client, "index", index.len(), PublisherOptions::new()).unwrap();
    publisher.publish(&index).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut snapshot = aio::Snapshot::<u32>::open(&client.aio().unwrap(), "index").await.unwrap();
        assert_eq!(snapshot.read(..).await.unwrap(), index);
        index[2000] = 9;
        publisher.publish(&index).unwrap();
        assert!(snapshot.refresh().await.unwrap());
        assert_eq!(snapshot.read(1999..2001).await.unwrap(), [1, 9]);
        // Root, map, four pages; then root, map, page.
        assert_eq!((snapshot.fetched(), snapshot.generation()), (6 + 3, 2));
    });
}

/// Reads ranges of generations whose elements all have the number of the generation, until the end. Returns how many were read.
fn read_all_the_time(client: &Client, is_over: &AtomicBool, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut snapshot = Snapshot::<u64>::open(client, "index").unwrap();
    let (len, mut done) = (snapshot.len() as u64, 0);
    while !is_over.load(Ordering::Relaxed) {
        let start = random.below(len);
        let range = start as usize..(start + random.below(len - start + 1)) as usize;
        let generation = snapshot.generation();
        match snapshot.read(range) {
            Ok(found) => {
                assert!(found.iter().all(|element| *element == generation), "generation {generation} is mixed");
                done += 1;
            }
            Err(SnapshotError::Superseded) => drop(snapshot.refresh().unwrap()),
            Err(error) => panic!("{error}"),
        }
        if random.below(8) == 0 {
            snapshot.refresh().unwrap();
        }
    }
    done
}

// If this failed, a reader would search in an index that never existed.
#[test]
fn snapshot_readers_mix_no_generations_while_a_builder_publishes_without_pause() {
    const GENERATIONS: u64 = 200;
    let [a, b] = pair(16 << 20);
    let (builder, here, there) = (connect(&a), connect(&a), connect(&b));
    let mut index = vec![1_u64; 20 * EACH + 3];
    let mut publisher = Publisher::open(&builder, "index", index.len(), PublisherOptions::new()).unwrap();
    publisher.publish(&index).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let readers = [(&here, 1), (&there, 2)];
        let readers = readers.map(|(client, seed)| scope.spawn(move || read_all_the_time(client, is_over, seed)));
        for generation in 2..=GENERATIONS {
            index.fill(generation);
            assert_eq!(publisher.publish(&index).unwrap(), generation);
        }
        is_over.store(true, Ordering::Relaxed);
        let done = readers.map(|reader| reader.join().unwrap());
        assert!(done.iter().sum::<u64>() > 0, "{done:?}");
    });
    let mut snapshot = Snapshot::<u64>::open(&there, "index").unwrap();
    assert_eq!(snapshot.read(..).unwrap(), index);
}

/// Publishes without an end, if this process is the builder.
fn is_builder() -> bool {
    let Ok(folder) = std::env::var(CHILD) else { return false };
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    let mut index = vec![0_u64; 50 * EACH];
    let mut publisher = Publisher::open(&client, "index", index.len(), PublisherOptions::new()).unwrap();
    for generation in publisher.generation() + 1.. {
        index.fill(generation);
        publisher.publish(&index).unwrap();
    }
    true
}

// If this failed, a builder that dies would take the index with it, or leave half of a generation.
#[test]
fn killed_publisher_leaves_its_last_generation_and_the_next_one_goes_on() {
    if is_builder() {
        return;
    }
    let test = "groups::snapshots::killed_publisher_leaves_its_last_generation_and_the_next_one_goes_on";
    let daemon = Daemon::start(1).unwrap();
    let client = connect(&daemon);
    let mut random = Random::new(3);
    let mut last = 0;
    for _ in 0..5 {
        let mut builder = Command::new(std::env::current_exe().unwrap());
        let builder = builder.args(["--exact", test, "--nocapture"]).env(CHILD, daemon.folder()).stdout(Stdio::null());
        let mut builder = builder.spawn().unwrap();
        let end = Instant::now() + PATIENCE;
        while Snapshot::<u64>::open(&client, "index").map_or(0, |snapshot| snapshot.generation()) <= last {
            assert!(Instant::now() < end, "nothing was published");
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        builder.kill().unwrap();
        builder.wait().unwrap();
        let mut snapshot = Snapshot::<u64>::open(&client, "index").unwrap();
        last = snapshot.generation();
        assert!(snapshot.read(..).unwrap().iter().all(|element| *element == last), "generation {last} is mixed");
    }
    let mut publisher = Publisher::open(&client, "index", 50 * EACH, PublisherOptions::new()).unwrap();
    let mut index = vec![last; 50 * EACH];
    assert_eq!(publisher.publish(&index).unwrap(), last, "it knows what was published");
    index[0] = 0;
    assert_eq!(publisher.publish(&index).unwrap(), last + 1);
    assert_eq!(Snapshot::<u64>::open(&client, "index").unwrap().read(..2).unwrap(), [0, last]);
}

// If this failed, two builders would write into each other's generations, or a full table would destroy the last one.
#[test]
fn refused_generations_leave_the_last_one() {
    let daemon = Daemon::start(1).unwrap();
    let client = connect(&daemon);
    let mut index = vec![1_u64; 4 * EACH];
    let open = |elements| Publisher::<u64>::open(&client, "index", elements, PublisherOptions::new().spare_pages(2));
    let mut first = open(index.len()).unwrap();
    first.publish(&index).unwrap();
    index[..3 * EACH].fill(2);
    assert_eq!(
        first.publish(&index).unwrap_err().to_string(),
        "4 pages have changed, and 3 frames are free: create the snapshot with more spare pages"
    );
    let mut snapshot = Snapshot::<u64>::open(&client, "index").unwrap();
    assert_eq!(snapshot.read(..).unwrap(), [1; 4 * EACH]);
    index[2 * EACH..].fill(1);
    assert_eq!(first.publish(&index).unwrap(), 2);
    let mut second = open(index.len()).unwrap();
    index[0] = 3;
    assert_eq!(second.publish(&index).unwrap(), 3);
    index.fill(7);
    index[EACH..].fill(1);
    assert!(matches!(first.publish(&index), Err(SnapshotError::Replaced)));
    assert!(matches!(first.publish(&index), Err(SnapshotError::Replaced)), "it stays so");
    assert!(snapshot.refresh().unwrap());
    assert_eq!(snapshot.read(..2).unwrap(), [3, 2]);
    assert_eq!(
        open(5).unwrap_err().to_string(),
        "the snapshot has 2048 elements, and not 5: use the same, or another name"
    );
    assert_eq!(
        Snapshot::<u32>::open(&client, "index").map(drop).unwrap_err().to_string(),
        "the snapshot has 8 bytes an element, and not 4: use the same, or another name"
    );
    assert!(matches!(snapshot.read(2048..2049), Err(SnapshotError::OutOfRange { .. })));
    client.table::<[u8]>("other").allocate(Spec::new(10).row_len(64)).unwrap();
    assert!(matches!(Snapshot::<u64>::open(&client, "other"), Err(SnapshotError::Format)));
}
