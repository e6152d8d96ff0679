//! Queries over a B-tree and an R-tree of places (Table 1 and Fig. 5 of the paper).

use std::hint::black_box;
use std::ops::Bound;
use std::rc::Rc;
use std::time::Instant;

use ddss_apps::datasets::geonames::{self, Place};
use ddss_apps::storage::{DdssPages, PAGE_BYTES, PageId, PageStore, RedisPages, Timed, new_page};
use ddss_apps::tree::{BTree, RTree};
use ddss_benches::harness::Bench;

use crate::bare_pages::BareServer;
use crate::compare::{Result, Took, Way, in_turns};
use crate::testbed::{Nodes, Placed, Testbed, distinct, report_progress};

/// Percentage of the records that a query touches.
const PERCENTS: [usize; 5] = [20, 40, 60, 80, 100];
/// Places in the R-tree and in the B-tree: their queries then read about as many pages as those of the paper.
const PLACES: [usize; 2] = [9500, 3300];
/// Pages of a store: more than the trees take.
const PAGES: u32 = 400;
/// Pages read together in the rows with more than one. A tree reads half of them while it processes the other half.
const BATCH: usize = 16;

type Store = Timed<Box<dyn PageStore>>;

/// Opens a store by the name of its content.
type Open<'a> = Box<dyn Fn(&str) -> Box<dyn PageStore> + 'a>;

/// The server of a store.
enum Service {
    /// A server that sleeps while it is idle.
    Sleeps,
    Nodes(Rc<Nodes>),
    Bare(Rc<BareServer>),
}

impl Service {
    fn wake(&self) {
        match self {
            Service::Sleeps => {}
            Service::Nodes(nodes) => nodes.wake(),
            Service::Bare(server) => server.wake(),
        }
    }

    fn rest(&self) {
        match self {
            Service::Sleeps => {}
            Service::Nodes(nodes) => nodes.rest(),
            Service::Bare(server) => server.rest(),
        }
    }
}

/// A store with both trees in it.
struct StoreVariant<'a> {
    name: &'static str,
    path: String,
    open: Open<'a>,
    service: Service,
}

impl StoreVariant<'_> {
    fn way<'b>(&'b self, outstanding: usize, run: impl FnMut() -> Took + 'b) -> Way<'b> {
        Way {
            name: self.name,
            path: self.path.clone(),
            outstanding,
            run: Box::new(run),
            wake: Box::new(|| self.service.wake()),
            rest: Box::new(|| self.service.rest()),
        }
    }

    /// Opens the store of that name, while its server is awake.
    fn with<T>(&self, name: &str, open: impl FnOnce(Store) -> std::result::Result<T, ddss_apps::Error>) -> T {
        self.service.wake();
        let opened = open(Timed::new((self.open)(name))).expect("it was filled");
        self.service.rest();
        opened
    }

    fn store(&self, name: &str) -> Store {
        self.with(name, Ok)
    }
}

/// Measures pages alone, then all queries.
pub(crate) fn measure(bench: &mut Bench, testbed: &Testbed, placed: &[Placed]) {
    let all = geonames::places().expect("the places are part of the repository");
    let sets = PLACES.map(|count| geonames::spread(&all, count));
    let store_variants = store_variants(testbed, placed, &sets);
    pages(bench, &store_variants);
    for percent in PERCENTS {
        let results = by_position(bench, &store_variants, &sets[0], percent);
        judge(&format!("rtree q{percent}"), &results);
    }
    for percent in PERCENTS {
        let results = by_name(bench, &store_variants, &sets[1], percent);
        judge(&format!("btree q{percent}"), &results);
    }
}

