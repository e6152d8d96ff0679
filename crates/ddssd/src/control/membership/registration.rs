//! Registration of a node: checks that this daemon may act under its node id.
//!
//! The check runs before its part of the Raft group starts, because a voter that has forgotten its vote could vote
//! twice. It is repeated while the node runs.

use crate::config::addresses::control_address;
use crate::control::identity::member::Member;
use crate::control::identity::member::{Registration, address_refusal};
use crate::control::raft::types::{Command, CommandResult};
use crate::control::rpc::client::RpcClient;
use crate::control::rpc::context::Context;
use crate::control::rpc::stream::RpcStream;
use crate::control::rpc::types::{Call, Reply};
use crate::supervisor::Departure;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;

/// Maximum wait for the others' knowledge about a node without state: it may have forgotten a vote.
const CHECK_MAX: Duration = Duration::from_secs(2);
/// The same for a node with state: all nodes may be starting and none may reply. Registration catches the rest later.
const CHECK_MAX_WITH_STATE: Duration = Duration::from_millis(500);
/// Maximum time of a proposal.
const CALL_MAX: Duration = Duration::from_secs(1);

/// A node before it starts its part of the Raft group.
#[derive(Clone, Copy, Debug)]
pub(in crate::control) struct StartCheck {
    pub(in crate::control) node: u16,
    pub(in crate::control) ours: Member,
    pub(in crate::control) registration: Registration,
    /// True if the node has no Raft state: it has lost it, or has never voted.
    pub(in crate::control) has_no_state: bool,
}

impl StartCheck {
    /// Checks that no reachable node objects to this start; an error says why it must not start. `others` are the
    /// known nodes, including this node at its earlier address.
    pub(in crate::control) async fn check(
        self,
        rpc_client: &RpcClient,
        others: Vec<(u16, Member)>,
    ) -> Result<(), String> {
        let of_others: Vec<_> = others.iter().copied().filter(|&(node, _)| node != self.node).collect();
        // A member that stays where it was is reached, or not, as before.
        let has_moved = !others.contains(&(self.node, self.ours));
        if has_moved
            && self.ours.address.ip().is_loopback()
            && let Some(why) = address_refusal(self.ours, &of_others)
        {
            return Err(why);
        }
        let mut places: Vec<Member> = others.iter().filter(|(node, _)| *node == self.node).map(|&(_, at)| at).collect();
        let limit = if self.has_no_state { CHECK_MAX } else { CHECK_MAX_WITH_STATE };
        let mut asked: JoinSet<io::Result<Reply>> = JoinSet::new();
        for (node, member) in of_others {
            let (rpc_client, call) =
                (rpc_client.clone(), Call::WhoIs { node: self.node, registration: self.registration });
            asked.spawn(async move {
                let answer = rpc_client.ask(member, &call, limit).await?;
                let release = rpc_client.ask_release(member, limit).await;
                match release.and_then(|release| release.refusal(format_args!("node {node}"))) {
                    Some(why) => Ok(Reply::Refused(why)),
                    None => Ok(answer),
                }
            });
        }
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(Reply::Refused(why) | Reply::Superseded(why))) => return Err(why),
                Ok(Ok(Reply::Known { registered: true, .. })) if self.has_no_state => {
                    return Err(format!(
                        "the log of the cluster is lost: put it back, or take the node out with `ddss cluster remove {}` elsewhere and \
                         join anew with an empty state folder",
                        self.node
                    ));
                }
                Ok(Ok(Reply::Known { member, .. })) => places.extend(member),
                Ok(Ok(_) | Err(_)) | Err(_) => {}
            }
        }
        places.sort_by_key(|place| place.address);
        places.dedup();
        for place in places.into_iter().filter(|&place| place != self.ours) {
            if self.runs_at(rpc_client, control_address(place.address)).await {
                return Err(format!(
                    "node {} runs at {place} already: stop that one first, if its state folder is to be used here",
                    self.node
                ));
            }
        }
        Ok(())
    }

    /// Returns true if another run of this node answers at an address.
    async fn runs_at(&self, rpc_client: &RpcClient, address: SocketAddr) -> bool {
        let met = RpcStream::connect(address, &rpc_client.key, &rpc_client.ours).await;
        met.is_ok_and(|(theirs, _)| theirs.node.0 == self.node && theirs.run != self.registration.run)
    }
}

impl Context {
    /// Registers this start of this node. An error says why the cluster refuses it.
    pub(in crate::control) async fn register(&self) -> Result<(), String> {
        let (node, next) = (self.node, self.own.registration);
        if self.is_registered() {
            return Ok(());
        }
        let call = Call::Propose(Command::Register { node, registration: next });
        let reply = self.ask_leader(&call, CALL_MAX).await;
        // This node learns of a later start with the same entry or a moment later: then it asks again.
        let known =
            self.state_machine.read(|directory| directory.registration(node)).filter(|known| !known.admits(next));
        match (reply, known) {
            (Ok(Reply::Applied(CommandResult::Refused)), Some(known)) => Err(known.refusal(node, None, next)),
            _ => Ok(()),
        }
    }

