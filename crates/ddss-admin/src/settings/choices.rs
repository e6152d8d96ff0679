//! Values of single settings: cores, peers, fabric, metrics address, treatment of unclean files.

use ddss_core::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Cores of the progress threads.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CoreChoice {
    /// The last cores that no other daemon of this machine has claimed, and never the first; spread over the memory
    /// nodes.
    #[default]
    Auto,
    /// This core, for a single progress thread.
    Core(usize),
    /// These cores, one for each progress thread.
    Cores(Vec<usize>),
    /// Unpinned: the kernel places the threads.
    Unpinned,
}

impl FromStr for CoreChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(CoreChoice::Auto),
            "none" => Ok(CoreChoice::Unpinned),
            numbers => {
                let cores: Result<Vec<usize>, _> = numbers.split(',').map(str::parse).collect();
                match cores.as_deref() {
                    Ok([core]) => Ok(CoreChoice::Core(*core)),
                    Ok(cores) => Ok(CoreChoice::Cores(cores.to_vec())),
                    Err(_) => {
                        Err(format!("{text:?} is no core: give a number, auto, or none (with several threads: 2,3)"))
                    }
                }
            }
        }
    }
}

impl fmt::Display for CoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoreChoice::Auto => f.write_str("auto"),
            CoreChoice::Core(core) => write!(f, "{core}"),
            CoreChoice::Cores(cores) => {
                f.write_str(&cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
            }
            CoreChoice::Unpinned => f.write_str("none"),
        }
    }
}

/// Another node and its listen address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PeerAddress {
    /// Node number.
    pub node: NodeId,
    /// Address of its first shard.
    pub address: SocketAddr,
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no peer: give NODE=ADDRESS:PORT, as in 2=127.0.0.2:7400");
        let (node, address) = text.split_once('=').ok_or_else(wrong)?;
        let node = NodeId(node.parse().map_err(|_| wrong())?);
        let address = address.parse().map_err(|_| wrong())?;
        if node == NodeId::NONE { Err("node numbers begin at 1".to_owned()) } else { Ok(Self { node, address }) }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.node.0, self.address)
    }
}

/// Address of the metrics endpoint: an address and a port, or a loopback port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MetricsAddress(pub SocketAddr);

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = || text.parse().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
        let wrong = |_| format!("{text:?} is no address: give IP:PORT, or a port of this machine alone, as in 7480");
        text.parse().or_else(|_| port()).map(Self).map_err(wrong)
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Fabric to the peers. All nodes of a cluster use the same one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FabricChoice {
    /// The RDMA adapter that has the listen address, if there is one; otherwise iWARP in user space.
    #[default]
    Auto,
    /// iWARP in user space, over TCP.
    Iwarp,
    /// The RDMA adapter that has the listen address; without one the node does not start.
    Rdma,
    /// The RDMA adapter of this name; without it the node does not start.
    Adapter(String),
}

impl FromStr for FabricChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(FabricChoice::Auto),
            "iwarp" => Ok(FabricChoice::Iwarp),
            "rdma" => Ok(FabricChoice::Rdma),
            _ => match text.split_once(':') {
                Some(("rdma", name)) if !name.is_empty() => Ok(FabricChoice::Adapter(name.to_owned())),
                _ => Err(format!("{text:?} is no fabric: give auto, iwarp, rdma, or rdma:NAME as in rdma:mlx5_0")),
            },
        }
    }
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FabricChoice::Auto => f.write_str("auto"),
            FabricChoice::Iwarp => f.write_str("iwarp"),
            FabricChoice::Rdma => f.write_str("rdma"),
            FabricChoice::Adapter(name) => write!(f, "rdma:{name}"),
        }
    }
}

/// Treatment of file segments after the machine ended before the daemon did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum UncleanFiles {
    /// Refuse to start.
    #[default]
    Refuse,
    /// Keep the bytes on the disk: a segment may hold a mix of several puts.
    Keep,
    /// Discard the segments.
    Drop,
}

impl UncleanFiles {
    const ALL: [(Self, &str); 3] = [(Self::Refuse, "refuse"), (Self::Keep, "keep"), (Self::Drop, "drop")];
}

impl FromStr for UncleanFiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|(_, word)| *word == text);
        known.map(|(what, _)| what).ok_or_else(|| format!("{text:?} is none of refuse, keep and drop"))
    }
}

impl fmt::Display for UncleanFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL.into_iter().find(|(what, _)| what == self).map_or("refuse", |(_, word)| word);
        f.write_str(word)
    }
}

as_text!(CoreChoice, FabricChoice, MetricsAddress, PeerAddress, UncleanFiles);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_address_and_core_choice_parse() {
        // If this failed, a cluster could not be configured, or a typo would be taken for a node.
        let peer: PeerAddress = "2=127.0.0.2:7400".parse().unwrap();
        assert_eq!((peer.node, peer.address.port()), (NodeId(2), 7400));
        for wrong in ["", "2", "x=127.0.0.1:1", "2=localhost", "2=127.0.0.1", "0=127.0.0.1:1", "70000=127.0.0.1:1"] {
            assert!(wrong.parse::<PeerAddress>().is_err(), "{wrong:?}");
        }
        assert_eq!("3".parse(), Ok(CoreChoice::Core(3)));
        let two: CoreChoice = "2,3".parse().unwrap();
        assert_eq!((two.to_string().as_str(), two), ("2,3", CoreChoice::Cores(vec![2, 3])));
        assert_eq!("none".parse(), Ok(CoreChoice::Unpinned));
        assert!("fast".parse::<CoreChoice>().is_err());
    }
}