/// Fills a store of each kind. The first one is the reference.
fn store_variants<'a>(testbed: &'a Testbed, placed: &[Placed], sets: &[Vec<Place>; 2]) -> Vec<StoreVariant<'a>> {
    let mut store_variants = Vec::new();
    if let Some(nfs) = &testbed.nfs {
        let open = move |name: &str| -> Box<dyn PageStore> {
            Box::new(nfs.borrow_mut().pages(&format!("/{name}"), PAGES).expect("the server serves"))
        };
        let path = format!("{}/block", testbed.path);
        store_variants.push(StoreVariant { name: "none", path, open: Box::new(open), service: Service::Sleeps });
    }
    if let Some(redis) = &testbed.redis {
        let open = move |name: &str| -> Box<dyn PageStore> {
            let client = redis.borrow_mut().client().expect("the server serves");
            Box::new(RedisPages::new(client, name, PAGES))
        };
        let path = format!("{}/block", testbed.path);
        store_variants.push(StoreVariant { name: "redis", path, open: Box::new(open), service: Service::Sleeps });
    }
    let bare = Rc::new(testbed.bare_server(2 * PAGES));
    let service = Service::Bare(Rc::clone(&bare));
    let open = move |name: &str| -> Box<dyn PageStore> {
        let first = if name == "rtree" { 0 } else { PAGES };
        Box::new(bare.pages(first, PAGES))
    };
    store_variants.push(StoreVariant {
        name: "raw",
        path: format!("{}/spin", testbed.path),
        open: Box::new(open),
        service,
    });
    for variant in &store_variants {
        variant.service.wake();
        fill((variant.open)("rtree"), (variant.open)("btree"), sets);
        variant.service.rest();
    }
    for nodes in distinct(placed) {
        let home = nodes.at_home();
        let [rtree, btree] =
            ["rtree", "btree"].map(|name| DdssPages::create(&home, name, PAGES).expect("room for both"));
        fill(rtree, btree, sets);
        nodes.rest();
    }
    for Placed { strategy, nodes } in placed {
        let client = nodes.client(*strategy);
        let open =
            move |name: &str| -> Box<dyn PageStore> { Box::new(DdssPages::open(&client, name).expect("it was made")) };
        let path = format!("{}/{strategy}", testbed.path);
        let service = Service::Nodes(Rc::clone(nodes));
        store_variants.push(StoreVariant { name: "ddss", path, open: Box::new(open), service });
    }
    store_variants
}

fn fill(rtree: impl PageStore, btree: impl PageStore, sets: &[Vec<Place>; 2]) {
    let positions = geonames::by_position(rtree, &sets[0]).and_then(|mut tree| tree.check());
    let names = geonames::by_name(btree, &sets[1]).and_then(|mut tree| tree.check());
    positions.and(names).expect("the trees are trees");
}

fn read(store: &mut Store, ids: &[PageId], into: &mut [[u8; PAGE_BYTES]]) -> Took {
    let begin = Instant::now();
    match ids {
        [id] => store.read_page(*id, &mut into[0]),
        ids => store.read_pages(ids, into),
    }
    .expect("the store serves");
    let whole = begin.elapsed();
    Took { whole, data: store.take().0, operations: ids.len() as u64 }
}

