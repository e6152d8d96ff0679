//! Capabilities built on gets and puts: tables, maps, large values, thousands of waits, thousands of tasks.
//!
//! - `record`, `map`: a get of one record of a table, and of one key of a map, in place (`near`) and from another node
//!   (`tcp-lo`), beside Redis on the same node. `outstanding` above 1 is one call with that many keys, or that many
//!   commands sent together.
//! - `map-insert`: an insert into a map, which its home executes in one round trip, beside a set of Redis.
//! - `map-update`: a change of a key of a small map, while another client changes its neighbours.
//! - `map-len`, `map-first-event`: calls over a whole map of a million keys.
//! - `get`, `put` of 1 MiB and 64 MiB from another node: the larger one is sent in parts and committed once.
//! - `put` with `waits`: beside a client with that many parked waits.
//! - `ping` with `tasks`: calls of that many tasks of one client.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Segment, Spec, Strategy, Table, Update, Version, aio};
use ddss_apps::peer_servers::{RedisServer, Site};
use ddss_apps::storage::RedisClient;
use ddss_benches::baseline::{Wait, line_ping_pong, seqlock_copy, tcp_ping_pong};
use ddss_benches::harness::{Bench, Figure, RoundTrip, Sample, StandaloneResult};
use ddss_benches::system::{Cluster, Kind, PLACEMENTS, call};
use ddss_core::status::Gauge;
use ddss_ipc::read_status;
use ddss_testkit::Random;

/// Bytes of a record and of a value of the map.
const VALUE_BYTES: usize = 64;
/// Keys of the map and rows of the table.
const KEYS: u64 = 10_000;
/// Keys of one call with many.
const WINDOW: usize = 32;
/// Parked waits beside a put.
const WAITS: usize = 10_000;
/// Waits of a client that keep their places in its rings.
const KEPT_WAITS: usize = 16;
/// Memory of a daemon that holds large values.
const LARGE_POOL_BYTES: u64 = 512 << 20;
/// Memory of a daemon that holds a map of a million keys.
const WHOLE_MAP_POOL_BYTES: u64 = 512 << 20;
/// Time limit for the preparation of a part.
const READY_MAX: Duration = Duration::from_secs(60);
/// Time limit of calls that wait while others are measured.
const WAIT_MAX: Duration = Duration::from_secs(600);

type Map = ddss::Map<[u8; 16], [u8; VALUE_BYTES]>;

fn main() {
    let mut bench = Bench::start("values", std::env::args_os().skip(1));
    for (words, measure) in PARTS {
        // A part that is not selected is not prepared, because its preparation takes longer than a row.
        let only = bench.options.only.as_deref();
        if only.is_none_or(|only| words.iter().any(|word| only.contains(word))) {
            measure(&mut bench);
        }
    }
    bench.finish();
}

type Part = (&'static [&'static str], fn(&mut Bench));

/// Words in the labels of each part, for `--only`.
const PARTS: [Part; 7] = [
    (&["near"], near_records),
    (&["record", "map"], far_records),
    (&["update"], updates),
    (&["len", "event"], whole_maps),
    (&["1048576", "67108864"], large_values),
    (&["waits"], beside_waits),
    (&["tasks"], tasks),
];

/// An operation that is repeated while the daemons of a cluster run.
struct Repeated<F> {
    cluster: Option<Rc<Cluster>>,
    operations: u64,
    act: F,
}

impl<F: FnMut()> RoundTrip for Repeated<F> {
    fn once(&mut self) {
        (self.act)();
    }

    fn operations(&self) -> u64 {
        self.operations
    }

    fn wake(&mut self) {
        self.cluster.iter().for_each(|cluster| cluster.wake());
    }

    fn rest(&mut self) {
        self.cluster.iter().for_each(|cluster| cluster.rest());
    }
}

