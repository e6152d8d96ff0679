//! Daemons that are stopped while another figure is measured.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Segment, Spec, Strategy};
use ddss_testkit::{Daemon, DaemonOptions, NetworkNamespaces};

use crate::harness::VethPair;
use crate::harness::{Cores, on_all_cores};

/// Listening ports of daemons in network namespaces of their own, where every port is free.
const PORT: u16 = 7400;
/// Bytes for segments of one daemon.
const POOL_BYTES: u64 = 16 << 20;
/// Deadline of calls, longer than any measured call: a call that ends by its deadline is no figure.
pub(super) const CALL_MAX: Duration = Duration::from_secs(60);
/// Time limit for two nodes to connect.
const MEET_MAX: Duration = Duration::from_secs(20);

/// Placement of a client, its own daemon and the daemon of the segment's home on two cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The core of the client's own daemon.
    pub own: usize,
    /// The core of the home's daemon.
    pub home: usize,
    /// Description: the first core | the second one.
    pub name: &'static str,
}

/// Placements of three threads on two cores. The client is on the first one.
pub const PLACEMENTS: fn(Cores) -> [Placement; 3] = |cores| {
    let Cores { client, service } = cores;
    [
        Placement { own: client, home: service, name: "client + own daemon | home" },
        Placement { own: service, home: service, name: "client | own daemon + home" },
        Placement { own: service, home: client, name: "client + home | own daemon" },
    ]
};

/// Processor time of all threads of a process.
fn cpu_time(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon runs");
    let ran = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.flatten().filter_map(ran).sum())
}

/// A daemon, or several connected ones. All of them are stopped between [`rest`](Self::rest) and [`wake`](Self::wake).
#[derive(Debug)]
pub struct Cluster {
    /// The client's own daemon first, the home's last.
    daemons: Vec<Daemon>,
    awake: Cell<bool>,
}

impl Cluster {
    /// One daemon on the service's core.
    pub fn single(cores: Cores) -> Rc<Cluster> {
        let options = DaemonOptions::new(1).expect("a free port is to be had");
        Cluster::start(vec![options.core(cores.service)])
    }

    /// Starts two daemons with this placement.
    pub fn pair(placement: Placement) -> Rc<Cluster> {
        Cluster::pair_with(placement, POOL_BYTES)
    }

    /// Starts two daemons with this placement and this much memory for segments.
    pub fn pair_with(placement: Placement, pool_bytes: u64) -> Rc<Cluster> {
        let new = |node, core| DaemonOptions::new(node).expect("a free port is to be had").core(core);
        let (own, home) = (new(1, placement.own), new(2, placement.home));
        let own = own.peer(&home);
        let home = home.peer(&own);
        Cluster::start_with(vec![own, home], pool_bytes)
    }

    /// Starts two daemons with this placement, one in each of two namespaces.
    pub fn between(placement: Placement, cable: &VethPair) -> Rc<Cluster> {
        // Several pairs may share a link, and a daemon takes more ports than the configured one.
        static PAIRS: AtomicU16 = AtomicU16::new(0);
        let port = PORT + 10 * PAIRS.fetch_add(1, Ordering::Relaxed);
        let new = |node: u8, core| {
            let at = SocketAddr::new(cable.address(node), port);
            DaemonOptions::listening(node.into(), at).inside(&cable.inside(node)).core(core)
        };
        let (own, home) = (new(1, placement.own), new(2, placement.home));
        let own = own.peer(&home);
        let home = home.peer(&own);
        Cluster::start(vec![own, home])
    }

    /// Starts two daemons with this placement, on adapters with these addresses.
    pub fn on_adapters(placement: Placement, own: IpAddr, home: IpAddr) -> Rc<Cluster> {
        let new = |node, at, core| {
            let options = DaemonOptions::on(node, at).expect("a free port is to be had").core(core);
            options.argument("--fabric").argument("rdma")
        };
        let (own, home) = (new(1, own, placement.own), new(2, home, placement.home));
        let own = own.peer(&home);
        let home = home.peer(&own);
        Cluster::start(vec![own, home])
    }

