//! A farm of web servers behind a proxy, each server on a node of its own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions};
use ddss_testkit::{Daemon, DaemonOptions};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::proxy::Proxy;
use super::publish::Watcher;
use super::web::{Load, WebServer, get, prepared};
use crate::Error;

/// Bytes for segments of one daemon.
const POOL_BYTES: u64 = 4 << 20;
/// Interval at which a web server publishes its load.
const PUBLISH_EVERY: Duration = Duration::from_millis(5);
/// Maximum time until the nodes are connected.
const MEET_MAX: Duration = Duration::from_secs(120);

/// Core of the progress thread of the proxy's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// On the proxy's core.
    Shared,
    /// On another core.
    Own,
}

impl Progress {
    /// Returns its name in the rows.
    pub fn word(self) -> &'static str {
        match self {
            Progress::Shared => "shared",
            Progress::Own => "own",
        }
    }
}

/// Parameters of a farm on two cores. With the progress thread on the proxy's core, all other threads share the other
/// core. With a core of its own, that core has all nodes and no part of a response's path.
#[derive(Debug, Clone, Copy)]
pub struct FarmOptions {
    /// Web servers.
    pub servers: usize,
    /// Core of the progress thread of the proxy's node.
    pub progress: Progress,
    /// The proxy's core.
    pub proxy_core: usize,
    /// The other core: the web servers' nodes, and all threads that are not on the proxy's core.
    pub other_core: usize,
}

impl FarmOptions {
    /// Returns the core of web servers and clients, without the proxy's progress thread.
    fn web_core(&self) -> usize {
        match self.progress {
            Progress::Shared => self.other_core,
            Progress::Own => self.proxy_core,
        }
    }
}

/// Web servers, each with a node of its own, and the proxy's node.
#[derive(Debug)]
pub struct Farm {
    options: FarmOptions,
    // Servers end before their nodes.
    servers: Vec<(String, WebServer)>,
    /// The proxy's node first.
    daemons: Vec<Daemon>,
    client: Client,
}

/// Time of a reply since the start of the measurement, and its latency.
#[derive(Debug, Clone, Copy)]
pub struct Response {
    /// Time of the reply.
    pub at: Duration,
    /// Latency of the request.
    pub took: Duration,
}

/// Measurements of a farm.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Requests of the clients in the order of their replies.
    pub responses: Vec<Response>,
    /// Duration of the measurement.
    pub elapsed: Duration,
    /// Number of reads of all loads by the proxy.
    pub readings: u64,
    /// Mean share of a core that the daemon of a web server's node used.
    pub server_node_cpu: f64,
    /// Share of a core that the daemon of the proxy's node used.
    pub proxy_node_cpu: f64,
}

fn pin(core: usize) -> Result<(), Error> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|error| Error::system(format!("moving to core {core}"))(error.into()))
}

/// Runs a closure on one core, then restores the affinity of the calling thread.
fn on_core<T>(core: usize, run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let asking = |error: rustix::io::Errno| Error::system("asking where this thread may run")(error.into());
    let before = sched_getaffinity(None).map_err(asking)?;
    pin(core)?;
    let done = run();
    sched_setaffinity(None, &before).map_err(asking)?;
    done
}

/// Returns the CPU time of all threads of a process.
fn cpu_time(pid: u32) -> Duration {
    let ran = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    Duration::from_nanos(tasks.flatten().filter_map(ran).sum())
}

fn patient(daemon: &Daemon) -> Result<Client, Error> {
    Ok(Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(MEET_MAX).local_reads(false))?)
}

impl Farm {
    /// Starts all nodes and servers, and returns when the proxy's node sees every server's load.
    pub fn start(options: FarmOptions) -> Result<Farm, Error> {
        let proxy_node_core = match options.progress {
            Progress::Shared => options.proxy_core,
            Progress::Own => options.other_core,
        };
        let first = DaemonOptions::new(1)?.clustered().core(proxy_node_core).pool_bytes(POOL_BYTES).start()?;
        let mut daemons = vec![first];
        for node in 2..2 + options.servers {
            let new = DaemonOptions::new(u16::try_from(node).unwrap_or(u16::MAX))?.joins(daemons[0].listen());
            daemons.push(new.core(options.other_core).pool_bytes(POOL_BYTES).start()?);
        }
        let client = patient(&daemons[0])?;
        let servers = on_core(options.web_core(), || {
            let start = |(index, daemon): (usize, &Daemon)| {
                let (client, name) = (patient(daemon)?, format!("server-{index}"));
                let server = WebServer::start(Ipv4Addr::LOCALHOST.into(), &client, &name, PUBLISH_EVERY)?;
                Ok((name, server))
            };
            daemons[1..].iter().enumerate().map(start).collect::<Result<Vec<_>, Error>>()
        })?;
        let farm = Farm { options, servers, daemons, client };
        farm.wait_until_all_are_seen()?;
        Ok(farm)
    }

