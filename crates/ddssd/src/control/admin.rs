//! Server of the admin socket: the operator's requests to a running daemon about its cluster.
//!
//! One line of JSON in, one line out. The socket lies beside the clients' socket; only the daemon's user and root may
//! use it.

use super::failure_detector::DEAD_AFTER;
use super::membership::identity::delete_cluster_state;
use super::rpc::types::{Call, Reply};
use crate::control::member::Member;
use crate::control::membership::state_file::remove_file_if_present;
use crate::control::rpc::context::Context;
use ddss_admin::storage::JOIN_FILE_NAME;
use ddss_admin::{ADMIN_SOCKET_NAME, AdminRequest, AdminResponse, NodeReport};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// Maximum time to remove a node: a new leader may have to be found, and a lease has to expire.
const REMOVE_MAX: Duration = Duration::from_secs(9);
/// Maximum size of a request.
const REQUEST_BYTES_MAX: u64 = 4096;

/// Opens the socket and serves requests until the runtime ends.
pub(super) fn serve_admin_socket(context: &Context, folder: &Path, state_folder: &Path) -> io::Result<()> {
    let path = folder.join(ADMIN_SOCKET_NAME);
    // The folder is locked, so an existing socket was left behind by a daemon that died.
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
            tokio::spawn(tokio::time::timeout(AdminRequest::RESPONSE_MAX, async move {
                if let Err(error) = serve_connection(&context, stream, state_folder).await {
                    tracing::debug!(%error, "an admin request failed");
                }
            }));
        }
    });
    Ok(())
}

async fn serve_connection(context: &Context, mut stream: UnixStream, state_folder: PathBuf) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    if user != 0 && user != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (read, mut write) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(read.take(REQUEST_BYTES_MAX)).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(AdminRequest::Status) => context.status(),
        Ok(AdminRequest::Remove { node, force }) => context.request_removal(node, force, false).await,
        Ok(AdminRequest::Leave { force }) => context.leave(force, &state_folder).await?,
        Err(error) => AdminResponse::Refused(error.to_string()),
    };
    let mut answer = serde_json::to_vec(&answer)?;
    answer.push(b'\n');
    let sent = write.write_all(&answer).await;
    if context.has_left.load(Ordering::Acquire) {
        // Departs after the response: the departure ends this process.
        context.rpc_client.removal.finish_leave();
    }
    sent
}

impl Context {
    fn status(&self) -> AdminResponse {
        let leader = self.raft.metrics().borrow().current_leader;
        let (voters, majority, now) = (self.voters(), !self.majority.is_lost(), Instant::now());
        let mut nodes: Vec<NodeReport> = self
            .members()
            .into_iter()
            .map(|(node, Member { address })| {
                let life = self.state_machine.read(|directory| directory.node_status(node));
                // Without a majority no death can be decided: this leader reports its own view.
                let alive = life.alive && (majority || !self.is_leader() || self.is_answering(node, now, DEAD_AFTER));
                NodeReport { node, address, voter: voters.contains(&node.into()), alive, epoch: life.epoch }
            })
            .collect();
        nodes.sort_by_key(|report| report.node);
        let names = self.state_machine.read(|directory| directory.names().count());
        let leader = leader.and_then(|leader| leader.try_into().ok());
        AdminResponse::Status { node: self.node, leader, nodes, names, majority }
    }

    /// Leaves the cluster for good and deletes the cluster's state on this node.
    async fn leave(&self, force: bool, state_folder: &Path) -> io::Result<AdminResponse> {
        // Once the removal is decided, each reply says *not a member*: this node asked for that.
        self.rpc_client.removal.set_leaving(true);
        let answer = self.request_removal(self.node, force, true).await;
        if let AdminResponse::Left { dropped } = answer {
            self.has_left.store(true, Ordering::Release);
            delete_cluster_state(state_folder)?;
            remove_file_if_present(state_folder, JOIN_FILE_NAME)?;
            tracing::warn!(dropped, "left the cluster: stopping; the next start needs --join");
        } else {
            self.rpc_client.removal.set_leaving(false);
        }
        Ok(answer)
    }

    async fn request_removal(&self, node: u16, force: bool, leaves: bool) -> AdminResponse {
        match self.ask_leader(&Call::Remove { node, force, leaves }, REMOVE_MAX).await {
            // A repeated request whose first reply was lost.
            Ok(Reply::NotMember) if leaves => AdminResponse::Left { dropped: 0 },
            Ok(Reply::NotMember) => AdminResponse::Refused("this node was removed from the cluster".to_owned()),
            Ok(Reply::Removed { dropped }) => AdminResponse::Left { dropped },
            Ok(Reply::Refused(why)) => AdminResponse::Refused(why),
            Ok(_) => AdminResponse::Refused(
                "the leader sent a reply of the wrong type: run the same release on all nodes".to_owned(),
            ),
            Err(error) => AdminResponse::Refused(format!("the cluster's leader does not answer: {error}")),
        }
    }
}
