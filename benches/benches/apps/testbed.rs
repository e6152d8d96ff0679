//! The testbed: client and data in two network namespaces, with one link for DDSS, NFS and Redis.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::bare_pages::BareServer;
use ddss::{Client, ConnectOptions, Segment, Spec, Strategy};
use ddss_apps::peer_servers::{self, NfsServer, RedisServer, Site};
use ddss_apps::storage::PAGE_BYTES;
use ddss_apps::storm::{Chunk, DirectoryServer};
use ddss_benches::harness::{Cores, on_all_cores, pin};
use ddss_benches::system::{PLACEMENTS, Placement};
use ddss_testkit::{Daemon, DaemonOptions, NetworkNamespaces};

/// Deadline of calls, longer than any measured call: a call that ends by its deadline is no figure.
const CALL_MAX: Duration = Duration::from_secs(60);
/// Time limit for two nodes to connect.
const MEET_MAX: Duration = Duration::from_secs(20);
/// Bytes for segments of one daemon.
const POOL_BYTES: u64 = 64 << 20;
/// In a namespace of its own every port is free.
const FIRST_PORT: u16 = 7400;
/// Number of short measurements for one choice.
const LOOKS: usize = 300;
/// Number of measurements of each placement.
const ROUNDS: usize = 3;
/// Ratio up to which two placements count as equal.
const SAME: f64 = 1.1;
/// Pages of one call, and their distance.
const TOGETHER: usize = 16;
const APART: usize = 3;
/// Bytes of a record.
const RECORD_BYTES: usize = 24;
/// Processing time of a page, about.
const WORK: Duration = Duration::from_micros(8);

/// The link between client and data, with the servers at its end.
pub(crate) struct Testbed {
    /// The PATH of the rows.
    pub(crate) path: &'static str,
    /// Placement of the threads on cores.
    pub(crate) cores: Cores,
    /// The NFS server, if NFS is available.
    pub(crate) nfs: Option<RefCell<NfsServer>>,
    /// The Redis server, if Redis is available.
    pub(crate) redis: Option<RefCell<RedisServer>>,
    ports: Cell<u16>,
    // The order of fields matters: the namespaces must be dropped last.
    network: Option<NetworkNamespaces>,
}

/// Writes a note to standard error.
pub(crate) fn report_progress(what: &str) {
    // Notes are a courtesy: a closed standard error is no reason to stop.
    drop(writeln!(io::stderr().lock(), "# {what}"));
}

impl Testbed {
    /// Two network namespaces with a bridge between them, and this thread in the first one; loopback, without NFS, where
    /// namespaces cannot be created.
    pub(crate) fn set_up(cores: Cores) -> Testbed {
        let network =
            NetworkNamespaces::new(2).map_err(|error| report_progress(&format!("no network of our own: {error}"))).ok();
        if let Some(network) = &network {
            peer_servers::enter(&network.inside(1)).expect("the creator of a namespace can enter it");
        }
        let address =
            |node| network.as_ref().map_or(Ipv4Addr::new(127, 0, 0, 2).into(), |network| network.address(node));
        let site = Site {
            namespace: network.as_ref().map(|network| network.inside(2)),
            address: address(2),
            core: Some(cores.service),
        };
        let missing = |error| report_progress(&format!("left out: {error}"));
        let nfs = NfsServer::start(&site).map_err(missing).ok().map(RefCell::new);
        let redis = RedisServer::start(&site).map_err(missing).ok().map(RefCell::new);
        let path = if network.is_some() { "tcp-veth" } else { "tcp-lo" };
        Testbed { path, cores, nfs, redis, ports: Cell::new(0), network }
    }

    /// Returns the options of a daemon at one end, 1 or 2.
    pub(crate) fn daemon(&self, node: u16, end: u8, core: usize) -> DaemonOptions {
        let options = match &self.network {
            Some(network) => {
                // This thread cannot test the ports of the other namespace. Each is used once, and a daemon takes two.
                let port = FIRST_PORT + 2 * self.ports.replace(self.ports.get() + 1);
                let listen = SocketAddr::new(network.address(end), port);
                DaemonOptions::listening(node, listen).inside(&network.inside(end))
            }
            None => DaemonOptions::on(node, IpAddr::V4(Ipv4Addr::new(127, 0, 0, end))).expect("a free port"),
        };
        options.core(core).pool_bytes(POOL_BYTES)
    }

