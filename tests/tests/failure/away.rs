//! A home that is away for a while: calls and waits of other nodes wait for it, or for its successor.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{
    Batch, Client, ConnectOptions, Error, ErrorKind, GetOptions, LockOptions, ReplicationInfo, Segment, Spec, Table,
    Target, Version, aio,
};
use ddss_core::status::Counter;
use ddss_testkit::{Daemon, DaemonOptions, block_on, retry};
use std::thread::Scope;
use std::time::{Duration, Instant};

type Map = ddss::Map<[u8; 8], u64>;
type Outcomes<'scope> = Vec<(&'static str, std::thread::ScopedJoinHandle<'scope, Result<(), Error>>)>;

/// Deadline of the calls: no home here is away for that long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a value of several requests.
const LARGE: usize = 5 * Segment::TRANSFER_BYTES_MAX / 2;
/// Time for which a home is away.
const AWAY: Duration = Duration::from_secs(2);
/// Shortest pause of a call that has been repeated some times, and the requests until then.
const PAUSE_MIN: Duration = Duration::from_millis(128);
const FIRST_REQUESTS: u64 = 10;

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).unwrap()
}

/// Waits until a node knows that the home is away. From then on it sends no put.
fn until_away(daemon: &Daemon) {
    let client =
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE).retries(false))
            .unwrap();
    let begin = Instant::now();
    while client.segment("plain").open().is_ok() {
        assert!(begin.elapsed() < PATIENCE, "the home is not missed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Number of requests that the clients of a daemon have sent.
fn requests(daemon: &Daemon) -> u64 {
    let all = ddss_ipc::read_all_statuses(daemon.folder()).unwrap();
    all.iter().map(|status| status.counter(Counter::Requests)).sum()
}

/// Number of requests that the clients of a daemon have sent, once the daemon has published all of them.
fn settled_requests(daemon: &Daemon) -> u64 {
    let mut last = requests(daemon);
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = requests(daemon);
        if now == last {
            return now;
        }
        last = now;
    }
}

/// Handles of the same objects for one node.
struct Handles {
    client: Client,
    plain: Segment,
    table: Table,
    map: Map,
    locked: Segment,
    /// For values of several requests.
    large: Segment,
}

impl Handles {
    fn allocate(client: Client, copies: u8) -> Self {
        let plain = client.segment("plain").allocate(Spec::new(64).copies(copies)).unwrap();
        let table = client.table::<[u8]>("table").allocate(Spec::new(4).row_len(64).copies(copies)).unwrap();
        let map = client.map("map").allocate(Spec::new(100).copies(copies)).unwrap();
        let locked = client.segment("locked").allocate(Spec::new(64).copies(copies)).unwrap();
        let large = client.segment("large").allocate(Spec::new(LARGE as u64).copies(copies)).unwrap();
        Self { client, plain, table, map, locked, large }
    }

    fn open(client: Client) -> Self {
        let open = |name: &str| retry(|| client.segment(name).open());
        let (plain, table, locked) = (open("plain"), <Table>::try_from(open("table")).unwrap(), open("locked"));
        let large = open("large");
        let map = client.map("map").open().unwrap();
        Self { plain, table, map, locked, large, client }
    }

    /// Starts one wait of each kind; the change that ends it comes from [`change`](Self::change).
    fn wait<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Outcomes<'scope> {
        let mut waits: Outcomes<'scope> = vec![
            ("wait_newer_than", scope.spawn(|| self.plain.wait_newer_than(Version(0)).map(drop))),
            (
                "get_newer_than",
                scope.spawn(|| self.plain.get_with(0..8, GetOptions::new().newer_than(Version(0))).map(drop)),
            ),
            ("a row", scope.spawn(|| self.table.row(1).wait_newer_than(Version(0)).map(drop))),
            ("a key", scope.spawn(|| self.map.watch(b"awaited!").next().unwrap().map(drop))),
            ("a prefix", scope.spawn(|| self.map.watch(b"await").next().unwrap().map(drop))),
            ("a name", scope.spawn(|| self.client.segment("later").wait().map(drop))),
            ("a lock", scope.spawn(|| self.locked.lock()?.unlock())),
        ];
        let tasks = self.client.aio().unwrap();
        let wait = |segment: &Segment| aio::Segment::from(segment);
        let (plain, locked) = (wait(&self.plain), wait(&self.locked));
        waits.extend([
            ("wait_newer_than of a task", scope.spawn(move || block_on(plain.wait_newer_than(Version(0))).map(drop))),
            (
                "a key of a task",
                scope.spawn(move || {
                    block_on(async {
                        let map = tasks.map::<[u8; 8], u64>("map").open().await?;
                        map.watch(b"awaited!").next().await.unwrap().map(drop)
                    })
                }),
            ),
            ("a lock of a task", scope.spawn(move || block_on(async { locked.lock().await?.unlock().await }))),
        ]);
        waits
    }

    /// Starts calls that have no effect, or whose effect is certain because they begin while the home is away.
    fn call<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Outcomes<'scope> {
        let free = |scope: &'scope Scope<'scope, '_>| scope.spawn(|| self.client.segment("plain").open().map(drop));
        let task = aio::Segment::from(&self.plain);
        let in_batch = self.client.aio().unwrap();
        vec![
            ("open", free(scope)),
            ("get", scope.spawn(|| self.plain.get(0..8).map(drop))),
            ("put", scope.spawn(|| self.plain.put(8, &[1; 8]).map(drop))),
            ("a large put", scope.spawn(|| self.large.put(0, &vec![1; LARGE]).map(drop))),
            ("a large get", scope.spawn(|| self.large.get(..).map(drop))),
            ("stat", scope.spawn(|| self.plain.stat().map(drop))),
            ("list", scope.spawn(|| self.client.list("").try_for_each(|listing| listing.map(drop)))),
            ("fetch_add", scope.spawn(|| self.plain.word(16).fetch_add(1).map(drop))),
            ("get_many", scope.spawn(|| self.plain.get_many(&[0..8, 16..24]).map(drop))),
            ("a put of a row", scope.spawn(|| self.table.row(2).put(&[1; 8]).map(drop))),
            ("insert", scope.spawn(|| self.map.put(b"another!", &7).map(drop))),
            ("get of a key", scope.spawn(|| self.map.get(b"another!").map(drop))),
            ("a batch", scope.spawn(|| self.client.run(batch(&self.plain, 24)?)?.ok())),
            (
                "get of a task",
                scope.spawn({
                    let task = task.clone();
                    move || block_on(task.get(0..8)).map(drop)
                }),
            ),
            (
                "put of a task",
                scope.spawn({
                    let task = task.clone();
                    move || block_on(task.put(32, &[1; 8])).map(drop)
                }),
            ),
            ("a batch of a task", scope.spawn(move || block_on(in_batch.run(batch(&task, 40)?))?.ok())),
        ]
    }

    /// Makes the changes for which [`wait`](Self::wait) waits.
    fn change(&self) {
        self.plain.put(0, &[1; 8]).unwrap();
        self.table.row(1).put(&[1; 8]).unwrap();
        self.map.put(b"awaited!", &7).unwrap();
        self.client.segment("later").allocate(Spec::new(8)).unwrap();
    }
}

