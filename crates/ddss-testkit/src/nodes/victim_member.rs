//! A cluster node under attack from the network, with a legitimate client and peer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ddss::{Client, ConnectOptions, LockGuard, LockOptions, Mode, Segment, Spec};

use crate::{Daemon, DaemonOptions, Error, free_tcp_port, retry};

/// Nodes 1 and 2 of a cluster that expects a node 3, whose address is free for attackers. Node 1 is attacked.
#[derive(Debug)]
pub struct VictimMember {
    /// Segment of the legitimate client, at home on node 1, readable only by its owner.
    pub secret: Segment,
    /// Segment of the same client, open to all users; the client holds its lock.
    pub held: LockGuard<Segment>,
    /// Arguments for an attacker of each of the two nodes.
    words: [Vec<String>; 2],
    // The order of fields matters: the client must end before its daemon.
    _client: Client,
    attacker: PathBuf,
    /// Node 1 and its honest peer, node 2.
    pub daemons: [Daemon; 2],
}

impl VictimMember {
    /// Starts the nodes; the progress thread of node 1 has the core `core`, or no core of its own. The secret segment
    /// holds `word` repeatedly; `program` attacks.
    pub fn start(word: u64, program: &Path, core: Option<usize>) -> Result<VictimMember, Box<dyn std::error::Error>> {
        // On a core of its own the daemon never sleeps, because its wake-up time does not depend on the attackers.
        let busy = format!("--busy={}", core.is_some());
        let core = core.map_or_else(|| "none".to_owned(), |core| core.to_string());
        let metrics = free_tcp_port(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, metrics));
        let (one, two, three) = (DaemonOptions::new(1)?, DaemonOptions::new(2)?, DaemonOptions::new(3)?);
        let two = two.peer(&one).peer(&three).argument("--core").argument("none");
        let one = one.peer(&two).peer(&three).pool_bytes(64 << 20).argument("--core").argument(core).argument(busy);
        let one = one.argument("--metrics-listen").argument(metrics.to_string());
        let place = three.listen();
        let daemons = [one.start()?, two.start()?];
        let client = Client::connect_with(
            ConnectOptions::new().directory(daemons[0].folder()).local_reads(false).timeout(PATIENCE),
        )?;
        // Names can be allocated as soon as the nodes are connected.
        let secret = retry(|| client.segment("secret/1").allocate(Spec::new(64 << 10).mode(Mode(0o600))));
        let bytes: Vec<u8> = std::iter::repeat_n(word.to_le_bytes(), 8 << 10).flatten().collect();
        secret.put(0, &bytes)?;
        let held = client.segment("held").allocate(Spec::new(4096).mode(Mode(0o666)))?;
        let id = held.id();
        let held = held.lock_with(LockOptions::new().lease(Duration::from_secs(600)))?;
        let words = [&daemons[0], &daemons[1]].map(|daemon| {
            let data = daemon.listen();
            let control = SocketAddr::new(data.ip(), data.port() + 1);
            let numbers = [secret.id().to_bits(), id.to_bits(), held.token().0].map(|number| number.to_string());
            [data, control, metrics, place].iter().map(SocketAddr::to_string).chain(numbers).collect()
        });
        Ok(VictimMember { secret, held, words, _client: client, attacker: program.to_owned(), daemons })
    }

    /// Starts an attack on node 1, which repeats it for `seconds` seconds, or makes it once if `seconds` is 0.
    pub fn attack(&self, name: &str, seconds: u64) -> Result<Child, Error> {
        self.attack_on(0, name, seconds)
    }

    /// Starts an attack on one of the two nodes, like [`attack`](Self::attack).
    pub fn attack_on(&self, daemon: usize, name: &str, seconds: u64) -> Result<Child, Error> {
        let mut command = Command::new(&self.attacker);
        command.args(["attack", "--network", name]).args(&self.words[daemon]).arg(seconds.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map_err(Error::system(format!("starting the attack {name}")))
    }
}

/// Time limit for a call; a machine that runs other tests is slow.
const PATIENCE: Duration = Duration::from_secs(20);
