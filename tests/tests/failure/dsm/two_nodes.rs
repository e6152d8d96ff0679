//! Ranks on two nodes that use page faults, while a daemon restarts and while a node is cut off.
//!
//! The ranks are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stdout, reason = "a child tells its test what it did")]

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Placement, Spec};
use ddss_dsm::{Homes, PageFaults, Region, Space, SpaceError, SpaceOptions};
use ddss_testkit::{Daemon, DaemonOptions, LinkFault, NetworkNamespaces, Process, skipped};

const CHILD: &str = "DDSS_TEST_RANK";
const NAME: &str = "plate";
/// The last rank is on the second node.
const RANKS: u16 = 3;
/// Elements that the ranks write in turns: on six pages, each of which all ranks write.
const WORDS: usize = 3_000;
/// Round behind which the ranks write a checkpoint, once.
const CHECKPOINT: u64 = 3;
/// Deadline of everything that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// Regions that all ranks use.
struct Regions {
    words: Region<u64>,
    sections: Region<u64>,
    is_last: Region<u32>,
}

fn value(round: u64, at: usize) -> u64 {
    round * 1_000_003 + at as u64 * 7
}

/// Plays the rank that `start` asked for. Returns false in the test itself.
fn is_child() -> bool {
    let Ok(words) = std::env::var(CHILD) else { return false };
    let [rank, address, folder] = words.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let (address, folder): (IpAddr, _) = (address.parse().unwrap(), Path::new(folder));
    let client = Client::connect_with(ConnectOptions::new().directory(folder)).unwrap();
    let options = SpaceOptions::new(RANKS, 64 << 10).rank(rank.parse().unwrap()).listen(address).timeout(PATIENCE);
    // A rank may wait at a page when the space ends.
    let options = options.page_faults(PageFaults::ALL[0]).on_lost_page(|page| {
        println!("ended {page}");
        std::process::exit(0)
    });
    let mut space = Space::join(&client, NAME, options).unwrap();
    match play(&mut space, &folder.join("last")) {
        Ok(rounds) => {
            space.leave().unwrap();
            println!("left after {rounds}");
        }
        Err(error) => println!("ended {error}"),
    }
    true
}

/// Computes rounds until rank 0 finds a file.
fn play(space: &mut Space, last: &Path) -> Result<u64, SpaceError> {
    let regions = Regions {
        words: space.region("words", WORDS, Homes::Blocks(1))?,
        sections: space.region("sections", 1, Homes::FirstTouch)?,
        is_last: space.region("is last", 1, Homes::FirstTouch)?,
    };
    let mut round = space.restored().unwrap_or(0);
    println!("begins {round}");
    loop {
        play_round(space, &regions, round)?;
        println!("round {round}");
        round += 1;
        if round == CHECKPOINT {
            space.checkpoint(round)?;
        }
        if space.rank() == 0 && last.exists() {
            regions.is_last.cells(space, ..)?.set(0, 1);
        }
        space.barrier()?;
        if regions.is_last.cells(space, ..)?.get(0) == 1 {
            return Ok(round);
        }
    }
}

fn play_round(space: &mut Space, regions: &Regions, round: u64) -> Result<(), SpaceError> {
    let (rank, ranks) = (space.rank(), space.ranks());
    let cells = regions.words.cells(space, ..)?;
    (usize::from(rank)..WORDS).step_by(ranks.into()).for_each(|at| cells.set(at, value(round, at)));
    drop(cells);
    let section = space.lock(1)?;
    let cells = regions.sections.cells(&section, ..)?;
    cells.set(0, cells.get(0) + 1);
    drop(cells);
    section.unlock()?;
    // Each rank goes behind its predecessor.
    if rank > 0 {
        space.wait(rank.into())?;
    }
    space.post(u32::from(rank) + 1)?;
    space.barrier()?;
    if rank == 0 {
        space.wait(ranks.into())?;
    }
    let cells = regions.words.cells(space, ..)?;
    for at in 0..WORDS {
        assert_eq!(cells.get(at), value(round, at), "rank {rank} at word {at} in round {round}");
    }
    drop(cells);
    assert_eq!(regions.sections.cells(space, ..)?.get(0), (round + 1) * u64::from(ranks));
    // No rank is in the next section before all have looked.
    space.barrier()
}

/// Two nodes, and ranks on them.
struct Nodes {
    daemons: [Daemon; 2],
    network: NetworkNamespaces,
}

