//! Starts a real daemon in a process of its own.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{Error, Process, TempNode, binary, free_tcp_port};

/// Time limit for the start of a daemon. It takes milliseconds; a loaded machine takes longer.
const READY_MAX: Duration = Duration::from_secs(60);
/// The key that the daemons of tests share. It is no secret and guards nothing.
pub const TEST_KEY: &str = "7e57000000000000000000000000000000000000000000000000000000000001";

/// Start options of a daemon.
#[derive(Debug)]
pub struct DaemonOptions {
    node: u16,
    listen: SocketAddr,
    peers: Vec<(u16, SocketAddr)>,
    clustered: bool,
    numbered: bool,
    key: String,
    through: Vec<String>,
    more: Vec<OsString>,
}

impl DaemonOptions {
    /// Node `node` without peers, on a free port of 127.0.0.`node` (127.0.X.Y for large numbers).
    pub fn new(node: u16) -> Result<DaemonOptions, Error> {
        let [high, low] = node.to_be_bytes();
        DaemonOptions::on(node, IpAddr::V4(Ipv4Addr::new(127, 0, high, low)))
    }

    /// Node `node` on a free port of another address of this machine.
    pub fn on(node: u16, ip: IpAddr) -> Result<DaemonOptions, Error> {
        let listen = SocketAddr::new(ip, free_tcp_port(ip)?);
        Ok(DaemonOptions::listening(node, listen))
    }

    /// Node `node` without peers, at this address.
    pub fn listening(node: u16, listen: SocketAddr) -> DaemonOptions {
        DaemonOptions {
            node,
            listen,
            peers: Vec::new(),
            clustered: false,
            numbered: true,
            key: TEST_KEY.to_owned(),
            through: Vec::new(),
            more: Vec::new(),
        }
    }

    /// Runs the daemon in this network namespace.
    #[must_use]
    pub fn inside(self, namespace: &str) -> DaemonOptions {
        self.command_prefix(["ip", "netns", "exec", namespace].map(str::to_owned).into())
    }

    /// Sets the command that executes the daemon. It must `exec`, so that its pid is the daemon's.
    #[must_use]
    pub fn command_prefix(mut self, words: Vec<String>) -> DaemonOptions {
        self.through = words;
        self
    }

    /// Address for other nodes.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Adds `other` as a peer of this daemon.
    #[must_use]
    pub fn peer(mut self, other: &DaemonOptions) -> DaemonOptions {
        self.peers.push((other.node, other.listen));
        self.clustered()
    }

    /// Gives the daemon the key of all test clusters, so that it listens to other nodes.
    #[must_use]
    pub fn clustered(mut self) -> DaemonOptions {
        self.clustered = true;
        self
    }

    /// Makes the daemon join the cluster of `other`, which assigns its id.
    #[must_use]
    pub fn joins(mut self, other: SocketAddr) -> DaemonOptions {
        self.numbered = false;
        self.clustered().argument("--join").argument(other.to_string())
    }

    /// Gives the daemon another key than the daemons of other tests have.
    #[must_use]
    pub fn key(mut self, token: &str) -> DaemonOptions {
        self.key = token.to_owned();
        self.clustered()
    }

    /// Runs the daemon's progress thread on `core`.
    #[must_use]
    pub fn core(self, core: usize) -> DaemonOptions {
        self.argument("--core").argument(core.to_string())
    }

    /// Sets the daemon's memory for segments.
    #[must_use]
    pub fn pool_bytes(self, bytes: u64) -> DaemonOptions {
        self.argument("--pool-bytes").argument(bytes.to_string())
    }

    /// Adds an argument to the daemon's command line.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> DaemonOptions {
        self.more.push(argument.into());
        self
    }

    /// Starts the daemon, and returns when it is ready.
    pub fn start(self) -> Result<Daemon, Error> {
        self.start_program(binary("ddssd")?)
    }

    /// Starts a daemon of another release, and returns when it is ready.
    pub fn start_program(self, program: PathBuf) -> Result<Daemon, Error> {
        let folder = TempNode::new()?;
        if self.clustered {
            write_key(folder.path(), &self.key)?;
            if self.peers.is_empty() && !self.more.iter().any(|argument| argument == "--join") {
                allow_founding(folder.path())?;
            }
        }
        let process = self.spawn(&program, &folder)?;
        let mut daemon = Daemon { process, program, options: self, folder };
        daemon.wait_until_ready()?;
        Ok(daemon)
    }

    fn spawn(&self, program: &Path, folder: &TempNode) -> Result<Process, Error> {
        let mut command = match self.through.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(self.arguments(folder.path()));
        Process::start(command, folder.path(), "ddssd")
    }

    fn arguments(&self, folder: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        if self.numbered {
            arguments.extend(["--node".into(), self.node.to_string().into()]);
        }
        arguments.extend(["--dir".into(), folder.into()]);
        if self.clustered {
            arguments.extend(["--listen".into(), self.listen.to_string().into()]);
        }
        for (node, address) in &self.peers {
            arguments.extend(["--peer".into(), format!("{node}={address}").into()]);
        }
        arguments.extend(self.more.iter().cloned());
        arguments
    }
}

