//! What an operator asks a running daemon about its cluster: one line of JSON in, one out, through a socket beside
//! the clients' one that only the daemon's user and root may use.

use super::failure_detector::DEAD_AFTER;
use super::membership::identity::{forget, remove};
use super::raft::types::Member;
use super::rpc::server::Context;
use super::rpc::types::{Call, Reply};
use crate::config::config::JOIN_FILE_NAME;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// The name of the socket in the daemon's folder.
pub const ADMIN_NAME: &str = "ddssd.admin";

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long it may take to take a node out: another leader may have to be found, and a lease has to run out.
const TAKE_OUT_MAX: Duration = Duration::from_secs(9);
/// Bytes of a question.
const ASK_BYTES_MAX: u64 = 4096;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AdminAsk {
    /// How is the cluster?
    Status,
    /// This node leaves it for good.
    Leave {
        /// Also if segments go with it.
        force: bool,
    },
    /// That node will not come back.
    Remove {
        /// Which.
        node: u16,
        /// Also if it is alive, and segments go with it.
        #[serde(default)]
        force: bool,
    },
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AdminAnswer {
    /// How the cluster is, as this node sees it.
    Status {
        /// This node.
        node: u16,
        /// The leader, if there is one that this node knows.
        leader: Option<u16>,
        /// Every node.
        nodes: Vec<NodeReport>,
        /// Names in the directory.
        names: usize,
        /// Whether most voters can be reached, as far as this node knows.
        majority: bool,
    },
    /// The node is out, and so many segments are gone with it.
    Left {
        /// How many.
        dropped: usize,
    },
    /// It is not.
    Refused(String),
}

/// One node of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its number.
    pub node: u16,
    /// Where its data plane listens; its control plane is one port above.
    pub address: SocketAddr,
    /// Whether it votes.
    pub voter: bool,
    /// Whether the cluster has agreed that it is alive.
    pub alive: bool,
    /// How many lives it had.
    pub epoch: u64,
}

impl AdminAsk {
    /// Asks the daemon that works in `folder`.
    pub fn ask(&self, folder: &Path) -> io::Result<AdminAnswer> {
        let mut stream = std::os::unix::net::UnixStream::connect(folder.join(ADMIN_NAME))?;
        stream.set_read_timeout(Some(ANSWER_MAX * 2))?;
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    }
}

/// Opens the socket and answers until the runtime ends.
pub(super) fn open(context: &Context, folder: &Path, state_folder: &Path) -> io::Result<()> {
    let path = folder.join(ADMIN_NAME);
    // The folder is locked, so what is there was left by a daemon that died.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
    let (context, state_folder) = (context.clone(), state_folder.to_owned());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (context, state_folder) = (context.clone(), state_folder.clone());
            tokio::spawn(tokio::time::timeout(ANSWER_MAX, async move {
                if let Err(error) = converse(&context, stream, state_folder).await {
                    tracing::debug!(%error, "an operator's question came to nothing");
                }
            }));
        }
    });
    Ok(())
}

async fn converse(context: &Context, mut stream: UnixStream, state_folder: PathBuf) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    if user != 0 && user != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (read, mut write) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(read.take(ASK_BYTES_MAX)).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(AdminAsk::Status) => context.status(),
        Ok(AdminAsk::Remove { node, force }) => context.take_out(node, force, false).await,
        Ok(AdminAsk::Leave { force }) => context.leave(force, &state_folder).await?,
        Err(error) => AdminAnswer::Refused(error.to_string()),
    };
    let mut answer = serde_json::to_vec(&answer)?;
    answer.push(b'\n');
    let told = write.write_all(&answer).await;
    if context.left.load(Ordering::Acquire) {
        // Not before the operator is told.
        context.caller.removal.leave();
    }
    told
}

impl Context {
    fn status(&self) -> AdminAnswer {
        let leader = self.raft.metrics().borrow().current_leader;
        let (voters, majority, now) = (self.voters(), !self.majority.is_lost(), Instant::now());
        let mut nodes: Vec<NodeReport> = self
            .members()
            .into_iter()
            .map(|(node, Member { address })| {
                let life = self.keeper.look(|directory| directory.life(node));
                // Without a majority no death can be agreed on: this leader says what it sees.
                let alive = life.alive && (majority || !self.is_leader() || self.answers(node, now, DEAD_AFTER));
                NodeReport { node, address, voter: voters.contains(&node.into()), alive, epoch: life.epoch }
            })
            .collect();
        nodes.sort_by_key(|report| report.node);
        let names = self.keeper.look(|directory| directory.names().count());
        let leader = leader.and_then(|leader| leader.try_into().ok());
        AdminAnswer::Status { node: self.node, leader, nodes, names, majority }
    }

    /// Goes for good, and forgets the cluster.
    async fn leave(&self, force: bool, state_folder: &Path) -> io::Result<AdminAnswer> {
        // From when the cluster knows it, each answer says that this node is no member: that is what it asks for.
        self.caller.removal.set_leaves(true);
        let answer = self.take_out(self.node, force, true).await;
        if let AdminAnswer::Left { dropped } = answer {
            self.left.store(true, Ordering::Release);
            forget(state_folder)?;
            remove(state_folder, JOIN_FILE_NAME)?;
            tracing::warn!(dropped, "left the cluster: stopping; the next start needs --join");
        } else {
            self.caller.removal.set_leaves(false);
        }
        Ok(answer)
    }

    async fn take_out(&self, node: u16, force: bool, leaves: bool) -> AdminAnswer {
        match self.ask_leader(&Call::Remove { node, force, leaves }, TAKE_OUT_MAX).await {
            // Asked again, since the first answer was lost.
            Ok(Reply::NotMember) if leaves => AdminAnswer::Left { dropped: 0 },
            Ok(Reply::NotMember) => AdminAnswer::Refused("this node was removed from the cluster".to_owned()),
            Ok(Reply::Removed { dropped }) => AdminAnswer::Left { dropped },
            Ok(Reply::Refused(why)) => AdminAnswer::Refused(why),
            Ok(_) => AdminAnswer::Refused("the leader answers another question".to_owned()),
            Err(error) => AdminAnswer::Refused(format!("the cluster's leader does not answer: {error}")),
        }
    }
}
