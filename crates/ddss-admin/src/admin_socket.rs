//! Requests of the operator to a running daemon about its cluster.
//!
//! One line of JSON in, one line out; a node that leaves reports its progress first. The socket lies beside the clients'
//! socket; only the daemon's user and root may use it.

use crate::release::NodeRelease;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// File name of the socket in the daemon's directory.
pub const ADMIN_SOCKET_NAME: &str = "ddssd.admin";

/// A request of the operator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AdminRequest {
    /// Reports the state of the cluster.
    Status,
    /// Removes this node from the cluster for good.
    Leave {
        /// Leaves even if segments are lost.
        force: bool,
    },
    /// Removes a node that will not come back.
    Remove {
        /// Id of the node.
        node: u16,
        /// Removes the node even if it is alive or segments are lost.
        #[serde(default)]
        force: bool,
    },
    /// Hands the leadership over to a voter.
    Lead {
        /// Id of the voter.
        node: u16,
    },
    /// Reports names of the directory, in their order.
    Names {
        /// Name after which the report begins.
        after: Option<String>,
    },
}

/// A response to the operator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AdminResponse {
    /// State of the cluster as this node sees it.
    Status {
        /// Id of this node.
        node: u16,
        /// The leader, if this node knows one.
        leader: Option<u16>,
        /// All nodes of the cluster.
        nodes: Vec<NodeReport>,
        /// Number of names in the directory.
        names: usize,
        /// True if a majority of the voters is reachable, as far as this node knows.
        majority: bool,
        /// Microseconds by which the clock of this node is ahead of the leader's, when it last asked.
        #[serde(default)]
        clock_ahead_us: i64,
        /// Newest protocol that every node of the cluster speaks; `None` while a node does not answer.
        #[serde(default)]
        level: Option<u8>,
    },
    /// The node is no longer a member.
    Left {
        /// Number of segments that were lost with the node.
        dropped: usize,
        /// Number of replicated segments that have one copy now.
        #[serde(default)]
        uncopied: usize,
        /// The first of their names.
        #[serde(default)]
        uncopied_names: String,
    },
    /// The node has left, and so many segments get a new copy elsewhere. Another response follows.
    Copying {
        /// Number of these segments.
        uncopied: usize,
    },
    /// The node leads the cluster.
    Leads {
        /// Id of the leader.
        leader: u16,
    },
    /// The next names of the directory; none means that there are no more.
    Names {
        /// Names in their order.
        names: Vec<NameReport>,
    },
    /// The request was refused, with the reason.
    Refused(String),
}

/// One name of the directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NameReport {
    /// Name of the segment.
    pub name: String,
    /// Id of its home.
    pub home: u16,
}

/// One node of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// Node id.
    pub node: u16,
    /// Address of its data plane; its control plane listens one port above.
    pub address: SocketAddr,
    /// True if the node votes.
    pub voter: bool,
    /// True if the cluster has agreed that the node is alive.
    pub alive: bool,
    /// Number of times that the cluster has found the node alive anew.
    pub epoch: u64,
    /// Release of the node, if it answers; a daemon of protocol 16 does not report it.
    #[serde(default)]
    pub release: Option<NodeRelease>,
}

impl AdminRequest {
    /// Maximum number of names of one response.
    pub const NAMES_MAX: usize = 1000;
    /// Maximum time of one response.
    pub const RESPONSE_MAX: Duration = Duration::from_secs(10);
    /// Longest time without progress after which a leaving node waits for no more copies.
    pub const COPY_STALL_MAX: Duration = Duration::from_secs(15);
    /// Maximum time for which a leaving node waits for copies.
    pub const COPIES_MAX: Duration = Duration::from_secs(600);

    /// Sends the request to the daemon that works in `folder`. A leaving node reports how many segments are to be copied.
    pub fn ask(&self, folder: &Path, mut on_copying: impl FnMut(usize)) -> io::Result<AdminResponse> {
        let mut stream = UnixStream::connect(folder.join(ADMIN_SOCKET_NAME))?;
        stream.set_read_timeout(Some(Self::RESPONSE_MAX * 2 + Self::COPY_STALL_MAX))?;
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut stream = BufReader::new(stream);
        loop {
            let mut answer = String::new();
            stream.read_line(&mut answer)?;
            match serde_json::from_str(&answer)? {
                AdminResponse::Copying { uncopied } => on_copying(uncopied),
                answer => return Ok(answer),
            }
        }
    }
}
