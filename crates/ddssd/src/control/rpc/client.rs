//! Client of the calls between control planes.

use super::batches::{CallBatches, WaitingCall};
use super::stream::{CONNECT_MAX, RpcStream, with_timeout};
use super::stream_pool::StreamPool;
use super::types::{Call, Reply, wrong_reply_type};
use crate::config::addresses::control_address;
use crate::control::identity::ClusterLineage;
use crate::control::identity::member::Member;
use crate::control::rpc::removal::Removal;
use crate::supervisor::Supervisor;
use ddss_admin::{ClusterKey, NodeRelease};
use ddss_core::PeerHello;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;

/// Client of calls to other control planes: the identity of this node, idle streams and batches.
#[derive(Clone, Debug)]
pub(crate) struct RpcClient {
    pub(crate) key: ClusterKey,
    pub(crate) ours: PeerHello,
    streams: StreamPool,
    pub(crate) batches: CallBatches,
    /// Receives the news that this node is no member any more.
    pub(crate) removal: Removal,
    /// Origin of the cluster that this node belongs to.
    pub(crate) lineage: ClusterLineage,
}

impl RpcClient {
    pub(crate) fn new(key: ClusterKey, ours: PeerHello) -> Self {
        let (streams, batches, removal, lineage) = Default::default();
        Self { key, ours, streams, batches, removal, lineage }
    }

    /// Sets the removal state and the cluster of a node that is a member.
    pub(crate) fn of_member(self, supervisor: &Supervisor, lineage: ClusterLineage) -> Self {
        Self { removal: Removal::new(supervisor.clone()), lineage, ..self }
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

    /// Asks a member for its release, on a stream of its own. `None` means that it does not answer. A node that answers another
    /// call, and ends the stream at this one, does not know it.
    pub(crate) async fn ask_release(&self, member: Member, limit: Duration) -> Option<NodeRelease> {
        let address = control_address(member.address);
        let asked = with_timeout(limit, async {
            // A daemon that stops ends its streams too, but only once.
            for _ in 0..2 {
                let (_, mut wire) = RpcStream::connect(address, &self.key, &self.ours).await?;
                wire.send(&Call::Probe).await?;
                wire.receive::<Reply>().await?;
                wire.send(&Call::Release).await?;
                match wire.receive().await {
                    Ok(Reply::Release(found)) => {
                        self.streams.put(address, wire);
                        return Ok(found);
                    }
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                    other => return other.and(Err(wrong_reply_type())),
                }
            }
            Ok(NodeRelease::unnamed())
        });
        asked.await.ok()
    }

    async fn ask_on(&self, address: SocketAddr, mut wire: RpcStream, call: &Call) -> io::Result<Reply> {
        wire.send(call).await?;
        let reply = wire.receive().await?;
        self.removal.learn_from(&reply, address);
        self.streams.put(address, wire);
        Ok(reply)
    }
}

impl RpcClient {
    /// Makes a call in a batch with other calls of this node to the same member.
    pub(crate) async fn ask_in_batch(&self, member: Member, call: Call, limit: Duration) -> io::Result<Reply> {
        let (answer, answered) = oneshot::channel();
        if self.batches.push(member.address, WaitingCall { call, answer })? {
            tokio::spawn(self.clone().send_batches(member));
        }
        let lost = |_| Err(io::Error::other("the batch was lost"));
        with_timeout(limit, async { answered.await.unwrap_or_else(lost) }).await
    }

    /// Sends batches until no call waits.
    async fn send_batches(self, member: Member) {
        while let Some(batch) = self.batches.next_batch(member.address) {
            let (calls, answers): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.call, waiting.answer)).unzip();
            let replies = match self.ask(member, &Call::Batch(calls), CONNECT_MAX).await {
                Ok(Reply::Batch(replies)) if replies.len() == answers.len() => Ok(replies),
                Ok(_) => Err(wrong_reply_type()),
                Err(error) => Err(error),
            };
            // A caller past its deadline has dropped its receiver.
            match replies {
                Ok(replies) => {
                    answers.into_iter().zip(replies).for_each(|(answer, reply)| drop(answer.send(Ok(reply))))
                }
                Err(error) => answers.into_iter().for_each(|answer| {
                    let _ = answer.send(Err(io::Error::new(error.kind(), error.to_string())));
                }),
            }
        }
    }
}
