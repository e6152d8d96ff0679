//! What hostile peers of the control plane get, without a key and with it.

use super::control_address;
use super::raft::network::LocalIdentity;
use super::raft::types::{Command, Member};
use super::rpc::batches::BATCH_CALLS_MAX;
use super::rpc::stream::RpcStream;
use super::rpc::types::{Call, Reply};
use crate::auth::{ClusterKey, HELLO_BYTES, Initiator, Purpose};
use crate::{Config, Node};
use ddss_core::{NodeId, PeerHello};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(20);

struct Home {
    service: Option<Node>,
    caller: LocalIdentity,
    folder: PathBuf,
}

impl Home {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ddssd-hostile-{name}-{}", std::process::id()));
        let key = ClusterKey::generate().unwrap();
        let mut config = Config::single(&folder);
        (config.pool_bytes, config.key) = (1 << 20, Some(key.clone()));
        let service = Some(Node::start(config).unwrap());
        let caller = LocalIdentity::new(key, PeerHello { node: NodeId(9), run: 1, planes: 1 });
        Self { service, caller, folder }
    }

    fn member(&self) -> Member {
        Member { address: self.service.as_ref().unwrap().address().unwrap() }
    }

    fn control(&self) -> SocketAddr {
        control_address(self.member().address)
    }

    async fn ask(&self, call: Call) -> Reply {
        self.caller.ask(self.member(), &call, PATIENCE).await.unwrap()
    }

    /// Whether it still decides: a name is claimed and given back.
    async fn is_served(&self, name: &str) {
        let end = Instant::now() + PATIENCE;
        let claim = Command::Claim { name: name.to_owned(), home: 1, claim: 1 };
        while !matches!(self.ask(Call::Propose(claim.clone())).await, Reply::Applied(_)) {
            assert!(Instant::now() < end, "nothing is decided any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(self.service.as_ref().unwrap().is_running());
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(self.service.take());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Everything that the other side says until it hangs up.
async fn answers_to(address: SocketAddr, words: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It may hang up in the middle of what we say.
    let _ = stream.write_all(words).await;
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("it hangs up in time");
    said
}

#[test]
fn strangers_learn_nothing_and_keep_nobody_waiting() {
    // If this broke, whoever reaches the port could join, or stop those who belong to the cluster from being heard.
    block_on(async {
        let home = Home::start("stranger");
        let other = ClusterKey::generate().unwrap();
        let ours = PeerHello { node: NodeId(2), run: 1, planes: 1 };
        let (_, wrong_key) = Initiator::begin(&other, Purpose::Control, &ours).unwrap();
        let (_, wrong_plane) = Initiator::begin(&home.caller.key, Purpose::Data(0), &ours).unwrap();
        for words in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 4096], &wrong_key, &wrong_plane] {
            assert!(answers_to(home.control(), words).await.is_empty(), "{words:?} was answered");
        }
        // Those who say nothing, or half of it, are left after a while and block nobody until then.
        let mut silent = Vec::new();
        for length in 0..100 {
            let mut stream = TcpStream::connect(home.control()).await.unwrap();
            stream.write_all(&wrong_key[..length % HELLO_BYTES]).await.unwrap();
            silent.push(stream);
        }
        home.is_served("among-strangers").await;
        for mut stream in silent {
            let ended = tokio::time::timeout(PATIENCE, stream.read(&mut [0; 1])).await;
            assert!(matches!(ended, Ok(Ok(0) | Err(_))), "a silent stranger is kept");
        }
        // A first message that is sent again is answered, and what follows it is not believed.
        let (_, good) = Initiator::begin(&home.caller.key, Purpose::Control, &ours).unwrap();
        let again = [&good[..], &[40, 0], &[7; 40]].concat();
        assert_eq!(answers_to(home.control(), &again).await.len(), HELLO_BYTES);
        home.is_served("after-strangers").await;
    });
}

#[test]
fn a_member_that_talks_nonsense_changes_nothing() {
    // If this broke, one node with a fault could fill the directory of all with names that nobody can use.
    block_on(async {
        let home = Home::start("nonsense");
        home.is_served("before").await;
        for word in ["null", "{}", "{\"Propose\":{\"Claim\":{}}}", "\"Append\"", "[[[[[[[[", &"9".repeat(100_000)] {
            let (_, mut wire) = RpcStream::connect(home.control(), &home.caller.key, &home.caller.ours).await.unwrap();
            wire.send(&serde_json::Value::String(word.to_owned())).await.unwrap();
            let heard = tokio::time::timeout(PATIENCE, wire.receive::<Reply>()).await.expect("it answers or hangs up");
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
            let reply = home.ask(Call::Propose(command.clone())).await;
            assert!(matches!(reply, Reply::Refused(_)), "{command:?}: {reply:?}");
        }
        let nowhere = Member { address: "127.0.0.9:9".parse().unwrap() };
        let reply = home.ask(Call::Announce { node: 77, member: nowhere, run: 1 }).await;
        assert!(matches!(&reply, Reply::Refused(why) if why.contains("no member")), "{reply:?}");
        let reply = home.ask(Call::Join { node: Some(1), member: nowhere }).await;
        assert!(matches!(&reply, Reply::Refused(why) if why.contains("belongs to")), "{reply:?}");
        let reply = home.ask(Call::Remove { node: 1, force: true, leaves: false }).await;
        assert!(matches!(&reply, Reply::Refused(why) if why.contains("only node")), "{reply:?}");
        let many = vec![Call::Newest; BATCH_CALLS_MAX + 1];
        let nested = vec![Call::Batch(Vec::new())];
        for calls in [many, nested, vec![Call::Remove { node: 1, force: true, leaves: false }]] {
            let reply = home.ask(Call::Batch(calls)).await;
            assert!(matches!(&reply, Reply::Refused(why) if why.contains("batch")), "{reply:?}");
        }
        home.is_served("after").await;
    });
}

#[test]
fn a_removed_node_is_answered_nothing_and_changes_nothing() {
    // If this broke, a node that was removed could vote, claim its old names, or remove those who removed it.
    block_on(async {
        let home = Home::start("removed");
        home.is_served("before").await;
        let gone = |node| PeerHello { node: NodeId(node), run: 1, planes: 1 };
        let ask_as = async |node: u16, call: Call| {
            let caller = LocalIdentity::new(home.caller.key.clone(), gone(node));
            caller.ask(home.member(), &call, PATIENCE).await.unwrap()
        };
        let nowhere = Member { address: "127.0.0.9:9".parse().unwrap() };
        assert!(matches!(home.ask(Call::Join { node: Some(7), member: nowhere }).await, Reply::Joined { node: 7 }));
        let removed = home.ask(Call::Remove { node: 7, force: true, leaves: false }).await;
        assert!(matches!(removed, Reply::Removed { dropped: 0 }), "{removed:?}");
        let claim = Command::Claim { name: "old".to_owned(), home: 7, claim: 1 };
        let vote = openraft::raft::VoteRequest::new(openraft::Vote::new(1_000, 7), None);
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
        assert!(matches!(ask_as(8, Call::Probe).await, Reply::Done));
        // Neither does another node's word bring it back.
        let said = home.ask(Call::Propose(claim)).await;
        assert!(matches!(&said, Reply::NotNow(why) if why.contains("no member")), "{said:?}");
        let again = home.ask(Call::Join { node: Some(7), member: nowhere }).await;
        assert!(matches!(&again, Reply::Refused(why) if why.contains("was removed")), "{again:?}");
        let joined = home.ask(Call::Join { node: None, member: nowhere }).await;
        assert!(matches!(joined, Reply::Joined { node } if node != 7), "{joined:?}");
        let never = home.ask(Call::Remove { node: 700, force: true, leaves: false }).await;
        assert!(matches!(&never, Reply::Refused(why) if why.contains("no member")), "{never:?}");
        home.is_served("after").await;
    });
}
