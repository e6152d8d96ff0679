//! Repeated partitions of one node while the others work: their rate with and without the partition, and the recovery.

use crate::cluster::{Cluster, NODES};
use crate::worker::{BYTES, Plan, VALUES, attach, home_of, name};
use ddss::{Client, Spec, Strategy};
use ddss_testkit::{LinkFault, NetworkNamespaces};
use std::error::Error;
use std::time::{Duration, Instant};

/// The node that is cut off.
const LOST: u16 = 3;
/// Workers that call between the two other nodes in a closed loop.
const FAST: usize = 4;
/// Pause of workers on or towards the partitioned node, so that they use equal processor time with and without the
/// partition.
const PAUSE: Duration = Duration::from_millis(50);
/// Warm-up until all workers run.
const WARM: Duration = Duration::from_secs(2);
/// Measured time without a partition, and then with one.
const WINDOW: Duration = Duration::from_secs(4);
/// Time limit until all nodes are connected again.
const WHOLE_MAX: Duration = Duration::from_secs(60);

/// Kind of the partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    Silent(LinkFault),
    Slow,
}

impl How {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "both" => How::Silent(LinkFault::Both),
            "deaf" => How::Silent(LinkFault::Deaf),
            "mute" => How::Silent(LinkFault::Mute),
            "slow" => How::Slow,
            _ => return None,
        })
    }

    fn begin(self, network: &NetworkNamespaces) -> Result<(), Box<dyn Error>> {
        match self {
            How::Silent(cut) => network.cut(LOST as u8, cut)?,
            How::Slow => drop(network.slow(LOST as u8)?),
        }
        Ok(())
    }
}

/// One partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Calls a second between the other nodes, before the partition and during it.
    pub(crate) calm: f64,
    pub(crate) cut: f64,
    /// Time from the end of the partition until all nodes reach all homes, in seconds.
    pub(crate) whole_s: f64,
}

impl Round {
    /// Fraction of their rate that the other nodes keep.
    pub(crate) fn kept(&self) -> f64 {
        self.cut / self.calm
    }
}

/// Counters of the run.
pub(crate) struct Run {
    pub(crate) rounds: Vec<Round>,
    pub(crate) stranded: u64,
}

/// Partitions node 3 `rounds` times.
pub(crate) fn cut(field: &mut Cluster, how: How, rounds: u32) -> Result<Run, Box<dyn Error>> {
    for worker in 0..FAST as u16 {
        field.hire(worker % 2 + 1, Plan { homes: vec![2 - worker % 2], pause: Duration::ZERO })?;
    }
    for (node, home) in [(1, LOST), (2, LOST), (LOST, 1), (LOST, 2), (LOST, LOST)] {
        field.hire(node, Plan { homes: vec![home], pause: PAUSE })?;
    }
    let clients = field.daemons.iter().map(|daemon| attach(daemon.folder(), Strategy::Auto, false));
    let clients: Vec<Client> = clients.collect::<Result<_, _>>()?;
    std::thread::sleep(WARM);
    until_whole(&clients, "before")?;
    let mut run = Run { rounds: Vec::new(), stranded: 0 };
    for round in 0..rounds {
        let calm = rate(field);
        let network = field.network.as_ref().ok_or("only network can be cut")?;
        how.begin(network)?;
        let cut = rate(field);
        field.network.as_ref().ok_or("only network can be healed")?.heal(LOST as u8);
        let whole_s = until_whole(&clients, &format!("after-{round}"))?.as_secs_f64();
        run.rounds.push(Round { calm, cut, whole_s });
    }
    run.stranded = field.stop()?;
    Ok(run)
}

/// Returns the calls a second between the two other nodes.
fn rate(field: &Cluster) -> f64 {
    let count = || (0..FAST).map(|worker| field.count(worker)).sum::<u64>();
    let (before, since) = (count(), Instant::now());
    std::thread::sleep(WINDOW);
    (count() - before) as f64 / since.elapsed().as_secs_f64()
}

/// Waits until every node can read and write at every home, and can allocate and release a segment of its own.
fn until_whole(clients: &[Client], what: &str) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    loop {
        let tried = clients.iter().enumerate().try_for_each(|(index, client)| works(client, index, what));
        match tried {
            Ok(()) => return Ok(begin.elapsed()),
            Err(error) if begin.elapsed() > WHOLE_MAX => {
                return Err(format!("{what}: not whole after {WHOLE_MAX:?}: {error}").into());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn works(client: &Client, index: usize, what: &str) -> Result<(), ddss::Error> {
    for segment in (0..VALUES).take(usize::from(NODES)) {
        let segment = client.segment(&name(segment)).open()?;
        segment.get_into(0, &mut [0; BYTES])?;
    }
    let own = format!("whole/{what}/{}", home_of(index));
    let made = match client.segment(&own).allocate(Spec::new(8)) {
        // An attempt with an unknown outcome may have allocated it.
        Err(error) if error.kind() == ddss::ErrorKind::AlreadyExists => client.segment(&own).open()?,
        made => made?,
    };
    made.put(0, &[1; 8])?;
    made.release()
}