    /// Starts a daemon in each namespace, on the two cores in turn; without namespaces all on loopback.
    pub fn of_nodes(cores: Cores, count: u8, network: Option<&NetworkNamespaces>) -> Rc<Cluster> {
        let new = |node: u8| {
            let options = match network {
                Some(network) => {
                    let at = SocketAddr::new(network.address(node), PORT);
                    DaemonOptions::listening(node.into(), at).inside(&network.inside(node))
                }
                None => DaemonOptions::new(node.into()).expect("a free port is to be had"),
            };
            options.core(if node % 2 == 1 { cores.client } else { cores.service })
        };
        // Each must know all the others: a daemon refuses unknown nodes.
        let mut options: Vec<DaemonOptions> = (1..=count).map(new).collect();
        for index in 0..options.len() {
            let one = options.remove(index);
            let one = options.iter().fold(one, DaemonOptions::peer);
            options.insert(index, one);
        }
        Cluster::start(options)
    }

    fn start(options: Vec<DaemonOptions>) -> Rc<Cluster> {
        Cluster::start_with(options, POOL_BYTES)
    }

    fn start_with(options: Vec<DaemonOptions>, pool_bytes: u64) -> Rc<Cluster> {
        let start =
            |options: DaemonOptions| on_all_cores(|| options.pool_bytes(pool_bytes).start()).expect("a daemon starts");
        Rc::new(Cluster { daemons: options.into_iter().map(start).collect(), awake: Cell::new(true) })
    }

    /// All daemons, the client's own first.
    pub fn daemons(&self) -> &[Daemon] {
        &self.daemons
    }

    /// The daemon that the client is attached to.
    pub fn own(&self) -> &Daemon {
        self.daemons.first().expect("there is a daemon")
    }

    /// Processor time of all threads of each daemon.
    pub fn cpu_times(&self) -> Vec<Duration> {
        self.daemons.iter().map(|daemon| cpu_time(daemon.pid())).collect()
    }

    /// Attaches to the own daemon.
    pub fn client(&self, strategy: Strategy) -> Client {
        self.client_of(0, strategy)
    }

    /// Attaches to the daemon of that index.
    pub fn client_of(&self, index: usize, strategy: Strategy) -> Client {
        self.wake();
        self.attach(&self.daemons[index], strategy)
    }

    /// Attaches to the own daemon, to read its segments in place.
    pub fn near_client(&self) -> Client {
        self.wake();
        let options = ConnectOptions::new().directory(self.own().folder()).channels(1).timeout(CALL_MAX);
        Client::connect_with(options).expect("a daemon that is ready takes clients")
    }

    fn attach(&self, daemon: &Daemon, strategy: Strategy) -> Client {
        let options = ConnectOptions::new()
            .directory(daemon.folder())
            .strategy(strategy)
            .channels(1)
            .local_reads(false)
            .timeout(CALL_MAX);
        Client::connect_with(options).expect("a daemon that is ready takes clients")
    }

    /// Returns a filled segment of that size with the last daemon as its home, opened by `client`.
    pub fn segment(&self, client: &Client, name: &str, bytes: usize) -> Segment {
        self.segment_at(self.daemons.len() - 1, client, name, bytes)
    }

    /// Returns a filled segment of this size with the daemon of index `home` as its home, opened by `client`.
    pub fn segment_at(&self, home: usize, client: &Client, name: &str, bytes: usize) -> Segment {
        self.wake();
        let home = self.attach(&self.daemons[home], Strategy::Auto);
        let made = home.segment(name).allocate(Spec::new(bytes as u64)).expect("the pool is large enough");
        made.put(0, &vec![7; bytes]).expect("a fresh segment takes bytes");
        let begin = Instant::now();
        loop {
            match client.segment(name).open() {
                Ok(segment) => return segment,
                Err(error) => assert!(begin.elapsed() < MEET_MAX, "the nodes do not find each other: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Resumes all daemons.
    pub fn wake(&self) {
        if !self.awake.replace(true) {
            self.daemons.iter().for_each(|daemon| daemon.resume().expect("our own process takes signals"));
        }
    }

    /// Stops all daemons (`SIGSTOP`); returns when they have stopped.
    pub fn rest(&self) {
        if self.awake.replace(false) {
            self.daemons.iter().for_each(|daemon| daemon.pause().expect("our own process takes signals"));
        }
    }
}
