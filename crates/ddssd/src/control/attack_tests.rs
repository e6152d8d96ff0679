//! Attacks on the control plane, by unauthenticated peers and by byzantine members.

use crate::auth::{HELLO_BYTES, HandshakeError, Initiator, Purpose, refusal};
use crate::config::addresses::control_address;
use crate::control::handshake_limit::HandshakeLimit;
use crate::control::identity::member::Member;
use crate::control::raft::types::Command;
use crate::control::rpc::batches::BATCH_CALLS_MAX;
use crate::control::rpc::client::RpcClient;
use crate::control::rpc::stream::RpcStream;
use crate::control::rpc::types::{Call, Reply};
use crate::{Config, Node};
use ddss_admin::{AdminRequest, AdminResponse, ClusterKey};
use ddss_core::{NodeId, PeerHello};
use openraft::Vote;
use openraft::raft::AppendEntriesResponse;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

struct TestNode {
    node: Option<Node>,
    rpc_client: RpcClient,
    folder: PathBuf,
}

impl TestNode {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ddssd-attack-{name}-{}", std::process::id()));
        let key = ClusterKey::generate().unwrap();
        let mut config = Config::single(&folder);
        (config.pool_bytes, config.key, config.founds_cluster) = (1 << 20, Some(key.clone()), true);
        let node = Some(Node::start(config).unwrap());
        let rpc_client = RpcClient::new(key, PeerHello { node: NodeId(9), run: 1, shards: 1 });
        Self { node, rpc_client, folder }
    }

    fn member(&self) -> Member {
        Member { address: self.node.as_ref().unwrap().address().unwrap() }
    }

    fn control(&self) -> SocketAddr {
        control_address(self.member().address)
    }

    async fn ask(&self, call: Call) -> Reply {
        self.rpc_client.ask(self.member(), &call, TEST_TIMEOUT).await.unwrap()
    }

    /// Checks that the control plane still decides: claims a name.
    async fn check_claim(&self, name: &str) {
        let end = Instant::now() + TEST_TIMEOUT;
        let claim = Command::Claim { name: name.to_owned(), home: 1, claim: 1 };
        while !matches!(self.ask(Call::Propose(claim.clone())).await, Reply::Applied(_)) {
            assert!(Instant::now() < end, "nothing is decided any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(self.node.as_ref().unwrap().is_running());
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        drop(self.node.take());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Sends bytes and returns all bytes that the peer sends until it closes the connection.
async fn exchange_bytes(address: SocketAddr, words: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The peer may close the connection during the write.
    let _ = stream.write_all(words).await;
    let mut said = Vec::new();
    let _ = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut said))
        .await
        .expect("the connection was not closed in time");
    said
}

#[test]
fn unauthenticated_peers_learn_nothing_and_delay_no_member() {
    // If this broke, a peer without the key could join, or delay the members.
    block_on(async {
        let test_node = TestNode::start("stranger");
        let other = ClusterKey::generate().unwrap();
        let ours = PeerHello { node: NodeId(2), run: 1, shards: 1 };
        let (_, wrong_key) = Initiator::begin(&other, Purpose::Control, &ours).unwrap();
        let (_, wrong_shard) = Initiator::begin(&test_node.rpc_client.key, Purpose::Data(0), &ours).unwrap();
        for words in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 4096]] {
            assert!(exchange_bytes(test_node.control(), words).await.is_empty(), "{words:?} was answered");
        }
        // The same answer to each: the number of the handshake, which tells another handshake from another key.
        let mut other_handshake = wrong_key;
        other_handshake[1] += 1;
        let refusal = refusal(&HandshakeError::WrongKey).unwrap();
        assert!(refusal[2..].iter().all(|&byte| byte == 0), "it names the release");
        for words in [&wrong_key, &wrong_shard, &other_handshake] {
            assert_eq!(exchange_bytes(test_node.control(), words).await, refusal);
        }
        // Connections with no or half a handshake are closed after a while, and block no member until then.
        let mut silent = Vec::new();
        for length in 0..100 {
            let mut stream = TcpStream::connect(test_node.control()).await.unwrap();
            stream.write_all(&wrong_key[..length % HELLO_BYTES]).await.unwrap();
            silent.push(stream);
        }
        test_node.check_claim("among-strangers").await;
        for mut stream in silent {
            let ended = tokio::time::timeout(TEST_TIMEOUT, stream.read(&mut [0; 1])).await;
            assert!(matches!(ended, Ok(Ok(0) | Err(_))), "a silent peer stays connected");
        }
        // A replayed first message is answered, and the data after it is rejected.
        let (_, good) = Initiator::begin(&test_node.rpc_client.key, Purpose::Control, &ours).unwrap();
        let again = [&good[..], &[40, 0], &[7; 40]].concat();
        assert_eq!(exchange_bytes(test_node.control(), &again).await.len(), HELLO_BYTES);
        test_node.check_claim("after-strangers").await;
    });
}

