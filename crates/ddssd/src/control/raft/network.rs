//! Network of the Raft group: one stream to each node, renewed when it breaks. Also the client of all other calls
//! between control planes.

use super::types::{Group, Member};
use crate::control::membership::removal::Removal;
use crate::control::rpc::batches::CallBatches;
use crate::control::rpc::stream::{RpcStream, with_timeout};
use crate::control::rpc::stream_pool::StreamPool;
use crate::control::rpc::types::{Call, Reply};
use ddss_admin::ClusterKey;
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

/// Returns the address of a node's control plane, from the address of its data plane.
pub(crate) fn control_address(data: SocketAddr) -> SocketAddr {
    SocketAddr::new(data.ip(), data.port().wrapping_add(1))
}

/// Returns the address of a shard, from the address of the first shard: the others follow the control plane.
pub(crate) fn shard_address(data: SocketAddr, shard: u8) -> SocketAddr {
    let behind = if shard == 0 { 0 } else { u16::from(shard) + 1 };
    SocketAddr::new(data.ip(), data.port().wrapping_add(behind))
}

/// Time of the last contact with each node. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastContact(Arc<Mutex<HashMap<u16, Instant>>>);

impl LastContact {
    pub(crate) fn record(&self, node: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(node, Instant::now());
    }

    pub(crate) fn forget(&self, node: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
    }

    pub(crate) fn time_of(&self, node: u16) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }
}

/// Client of calls to other control planes: the identity of this node, idle streams and batches.
#[derive(Clone, Debug)]
pub(crate) struct RpcClient {
    pub(crate) key: ClusterKey,
    pub(crate) ours: PeerHello,
    streams: StreamPool,
    pub(crate) batches: CallBatches,
    /// Receives the news that this node is no member any more.
    pub(crate) removal: Removal,
}

impl RpcClient {
    pub(crate) fn new(key: ClusterKey, ours: PeerHello) -> Self {
        let (streams, batches, removal) = Default::default();
        Self { key, ours, streams, batches, removal }
    }

    /// Sets the removal state of a node that is a member.
    pub(crate) fn of_member(self, removal: Removal) -> Self {
        Self { removal, ..self }
    }

    /// Makes a call on a stream of its own, and returns the stream to the pool. The peer may have closed an idle
    /// stream: then the call is repeated on a new one. Calls are idempotent.
    pub(crate) async fn ask(&self, member: Member, call: &Call, limit: Duration) -> io::Result<Reply> {
        let address = control_address(member.address);
        with_timeout(limit, async {
            if let Some(wire) = self.streams.take(address) {
                match self.ask_on(address, wire, call).await {
                    Ok(reply) => return Ok(reply),
                    Err(error) => tracing::trace!(%address, %error, "an idle control stream was closed"),
                }
                self.streams.remove_all(address);
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
            self.removal.learn_removed(address);
        }
        self.streams.put(address, wire);
        Ok(reply)
    }
}

/// Factory of Raft streams.
#[derive(Clone, Debug)]
pub(crate) struct RaftNetworkClient {
    pub(crate) rpc_client: RpcClient,
    pub(crate) last_contact: LastContact,
}

/// Raft stream to one node.
#[derive(Debug)]
pub(crate) struct Stream {
    node: u16,
    member: Member,
    network: RaftNetworkClient,
    wire: Option<RpcStream>,
}

impl RaftNetworkFactory<Group> for RaftNetworkClient {
    type Network = Stream;

    async fn new_client(&mut self, target: u64, member: &Member) -> Stream {
        Stream { node: u16::try_from(target).unwrap_or(0), member: *member, network: self.clone(), wire: None }
    }
}

impl Stream {
    async fn ask(&mut self, call: &Call, limit: Duration) -> io::Result<Reply> {
        // A failed call drops its stream, so no reply is taken for the reply of another call.
        let idle = self.wire.take();
        let (reply, wire) = with_timeout(limit, async {
            let mut wire = match idle {
                Some(wire) => wire,
                None => {
                    let RpcClient { key, ours, .. } = &self.network.rpc_client;
                    let (theirs, wire) = RpcStream::connect(control_address(self.member.address), key, ours).await?;
                    if theirs.node.0 != self.node {
                        return Err(io::Error::other(format!("{} answers at its address", theirs.node)));
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
            self.network.rpc_client.removal.learn_removed(NodeId(self.node));
        }
        self.network.last_contact.record(self.node);
        Ok(reply)
    }

    fn failed<E: std::error::Error>(
        &self,
        error: &io::Error,
        action: RPCTypes,
        limit: Duration,
    ) -> RPCError<u64, Member, E> {
        match error.kind() {
            io::ErrorKind::TimedOut => Timeout {
                action,
                id: self.network.rpc_client.ours.node.0.into(),
                target: self.node.into(),
                timeout: limit,
            }
            .into(),
            // An incompatible peer (another key, other shards) stays so: Raft waits before it retries, as for an
            // unreachable node.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::InvalidData => Unreachable::new(error).into(),
            _ => NetworkError::new(error).into(),
        }
    }

    #[expect(clippy::result_large_err, reason = "the type is given by openraft")]
    fn remote<T, E: std::error::Error>(&self, result: Result<T, E>) -> Result<T, RPCError<u64, Member, E>> {
        result.map_err(|error| RemoteError::new_with_node(self.node.into(), self.member, error).into())
    }
}

pub(crate) fn wrong_reply_type() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a reply of the wrong type")
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
            Ok(_) => Err(self.failed(&wrong_reply_type(), RPCTypes::AppendEntries, limit)),
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
            Ok(_) => Err(self.failed(&wrong_reply_type(), RPCTypes::InstallSnapshot, limit)),
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
            Ok(_) => Err(self.failed(&wrong_reply_type(), RPCTypes::Vote, limit)),
            Err(error) => Err(self.failed(&error, RPCTypes::Vote, limit)),
        }
    }
}