    /// Address of the other end, and the namespace to enter for it.
    fn other_end(&self) -> (IpAddr, impl FnOnce() -> Result<(), ddss_apps::Error> + use<>) {
        let (address, inside) = match &self.network {
            Some(network) => (network.address(2), Some(network.inside(2))),
            None => (Ipv4Addr::new(127, 0, 0, 2).into(), None),
        };
        (address, move || inside.map_or(Ok(()), |namespace| peer_servers::enter(&namespace)))
    }

    /// A server that knows where chunks are, at the other end.
    pub(crate) fn directory_server(&self, chunks: Vec<Chunk>) -> DirectoryServer {
        let (core, (address, enter)) = (self.cores.service, self.other_end());
        let enter = move || {
            pin(core).expect("the core is one of those that this process may use");
            enter()
        };
        DirectoryServer::start(address, chunks, enter).expect("a thread can listen")
    }

    /// A server of bare pages, at the other end.
    pub(crate) fn bare_server(&self, pages: u32) -> BareServer {
        let (address, enter) = self.other_end();
        let enter = || enter().expect("the creator of a namespace can enter it");
        BareServer::start(self.cores, address, pages, enter).expect("a thread can listen")
    }

    /// A pair of nodes for each way in which three threads share two cores.
    pub(crate) fn pairs(&self) -> Pairs {
        let placements = PLACEMENTS(self.cores);
        let pairs = placements.map(|placement| Rc::new(Nodes::pair(self, placement)));
        for nodes in &pairs {
            let spec = Spec::new((APART * TOGETHER * PAGE_BYTES) as u64);
            let made = nodes.at_home().segment("look").allocate(spec).expect("room for some pages");
            made.put(0, &[7; PAGE_BYTES]).expect("a fresh segment takes bytes");
            with_retries(|| nodes.client(Strategy::Auto).segment("look").open());
            nodes.rest();
        }
        Pairs { placements, pairs }
    }
}

/// Workload for the choice of a placement.
#[derive(Clone, Copy)]
pub(crate) enum Rounds {
    /// A page, then sixteen pages together, with processing between them, in which the server begins to sleep or
    /// competes for a core.
    Pages,
    /// A few bytes in a closed loop.
    Records,
}

/// Nodes to choose from.
pub(crate) struct Pairs {
    placements: [Placement; 3],
    pairs: [Rc<Nodes>; 3],
}

impl Pairs {
    /// Selects the pair of nodes with the lowest latency: one for all strategies, and another for a strategy with a
    /// clear difference.
    pub(crate) fn place(&self, look: Rounds) -> Vec<Placed> {
        let strategies = [Strategy::Mq, Strategy::Rmq, Strategy::Rcq, Strategy::Auto];
        let mut looks = strategies.map(|_| self.placements.map(|_| Duration::MAX));
        // A disturbance of one round is absent in the next.
        for _ in 0..ROUNDS {
            for (strategy, looks) in strategies.iter().zip(&mut looks) {
                for (nodes, least) in self.pairs.iter().zip(looks) {
                    *least = median(nodes, *strategy, look).min(*least);
                }
            }
        }
        let times_least = looks.map(|looks| {
            let least = looks.into_iter().min().expect("there are placements");
            looks.map(|took| took.as_secs_f64() / least.as_secs_f64())
        });
        let least_of = |worth: &dyn Fn(usize) -> f64| {
            (0..self.pairs.len()).min_by(|&a, &b| worth(a).total_cmp(&worth(b))).expect("there are placements")
        };
        let common = least_of(&|index| times_least.iter().map(|times| times[index]).sum());
        let choose = |index: usize| {
            let times = times_least[index];
            let best = if times[common] <= SAME { common } else { least_of(&|index| times[index]) };
            let all = self.placements.iter().zip(&looks[index]);
            let others = all.map(|(placement, took)| format!("{}: {took:.1?}", placement.name));
            let (what, others, strategy) = (look.word(), others.collect::<Vec<_>>().join(", "), strategies[index]);
            report_progress(&format!("{strategy}, {what}: {} ({others})", self.placements[best].name));
            Placed { strategy, nodes: Rc::clone(&self.pairs[best]) }
        };
        (0..strategies.len()).map(choose).collect()
    }
}