/// Writes the key of a cluster to the file in which a daemon in `folder` looks for it.
pub fn write_key(folder: &Path, token: &str) -> Result<(), Error> {
    let state = folder.join("state");
    let path = state.join("cluster.key");
    let written = DirBuilder::new().recursive(true).mode(0o700).create(&state).and_then(|()| {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        writeln!(file?, "{token}")
    });
    written.map_err(Error::system(format!("writing {}", path.display())))
}

/// Lets a daemon in `folder` begin a cluster, as `ddss cluster init` does.
pub fn allow_founding(folder: &Path) -> Result<(), Error> {
    let path = folder.join("state/found");
    std::fs::write(&path, "").map_err(Error::system(format!("writing {}", path.display())))
}

/// A running `ddssd`. Dropping the value kills the process and removes its directory.
#[derive(Debug)]
pub struct Daemon {
    // The order of fields matters: the process must end before its directory is removed.
    process: Process,
    program: PathBuf,
    options: DaemonOptions,
    folder: TempNode,
}

impl Daemon {
    /// Starts a node without peers.
    pub fn start(node: u16) -> Result<Daemon, Error> {
        DaemonOptions::new(node)?.start()
    }

    /// Starts nodes 1 and 2, each with the other as its peer.
    pub fn pair() -> Result<[Daemon; 2], Error> {
        let (a, b) = (DaemonOptions::new(1)?, DaemonOptions::new(2)?);
        let a = a.peer(&b);
        let b = b.peer(&a);
        Ok([a.start()?, b.start()?])
    }

    /// Path of the socket for clients.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("ddssd.sock")
    }

    /// Directory with the daemon's socket, state and logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Address for other nodes.
    pub fn listen(&self) -> SocketAddr {
        self.options.listen
    }

    /// The daemon's process, with its pid and output, and for signals.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops the daemon, as `kill -STOP` does, and returns when all its threads have stopped.
    pub fn pause(&self) -> Result<(), Error> {
        self.process.pause()
    }

    /// Continues the daemon after [`pause`](Self::pause).
    pub fn resume(&self) -> Result<(), Error> {
        self.process.resume()
    }

    /// Kills the daemon as `kill -9` does. Its directory stays.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.process.kill()
    }

    /// Makes the next start run another program: that of another release.
    pub fn set_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// Restarts the daemon after its end, in the same directory and with the same arguments, and returns when it is
    /// ready.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.process.end()?;
        self.process = self.options.spawn(&self.program, &self.folder)?;
        self.wait_until_ready()
    }

    /// Waits for the line with which the daemon reports that it is ready.
    fn wait_until_ready(&mut self) -> Result<(), Error> {
        self.process.wait_until(READY_MAX, |process| says_ready(&process.stdout()))
    }
}

fn says_ready(stdout: &str) -> bool {
    stdout.lines().any(|line| line == "ready" || line.starts_with("ready "))
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, tests would start daemons with undocumented flags.
    #[test]
    fn daemon_flags_match_the_documentation() {
        let a = DaemonOptions::new(1).unwrap();
        let b = DaemonOptions::new(2).unwrap().peer(&a).core(1).pool_bytes(1 << 20);
        let line = b.arguments(Path::new("/somewhere"));
        let line: Vec<&str> = line.iter().map(|argument| argument.to_str().unwrap()).collect();
        let (listen, peer) = (format!("127.0.0.2:{}", b.listen().port()), format!("1={}", a.listen()));
        let expected = ["--node", "2", "--dir", "/somewhere", "--listen", &listen, "--peer", &peer];
        assert_eq!(line[..8], expected);
        assert_eq!(line[8..], ["--core", "1", "--pool-bytes", "1048576"]);
        assert_eq!(a.listen().ip().to_string(), "127.0.0.1");
    }

    // If this failed, a log line that contains the word would count as the ready line.
    #[test]
    fn ready_line_must_begin_with_ready() {
        assert!(says_ready("starting\nready node=1\n"));
        assert!(!says_ready("not ready yet\nreadying\n"));
    }
}