impl Nodes {
    fn start(test: &str) -> Option<Self> {
        let network = match NetworkNamespaces::new(2) {
            Ok(network) => network,
            Err(error) => {
                skipped(test, &format!("it needs root and network namespaces: {error}"));
                return None;
            }
        };
        let options = |node: u8| {
            let listen = SocketAddr::new(network.address(node), 7400);
            DaemonOptions::listening(node.into(), listen).inside(&network.inside(node))
        };
        let (a, b) = (options(1), options(2));
        let daemons = [options(1).peer(&b).start().unwrap(), options(2).peer(&a).start().unwrap()];
        Some(Self { daemons, network })
    }

    /// Waits until each node reads what the other one has.
    fn until_together(&self) {
        let connect = |daemon: &Daemon| Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
        let clients = self.daemons.each_ref().map(connect);
        for (client, name) in clients.iter().zip(["probe-1", "probe-2"]) {
            client.segment(name).allocate(Spec::new(8).placement(Placement::Local)).unwrap();
        }
        let end = Instant::now() + PATIENCE;
        for (client, name) in clients.iter().zip(["probe-2", "probe-1"]) {
            while let Err(error) = client.segment(name).open() {
                assert!(Instant::now() < end, "{name}: {error}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// Starts all ranks.
    fn ranks(&self, test: &str) -> Vec<Process> {
        let start = |rank: u16| {
            let node = if rank + 1 < RANKS { 1 } else { 2 };
            let folder = self.daemons[usize::from(node) - 1].folder();
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &self.network.inside(node)]).arg(std::env::current_exe().unwrap());
            command.args(["--exact", &format!("dsm::two_nodes::{test}"), "--nocapture"]);
            command.env(CHILD, format!("{rank} {} {}", self.network.address(node), folder.display()));
            Process::start(command, folder, &format!("rank-{rank}")).unwrap()
        };
        (0..RANKS).map(start).collect()
    }
}

/// Waits until a process has written a line that begins so. Returns the rest of it.
fn line(process: &mut Process, start: &str) -> String {
    let found = |process: &Process| {
        let text = process.stdout();
        // A line may be in work.
        text.split_inclusive('\n').find_map(|line| Some(line.strip_suffix('\n')?.strip_prefix(start)?.to_owned()))
    };
    process.wait_until(PATIENCE, |process| found(process).is_some()).unwrap();
    found(process).unwrap()
}

/// Returns the number of rounds that a rank has done.
fn rounds(process: &Process) -> usize {
    process.stdout().lines().filter(|line| line.starts_with("round ")).count()
}

fn until_rounds(process: &mut Process, count: usize) {
    process.wait_until(PATIENCE, |process| rounds(process) >= count).unwrap();
}

// If this failed, a rank would hang at a page of a node that is away, compute with old bytes, or end with its daemon.
#[test]
fn ranks_on_two_nodes_outlive_a_daemon_and_end_together_when_a_node_is_cut_off() {
    if is_child() {
        return;
    }
    let test = "ranks_on_two_nodes_outlive_a_daemon_and_end_together_when_a_node_is_cut_off";
    let Some(mut nodes) = Nodes::start(test) else { return };
    let mut ranks = nodes.ranks(test);
    // Behind their checkpoint.
    ranks.iter_mut().for_each(|rank| until_rounds(rank, CHECKPOINT as usize + 2));
    nodes.network.cut(2, LinkFault::Both).unwrap();
    let ends: Vec<String> = ranks.iter_mut().map(|rank| line(rank, "ended ")).collect();
    for end in &ends[..2] {
        assert!(end.contains("rank 2 is lost"), "{ends:?}");
    }
    assert!(ranks.iter_mut().all(|rank| rank.wait(PATIENCE).unwrap().is_some_and(|status| status.success())));
    nodes.network.heal(2);

    // Or the last rank would join in a cluster that takes its node for dead.
    nodes.until_together();
    let mut ranks = nodes.ranks(test);
    for rank in &mut ranks {
        assert_eq!(line(rank, "begins "), CHECKPOINT.to_string(), "{}", rank.stderr());
    }
    for node in 0..2 {
        nodes.daemons[node].kill().unwrap();
        for rank in &mut ranks {
            let done = rounds(rank);
            until_rounds(rank, done + 5);
        }
        nodes.daemons[node].restart().unwrap();
    }
    std::fs::write(nodes.daemons[0].folder().join("last"), b"").unwrap();
    let ends: Vec<String> = ranks.iter_mut().map(|rank| line(rank, "left after ")).collect();
    assert!(ends.iter().all(|end| *end == ends[0] && end.parse::<u64>().unwrap() > CHECKPOINT + 10), "{ends:?}");
    assert!(ranks.iter_mut().all(|rank| rank.wait(PATIENCE).unwrap().is_some_and(|status| status.success())));
}