    fn wait_until_all_are_seen(&self) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            let mut watcher = Watcher::<Load>::new(&self.client, "web");
            let seen = watcher.discover().and_then(|_| Ok(watcher.read(Duration::ZERO)?.len()));
            match seen {
                Ok(seen) if seen == self.servers.len() => return Ok(()),
                Err(error) if begin.elapsed() > MEET_MAX => return Err(error),
                Ok(seen) if begin.elapsed() > MEET_MAX => {
                    let why = format!("{seen} of {} servers are seen", self.servers.len());
                    return Err(Error::Missing { what: "the farm", why });
                }
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Runs clients that request the file in a closed loop, while the proxy reads the loads at an interval, or never.
    pub fn watch(&self, clients: usize, every: Option<Duration>, time: Duration) -> Result<Watched, Error> {
        let named: Vec<(String, SocketAddr)> =
            self.servers.iter().map(|(name, server)| (name.clone(), server.address())).collect();
        let here: IpAddr = Ipv4Addr::LOCALHOST.into();
        let proxy = on_core(self.options.proxy_core, || Proxy::start(here, &self.client, &named, every))?;
        let address = proxy.address();
        // Connections and threads are created before the measurement starts.
        let warm_up = time / 4;
        let (begin, core) = (Instant::now(), self.options.web_core());
        let (mut responses, cpu) = thread::scope(|scope| {
            let run = || scope.spawn(move || ask(address, core, begin, warm_up + time));
            let threads: Vec<_> = (0..clients).map(|_| run()).collect();
            thread::sleep(warm_up);
            let (cpu, readings, from) = (self.cpu(), proxy.readings(), begin.elapsed());
            thread::sleep(time);
            let cpu: Vec<Duration> =
                self.cpu().iter().zip(cpu).map(|(now, before)| now.saturating_sub(before)).collect();
            let seen = (cpu, proxy.readings() - readings, from);
            let responses: Result<Vec<_>, Error> =
                threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect();
            responses.map(|responses| (responses.concat(), seen))
        })?;
        let (cpu, readings, from) = cpu;
        responses.retain(|response| response.at >= from);
        responses.iter_mut().for_each(|response| response.at -= from);
        responses.sort_by_key(|response| response.at);
        let part = |time_used: Duration| time_used.as_secs_f64() / time.as_secs_f64();
        let servers_cpu: f64 = cpu[1..].iter().map(|&used| part(used)).sum();
        let server_node_cpu = servers_cpu / self.servers.len() as f64;
        Ok(Watched { responses, elapsed: time, readings, server_node_cpu, proxy_node_cpu: part(cpu[0]) })
    }

    fn cpu(&self) -> Vec<Duration> {
        self.daemons.iter().map(|daemon| cpu_time(daemon.pid())).collect()
    }

    /// Returns the number of requests that each server answered.
    pub fn served(&self) -> Vec<u64> {
        self.servers.iter().map(|(_, server)| server.served()).collect()
    }
}

/// Runs one client.
fn ask(proxy: SocketAddr, core: usize, begin: Instant, time: Duration) -> Result<Vec<Response>, Error> {
    pin(core)?;
    let what = || Error::system(format!("asking the proxy at {proxy}"));
    let mut stream = TcpStream::connect(proxy).and_then(prepared).map_err(what())?;
    let (mut responses, mut body) = (Vec::new(), Vec::new());
    loop {
        let asked = begin.elapsed();
        if asked >= time {
            return Ok(responses);
        }
        get(&mut stream, &mut body).map_err(what())?;
        let at = begin.elapsed();
        responses.push(Response { at, took: at - asked });
    }
}
