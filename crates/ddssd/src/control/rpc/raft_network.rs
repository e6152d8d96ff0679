//! Network of the Raft group: one stream to each node, renewed when it breaks.

use crate::config::addresses::control_address;
use crate::control::identity::member::Member;
use crate::control::raft::types::Group;
use crate::control::rpc::client::RpcClient;
use crate::control::rpc::last_contact::LastContact;
use crate::control::rpc::stream::{RpcStream, with_timeout};
use crate::control::rpc::types::{Call, Reply, wrong_reply_type};
use ddss_core::NodeId;
use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Timeout, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
    VoteResponse,
};
use openraft::{RPCTypes, RaftNetwork, RaftNetworkFactory};
use std::io;
use std::time::Duration;

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
        self.network.rpc_client.removal.learn_from(&reply, NodeId(self.node));
        // A node of another cluster refuses the call, and a node whose log has failed cannot vote.
        if matches!(reply, Reply::Append(Ok(_)) | Reply::Vote(Ok(_)) | Reply::Snapshot(Ok(_))) {
            self.network.last_contact.record(self.node);
        }
        Ok(reply)
    }

    fn failed<E: std::error::Error>(
        &self,
        error: &io::Error,
        action: RPCTypes,
        limit: Duration,
    ) -> RPCError<u64, Member, E> {
        tracing::debug!(node = self.node, %error, "a call to a member failed");
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
