//! Trees on real page stores: results of queries, concurrent readers and a writer, and consistency after a crash.
#![allow(clippy::unwrap_used, reason = "the helpers of a test may unwrap as the test may")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ddss::{Client, ConnectOptions, ErrorKind, LockOptions};
use ddss_apps::Error;
use ddss_apps::datasets::geonames::{self, Place};
use ddss_apps::peer_servers::{self, NfsServer, RedisServer, Site};
use ddss_apps::storage::{Change, DdssPages, NfsPages, PAGE_BYTES, Page, PageId, PageStore, RedisPages, new_page};
use ddss_apps::tree::{BTree, RTree, Rect, crash_workload};
use ddss_testkit::{Daemon, DaemonOptions, NetworkNamespaces, Process, Random, SetOnDrop, skipped};

const DEADLINE: Duration = Duration::from_secs(30);

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(DEADLINE)).unwrap()
}

fn pair() -> [Daemon; 2] {
    let new = |node| DaemonOptions::new(node).unwrap().pool_bytes(64 << 20);
    let (a, b) = (new(1), new(2));
    let a = a.peer(&b);
    let b = b.peer(&a);
    [a.start().unwrap(), b.start().unwrap()]
}

/// Repeats an open of a segment of another node until the nodes are connected.
fn patiently<T>(mut open: impl FnMut() -> Result<T, Error>) -> T {
    let begin = std::time::Instant::now();
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(error) => assert!(begin.elapsed() < DEADLINE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Queries of all sizes over places, each answer compared with a plain scan.
fn answers_are_those_of_a_scan(names: impl PageStore, positions: impl PageStore, all: &[Place]) {
    let mut by_name = geonames::by_name(names, all).unwrap();
    let mut by_position = geonames::by_position(positions, all).unwrap();
    assert_eq!(by_name.check().unwrap().items, all.len() as u64);
    assert_eq!(by_position.check().unwrap().items, all.len() as u64);
    let mut sorted: Vec<_> =
        all.iter().enumerate().map(|(index, place)| (place.key(index), place.value().to_vec())).collect();
    sorted.sort();
    for percent in [0, 20, 40, 60, 80, 100] {
        let to = geonames::key_at(all, percent);
        let scanned: Vec<_> = sorted.iter().filter(|(key, _)| *key <= to).cloned().collect();
        assert_eq!(by_name.range(Bound::Unbounded, Bound::Included(&to)).unwrap(), scanned);
        let from = geonames::key_at(all, percent / 2);
        let scanned: Vec<_> = sorted.iter().filter(|(key, _)| *key > from && *key < to).cloned().collect();
        assert_eq!(by_name.range(Bound::Excluded(&from), Bound::Excluded(&to)).unwrap(), scanned);

        let area = geonames::area_of(all, percent);
        let mut found: Vec<u64> = by_position.search(area).unwrap().into_iter().map(|(_, index)| index).collect();
        found.sort_unstable();
        let inside = |(index, place): (usize, &Place)| area.holds(&Rect::point(place.at)).then_some(index as u64);
        assert_eq!(found, all.iter().enumerate().filter_map(inside).collect::<Vec<_>>());
    }
    for (index, place) in all.iter().enumerate().step_by(97) {
        assert_eq!(by_name.get(&place.key(index)).unwrap().unwrap(), place.value());
        assert_eq!(by_name.get(&place.key(index + 1)).unwrap(), None);
    }
}

// Otherwise a query over pages of another node would leave out places, or find some that do not exist.
#[test]
fn trees_in_ddss_return_the_results_of_a_full_scan() {
    let daemons = pair();
    let [here, there] = [client(&daemons[0]), client(&daemons[1])];
    DdssPages::create(&there, "names", 400).unwrap();
    DdssPages::create(&there, "positions", 400).unwrap();
    let all = geonames::spread(&geonames::places().unwrap(), 5000);
    let open = |name| patiently(|| DdssPages::open(&here, name));
    answers_are_those_of_a_scan(open("names"), open("positions"), &all);
    // The other node sees the same, one page at a time.
    let mut elsewhere = BTree::open(DdssPages::open(&there, "names").unwrap()).unwrap().batch(1);
    assert_eq!(elsewhere.check().unwrap().items, 5000);
    assert_eq!(elsewhere.get(&all[77].key(77)).unwrap().unwrap(), all[77].value());
}

// Otherwise DDSS would be compared with a tree that gives other answers.
#[test]
fn trees_over_nfs_and_redis_return_the_results_of_a_full_scan() {
    let all = geonames::spread(&geonames::places().unwrap(), 3000);
    let here = Site { namespace: None, address: "127.0.0.1".parse().unwrap(), core: None };
    match RedisServer::start(&here) {
        Err(error @ Error::Missing { .. }) => skipped("trees over redis", &error.to_string()),
        started => {
            let mut server = started.unwrap();
            let mut store = |name| RedisPages::new(server.client().unwrap(), name, 200);
            answers_are_those_of_a_scan(store("names"), store("positions"), &all);
        }
    }
    let network = match NetworkNamespaces::new(2) {
        Ok(network) => network,
        Err(error) => return skipped("trees over nfs", &error.to_string()),
    };
    // The reading thread is in one namespace, the server in another.
    std::thread::scope(|scope| {
        let tried = scope.spawn(|| {
            peer_servers::enter(&network.inside(1))?;
            let site = Site { namespace: Some(network.inside(2)), address: network.address(2), core: None };
            let mut server = NfsServer::start(&site)?;
            let (names, positions) = (server.pages("/names", 200)?, server.pages("/positions", 200)?);
            answers_are_those_of_a_scan(names, positions, &all);
            pages_come_together(server.pages("/together", 200)?);
            Ok(())
        });
        match tried.join().unwrap() {
            Err(error @ Error::Missing { .. }) => skipped("trees over nfs", &error.to_string()),
            ended => ended.unwrap(),
        }
    });
}

/// Reads more pages than can be in flight, some written and some not; the one that was written last is in the middle.
fn pages_come_together(mut store: NfsPages) {
    let mut page = new_page();
    let written = |id: u32| id % 3 == 1;
    let ids: Vec<PageId> = (0..150).rev().map(PageId).collect();
    for &PageId(id) in ids.iter().filter(|id| written(id.0)) {
        page[20..].fill(id as u8);
        store.write_page(PageId(id), &page).unwrap();
    }
    let mut read = vec![[1; PAGE_BYTES]; ids.len()];
    let mut ran = 0;
    store.read_pages_while(&ids, &mut read, &mut || ran += 1).unwrap();
    for (PageId(id), read) in ids.iter().zip(&read) {
        let byte = if written(*id) { *id as u8 } else { 0 };
        assert!(read[20..].iter().all(|&is| is == byte) && read[..8] == [0; 8], "page {id}");
    }
    store.read_page(PageId(1), &mut page).unwrap();
    assert_eq!(page[20..], [1; PAGE_BYTES - 20]);
    store.read_pages_while(&[], &mut [], &mut || ran += 1).unwrap();
    assert_eq!(ran, 2, "what shall run meanwhile runs once");
}

// Otherwise the trees would lose or invent entries, but only after some thousand changes.
#[test]
fn tree_equals_a_map_after_random_changes() {
    let daemon = Daemon::start(1).unwrap();
    let client = client(&daemon);
    let mut tree = BTree::create(DdssPages::create(&client, "random", 700).unwrap()).unwrap();
    let mut map = BTreeMap::new();
    let mut random = Random::new(5);
    for round in 0..60 {
        tree.write(|tree| {
            for _ in 0..200 {
                let key = vec![b'a' + random.below(4) as u8; 1 + random.below(300) as usize];
                if random.below(10) < if round / 15 % 2 == 0 { 8 } else { 2 } {
                    let value = vec![round; random.below(500) as usize];
                    assert_eq!(tree.insert(&key, &value)?, map.insert(key, value));
                } else {
                    assert_eq!(tree.remove(&key)?, map.remove(&key));
                }
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(tree.check().unwrap().items, map.len() as u64);
    }
    assert!(tree.range(Bound::Unbounded, Bound::Unbounded).unwrap().into_iter().eq(map.clone()));
    // Down to the last key: the tree is then one empty leaf, and all other pages are free.
    tree.write(|tree| map.keys().try_for_each(|key| tree.remove(key).map(drop))).unwrap();
    let census = tree.check().unwrap();
    assert_eq!((census.items, census.leaves, census.inner, census.height), (0, 1, 0, 0));
    let too_long = tree.write(|tree| tree.insert(&[0; 600], b"")).unwrap_err();
    assert!(matches!(too_long, Error::TooLong { key_bytes: 600, .. }), "{too_long}");
}

// If this failed, the entries of an inner page would be out of order after its first child was split.
#[test]
fn tree_stays_in_order_when_keys_arrive_backwards() {
    let daemon = Daemon::start(1).unwrap();
    let client = client(&daemon);
    let mut tree = BTree::create(DdssPages::create(&client, "backwards", 700).unwrap()).unwrap();
    let key = |number: u32| [vec![b'k'; 200], number.to_be_bytes().to_vec()].concat();
    for round in (0..20).rev() {
        tree.write(|tree| (round * 50..round * 50 + 50).rev().try_for_each(|n| tree.insert(&key(n), b"").map(drop)))
            .unwrap();
        let census = tree.check().unwrap();
        assert_eq!(census.items, u64::from(20 - round) * 50);
    }
    assert!(tree.check().unwrap().height >= 2, "inner pages were split too");
    let all: Vec<_> = (0..1000).map(|number| (key(number), Vec::new())).collect();
    assert_eq!(tree.range(Bound::Unbounded, Bound::Unbounded).unwrap(), all);
}

// Otherwise a change that failed midway would be committed in part, or a full store would break its tree.
#[test]
fn failed_change_has_no_effect_and_full_store_stays_valid() {
    let daemon = Daemon::start(1).unwrap();
    let client = client(&daemon);
    let mut tree = RTree::create(DdssPages::create(&client, "small", 12).unwrap()).unwrap();
    let mut random = Random::new(9);
    let mut add_points = |tree: &mut RTree<DdssPages>| {
        let points: Vec<_> = (0..50).map(|_| [random.unit(), random.unit()]).collect();
        tree.write(|tree| points.iter().try_for_each(|&at| tree.insert(Rect::point(at), 1)))
    };
    let count = |tree: &mut RTree<DdssPages>| tree.search(Rect::new([0.0, 0.0], [1.0, 1.0])).unwrap().len();
    (0..10).for_each(|_| add_points(&mut tree).unwrap());
    let none = tree.write(|tree| {
        tree.insert(Rect::point([0.5, 0.5]), 2)?;
        Err::<(), _>(Error::Inconsistent("on purpose".into()))
    });
    assert!(matches!(none, Err(Error::Inconsistent(_))), "{none:?}");
    assert_eq!(count(&mut tree), 500);
    let mut kept = 500;
    let full = loop {
        match add_points(&mut tree) {
            Ok(()) => kept += 50,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full { pages: 12 }), "{full}");
    assert_eq!((tree.check().unwrap().items, count(&mut tree), kept > 500), (kept, kept as usize, true));
    // A caller that ignores the failure of a part does not get the rest committed.
    let careless = tree.write(|tree| {
        let at = |index: u64| Rect::point([index as f64, 0.0]);
        drop((0..5000).try_for_each(|index| tree.insert(at(index), index)));
        Ok(())
    });
    assert!(matches!(careless, Err(Error::Inconsistent(_))), "{careless:?}");
    assert_eq!(tree.check().unwrap().items, kept);
    // The lock was released.
    assert!(tree.store_mut().segment().lock_with(LockOptions::new().timeout(Duration::ZERO)).is_ok());
}

/// A store that records which of its reads ran work in the meantime, and how many pages they read.
struct Watched<S> {
    store: S,
    reads: Vec<(usize, bool)>,
}

impl<S: PageStore> PageStore for Watched<S> {
    fn pages(&self) -> u32 {
        self.store.pages()
    }

    fn read_page(&mut self, page: PageId, into: &mut Page) -> Result<(), Error> {
        self.reads.push((1, false));
        self.store.read_page(page, into)
    }

    fn write_page(&mut self, page: PageId, bytes: &Page) -> Result<(), Error> {
        self.store.write_page(page, bytes)
    }

    fn read_pages(&mut self, pages: &[PageId], into: &mut [Page]) -> Result<(), Error> {
        self.reads.push((pages.len(), false));
        self.store.read_pages(pages, into)
    }

    fn read_pages_while(&mut self, pages: &[PageId], into: &mut [Page], run: &mut dyn FnMut()) -> Result<(), Error> {
        self.reads.push((pages.len(), true));
        self.store.read_pages_while(pages, into, run)
    }

    fn commit(&mut self, fresh: &[Change], last: (PageId, &Page)) -> Result<(), Error> {
        self.store.commit(fresh, last)
    }
}

// Otherwise a query would wait for each page although it has others to process, or process none while it waits.
#[test]
fn query_prefetches_pages_while_it_processes_others() {
    let daemon = Daemon::start(1).unwrap();
    let client = client(&daemon);
    let all = geonames::places().unwrap();
    geonames::by_name(DdssPages::create(&client, "names", 64).unwrap(), &all[..3300]).unwrap();
    let open = || Watched { store: DdssPages::open(&client, "names").unwrap(), reads: Vec::new() };
    let mut answers = Vec::new();
    for (together, half) in [(1, 1), (2, 1), (7, 4), (16, 8), (100, 50)] {
        let mut tree = BTree::open(open()).unwrap().batch(together);
        tree.store_mut().reads.clear();
        answers.push(tree.range(Bound::Unbounded, Bound::Unbounded).unwrap());
        let reads = std::mem::take(&mut tree.store_mut().reads);
        // The head with the root, or the head and then the root; then the leaves.
        let leaves = &reads[if together == 1 { 2 } else { 1 }..];
        let count: usize = leaves.iter().map(|(pages, _)| pages).sum();
        // Half of the pages are processed while the other half arrives.
        let chunk = half.min(count.div_ceil(2));
        assert_eq!(leaves.len(), count.div_ceil(chunk), "{reads:?}");
        let first = leaves[0];
        assert!(count > 16 && first == (chunk, false), "{reads:?}");
        assert!(leaves[1..].iter().all(|&(_, meanwhile)| meanwhile == (together > 1)), "{reads:?}");
    }
    assert_eq!(answers[0].len(), 3300);
    assert!(answers.iter().all(|answer| answer == &answers[0]));
}

// Otherwise a writer that was thought dead could come back and overwrite the tree of its successor.
#[test]
fn writer_without_its_lock_is_refused() {
    let daemon = Daemon::start(1).unwrap();
    let (slow, quick) = (client(&daemon), client(&daemon));
    let short = LockOptions::new().lease(Duration::from_millis(5));
    drop(BTree::create(DdssPages::create(&slow, "fenced", 64).unwrap()).unwrap());
    let mut late = BTree::open(DdssPages::open(&slow, "fenced").unwrap().lock_options(short)).unwrap();
    let mut next = BTree::open(DdssPages::open(&quick, "fenced").unwrap()).unwrap();
    let refused = late.write(|late| {
        // On a busy machine its lease has ended already.
        let inserted = late.insert(b"late", b"1");
        // It waits until the lease of the other writer expires.
        next.write(|next| next.insert(b"next", b"2"))?;
        inserted
    });
    assert!(matches!(&refused, Err(Error::Ddss(error)) if error.kind() == ErrorKind::LockLost), "{refused:?}");
    assert_eq!(next.check().unwrap().items, 1);
    assert_eq!(next.get(b"next").unwrap().as_deref(), Some(&b"2"[..]));
}

fn writer(folder: &Path, name: &str, sort: &str, seed: u64, round: u32) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tree-writer"));
    command.arg(folder).args([name, sort, &seed.to_string()]);
    Process::start(command, folder, &format!("{name}-{round}")).unwrap()
}

/// Returns the last step that a writer acknowledged.
fn said(writer: &Process) -> u64 {
    let words = writer.stdout();
    // Text behind the last line end was cut off.
    words.rsplit_once('\n').and_then(|(whole, _)| whole.lines().last()?.parse().ok()).unwrap_or(0)
}

/// Kills a writer on the other node repeatedly, while a reader reads the whole tree. After each kill the tree has the
/// acknowledged steps, or one more.
fn kill_writers(sort: &str, check: impl Fn(&Client, u64) -> Result<u64, Error> + Sync) {
    let daemons = pair();
    let clients = [client(&daemons[0]), client(&daemons[1])];
    let pages = DdssPages::create(&clients[0], sort, 600).unwrap();
    if sort == "btree" {
        drop(BTree::create(pages).unwrap())
    } else {
        drop(RTree::create(pages).unwrap())
    }
    patiently(|| DdssPages::open(&clients[1], sort));
    let (seed, over) = (11, AtomicBool::new(false));
    let mut random = Random::new(3);
    let (mut steps, mut kills_in_the_middle) = (0, 0);
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&over);
        let reader = scope.spawn(|| {
            let (mut seen, mut looks) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                let now = check(&clients[0], seed).unwrap();
                assert!(now >= seen, "the tree went back from step {seen} to {now}");
                (seen, looks) = (now, looks + 1);
            }
            looks
        });
        for round in 0..25 {
            let mut writer = writer(daemons[1].folder(), sort, sort, seed, round);
            let until = steps + 5 + random.below(60);
            writer.wait_until(DEADLINE, |writer| said(writer) > until).unwrap();
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            writer.kill().unwrap();
            let acknowledged = said(&writer);
            steps = check(&clients[0], seed).unwrap();
            assert!((acknowledged..=acknowledged + 1).contains(&steps), "{acknowledged} acknowledged, {steps} there");
            kills_in_the_middle += u32::from(steps > acknowledged);
        }
        over.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 10, "nobody looked");
    });
    assert!(steps > 700, "the trees never shrank: {steps} steps, {kills_in_the_middle} not acknowledged");
}

// Otherwise a writer's death could leave a tree with half a change, or stop all later writers.
#[test]
fn b_tree_is_consistent_after_its_writer_is_killed() {
    kill_writers("btree", |client, seed| {
        let mut tree = BTree::open(DdssPages::open(client, "btree")?)?;
        tree.check()?;
        crash_workload::check(&mut tree, seed)
    });
}

// Otherwise the same for places.
#[test]
fn r_tree_is_consistent_after_its_writer_is_killed() {
    kill_writers("rtree", |client, seed| {
        let mut tree = RTree::open(DdssPages::open(client, "rtree")?)?;
        tree.check()?;
        crash_workload::check_places(&mut tree, seed)
    });
}