#[test]
fn invalid_calls_of_a_member_change_nothing() {
    // If this broke, one faulty node could fill the directory with unusable names.
    block_on(async {
        let test_node = TestNode::start("nonsense");
        test_node.check_claim("before").await;
        for word in ["null", "{}", "{\"Propose\":{\"Claim\":{}}}", "\"Append\"", "[[[[[[[[", &"9".repeat(100_000)] {
            let (_, mut wire) =
                RpcStream::connect(test_node.control(), &test_node.rpc_client.key, &test_node.rpc_client.ours)
                    .await
                    .unwrap();
            wire.send(&serde_json::Value::String(word.to_owned())).await.unwrap();
            let heard =
                tokio::time::timeout(TEST_TIMEOUT, wire.receive::<Reply>()).await.expect("neither a reply nor a close");
            assert!(heard.is_err(), "{word} was answered with {heard:?}");
        }
        let claim = |name: &str, home| Command::Claim { name: name.to_owned(), home, claim: 1 };
        let senseless = [
            claim("", 9),
            claim("a\nb", 9),
            claim(&"n".repeat(129), 9),
            claim("x", 0),
            claim("x", 1025),
            Command::Dead { node: 0, epoch: 1 },
            Command::Gone { node: 60_000 },
        ];
        for command in senseless {
            let reply = test_node.ask(Call::Propose(command.clone())).await;
            assert!(matches!(reply, Reply::Refused(_)), "{command:?}: {reply:?}");
        }
        let nowhere = Member { address: "127.0.0.9:9".parse().unwrap() };
        let reply = test_node.ask(Call::Announce { node: 77, member: nowhere, run: 1 }).await;
        assert!(matches!(&reply, Reply::Refused(why) if why.contains("no member")), "{reply:?}");
        let reply = test_node.ask(Call::Join { node: Some(1), member: nowhere }).await;
        assert!(matches!(&reply, Reply::Refused(why) if why.contains("belongs to")), "{reply:?}");
        let reply = test_node.ask(Call::Remove { node: 1, force: true, leaves: false }).await;
        assert!(matches!(&reply, Reply::Refused(why) if why.contains("only node")), "{reply:?}");
        let many = vec![Call::Newest; BATCH_CALLS_MAX + 1];
        let nested = vec![Call::Batch(Vec::new())];
        for calls in [many, nested, vec![Call::Remove { node: 1, force: true, leaves: false }]] {
            let reply = test_node.ask(Call::Batch(calls)).await;
            assert!(matches!(&reply, Reply::Refused(why) if why.contains("batch")), "{reply:?}");
        }
        test_node.check_claim("after").await;
    });
}

