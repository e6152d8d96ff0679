//! The three nodes and the processes that work on them.

use crate::check::{self, Verdict};
use crate::log::Log;
use crate::maps::{self, FIRST_MAP};
use crate::worker::{
    BYTES, PATIENCE, PLACES, Place, Plan, TABLE_ROWS, VALUES, attach, home_of, is_row, name, open_all, patiently, whole,
};
use ddss::{Placement, Spec, Strategy};
use ddss_ipc::SharedMemory;
use ddss_testkit::{Daemon, DaemonOptions, NetworkNamespaces, TempNode, binary};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Nodes, numbered from 1.
pub(crate) const NODES: u16 = 3;
/// Address of a node in a network namespace of its own.
const PORT: u16 = 7400;
/// Time limit for nodes that start together, until every segment is allocated.
const MAKE_MAX: Duration = Duration::from_secs(30);

/// A client process.
pub(crate) struct Worker {
    pub(crate) number: u16,
    pub(crate) life: u16,
    node: u16,
    plan: Plan,
    /// The `chaos` that runs it.
    program: PathBuf,
    child: Child,
}

/// Three nodes, on one network or each in a namespace of its own, with their workers.
pub(crate) struct Cluster {
    // The order of fields counts: the processes end before their directory and network are removed.
    pub(crate) workers: Vec<Worker>,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) network: Option<NetworkNamespaces>,
    /// Number of records of lives that have ended.
    past: u64,
    folder: TempNode,
    stop: SharedMemory,
}

impl Cluster {
    /// Starts the nodes, on request each in a network namespace of its own, and allocates segments with `copies`
    /// copies.
    pub(crate) fn start(namespaces: bool, copies: u8) -> Result<Self, Box<dyn Error>> {
        Self::start_program(&binary("ddssd")?, namespaces, copies)
    }

    /// The same with daemons of another release.
    pub(crate) fn start_program(program: &Path, namespaces: bool, copies: u8) -> Result<Self, Box<dyn Error>> {
        let network = if namespaces { Some(NetworkNamespaces::new(NODES as u8)?) } else { None };
        let options = (1..=NODES).map(|node| match &network {
            Some(network) => {
                let listen = SocketAddr::new(network.address(node as u8), PORT);
                Ok(DaemonOptions::listening(node, listen).inside(&network.inside(node as u8)))
            }
            None => DaemonOptions::new(node),
        });
        let options: Vec<_> = options.collect::<Result<_, _>>()?;
        let listens: Vec<_> = options.iter().map(DaemonOptions::listen).collect();
        let mut daemons = Vec::new();
        for (index, mut option) in options.into_iter().enumerate() {
            for (other, listen) in listens.iter().enumerate().filter(|&(other, _)| other != index) {
                option = option.peer(&DaemonOptions::listening(other as u16 + 1, *listen));
            }
            daemons.push(
                option.pool_bytes(64 << 20).argument("--core").argument("none").start_program(program.to_owned())?,
            );
        }
        let folder = TempNode::new()?;
        let stop = SharedMemory::create_file(&folder.join("stop"), 4096)?;
        let field = Self { workers: Vec::new(), daemons, network, past: 0, folder, stop };
        field.make_segments(copies)?;
        Ok(field)
    }

