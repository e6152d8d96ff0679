//! The programs of `tests/vm/foreign`, beside the others in `DDSS_BIN_DIR`.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Instant;

use ddss_verbs::Window;
use ddss_verbs::rdma::Rdma;

use crate::common::{Node, WAIT_MAX};

/// Returns the path of a program; otherwise reports that the test is skipped.
pub(super) fn path(program: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("DDSS_BIN_DIR").unwrap_or_default();
    let path = Path::new(&folder).join(program);
    if !path.exists() {
        let name = std::thread::current().name().unwrap_or("foreign").to_owned();
        let line = format!("skipped: {name}: no program {program} (DDSS_BIN_DIR); scripts/vm builds it\n");
        drop(std::io::stderr().lock().write_all(line.as_bytes()));
        return None;
    }
    Some(path)
}

/// Runs a program and returns its output.
pub(super) fn output(program: &str, words: &[&str]) -> String {
    let output = Command::new(path(program).unwrap()).args(words).output().unwrap();
    assert!(!output.stdout.is_empty(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A running `foreign_peer`, which answers each command with a line. It ends when this value is dropped, or with its
/// input.
pub(super) struct ForeignPeer {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl ForeignPeer {
    fn start(words: &[String]) -> Self {
        let mut command = Command::new(path("foreign_peer").unwrap());
        let mut process = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        // The thread ends with the output.
        std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Self { process, input, lines }
    }

    /// Starts a program that connects from `source`.
    pub(super) fn connect(source: IpAddr, address: SocketAddr) -> Self {
        let words = [source.to_string(), address.ip().to_string(), address.port().to_string()];
        Self::start(&[&["connect".to_owned()][..], &words].concat())
    }

    /// Starts a program that listens; returns its port.
    pub(super) fn listen(address: IpAddr, node: &mut Node<Rdma>) -> (Self, u16) {
        let mut peer = Self::start(&["listen".to_owned(), address.to_string()]);
        let line = peer.line(node);
        let port = line.strip_prefix("listening ").and_then(|port| port.parse().ok());
        (peer, port.unwrap_or_else(|| panic!("{line} instead of a port")))
    }

    /// Waits until it is connected; returns its window.
    pub(super) fn wait_connected(&mut self, node: &mut Node<Rdma>) -> Window {
        let line = self.line(node);
        let words: Vec<&str> = line.split(' ').collect();
        let ["connected", key, address, bytes, _] = words[..] else { panic!("{line} instead of a window") };
        Window { key: key.parse().unwrap(), base: address.parse().unwrap(), bytes: bytes.parse().unwrap() }
    }

    /// Returns the answer to a command. The fabric is polled until it arrives.
    pub(super) fn ask(&mut self, node: &mut Node<Rdma>, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        self.line(node)
    }

    fn line(&mut self, node: &mut Node<Rdma>) -> String {
        // The program itself waits as long for a completion.
        let (start, limit) = (Instant::now(), 2 * WAIT_MAX);
        loop {
            match self.lines.try_recv() {
                Ok(line) => return line,
                Err(TryRecvError::Disconnected) => panic!("the foreign peer has ended; saw {:?}", node.seen),
                Err(TryRecvError::Empty) => assert!(start.elapsed() < limit, "no answer; saw {:?}", node.seen),
            }
            node.poll();
        }
    }
}

impl Drop for ForeignPeer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