    /// Asks another node if no leader is known: a node that was cut off while another daemon took its place gets no
    /// Raft messages. An error says that it was superseded.
    pub(in crate::control) async fn check_not_superseded(&self) -> Result<(), String> {
        if self.leader().is_some() {
            return Ok(());
        }
        let Some(member) = self.next_other_member() else { return Ok(()) };
        let call = Call::WhoIs { node: self.node, registration: self.own.registration };
        match self.rpc_client.ask(member, &call, CALL_MAX).await {
            Ok(Reply::Refused(why)) => Err(why),
            _ => Ok(()),
        }
    }

    /// Stops this daemon, because another daemon is this node now. From now on it sends nothing, and disclaims no name.
    pub(in crate::control) async fn stop_superseded(&self, why: &str) {
        tracing::error!(why, "this daemon is not the node any more that it was: stopping");
        self.membership.has_left.store(true, Ordering::Release);
        if let Err(error) = self.raft.shutdown().await {
            tracing::debug!(%error, "the Raft group of this node had stopped before");
        }
        self.rpc_client.removal.stop(Departure::Superseded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::handshake_limit::HandshakeLimit;
    use crate::control::identity::incarnation::Incarnation;
    use ddss_admin::{ClusterKey, NodeRelease, ProtocolRange, Release};
    use ddss_core::{NodeId, PeerHello};
    use tokio::net::TcpListener;

    fn hello(node: u16) -> PeerHello {
        PeerHello { node: NodeId(node), run: node.into(), shards: 1 }
    }

    /// Behaviour of a peer at the question for its release.
    #[derive(Clone)]
    enum Peer {
        Answers(NodeRelease),
        /// It ends the stream, as a node of protocol 16.
        EndsStream,
        /// It ends the stream, because it stops.
        Stops,
        /// It answers nothing.
        ClosesStreams,
    }

    async fn serve_stream(mut wire: RpcStream, peer: Peer) {
        while let Ok(call) = wire.receive::<Call>().await {
            let reply = match (call, &peer) {
                (_, Peer::ClosesStreams) => break,
                (Call::Release, Peer::Answers(release)) => Reply::Release(release.clone()),
                (Call::Release, _) => break,
                _ => Reply::Known { registered: false, member: None },
            };
            wire.send(&reply).await.unwrap();
        }
    }

    /// Starts node 1; returns its place and its key.
    async fn start_peer(peer: Peer) -> (Member, ClusterKey) {
        let key = ClusterKey::generate().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let control = listener.local_addr().unwrap();
        let theirs = key.clone();
        tokio::spawn(async move {
            let limit = HandshakeLimit::default();
            loop {
                let (stream, from) = listener.accept().await.unwrap();
                let (_, _, wire) = RpcStream::accept(stream, from.ip(), &limit, &[&theirs], &hello(1)).await.unwrap();
                // An idle stream of the caller stays open beside the next one.
                let served = tokio::spawn(serve_stream(wire, peer.clone()));
                if matches!(peer, Peer::Stops) {
                    served.await.unwrap();
                    return;
                }
            }
        });
        (Member { address: SocketAddr::new(control.ip(), control.port() - 1) }, key)
    }

    /// Checks a start of node 2 beside a node 1.
    async fn check_beside(peer: Peer) -> Result<(), String> {
        let (at, key) = start_peer(peer).await;
        let registration = Registration { incarnation: Incarnation { folder: 7, start: 1 }, run: 2 };
        let ours = Member { address: SocketAddr::from(([127, 0, 0, 2], 7400)) };
        let start = StartCheck { node: 2, ours, registration, has_no_state: true };
        start.check(&RpcClient::new(key, hello(2)), vec![(1, at)]).await
    }

    #[test]
    fn node_that_no_member_understands_does_not_start() {
        // If this broke, two releases would take each other's messages for something else.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let newer = NodeRelease { name: "7.0.0".to_owned(), protocol: ProtocolRange { oldest: 200, newest: 201 } };
            let why = check_beside(Peer::Answers(newer)).await.unwrap_err();
            assert!(why.contains("node 1 is of 7.0.0 and speaks protocol 200-201"), "{why}");
            assert!(why.contains(&format!("this node is of {Release}")), "{why}");
            // A node of protocol 16 does not know the question.
            assert_eq!(check_beside(Peer::EndsStream).await, Ok(()));
            assert_eq!(check_beside(Peer::Answers(NodeRelease::ours())).await, Ok(()));
        });
    }

    #[test]
    fn peer_that_stops_or_answers_nothing_is_of_no_known_release() {
        // If this broke, a restarting node would lower the level of its cluster, or a release that does not speak protocol 16
        // would refuse to start beside it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let release_of = async |peer: Peer| {
                let (at, key) = start_peer(peer).await;
                RpcClient::new(key, hello(2)).ask_release(at, CALL_MAX).await
            };
            assert_eq!(release_of(Peer::Stops).await, None);
            assert_eq!(release_of(Peer::ClosesStreams).await, None);
            assert_eq!(release_of(Peer::EndsStream).await, Some(NodeRelease::unnamed()));
            assert_eq!(release_of(Peer::Answers(NodeRelease::ours())).await, Some(NodeRelease::ours()));
        });
    }
}