    /// Allocates segments on the nodes in turn, under Strict, the strongest model.
    fn make_segments(&self, copies: u8) -> Result<(), Box<dyn Error>> {
        let client = attach(self.daemons[0].folder(), Strategy::Auto, false)?;
        let begin = Instant::now();
        for index in 0..PLACES {
            let size = match index {
                FIRST_MAP.. => maps::spec(),
                _ if is_row(index) => Spec::new(TABLE_ROWS).row_len(BYTES as u32),
                _ => Spec::new(BYTES as u64),
            };
            let spec = size.copies(copies).placement(Placement::Node(ddss::NodeId(home_of(index))));
            loop {
                match client.segment(&name(index)).allocate(spec) {
                    Ok(_) => break,
                    Err(error) if begin.elapsed() > MAKE_MAX => return Err(error.into()),
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        }
        Ok(())
    }

    fn log_of(&self, number: u16, life: u16) -> PathBuf {
        self.folder.join(&format!("log-{number}-{life}"))
    }

    /// Starts another client process on `node`.
    pub(crate) fn hire(&mut self, node: u16, plan: Plan) -> Result<(), Box<dyn Error>> {
        self.hire_of(&std::env::current_exe()?, node, plan)
    }

    /// Starts another client process on `node`, of the release to which the program belongs.
    pub(crate) fn hire_of(&mut self, program: &Path, node: u16, plan: Plan) -> Result<(), Box<dyn Error>> {
        let (number, program) = (self.workers.len() as u16, program.to_owned());
        let child = self.spawn(&program, (number, 0), node, &plan)?;
        self.workers.push(Worker { number, life: 0, node, plan, program, child });
        Ok(())
    }

    fn spawn(
        &self,
        program: &Path,
        (number, life): (u16, u16),
        node: u16,
        plan: &Plan,
    ) -> Result<Child, Box<dyn Error>> {
        let daemon = &self.daemons[usize::from(node - 1)];
        let mut command = Command::new(program);
        command.arg("worker").arg(daemon.folder()).arg(self.log_of(number, life)).arg(self.folder.join("stop"));
        command.arg(number.to_string()).arg(life.to_string()).args(plan.words());
        Ok(command.spawn()?)
    }

    /// Kills a worker and starts its replacement.
    pub(crate) fn replace(&mut self, index: usize) -> Result<(), Box<dyn Error>> {
        let worker = &mut self.workers[index];
        worker.child.kill()?;
        worker.child.wait()?;
        let (number, life, node, plan) = (worker.number, worker.life + 1, worker.node, worker.plan.clone());
        let program = worker.program.clone();
        self.past += Log::count_at(&self.log_of(number, life - 1));
        let child = self.spawn(&program, (number, life), node, &plan)?;
        self.workers[index] = Worker { number, life, node, plan, program, child };
        Ok(())
    }

    /// Number of calls of one worker in its current life.
    pub(crate) fn count(&self, worker: usize) -> u64 {
        let worker = &self.workers[worker];
        Log::count_at(&self.log_of(worker.number, worker.life))
    }

    /// Returns the places at which a worker has done something behind the first `since` calls of its current life.
    pub(crate) fn places_done_since(&self, worker: usize, since: u64) -> Result<BTreeSet<usize>, Box<dyn Error>> {
        let worker = &self.workers[worker];
        Ok(Log::open(&self.log_of(worker.number, worker.life))?.places_done_since(since)?)
    }

    /// Number of calls of all workers.
    pub(crate) fn counted(&self) -> u64 {
        self.past + (0..self.workers.len()).map(|worker| self.count(worker)).sum::<u64>()
    }

    /// Stops all workers; returns how many failed.
    pub(crate) fn stop(&mut self) -> Result<u64, Box<dyn Error>> {
        self.stop.store(0, 1, Ordering::Release)?;
        let mut stranded = 0;
        for worker in &mut self.workers {
            stranded += u64::from(!worker.child.wait()?.success());
        }
        Ok(stranded)
    }

    /// Returns the number of segments whose home is another node than at first.
    pub(crate) fn moved_homes(&self) -> Result<usize, Box<dyn Error>> {
        let client = attach(self.daemons[0].folder(), Strategy::Auto, false)?;
        // A daemon may have restarted a moment ago.
        let (mut moved, until) = (0, Instant::now() + PATIENCE);
        for index in 0..PLACES {
            let home = patiently(until, || client.segment(&name(index)).open()?.stat())?.home;
            moved += usize::from(home != ddss::NodeId(home_of(index)));
        }
        Ok(moved)
    }

    /// Checks all observations against the final values.
    pub(crate) fn judge(&self) -> Result<Verdict, Box<dyn Error>> {
        let client = attach(self.daemons[0].folder(), Strategy::Auto, false)?;
        let (mut last, until) = (Vec::new(), Instant::now() + PATIENCE);
        for (index, Place { segment, offset }) in open_all(&client)?.into_iter().enumerate() {
            let mut bytes = [0; BYTES];
            let stamp = patiently(until, || segment.get_into(offset, &mut bytes))?;
            let word = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
            last.push((stamp.version.0, if index < VALUES { whole(&bytes) } else { word }));
        }
        let mut keys = BTreeMap::new();
        for (index, map) in maps::open_maps(&client)?.iter().enumerate() {
            for key in 0..maps::KEYS_OF_WORKER * self.workers.len() as u64 {
                keys.insert((FIRST_MAP + index, key), patiently(until, || maps::find(map, key))?);
            }
        }
        let mut logs = HashMap::new();
        for worker in &self.workers {
            for life in 0..=worker.life {
                let log = Log::open(&self.log_of(worker.number, life))?;
                logs.insert(u64::from(worker.number) << 16 | u64::from(life), log.records()?);
            }
        }
        Ok(check::check(&logs, &last, &keys))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // The worker has already ended unless the run failed.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}
