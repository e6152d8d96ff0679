//! A node under attack by local processes of another user, with a legitimate client.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ddss::{Client, ConnectOptions, LockGuard, LockOptions, Mode, Segment, Spec, Strategy};

use crate::{Daemon, DaemonOptions, Error, TempNode, copy_program};

/// User id of `nobody`.
const NOBODY: u32 = 65534;

/// A node whose socket is open to all users, with the segments of a legitimate client.
#[derive(Debug)]
pub struct VictimNode {
    /// Segment of the legitimate client, readable only by its owner.
    pub secret: Segment,
    /// Segment open to all users; the legitimate client holds its lock.
    pub held: LockGuard<Segment>,
    words: Vec<String>,
    // The order of fields matters: clients must end before their daemon, and the daemon before its directory.
    _clients: [Client; 2],
    attacker: PathBuf,
    folder: TempNode,
    /// The attacked node.
    pub daemon: Daemon,
}

impl VictimNode {
    /// Starts a node whose progress thread has the core `core`, or no core of its own. The secret segment holds `word`
    /// repeatedly; `program` attacks.
    pub fn start(word: u64, program: &Path, core: Option<usize>) -> Result<VictimNode, Box<dyn std::error::Error>> {
        let core = core.map_or_else(|| "none".to_owned(), |core| core.to_string());
        let options = DaemonOptions::new(1)?.pool_bytes(64 << 20).argument("--core").argument(core);
        let daemon = options.argument("--socket-mode").argument("666").start()?;
        fs::set_permissions(daemon.folder(), Permissions::from_mode(0o711))?;
        let options = |strategy| ConnectOptions::new().directory(daemon.folder()).strategy(strategy).timeout(PATIENCE);
        let before = queues();
        let queued = Client::connect_with(options(Strategy::Rmq).local_reads(false))?;
        let queue = queues().difference(&before).next().copied().unwrap_or(-1);
        let client = Client::connect_with(options(Strategy::Auto).local_reads(false))?;
        let secret = client.segment("secret/1").allocate(Spec::new(64 << 10).mode(Mode(0o600)))?;
        let bytes: Vec<u8> = std::iter::repeat_n(word.to_le_bytes(), 8 << 10).flatten().collect();
        secret.put(0, &bytes)?;
        let held = queued.segment("held").allocate(Spec::new(4096).mode(Mode(0o666)))?;
        let id = held.id();
        let held = held.lock_with(LockOptions::new().lease(Duration::from_secs(600)))?;
        let words = [
            daemon.socket().display().to_string(),
            secret.id().to_bits().to_string(),
            id.to_bits().to_string(),
            held.token().to_string(),
            queue.to_string(),
        ];
        // The copy is in a directory that another user can execute from.
        let folder = TempNode::new()?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711))?;
        let attacker = folder.join("attacker");
        copy_program(program, &attacker)?;
        Ok(VictimNode { secret, held, words: words.into(), _clients: [queued, client], attacker, folder, daemon })
    }

    /// Starts an attack, which is repeated for `seconds` seconds, or made once if `seconds` is 0. It runs as another
    /// user if this user may switch to one.
    pub fn attack(&self, name: &str, seconds: u64) -> Result<Child, Error> {
        let mut command = Command::new(&self.attacker);
        command.arg("attack").arg(name).args(&self.words).arg(seconds.to_string());
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
            .spawn()
            .map_err(Error::system(format!("starting the attack {name} in {}", self.folder.path().display())))
    }
}

/// Time limit for a call; a machine that runs other tests is slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the ids of all System V message queues.
fn queues() -> BTreeSet<i32> {
    let table = fs::read_to_string("/proc/sysvipc/msg").unwrap_or_default();
    table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect()
}