fn repeated(cluster: &Rc<Cluster>, act: impl FnMut() + 'static) -> Repeated<impl FnMut() + 'static> {
    cluster.rest();
    Repeated { cluster: Some(Rc::clone(cluster)), operations: 1, act }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Numbers of keys in an order without pattern, the same in each run.
fn numbers() -> impl FnMut() -> u64 {
    let mut random = Random::new(1);
    move || random.below(KEYS)
}

/// A filled table and a filled map, whose home is the daemon of that client.
fn fill(home: &Client, reader: &Client) -> (Table, Map) {
    let spec = Spec::new(KEYS).row_len(VALUE_BYTES as u32);
    let table = home.table::<[u8]>("records").allocate(spec).expect("the pool is large enough");
    let map: Map = home.map("map").allocate(KEYS).expect("the pool is large enough");
    for number in 0..KEYS {
        table.row(number).put(&[7; VALUE_BYTES]).expect("the home is there");
        map.put(&key(number), &[7; VALUE_BYTES]).expect("the map has room");
    }
    let begin = Instant::now();
    loop {
        match (reader.table::<[u8]>("records").open(), reader.map("map").open()) {
            (Ok(table), Ok(map)) => return (table, map),
            _ => assert!(begin.elapsed() < READY_MAX, "the nodes do not find each other"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn record_get(cluster: &Rc<Cluster>, table: Table, path: &str) -> Figure {
    let (mut next, mut bytes) = (numbers(), [0; VALUE_BYTES]);
    let get = move || {
        table.row(next()).get_into(0, &mut bytes).expect("the record is there");
    };
    Figure::new("ddss", "record", VALUE_BYTES, path, repeated(cluster, get))
}

fn map_get(cluster: &Rc<Cluster>, map: &Map, path: &str) -> Figure {
    let (mut next, map) = (numbers(), map.clone());
    let get = move || assert!(map.get(&key(next())).expect("the home is there").is_some(), "the key is there");
    Figure::new("ddss", "map", VALUE_BYTES, path, repeated(cluster, get))
}

fn map_insert(cluster: &Rc<Cluster>, map: &Map, path: &str) -> Figure {
    let (mut next, map) = (numbers(), map.clone());
    let insert = move || {
        let written = map.put(&key(next()), &[7; VALUE_BYTES]).expect("the home is there");
        assert!(!written.is_new, "the key is there");
    };
    Figure::new("ddss", "map-insert", VALUE_BYTES, path, repeated(cluster, insert))
}

fn map_get_many(cluster: &Rc<Cluster>, map: &Map, path: &str) -> Figure {
    let (mut next, map) = (numbers(), map.clone());
    let get = move || {
        let keys: [_; WINDOW] = std::array::from_fn(|_| key(next()));
        let values = map.get_many(&keys.each_ref()).expect("the home is there");
        assert!(values.iter().all(Option::is_some), "the keys are there");
    };
    let trip = Repeated { operations: WINDOW as u64, ..repeated(cluster, get) };
    Figure::new("ddss", "map", VALUE_BYTES, path, trip).outstanding(WINDOW)
}

/// Gets of the same keys from Redis, one command at a time and many together. Empty if Redis is not installed.
fn redis_gets(bench: &Bench) -> Vec<Figure> {
    let site = Site { namespace: None, address: IpAddr::V4(Ipv4Addr::LOCALHOST), core: Some(bench.cores.service) };
    let server = match RedisServer::start(&site) {
        Ok(server) => Rc::new(RefCell::new(server)),
        Err(error) => {
            bench.skip("the rows of Redis", &error.to_string());
            return Vec::new();
        }
    };
    let connect = || server.borrow_mut().client().expect("the server serves");
    let mut filler = connect();
    for number in 0..KEYS {
        filler.set(&key(number), &[7; VALUE_BYTES]).expect("the server serves");
    }
    let mut figures = Vec::from([1, WINDOW].map(|together| redis_get(&server, connect(), together)));
    figures.push(redis_set(&server, filler));
    figures
}

fn redis_set(server: &Rc<RefCell<RedisServer>>, mut client: RedisClient) -> Figure {
    let (mut next, server) = (numbers(), Rc::clone(server));
    let set = move || {
        // The server lives as long as its figures.
        let _ = &server;
        client.set(&key(next()), &[7; VALUE_BYTES]).expect("the server serves");
    };
    let trip = Repeated { cluster: None, operations: 1, act: set };
    Figure::new("redis", "map-insert", VALUE_BYTES, "tcp-lo/block/t1", trip)
}

fn redis_get(server: &Rc<RefCell<RedisServer>>, mut client: RedisClient, together: usize) -> Figure {
    let (mut next, server) = (numbers(), Rc::clone(server));
    let get = move || {
        // The server lives as long as its figures.
        let _ = &server;
        let keys: Vec<_> = (0..together).map(|_| key(next())).collect();
        let found = client.get_many(&keys, &mut [0; VALUE_BYTES]).expect("the server serves");
        assert_eq!(found, together, "the keys are there");
    };
    let trip = Repeated { cluster: None, operations: together as u64, act: get };
    Figure::new("redis", "map", VALUE_BYTES, "tcp-lo/block/t1", trip).outstanding(together)
}

/// Measures records and keys whose home is the client's node, read in place.
fn near_records(bench: &mut Bench) {
    let cluster = Cluster::single(bench.cores);
    let client = cluster.near_client();
    let (table, map) = fill(&client, &client);
    let mut figures = vec![record_get(&cluster, table, "near/spin/t1"), map_get(&cluster, &map, "near/spin/t1")];
    figures.push(map_get_many(&cluster, &map, "near/spin/t1"));
    figures.push(map_insert(&cluster, &map, "near/spin/t1"));
    figures.extend(redis_gets(bench));
    bench.family(seqlock_copy(VALUE_BYTES), figures);
}

/// Measures records and keys whose home is another node.
fn far_records(bench: &mut Bench) {
    let placements = PLACEMENTS(bench.cores);
    let filled = placements.map(|placement| {
        let cluster = Cluster::pair(placement);
        let client = cluster.client(Strategy::Auto);
        let (table, map) = fill(&cluster.client_of(1, Strategy::Auto), &client);
        cluster.rest();
        (cluster, table, map)
    });
    let names = placements.iter().map(|placement| placement.name);
    let trial = |(cluster, table, _): &(Rc<Cluster>, Table, Map)| record_get(cluster, table.clone(), "tcp-lo/auto/t1");
    let candidates = names.zip(filled.iter().map(trial)).collect();
    let (best, note) = bench.quickest(tcp_ping_pong(bench.cores, Wait::Spin, VALUE_BYTES, 1), candidates);
    let (cluster, table, map) = &filled[best];
    let mut figures = vec![record_get(cluster, table.clone(), "tcp-lo/auto/t1").note(note)];
    figures.push(map_get(cluster, map, "tcp-lo/auto/t1"));
    figures.push(map_get_many(cluster, map, "tcp-lo/auto/t1"));
    figures.push(map_insert(cluster, map, "tcp-lo/auto/t1"));
    figures.extend(redis_gets(bench));
    bench.family(tcp_ping_pong(bench.cores, Wait::Spin, VALUE_BYTES, 1), figures);
}

/// Changes of the keys of one bucket, by two clients of another node.
fn updates(bench: &mut Bench) {
    let time = if bench.options.bench { Duration::from_secs(4) } else { Duration::from_millis(20) };
    let cluster = Cluster::pair(PLACEMENTS(bench.cores)[1]);
    let home = cluster.client_of(1, Strategy::Auto);
    let map = home.map::<u64, u64>("neighbours").allocate(2).expect("the pool is large enough");
    for key in 0..2 {
        map.put(&key, &0).expect("the map has room");
    }
    let open = |cluster: &Cluster| {
        let client = cluster.client(Strategy::Auto);
        opened(|| client.map::<u64, u64>("neighbours").open())
    };
    let mut limit = tcp_ping_pong(bench.cores, Wait::Spin, VALUE_BYTES, 1);
    for others in 0..2 {
        bench.by_itself(&mut limit, &format!("ddss,map-update,8,tcp-lo/auto/t{},1", others + 1), time, |time| {
            cluster.wake();
            let stop = Arc::new(AtomicBool::new(false));
            let others: Vec<_> = (1..=others)
                .map(|key| {
                    let (map, stop) = (open(&cluster), Arc::clone(&stop));
                    std::thread::spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            add_one(&map, key);
                        }
                    })
                })
                .collect();
            let (map, mut sample, begin) = (open(&cluster), Sample::empty(), Instant::now());
            while begin.elapsed() < time {
                let call = Instant::now();
                add_one(&map, 0);
                sample.record(call.elapsed(), 1, 1);
            }
            sample.elapsed = begin.elapsed();
            stop.store(true, Ordering::Relaxed);
            others.into_iter().for_each(|other| other.join().expect("the other client does not panic"));
            cluster.rest();
            StandaloneResult::new(sample)
        });
    }
    cluster.wake();
    map.segment().release().expect("the home is there");
}

/// Opens a map once the cluster knows its name.
fn opened<T>(mut open: impl FnMut() -> Result<T, ddss::Error>) -> T {
    let begin = Instant::now();
    loop {
        match open() {
            Ok(handle) => return handle,
            Err(error) => assert!(begin.elapsed() < READY_MAX, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn add_one(map: &ddss::Map<u64, u64>, key: u64) {
    map.update(&key, |old| old.map_or(Update::Keep, |old| Update::Put(old.value + 1)))
        .expect("the home is there")
        .expect("the key is there");
}

/// Calls over all keys of a map whose home is another node.
fn whole_maps(bench: &mut Bench) {
    let keys = if bench.options.bench { 1_000_000 } else { 1_000 };
    let time = Duration::from_secs(2);
    let cluster = Cluster::pair_with(PLACEMENTS(bench.cores)[1], WHOLE_MAP_POOL_BYTES);
    let home = cluster.client_of(1, Strategy::Auto);
    let map: Map = home.map("whole").allocate(keys).expect("the pool is large enough");
    for number in 0..keys {
        map.put(&key(number), &[7; VALUE_BYTES]).expect("the map has room");
    }
    let client = cluster.client(Strategy::Auto);
    let far: Map = opened(|| client.map("whole").open());
    cluster.rest();
    let last = key(keys - 1);
    let calls: [(&str, &dyn Fn()); 2] = [
        ("map-len", &|| assert_eq!(far.len().expect("in time"), keys, "all keys are there")),
        ("map-first-event", &|| {
            far.watch(&last[..last.len() - 1]).next().expect("the map is there").expect("in time");
        }),
    ];
    let mut limit = tcp_ping_pong(bench.cores, Wait::Spin, VALUE_BYTES, 1);
    for (op, act) in calls {
        bench.by_itself(&mut limit, &format!("ddss,{op},{keys},tcp-lo/auto/t1,1"), time, |time| {
            cluster.wake();
            let (mut sample, begin) = (Sample::empty(), Instant::now());
            while begin.elapsed() < time {
                let call = Instant::now();
                act();
                sample.record(call.elapsed(), 1, 1);
            }
            sample.elapsed = begin.elapsed();
            cluster.rest();
            StandaloneResult::new(sample)
        });
    }
    cluster.wake();
}

/// Gets and puts of one part and of many.
fn large_values(bench: &mut Bench) {
    let large_bytes = if bench.options.bench { 64 << 20 } else { 4 << 20 };
    let sizes = [1 << 20, large_bytes];
    let cluster = Cluster::pair_with(PLACEMENTS(bench.cores)[1], LARGE_POOL_BYTES);
    let client = cluster.client(Strategy::Auto);
    let segments = sizes.map(|bytes| cluster.segment(&client, &format!("large-{bytes}"), bytes));
    let figures = segments
        .iter()
        .flat_map(|segment| [Kind::Get, Kind::Put].map(|kind| call(&cluster, segment, kind, "tcp-lo", Strategy::Auto)));
    let figures = figures.collect();
    bench.family(tcp_ping_pong(bench.cores, Wait::Spin, 1 << 20, 1), figures);
}

/// Parks waits, and returns the future that holds them.
fn park(cluster: &Cluster, watched: &aio::Segment) -> impl Future<Output = ()> + use<> {
    let watch = |segment: aio::Segment| async move { segment.wait_newer_than(Version(1)).await.map(drop) };
    let mut waits: Vec<_> = (0..WAITS).map(|_| Box::pin(watch(watched.clone()))).collect();
    let begin = Instant::now();
    let parked = || {
        let status = read_status(cluster.own().folder()).expect("the daemon runs");
        status.gauge(Gauge::ParkedWaits) as usize
    };
    while parked() < WAITS - KEPT_WAITS {
        assert!(begin.elapsed() < READY_MAX, "{} of {WAITS} waits are parked", parked());
        std::thread::sleep(Duration::from_millis(1));
        for wait in &mut waits {
            let polled = pin!(wait).poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "no one puts the segment");
        }
    }
    async move { drop(waits) }
}

/// A put of a client beside another client's parked waits.
fn beside_waits(bench: &mut Bench) {
    let [alone, beside] = [(); 2].map(|()| Cluster::single(bench.cores));
    let put = |cluster: &Rc<Cluster>| {
        let client = cluster.client(Strategy::Auto);
        cluster.segment(&client, "counter", 8)
    };
    let segments = [put(&alone), put(&beside)];
    beside.wake();
    let waiting = Client::connect_with(ConnectOptions::new().directory(beside.own().folder()).timeout(WAIT_MAX));
    let waiting = waiting.expect("the daemon takes clients");
    let watched = waiting.segment("watched").allocate(Spec::new(8)).expect("the pool is large enough");
    watched.put(0, &[1; 8]).expect("a fresh segment takes bytes");
    let waits = park(&beside, &aio::Segment::from(&watched));
    let path = |waits: usize| format!("shm-waits{waits}");
    let figures = vec![
        call(&alone, &segments[0], Kind::Put, &path(0), Strategy::Auto),
        call(&beside, &segments[1], Kind::Put, &path(WAITS), Strategy::Auto),
    ];
    bench.family(line_ping_pong(bench.cores), figures);
    beside.wake();
    drop(waits);
}

/// Calls of many tasks of one client, on one thread.
fn tasks(bench: &mut Bench) {
    let counts: &[usize] = if bench.options.bench { &[1, 1_000, 10_000, 100_000] } else { &[1, 100] };
    let time = if bench.options.bench { Duration::from_secs(4) } else { Duration::from_millis(20) };
    let cluster = Cluster::single(bench.cores);
    let mut limit = line_ping_pong(bench.cores);
    for &count in counts {
        let label = format!("ddss,put,8,shm/auto/tasks,{count}");
        cluster.wake();
        let client = cluster.client(Strategy::Auto);
        let segment = cluster.segment(&client, &format!("tasks-{count}"), 8);
        cluster.rest();
        bench.by_itself(&mut limit, &label, time, |time| {
            cluster.wake();
            let result = repeat_in_tasks(&segment, count, time);
            cluster.rest();
            result
        });
    }
}

fn repeat_in_tasks(segment: &Segment, count: usize, time: Duration) -> StandaloneResult {
    let segment = aio::Segment::from(segment);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    let stop = Arc::new(AtomicBool::new(false));
    let mut sample = Sample::empty();
    let repeat = |stop: Arc<AtomicBool>, segment: aio::Segment| async move {
        let mut calls = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            segment.put(0, &[1; 8]).await.expect("the daemon answers");
            calls += 1;
        }
        calls
    };
    let begin = Instant::now();
    let calls: u64 = runtime.block_on(async {
        let tasks: Vec<_> = (0..count).map(|_| tokio::spawn(repeat(Arc::clone(&stop), segment.clone()))).collect();
        tokio::time::sleep(time).await;
        stop.store(true, Ordering::Relaxed);
        let mut calls = 0;
        for task in tasks {
            calls += task.await.expect("a task does not panic");
        }
        calls
    });
    let elapsed = begin.elapsed();
    sample.record(elapsed / u32::try_from(calls.max(1)).unwrap_or(u32::MAX), 1, calls);
    sample.elapsed = elapsed;
    StandaloneResult::new(sample)
}