fn batch(segment: impl Target + Copy, offset: u64) -> Result<Batch, Error> {
    let mut batch = Batch::new();
    let _tickets = (batch.get(segment, 0..8)?, batch.put(segment, offset, b"x")?);
    Ok(batch)
}

fn join(outcomes: Outcomes<'_>) {
    for (what, ended) in outcomes {
        ended.join().unwrap().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// Returns the maximum number of requests of `calls` calls while a home is away since `begin`.
fn requests_max(calls: usize, begin: Instant) -> u64 {
    calls as u64 * (FIRST_REQUESTS + (begin.elapsed().as_millis() / PAUSE_MIN.as_millis()) as u64)
}

fn outlive_a_restart(end: impl Fn(&mut Daemon)) {
    let [mut home, other] = Daemon::pair().unwrap();
    let here = Handles::allocate(client(&home), 1);
    let there = Handles::open(client(&other));
    // The lock is lost with the home.
    let held = here.locked.lock_with(LockOptions::new().lease(PATIENCE)).unwrap();
    std::thread::scope(|scope| {
        let waits = there.wait(scope);
        std::thread::sleep(Duration::from_millis(300));
        assert!(waits.iter().all(|(what, wait)| !wait.is_finished() || panic!("{what} has ended")));
        let begin = Instant::now();
        end(&mut home);
        until_away(&other);
        let before = requests(&other);
        let calls = there.call(scope);
        std::thread::sleep(AWAY);
        let (sent, most) = (requests(&other) - before, requests_max(waits.len() + calls.len(), begin));
        assert!(sent <= most, "{sent} requests while the home was away, at most {most}");
        home.restart().unwrap();
        join(calls);
        here.change();
        join(waits);
        drop(held);
    });
}

// If this failed, the users of another node would see errors, and their loops would spin, whenever a daemon crashes.
#[test]
fn calls_and_waits_of_another_node_outlive_a_crash_of_their_home() {
    outlive_a_restart(|home| home.kill().unwrap());
}

// If this failed, the users of another node would see errors at each upgrade of a daemon.
#[test]
fn calls_and_waits_of_another_node_outlive_an_orderly_stop_of_their_home() {
    outlive_a_restart(|home| {
        home.process().terminate().unwrap();
        assert!(home.process().wait(PATIENCE).unwrap().is_some());
    });
}

// If this failed, an upgrade of the own daemon would look different if the segments are on another node.
#[test]
fn calls_and_waits_outlive_a_crash_of_the_own_daemon() {
    let [home, mut own] = Daemon::pair().unwrap();
    let here = Handles::allocate(client(&home), 1);
    let there = Handles::open(client(&own));
    let held = here.locked.lock_with(LockOptions::new().lease(PATIENCE)).unwrap();
    std::thread::scope(|scope| {
        let waits = there.wait(scope);
        std::thread::sleep(Duration::from_millis(300));
        own.kill().unwrap();
        // A call that begins before the client knows of the death may have been done, as far as it can know.
        let soon = there.plain.with_timeout(Duration::from_millis(100));
        soon.stat().unwrap_err();
        block_on(aio::Segment::from(&soon).stat()).unwrap_err();
        let calls = there.call(scope);
        std::thread::sleep(AWAY / 4);
        own.restart().unwrap();
        join(calls);
        here.change();
        drop(held);
        join(waits);
    });
}

// If this failed, a takeover would look like an outage, and applications would have to repeat their waits.
#[test]
fn calls_and_waits_of_other_nodes_outlive_a_takeover() {
    let mut daemons = vec![DaemonOptions::new(1).unwrap().clustered().start().unwrap()];
    for node in 2..=3 {
        daemons.push(DaemonOptions::new(node).unwrap().joins(daemons[0].listen()).start().unwrap());
    }
    let here = Handles::allocate(client(&daemons[0]), 2);
    // Both other nodes: the one with the replica, and the one without.
    let there = [Handles::open(client(&daemons[1])), Handles::open(client(&daemons[2]))];
    let in_sync = |name: &str| {
        let begin = Instant::now();
        while here.client.segment(name).open().unwrap().stat().unwrap().replication != ReplicationInfo::InSync {
            assert!(begin.elapsed() < PATIENCE, "{name} gets no replica");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    ["plain", "table", "map", "locked", "large"].into_iter().for_each(in_sync);
    let held = here.locked.lock_with(LockOptions::new().lease(PATIENCE)).unwrap();
    std::thread::scope(|scope| {
        let mut waits = there[0].wait(scope);
        waits.extend(there[1].wait(scope));
        std::thread::sleep(Duration::from_millis(300));
        let begin = Instant::now();
        daemons[0].kill().unwrap();
        daemons[1..].iter().for_each(until_away);
        let before: Vec<u64> = daemons[1..].iter().map(requests).collect();
        let mut calls = there[0].call(scope);
        calls.extend(there[1].call(scope));
        let number = waits.len() + calls.len();
        join(calls);
        for (daemon, before) in daemons[1..].iter().zip(before) {
            let (sent, most) = (requests(daemon) - before, requests_max(number / 2 + 20, begin));
            assert!(sent <= most, "{sent} requests during the takeover, at most {most}");
        }
        there[1].change();
        join(waits);
    });
    drop(held);
}

// If this failed, a program that handles an absent home itself would have to wait for the deadline.
#[test]
fn client_without_retries_learns_at_once_that_the_home_is_away() {
    let [mut home, other] = Daemon::pair().unwrap();
    client(&home).segment("plain").allocate(Spec::new(64)).unwrap();
    let client =
        Client::connect_with(ConnectOptions::new().directory(other.folder()).timeout(PATIENCE).retries(false)).unwrap();
    let plain = retry(|| client.segment("plain").open());
    let tasks = aio::Segment::from(&plain);
    home.kill().unwrap();
    until_away(&other);
    let before = settled_requests(&other);
    let mut get = Batch::new();
    get.get(&plain, 0..8).unwrap();
    let refused = [
        plain.get(0..8).map(drop),
        plain.put(0, &[1; 8]).map(drop),
        plain.wait_newer_than(Version(0)).map(drop),
        block_on(tasks.get(0..8)).map(drop),
        client.run(get).unwrap().ok(),
    ];
    let calls = refused.len() as u64;
    for ended in refused {
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NodeDown, "{error}");
    }
    assert_eq!(settled_requests(&other) - before, calls, "each is sent once");
}