#[test]
fn removed_node_is_refused_and_changes_nothing() {
    // If this broke, a removed node could vote, claim its old names, or remove members.
    block_on(async {
        let test_node = TestNode::start("removed");
        test_node.check_claim("before").await;
        let gone = |node| PeerHello { node: NodeId(node), run: 1, shards: 1 };
        let ask_as = async |node: u16, call: Call| {
            let rpc_client = RpcClient::new(test_node.rpc_client.key.clone(), gone(node));
            rpc_client.ask(test_node.member(), &call, TEST_TIMEOUT).await.unwrap()
        };
        let nowhere = Member { address: "127.0.0.9:9".parse().unwrap() };
        assert!(matches!(
            test_node.ask(Call::Join { node: Some(7), member: nowhere }).await,
            Reply::Joined { node: 7, .. }
        ));
        let removed = test_node.ask(Call::Remove { node: 7, force: true, leaves: false }).await;
        assert!(matches!(removed, Reply::Removed { dropped: 0, .. }), "{removed:?}");
        let claim = Command::Claim { name: "old".to_owned(), home: 7, claim: 1 };
        let vote = openraft::raft::VoteRequest::new(Vote::new(1_000, 7), None);
        let calls = [
            Call::Probe,
            Call::Newest,
            Call::Propose(claim.clone()),
            Call::Batch(vec![Call::Propose(claim.clone())]),
            Call::Vote(vote),
            Call::Renew { node: 7, run: 1 },
            Call::Announce { node: 7, member: nowhere, run: 1 },
            Call::Join { node: Some(7), member: nowhere },
            Call::Remove { node: 1, force: true, leaves: false },
        ];
        for call in calls {
            let reply = ask_as(7, call.clone()).await;
            assert!(matches!(reply, Reply::NotMember), "{call:?}: {reply:?}");
        }
        // It learns only what its own leave has lost.
        let own = ask_as(7, Call::Remove { node: 7, force: false, leaves: true }).await;
        assert!(matches!(own, Reply::Removed { dropped: 0, .. }), "{own:?}");
        assert!(matches!(ask_as(8, Call::Probe).await, Reply::Done));
        // A proposal of another node does not bring it back either.
        let said = test_node.ask(Call::Propose(claim)).await;
        assert!(matches!(&said, Reply::NotNow(why) if why.contains("no member")), "{said:?}");
        let again = test_node.ask(Call::Join { node: Some(7), member: nowhere }).await;
        assert!(matches!(&again, Reply::Refused(why) if why.contains("was removed")), "{again:?}");
        let joined = test_node.ask(Call::Join { node: None, member: nowhere }).await;
        assert!(matches!(joined, Reply::Joined { node, .. } if node != 7), "{joined:?}");
        let never = test_node.ask(Call::Remove { node: 700, force: true, leaves: false }).await;
        assert!(matches!(&never, Reply::Refused(why) if why.contains("no member")), "{never:?}");
        test_node.check_claim("after").await;
    });
}

/// Returns a member that answers every Raft call, and the task that answers.
async fn answering_member(key: ClusterKey, hello: PeerHello) -> (Member, impl Future<Output = ()> + Send + 'static) {
    let listener = TcpListener::bind("127.0.0.9:0").await.unwrap();
    let control = listener.local_addr().unwrap();
    let answers = async move {
        let limit = HandshakeLimit::default();
        loop {
            let (stream, from) = listener.accept().await.unwrap();
            let accepted = RpcStream::accept(stream, from.ip(), &limit, &[&key], &hello).await;
            let Ok((_, _, mut wire)) = accepted else { continue };
            while wire.receive::<Call>().await.is_ok() {
                wire.send(&Reply::Append(Ok(AppendEntriesResponse::Success))).await.unwrap();
            }
        }
    };
    (Member { address: SocketAddr::new(control.ip(), control.port() - 1) }, answers)
}

#[test]
fn node_that_recovers_from_a_stall_is_not_declared_dead_again() {
    // If this broke, each stall would cost the node its connections twice.
    block_on(async {
        let test_node = TestNode::start("stall");
        test_node.check_claim("before").await;
        let seven = PeerHello { node: NodeId(7), run: 1, shards: 1 };
        let (member, answers) = answering_member(test_node.rpc_client.key.clone(), seven).await;
        let answers = tokio::spawn(answers);
        assert!(matches!(test_node.ask(Call::Join { node: Some(7), member }).await, Reply::Joined { node: 7, .. }));
        let is_alive = || match AdminRequest::Status.ask(&test_node.folder, |_| {}).unwrap() {
            AdminResponse::Status { nodes, .. } => nodes.iter().any(|report| report.node == 7 && report.alive),
            other => panic!("{other:?}"),
        };
        let announce = Call::Announce { node: 7, member, run: 1 };
        let until = async |alive: bool, call: Call| {
            let end = Instant::now() + TEST_TIMEOUT;
            loop {
                test_node.ask(call.clone()).await;
                if is_alive() == alive {
                    return;
                }
                assert!(Instant::now() < end, "node 7 does not become alive={alive}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        until(true, announce.clone()).await;
        until(false, Call::Stalled { node: 7, run: 1 }).await;
        until(true, announce).await;
        // Several rounds of the leader, all while the report would still count.
        for _ in 0..50 {
            assert!(is_alive(), "an old report declared it dead again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        answers.abort();
    });
}
