//! Server of the admin socket: the operator's requests to a running daemon about its cluster.
//!
//! One line of JSON in, one line out; a node that leaves reports its progress first. The socket lies beside the clients'
//! socket; only the daemon's user and root may use it.

use super::membership::voters::DEAD_AFTER;
use super::rpc::types::{Call, Reply};
use crate::control::identity::delete_cluster_state;
use crate::control::identity::member::Member;
use crate::control::identity::state_file::remove_file_if_present;
use crate::control::rpc::context::Context;
use crate::control::rpc::name_sample::NameSample;
use crate::supervisor::Departure;
use ddss_admin::storage::JOIN_FILE_NAME;
use ddss_admin::{ADMIN_SOCKET_NAME, AdminRequest, AdminResponse, NameReport, NodeRelease, NodeReport, ProtocolRange};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::WriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// Maximum time to remove a node: a new leader may have to be found, and a lease has to expire.
const REMOVE_MAX: Duration = Duration::from_secs(9);
/// Maximum time to hand the leadership over, and until this node sees it.
const LEAD_MAX: Duration = Duration::from_secs(5);
/// Interval at which a leaving node asks for the progress of its copies, and the maximum time of one call.
const COPIES_POLL_INTERVAL: Duration = Duration::from_millis(100);
const COPIES_CALL_MAX: Duration = Duration::from_secs(2);
/// Maximum time of another node's answer while there is no majority.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// Maximum time to send a response.
const SEND_MAX: Duration = Duration::from_secs(2);
/// Reason of a refusal if the leader's reply has the wrong type.
const OTHER_RELEASE: &str = "the leader sent a reply of the wrong type: run the same release on all nodes";
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
            // Each wait inside has its own limit; this one bounds the connection.
            let limit = AdminRequest::RESPONSE_MAX + AdminRequest::COPIES_MAX + AdminRequest::COPY_STALL_MAX;
            tokio::spawn(tokio::time::timeout(limit, async move {
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
    let mut read = tokio::io::BufReader::new(read.take(REQUEST_BYTES_MAX));
    tokio::time::timeout(AdminRequest::RESPONSE_MAX, read.read_line(&mut line)).await??;
    let request = serde_json::from_str(&line);
    let is_leave = matches!(request, Ok(AdminRequest::Leave { .. }));
    let answer = match request {
        Ok(AdminRequest::Status) => context.status().await,
        Ok(AdminRequest::Names { after }) => context.names_after(after.as_deref()),
        Ok(AdminRequest::Remove { node, force }) => context.request_removal(node, force, false).await,
        Ok(AdminRequest::Lead { node }) => context.lead(node).await,
        Ok(AdminRequest::Leave { force }) => context.leave(force, &state_folder, &mut write).await?,
        Err(error) => AdminResponse::Refused(error.to_string()),
    };
    let sent = send(&mut write, &answer).await;
    if is_leave && context.membership.has_left.load(Ordering::Acquire) {
        // Departs after the response: the departure ends this process.
        context.rpc_client.removal.stop(Departure::Left);
    }
    sent
}

fn left(dropped: usize, uncopied: &NameSample) -> AdminResponse {
    AdminResponse::Left { dropped, uncopied: uncopied.count, uncopied_names: uncopied.names() }
}

/// Sends a response. An operator who does not read it holds nothing up.
async fn send(write: &mut WriteHalf<'_>, answer: &AdminResponse) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    tokio::time::timeout(SEND_MAX, write.write_all(&line)).await?
}

impl Context {
    async fn status(&self) -> AdminResponse {
        let (voters, majority, now) = (self.voters(), !self.health.majority.is_lost(), Instant::now());
        let members = self.members();
        let all = || members.iter().map(|&(node, _)| node).collect();
        // Without a majority no death can be decided: this node reports its own view.
        let answering: HashSet<u16> = match majority {
            true => all(),
            false if self.is_leader() => {
                members.iter().map(|&(node, _)| node).filter(|&node| self.is_answering(node, now, DEAD_AFTER)).collect()
            }
            false => {
                let answering = self.ask_who_answers(&members).await;
                // A leader that is heard and does not answer: only the calls of this node are lost.
                let is_muted = self.live_leader().is_some_and(|leader| !answering.contains(&leader));
                if is_muted { all() } else { answering }
            }
        };
        let releases = self.ask_releases(&members).await;
        let protocols = members.iter().map(|(node, _)| releases.get(node).map(|found| found.protocol));
        let level = ProtocolRange::newest_of_all(protocols);
        let report = |(node, Member { address }): (u16, Member)| {
            let life = self.state_machine.read(|directory| directory.node_status(node));
            let (voter, alive) = (voters.contains(&node.into()), life.alive && answering.contains(&node));
            NodeReport { node, address, voter, alive, epoch: life.epoch, release: releases.get(&node).cloned() }
        };
        let mut nodes: Vec<NodeReport> = members.into_iter().map(report).collect();
        nodes.sort_by_key(|report| report.node);
        let names = self.state_machine.read(|directory| directory.names().count());
        let clock_ahead_us = self.health.majority.clock_ahead_us();
        let (node, leader) = (self.node, self.live_leader());
        AdminResponse::Status { node, leader, nodes, names, majority, clock_ahead_us, level }
    }

    fn names_after(&self, after: Option<&str>) -> AdminResponse {
        self.state_machine.read(|directory| {
            let names = directory.names_after(after).take(AdminRequest::NAMES_MAX);
            let names = names.map(|(name, owner)| NameReport { name: name.to_owned(), home: owner.home }).collect();
            AdminResponse::Names { names }
        })
    }

    /// Asks all members whether they know this node, and returns those that do. A node of another cluster does not.
    async fn ask_who_answers(&self, members: &[(u16, Member)]) -> HashSet<u16> {
        let mut asked = JoinSet::new();
        for &(node, member) in members.iter().filter(|&&(node, _)| node != self.node) {
            let (rpc_client, call) =
                (self.rpc_client.clone(), Call::WhoIs { node: self.node, registration: self.own.registration });
            asked.spawn(async move {
                let answer = rpc_client.ask(member, &call, ANSWER_MAX).await;
                matches!(answer, Ok(Reply::Known { registered: true, .. })).then_some(node)
            });
        }
        let answered = asked.join_all().await.into_iter().flatten();
        answered.chain([self.node]).collect()
    }

    /// Asks all members for their releases. A node that does not answer is missing.
    async fn ask_releases(&self, members: &[(u16, Member)]) -> BTreeMap<u16, NodeRelease> {
        let mut asked = JoinSet::new();
        for &(node, member) in members.iter().filter(|&&(node, _)| node != self.node) {
            let rpc_client = self.rpc_client.clone();
            asked.spawn(async move { Some((node, rpc_client.ask_release(member, ANSWER_MAX).await?)) });
        }
        let answered = asked.join_all().await.into_iter().flatten();
        answered.chain([(self.node, NodeRelease::ours())]).collect()
    }

    /// Leaves the cluster for good and deletes the cluster's state on this node.
    async fn leave(&self, force: bool, state_folder: &Path, write: &mut WriteHalf<'_>) -> io::Result<AdminResponse> {
        let others = self.members().iter().filter(|&&(node, _)| node != self.node).count();
        // Once the removal is decided, each reply says *not a member*: this node asked for that.
        self.rpc_client.removal.set_leaving(true);
        let mut answer = self.request_removal(self.node, force, true).await;
        if let AdminResponse::Left { dropped, .. } = answer {
            self.membership.has_left.store(true, Ordering::Release);
            delete_cluster_state(state_folder)?;
            remove_file_if_present(state_folder, JOIN_FILE_NAME)?;
            if others > 1 {
                answer = self.wait_for_copies(answer, write).await;
            }
            tracing::warn!(dropped, "left the cluster: stopping; the next start needs --join");
        } else {
            self.rpc_client.removal.set_leaving(false);
        }
        Ok(answer)
    }

    /// Waits until each segment that had a copy here has another one, as long as their number shrinks. This node is no
    /// member any more: if it dies here, the others copy all the same.
    async fn wait_for_copies(&self, mut answer: AdminResponse, write: &mut WriteHalf<'_>) -> AdminResponse {
        let (began, mut fewest, mut progressed) = (Instant::now(), usize::MAX, Instant::now());
        while let AdminResponse::Left { uncopied: uncopied @ 1.., .. } = answer {
            if uncopied < fewest {
                (fewest, progressed) = (uncopied, Instant::now());
                // The copies are made whether or not the operator reads this.
                let _ = send(write, &AdminResponse::Copying { uncopied }).await;
            }
            if progressed.elapsed() > AdminRequest::COPY_STALL_MAX || began.elapsed() > AdminRequest::COPIES_MAX {
                break;
            }
            tokio::time::sleep(COPIES_POLL_INTERVAL).await;
            let call = Call::Remove { node: self.node, force: true, leaves: true };
            if let Ok(Reply::Removed { dropped, uncopied }) = self.ask_leader(&call, COPIES_CALL_MAX).await {
                answer = left(dropped, &uncopied);
            }
        }
        answer
    }

    /// Lets a voter lead, and waits until this node sees it.
    async fn lead(&self, node: u16) -> AdminResponse {
        let end = Instant::now() + LEAD_MAX;
        match self.ask_leader(&Call::Transfer { node }, LEAD_MAX).await {
            Ok(Reply::Done) => {}
            Ok(Reply::Refused(why)) => return AdminResponse::Refused(why),
            Ok(_) => return AdminResponse::Refused(OTHER_RELEASE.to_owned()),
            Err(error) => return AdminResponse::Refused(format!("node {node} does not lead: {error}")),
        }
        let leads = self.raft.wait(Some(end.saturating_duration_since(Instant::now())));
        let leads = leads.metrics(|metrics| metrics.current_leader == Some(node.into()), "the new leader is seen");
        match leads.await {
            Ok(_) => AdminResponse::Leads { leader: node },
            Err(_) => AdminResponse::Refused(format!("node {node} was elected, and this node does not see it yet")),
        }
    }

    async fn request_removal(&self, node: u16, force: bool, leaves: bool) -> AdminResponse {
        match self.ask_leader(&Call::Remove { node, force, leaves }, REMOVE_MAX).await {
            // A repeated request whose first reply was lost.
            Ok(Reply::NotMember) if leaves => left(0, &NameSample::default()),
            Ok(Reply::NotMember) => AdminResponse::Refused("this node was removed from the cluster".to_owned()),
            Ok(Reply::Removed { dropped, uncopied }) => left(dropped, &uncopied),
            Ok(Reply::Refused(why)) => AdminResponse::Refused(why),
            Ok(_) => AdminResponse::Refused(OTHER_RELEASE.to_owned()),
            Err(error) => AdminResponse::Refused(format!("the cluster's leader does not answer: {error}")),
        }
    }
}
