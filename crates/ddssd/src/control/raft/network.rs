//! How the group's nodes reach each other: one stream to each, made anew when it breaks.

use super::types::{Group, Member};
use crate::auth::ClusterKey;
use crate::control::membership::removal::Removal;
use crate::control::rpc::batches::CallBatches;
use crate::control::rpc::stream::{RpcStream, within};
use crate::control::rpc::stream_pool::StreamPool;
use crate::control::rpc::types::{Call, Reply};
use ddss_core::{NodeId, PeerHello};
use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Timeout, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
    VoteResponse,
};
use openraft::{RPCTypes, RaftNetwork, RaftNetworkFactory};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where the control plane of a node listens whose data plane listens there.
pub(crate) fn control_address(data: SocketAddr) -> SocketAddr {
    SocketAddr::new(data.ip(), data.port().wrapping_add(1))
}

/// Where a plane of a node listens whose first plane listens there: the others come behind the control plane.
pub(crate) fn plane_address(data: SocketAddr, plane: u8) -> SocketAddr {
    let behind = if plane == 0 { 0 } else { u16::from(plane) + 1 };
    SocketAddr::new(data.ip(), data.port().wrapping_add(behind))
}

/// When each node last answered, or said something.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastContact(Arc<Mutex<HashMap<u16, Instant>>>);

impl LastContact {
    pub(crate) fn note(&self, node: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node, Instant::now());
    }

    pub(crate) fn forget(&self, node: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
    }

    pub(crate) fn when(&self, node: u16) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }
}

/// Who we are to others.
#[derive(Clone, Debug)]
pub(crate) struct LocalIdentity {
    pub(crate) key: ClusterKey,
    pub(crate) ours: PeerHello,
    streams: StreamPool,
    pub(crate) batches: CallBatches,
    /// Hears that this node is no member any more.
    pub(crate) removal: Removal,
}

impl LocalIdentity {
    pub(crate) fn new(key: ClusterKey, ours: PeerHello) -> Self {
        let (streams, batches, removal) = Default::default();
        Self { key, ours, streams, batches, removal }
    }

    /// The same, for a node that can be removed.
    pub(crate) fn of_member(self, removal: Removal) -> Self {
        Self { removal, ..self }
    }

    /// Asks on a stream that no other question uses meanwhile, and keeps the stream for the next one. A stream that was kept may
    /// have ended at the other side: then the question, which can be asked twice, is asked again on a fresh one.
    pub(crate) async fn ask(&self, member: Member, call: &Call, limit: Duration) -> io::Result<Reply> {
        let address = control_address(member.address);
        within(limit, async {
            if let Some(wire) = self.streams.take(address) {
                match self.ask_on(address, wire, call).await {
                    Ok(reply) => return Ok(reply),
                    Err(error) => tracing::trace!(%address, %error, "a control stream that was kept has ended"),
                }
                self.streams.forget(address);
            }
            let (_, wire) = RpcStream::connect(address, &self.key, &self.ours).await?;
            self.ask_on(address, wire, call).await
        })
        .await
    }

    async fn ask_on(&self, address: SocketAddr, mut wire: RpcStream, call: &Call) -> io::Result<Reply> {
        wire.send(call).await?;
        let reply = wire.receive().await?;
        if matches!(reply, Reply::NotMember) {
            self.removal.learn(address);
        }
        self.streams.keep(address, wire);
        Ok(reply)
    }
}

/// Makes the streams.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) caller: LocalIdentity,
    pub(crate) heard: LastContact,
}

/// The stream to one node.
#[derive(Debug)]
pub(crate) struct Stream {
    node: u16,
    member: Member,
    network: Network,
    wire: Option<RpcStream>,
}

impl RaftNetworkFactory<Group> for Network {
    type Network = Stream;

    async fn new_client(&mut self, target: u64, member: &Member) -> Stream {
        Stream { node: u16::try_from(target).unwrap_or(0), member: *member, network: self.clone(), wire: None }
    }
}

impl Stream {
    async fn ask(&mut self, call: &Call, limit: Duration) -> io::Result<Reply> {
        // What breaks in the middle leaves no stream behind, so no answer is taken for another's.
        let kept = self.wire.take();
        let (reply, wire) = within(limit, async {
            let mut wire = match kept {
                Some(wire) => wire,
                None => {
                    let LocalIdentity { key, ours, .. } = &self.network.caller;
                    let (theirs, wire) = RpcStream::connect(control_address(self.member.address), key, ours).await?;
                    if theirs.node.0 != self.node {
                        return Err(io::Error::other(format!("{} answers in its place", theirs.node)));
                    }
                    wire
                }
            };
            wire.send(call).await?;
            let reply = wire.receive().await?;
            Ok((reply, wire))
        })
        .await?;
        self.wire = Some(wire);
        if matches!(reply, Reply::NotMember) {
            self.network.caller.removal.learn(NodeId(self.node));
        }
        self.network.heard.note(self.node);
        Ok(reply)
    }

    fn failed<E: std::error::Error>(
        &self,
        error: &io::Error,
        action: RPCTypes,
        limit: Duration,
    ) -> RPCError<u64, Member, E> {
        match error.kind() {
            io::ErrorKind::TimedOut => {
                Timeout { action, id: self.network.caller.ours.node.0.into(), target: self.node.into(), timeout: limit }
                    .into()
            }
            // With one that does not fit (another key, other planes) it is the same a moment later: the group waits before it
            // tries again, as for one that is not there.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::InvalidData => Unreachable::new(error).into(),
            _ => NetworkError::new(error).into(),
        }
    }

    #[expect(clippy::result_large_err, reason = "it is the group's own error")]
    fn remote<T, E: std::error::Error>(&self, result: Result<T, E>) -> Result<T, RPCError<u64, Member, E>> {
        result.map_err(|error| RemoteError::new_with_node(self.node.into(), self.member, error).into())
    }
}

pub(crate) fn other_answer() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer to another question")
}

impl RaftNetwork<Group> for Stream {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Group>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, Member, RaftError<u64>>> {
        let limit = option.hard_ttl();
        match self.ask(&Call::Append(rpc), limit).await {
            Ok(Reply::Append(result)) => self.remote(result),
            Ok(_) => Err(self.failed(&other_answer(), RPCTypes::AppendEntries, limit)),
            Err(error) => Err(self.failed(&error, RPCTypes::AppendEntries, limit)),
        }
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Group>,
        option: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, RPCError<u64, Member, RaftError<u64, InstallSnapshotError>>> {
        let limit = option.hard_ttl();
        match self.ask(&Call::Snapshot(rpc), limit).await {
            Ok(Reply::Snapshot(result)) => self.remote(result),
            Ok(_) => Err(self.failed(&other_answer(), RPCTypes::InstallSnapshot, limit)),
            Err(error) => Err(self.failed(&error, RPCTypes::InstallSnapshot, limit)),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, Member, RaftError<u64>>> {
        let limit = option.hard_ttl();
        match self.ask(&Call::Vote(rpc), limit).await {
            Ok(Reply::Vote(result)) => self.remote(result),
            Ok(_) => Err(self.failed(&other_answer(), RPCTypes::Vote, limit)),
            Err(error) => Err(self.failed(&error, RPCTypes::Vote, limit)),
        }
    }
}