/// Measures one page, sixteen pages together, and for DDSS the bare get.
fn pages(bench: &mut Bench, store_variants: &[StoreVariant<'_>]) {
    let mut ways = Vec::new();
    for variant in store_variants {
        for count in [1, BATCH] {
            let (mut store, mut into) = (variant.store("rtree"), vec![[0; PAGE_BYTES]; count]);
            // The pages are not adjacent, as in a prefetch.
            let ids: Vec<PageId> = (1..).step_by(3).take(count).map(PageId).collect();
            ways.push(variant.way(count, move || read(&mut store, &ids, &mut into)));
        }
    }
    let results = in_turns(bench, "page", PAGE_BYTES, "read", &mut ways);
    drop(ways);
    let mut bare = Vec::new();
    for variant in store_variants {
        let Service::Nodes(nodes) = &variant.service else { continue };
        let strategy =
            variant.path.rsplit('/').next().and_then(|word| word.parse().ok()).expect("it ends in a strategy");
        let segment = nodes.client(strategy).segment("rtree").open().expect("it was made");
        nodes.rest();
        let (mut into, mut store) = (new_page(), variant.store("rtree"));
        let get = variant.way(1, move || {
            let begin = Instant::now();
            segment.get_into(PAGE_BYTES as u64, &mut into[..]).expect("the home is there");
            let whole = begin.elapsed();
            Took { whole, data: whole, operations: 1 }
        });
        bare.push(Way { name: "raw", ..get });
        let mut into = vec![[0; PAGE_BYTES]];
        bare.push(variant.way(1, move || read(&mut store, &[PageId(1)], &mut into)));
    }
    let pairs = in_turns(bench, "get", PAGE_BYTES, "bare-and-page", &mut bare);
    for two in pairs.chunks(2) {
        let [get, page] = two else { continue };
        report_progress(&format!("{}: a page is {:.2} of a bare get", page.wait(), page.whole_us / get.whole_us));
    }
    for one in results.iter().filter(|result| result.outstanding == 1) {
        let many = results.iter().find(|many| many.path == one.path && many.name == one.name && many.outstanding > 1);
        if let Some(many) = many {
            report_progress(&format!(
                "{} {}: {BATCH} pages are {:.2} of one",
                one.name,
                one.wait(),
                many.whole_us / one.whole_us
            ));
        }
    }
}

/// Adds a record to the result of a query: the number of records, and the sum of their distances from a point.
fn work(sum: &mut (u64, f64), at: [f64; 2]) {
    const FROM: [f64; 2] = [7.44744, 46.94809];
    sum.0 += 1;
    sum.1 += Place::distance_km(FROM, at);
}

fn by_position(bench: &mut Bench, store_variants: &[StoreVariant<'_>], set: &[Place], percent: usize) -> Vec<Result> {
    let area = geonames::area_of(set, percent);
    let mut ways = Vec::new();
    for batch in [1, BATCH] {
        for variant in store_variants {
            let mut tree = variant.with("rtree", RTree::open).batch(batch);
            tree.store_mut().take();
            ways.push(variant.way(batch, move || {
                let begin = Instant::now();
                let found = tree.fold(area, || (0, 0.0), |sum, rect, _| work(sum, rect.min)).expect("the store serves");
                let whole = begin.elapsed();
                assert_eq!(black_box(found).0, (set.len() * percent / 100) as u64, "the answer is another one");
                let (data, operations) = tree.store_mut().take();
                Took { whole, data, operations }
            }));
        }
    }
    in_turns(bench, "rtree", PAGE_BYTES, &format!("q{percent}"), &mut ways)
}

fn by_name(bench: &mut Bench, store_variants: &[StoreVariant<'_>], set: &[Place], percent: usize) -> Vec<Result> {
    let last = geonames::key_at(set, percent);
    let last = Bound::Included(&last[..]);
    let mut ways = Vec::new();
    for batch in [1, BATCH] {
        for variant in store_variants {
            let mut tree = variant.with("btree", BTree::open).batch(batch);
            tree.store_mut().take();
            ways.push(variant.way(batch, move || {
                let begin = Instant::now();
                let step = |sum: &mut (u64, f64), _: &[u8], value: &[u8]| {
                    let degrees = |at: usize| f64::from_le_bytes(value[at..at + 8].try_into().expect("eight bytes"));
                    work(sum, [degrees(0), degrees(8)]);
                };
                let found = tree.fold(Bound::Unbounded, last, || (0, 0.0), step).expect("the store serves");
                let whole = begin.elapsed();
                assert_eq!(black_box(found).0, (set.len() * percent / 100) as u64, "the answer is another one");
                let (data, operations) = tree.store_mut().take();
                Took { whole, data, operations }
            }));
        }
    }
    in_turns(bench, "btree", PAGE_BYTES, &format!("q{percent}"), &mut ways)
}

/// Reports the times of the strategies, and how they compare with the other stores.
fn judge(what: &str, results: &[Result]) {
    let find = |name: &str, wait: &str, outstanding: usize| {
        let this = |result: &&Result| (result.name, result.wait(), result.outstanding) == (name, wait, outstanding);
        results.iter().find(this)
    };
    let ddss = |wait, outstanding| find("ddss", wait, outstanding);
    let (Some(mq), Some(rmq), Some(rcq), Some(auto)) = (ddss("mq", 1), ddss("rmq", 1), ddss("rcq", 1), ddss("auto", 1))
    else {
        return;
    };
    let bare = |outstanding| find("raw", "spin", outstanding);
    let mut words = format!(
        "{what}: rmq {:.2}, mq {:.2}, auto {:.2} of rcq",
        rmq.whole_us / rcq.whole_us,
        mq.whole_us / rcq.whole_us,
        auto.whole_us / rcq.whole_us
    );
    for (name, row) in [("nfs", "none"), ("redis", "redis")] {
        let Some(other) = find(row, "block", 1) else { continue };
        words += &format!("; {name} {:.2} of mq", other.whole_us / mq.whole_us);
        for batch in [1, BATCH] {
            let all = (ddss("rcq", batch), bare(batch), find(row, "block", batch));
            let (Some(rcq), Some(bare), Some(same)) = all else { continue };
            words += &format!(
                ", {batch} by {batch} data of rcq {:.3} of {name}'s (of bare sockets {:.3})",
                rcq.data_us / same.data_us,
                bare.data_us / same.data_us
            );
            if batch > 1 {
                words += &format!(" and {:.3} of {name}'s page by page", rcq.data_us / other.data_us);
            }
        }
    }
    report_progress(&words);
}