impl Rounds {
    fn word(self) -> &'static str {
        match self {
            Rounds::Pages => "a page and sixteen",
            Rounds::Records => "a record",
        }
    }

    /// Measures one request.
    fn ask(self, segment: &Segment, into: &mut [u8]) -> Duration {
        match self {
            Rounds::Pages => {
                let one = timed(|| segment.get_into(0, &mut into[..PAGE_BYTES]));
                work();
                // The pages are not adjacent, as in a tree.
                let at = (0_u64..).step_by(APART * PAGE_BYTES);
                let mut parts: Vec<(u64, &mut [u8])> = at.zip(into.chunks_exact_mut(PAGE_BYTES)).collect();
                let many = timed(|| segment.get_many_into(&mut parts));
                work();
                one + many
            }
            Rounds::Records => timed(|| segment.get_into(0, &mut into[..RECORD_BYTES])),
        }
    }
}

fn timed<T>(ask: impl FnOnce() -> Result<T, ddss::Error>) -> Duration {
    let begin = Instant::now();
    ask().expect("the home is there");
    begin.elapsed()
}

/// Simulates the processing of a page.
fn work() {
    let begin = Instant::now();
    while begin.elapsed() < WORK {
        std::hint::spin_loop();
    }
}

/// A strategy, and the nodes on which it has the lowest latency.
pub(crate) struct Placed {
    /// The strategy.
    pub(crate) strategy: Strategy,
    /// Its nodes; several may share them.
    pub(crate) nodes: Rc<Nodes>,
}

/// Returns each pair of nodes once.
pub(crate) fn distinct(placed: &[Placed]) -> Vec<&Rc<Nodes>> {
    let mut all: Vec<&Rc<Nodes>> = Vec::new();
    for Placed { nodes, .. } in placed {
        if !all.iter().any(|seen| Rc::ptr_eq(seen, nodes)) {
            all.push(nodes);
        }
    }
    all
}

/// Returns the median of some measurements.
fn median(nodes: &Nodes, strategy: Strategy, look: Rounds) -> Duration {
    let (segment, mut into) =
        (nodes.client(strategy).segment("look").open().expect("it was made"), vec![0; TOGETHER * PAGE_BYTES]);
    let mut times = [Duration::ZERO; LOOKS].map(|_| look.ask(&segment, &mut into));
    nodes.rest();
    times.sort_unstable();
    times[LOOKS / 2]
}

/// Two nodes. Their daemons are stopped between [`rest`](Self::rest) and [`wake`](Self::wake).
pub(crate) struct Nodes {
    daemons: Vec<Daemon>,
    awake: Cell<bool>,
}

impl Nodes {
    fn pair(testbed: &Testbed, placement: Placement) -> Nodes {
        let (own, home) = (testbed.daemon(1, 1, placement.own), testbed.daemon(2, 2, placement.home));
        let own = own.peer(&home);
        let home = home.peer(&own);
        Nodes::of([own, home])
    }

    fn of(options: impl IntoIterator<Item = DaemonOptions>) -> Nodes {
        let start = |options: DaemonOptions| on_all_cores(|| options.start()).expect("a daemon starts");
        Nodes { daemons: options.into_iter().map(start).collect(), awake: Cell::new(true) }
    }

    /// A client of the first node.
    pub(crate) fn client(&self, strategy: Strategy) -> Client {
        self.attach(0, strategy)
    }

    /// A client of the last node, which is the home of the data.
    pub(crate) fn at_home(&self) -> Client {
        self.attach(self.daemons.len() - 1, Strategy::Auto)
    }

    /// A client of the last node, with this strategy.
    pub(crate) fn at_home_by(&self, strategy: Strategy) -> Client {
        self.attach(self.daemons.len() - 1, strategy)
    }

    fn attach(&self, index: usize, strategy: Strategy) -> Client {
        self.wake();
        let options = ConnectOptions::new().directory(self.daemons[index].folder()).strategy(strategy).channels(1);
        Client::connect_with(options.local_reads(false).timeout(CALL_MAX))
            .expect("a daemon that is ready takes clients")
    }

    /// Resumes all daemons.
    pub(crate) fn wake(&self) {
        if !self.awake.replace(true) {
            self.daemons.iter().for_each(|daemon| daemon.resume().expect("our own process takes signals"));
        }
    }

    /// Stops all daemons (`SIGSTOP`); returns when they have stopped.
    pub(crate) fn rest(&self) {
        if self.awake.replace(false) {
            self.daemons.iter().for_each(|daemon| daemon.pause().expect("our own process takes signals"));
        }
    }
}

/// Opens a segment of another node, as soon as the nodes are connected.
pub(crate) fn with_retries<T, E: std::fmt::Display>(mut open: impl FnMut() -> Result<T, E>) -> T {
    let begin = Instant::now();
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(error) => assert!(begin.elapsed() < MEET_MAX, "the nodes do not find each other: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
