//! Where everybody is: the client on one island, what it reads on the other, one road for DDSS, NFS and Redis.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ddss::{Client, Strategy};
use ddss_apps::stage::{self, NfsServer, RedisServer, Site};
use ddss_benches::harness::Cores;
use ddss_benches::road::{PLACEMENTS, Placement};
use ddss_tests::{Daemon, DaemonOptions, Islands};

/// Longer than anything that is measured: a call that ends by its deadline is no figure.
const CALL_MAX: Duration = Duration::from_secs(60);
/// How long two nodes have to find each other.
const MEET_MAX: Duration = Duration::from_secs(20);
/// Bytes for segments of one daemon.
const POOL_BYTES: u64 = 64 << 20;

/// The road between a client and what it reads, and the servers at its end.
pub(crate) struct Road {
    /// The PATH of the rows.
    pub(crate) path: &'static str,
    /// Who runs where.
    pub(crate) cores: Cores,
    /// What there is beside DDSS.
    pub(crate) nfs: Option<RefCell<NfsServer>>,
    /// The same.
    pub(crate) redis: Option<RefCell<RedisServer>>,
    // The namespaces go last.
    islands: Option<Islands>,
}

/// A remark on standard error.
pub(crate) fn say(what: &str) {
    // Notes are a courtesy: a closed standard error is no reason to stop.
    drop(writeln!(io::stderr().lock(), "# {what}"));
}

impl Road {
    /// Two islands with a bridge between them, and this thread on the first one; loopback where there are no namespaces to be
    /// had, and then without NFS.
    pub(crate) fn lay(cores: Cores) -> Road {
        let islands = Islands::new(2).map_err(|error| say(&format!("no network of our own: {error}"))).ok();
        if let Some(islands) = &islands {
            stage::enter(&islands.inside(1)).expect("who made a namespace can enter it");
        }
        let address =
            |node| islands.as_ref().map_or(Ipv4Addr::new(127, 0, 0, 2).into(), |islands| islands.address(node));
        let site = Site {
            namespace: islands.as_ref().map(|islands| islands.inside(2)),
            address: address(2),
            core: Some(cores.service),
        };
        let missing = |error| say(&format!("left out: {error}"));
        let nfs = NfsServer::start(&site).map_err(missing).ok().map(RefCell::new);
        let redis = RedisServer::start(&site).map_err(missing).ok().map(RefCell::new);
        let path = if islands.is_some() { "tcp-veth" } else { "tcp-lo" };
        Road { path, cores, nfs, redis, islands }
    }

    /// A daemon at one end, 1 or 2.
    pub(crate) fn daemon(&self, node: u16, end: u8, core: usize) -> DaemonOptions {
        let options = match &self.islands {
            Some(islands) => {
                DaemonOptions::on(node, islands.address(end)).expect("a free port").inside(&islands.inside(end))
            }
            None => DaemonOptions::on(node, IpAddr::V4(Ipv4Addr::new(127, 0, 0, end))).expect("a free port"),
        };
        options.core(core).pool_bytes(POOL_BYTES)
    }

    /// One pair of nodes for each placement.
    pub(crate) fn pairs(&self) -> Vec<(Placement, Rc<Nodes>)> {
        PLACEMENTS(self.cores).into_iter().map(|placement| (placement, Rc::new(Nodes::pair(self, placement)))).collect()
    }
}

/// Two nodes. They stand still between [`rest`](Self::rest) and [`wake`](Self::wake).
pub(crate) struct Nodes {
    daemons: Vec<Daemon>,
    awake: Cell<bool>,
}

impl Nodes {
    fn pair(road: &Road, placement: Placement) -> Nodes {
        let (own, home) = (road.daemon(1, 1, placement.own), road.daemon(2, 2, placement.home));
        let own = own.peer(&home);
        let home = home.peer(&own);
        Nodes::of([own, home])
    }

    fn of(options: impl IntoIterator<Item = DaemonOptions>) -> Nodes {
        let start = |options: DaemonOptions| options.start().expect("a daemon starts");
        Nodes { daemons: options.into_iter().map(start).collect(), awake: Cell::new(true) }
    }

    /// A client of the first node.
    pub(crate) fn client(&self, strategy: Strategy) -> Client {
        self.attach(0, strategy)
    }

    /// A client of the last node, which is the home of what is read.
    pub(crate) fn at_home(&self) -> Client {
        self.attach(self.daemons.len() - 1, Strategy::Auto)
    }

    fn attach(&self, index: usize, strategy: Strategy) -> Client {
        self.wake();
        let builder = Client::builder().folder(self.daemons[index].folder()).strategy(strategy).lanes(1);
        builder.near(false).timeout(CALL_MAX).connect().expect("a daemon that is ready takes clients")
    }

    /// Lets all daemons run.
    pub(crate) fn wake(&self) {
        if !self.awake.replace(true) {
            self.daemons.iter().for_each(|daemon| daemon.resume().expect("our own process takes signals"));
        }
    }

    /// Stops all daemons; returns when they stand still.
    pub(crate) fn rest(&self) {
        if self.awake.replace(false) {
            self.daemons.iter().for_each(|daemon| daemon.pause().expect("our own process takes signals"));
        }
    }
}

/// Opens what another node made, as soon as the nodes know each other.
pub(crate) fn patiently<T, E: std::fmt::Display>(mut open: impl FnMut() -> Result<T, E>) -> T {
    let begin = Instant::now();
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(error) => assert!(begin.elapsed() < MEET_MAX, "the nodes do not find each other: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
