//! Daemons that are off their cores while something else is measured.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ddss::{Client, Segment, Spec, Strategy};
use ddss_tests::{Daemon, DaemonOptions};

use crate::harness::Cores;

/// Bytes for segments of one daemon.
const POOL_BYTES: u64 = 16 << 20;
/// Longer than anything that is measured: a call that ends by its deadline is no figure.
const CALL_MAX: Duration = Duration::from_secs(60);
/// How long two nodes have to find each other.
const MEET_MAX: Duration = Duration::from_secs(20);

/// Who runs where, when a client, its own daemon and the daemon of the segment's home share two cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The core of the client's own daemon.
    pub own: usize,
    /// The core of the home's daemon.
    pub home: usize,
    /// In words: the first core | the second one.
    pub name: &'static str,
}

/// How three threads can share two cores. The client is on the first one.
pub const PLACEMENTS: fn(Cores) -> [Placement; 3] = |cores| {
    let Cores { client, service } = cores;
    [
        Placement { own: client, home: service, name: "client + own daemon | home" },
        Placement { own: service, home: service, name: "client | own daemon + home" },
        Placement { own: service, home: client, name: "client + home | own daemon" },
    ]
};

/// One daemon, or two that know each other. All of them stand still between [`rest`](Self::rest) and
/// [`wake`](Self::wake).
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

    /// Two daemons, so placed.
    pub fn pair(placement: Placement) -> Rc<Cluster> {
        let new = |node, core| DaemonOptions::new(node).expect("a free port is to be had").core(core);
        let (own, home) = (new(1, placement.own), new(2, placement.home));
        let own = own.peer(&home);
        let home = home.peer(&own);
        Cluster::start(vec![own, home])
    }

    fn start(options: Vec<DaemonOptions>) -> Rc<Cluster> {
        let start = |options: DaemonOptions| options.pool_bytes(POOL_BYTES).start().expect("a daemon starts");
        Rc::new(Cluster { daemons: options.into_iter().map(start).collect(), awake: Cell::new(true) })
    }

    /// The daemon that the client is attached to.
    pub fn own(&self) -> &Daemon {
        self.daemons.first().expect("there is a daemon")
    }

    /// How long the threads of the own daemon have run, all together.
    pub(crate) fn own_cpu_time(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.own().pid())).expect("the daemon runs");
        let ran = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(tasks.flatten().filter_map(ran).sum())
    }

    /// Attaches to the own daemon.
    pub fn client(&self, strategy: Strategy) -> Client {
        self.wake();
        self.attach(self.own(), strategy)
    }

    /// Attaches to the own daemon, to read its segments in place.
    pub fn near_client(&self) -> Client {
        self.wake();
        let builder = Client::builder().folder(self.own().folder()).lanes(1).timeout(CALL_MAX);
        builder.connect().expect("a daemon that is ready takes clients")
    }

    fn attach(&self, daemon: &Daemon, strategy: Strategy) -> Client {
        let builder =
            Client::builder().folder(daemon.folder()).strategy(strategy).lanes(1).near(false).timeout(CALL_MAX);
        builder.connect().expect("a daemon that is ready takes clients")
    }

    /// A segment of that size and full of bytes whose home is the last daemon, as `client` sees it.
    pub fn segment(&self, client: &Client, name: &str, bytes: usize) -> Segment {
        self.wake();
        let home = self.attach(self.daemons.last().expect("there is a daemon"), Strategy::Auto);
        let made = home.allocate(name, Spec::new(bytes as u64)).expect("the pool is large enough");
        made.put(0, &vec![7; bytes]).expect("a fresh segment takes bytes");
        let begin = Instant::now();
        loop {
            match client.open(name) {
                Ok(segment) => return segment,
                Err(error) => assert!(begin.elapsed() < MEET_MAX, "the nodes do not find each other: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lets all daemons run.
    pub fn wake(&self) {
        if !self.awake.replace(true) {
            self.daemons.iter().for_each(|daemon| daemon.resume().expect("our own process takes signals"));
        }
    }

    /// Stops all daemons; returns when they stand still.
    pub fn rest(&self) {
        if self.awake.replace(false) {
            self.daemons.iter().for_each(|daemon| daemon.pause().expect("our own process takes signals"));
        }
    }
}
