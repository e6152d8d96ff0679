//! A small network that a test can partition: one network namespace for each node, with a bridge between them.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Output, id};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;

/// Network namespaces on one bridge. Dropping the value removes them.
#[derive(Debug)]
pub struct NetworkNamespaces {
    name: String,
    count: u8,
}

/// Direction in which a link loses all packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkFault {
    /// The node neither receives nor sends.
    Both,
    /// The node receives nothing, and can send.
    Deaf,
    /// The node receives everything, and cannot send.
    Mute,
}

impl NetworkNamespaces {
    /// Creates `count` namespaces. Returns an error if this user or this kernel cannot create them, so that the test is
    /// skipped.
    pub fn new(count: u8) -> Result<NetworkNamespaces, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let network =
            NetworkNamespaces { name: format!("ddss-{}-{}", id(), COUNT.fetch_add(1, Ordering::Relaxed)), count };
        network.ip(&["netns", "add", &network.hub()])?;
        network.in_hub(&["link", "add", "bridge", "type", "bridge"])?;
        network.in_hub(&["link", "set", "bridge", "up"])?;
        for node in 1..=count {
            let (inside, port, address) = (network.inside(node), port(node), format!("{}/24", network.address(node)));
            network.ip(&["netns", "add", &inside])?;
            let ends = ["type", "veth", "peer", "name", "eth0", "netns", &inside];
            network.ip(&[&["link", "add", &port, "netns", &network.hub()][..], &ends[..]].concat())?;
            network.in_hub(&["link", "set", &port, "master", "bridge", "up"])?;
            network.ip(&["-n", &inside, "addr", "add", &address, "dev", "eth0"])?;
            network.ip(&["-n", &inside, "link", "set", "eth0", "address", &mac(node)])?;
            network.ip(&["-n", &inside, "link", "set", "eth0", "up"])?;
            network.ip(&["-n", &inside, "link", "set", "lo", "up"])?;
            // On a busy machine three questions for an address may stay unanswered, and a connection fails: "no route to host".
            for other in (1..=count).filter(|other| *other != node) {
                let (address, mac) = (network.address(other).to_string(), mac(other));
                let known = [&address[..], "lladdr", &mac, "dev", "eth0", "nud", "permanent"];
                network.ip(&[&["-n", &inside, "neigh", "replace"][..], &known[..]].concat())?;
            }
        }
        Ok(network)
    }

    /// Returns the address of a node, counted from 1.
    pub fn address(&self, node: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, node))
    }

    /// Returns the name of a node's namespace.
    pub fn inside(&self, node: u8) -> String {
        format!("{}-{node}", self.name)
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    /// Starts to drop the packets of this node silently.
    pub fn cut(&self, node: u8, how: LinkFault) -> Result<(), Error> {
        if matches!(how, LinkFault::Both | LinkFault::Deaf) {
            self.silence(&self.hub(), &port(node))?;
        }
        if matches!(how, LinkFault::Both | LinkFault::Mute) {
            self.silence(&self.inside(node), "eth0")?;
        }
        Ok(())
    }

    /// Gives the link of this node a high latency and a low bandwidth, and returns a description of it.
    pub fn slow(&self, node: u8) -> Result<&'static str, Error> {
        let kinds: [(&str, &[&str]); 2] = [
            ("200 ms and one packet in fifty lost each way", &["netem", "delay", "200ms", "20ms", "loss", "2%"]),
            (
                "256 kbit/s each way, up to 400 ms of it waiting",
                &["tbf", "rate", "256kbit", "burst", "4kb", "latency", "400ms"],
            ),
        ];
        let mut last = None;
        for (words, kind) in kinds {
            let shape = |namespace: &str, device: &str| {
                self.tc(namespace, &[&["qdisc", "replace", "dev", device, "root"][..], kind].concat())
            };
            match shape(&self.hub(), &port(node)).and_then(|()| shape(&self.inside(node), "eth0")) {
                Ok(()) => return Ok(words),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is more than one kind"))
    }

    /// Starts to drop the packets that this node sends and that match a rule of `iptables`.
    pub fn drop_outgoing(&self, node: u8, rule: &[&str]) -> Result<(), Error> {
        let exec = ["netns", "exec", &self.inside(node), "iptables"];
        self.ip(&[&exec[..], &["-A", "OUTPUT"], rule, &["-j", "DROP"]].concat())
    }

    /// Removes all faults from the link of this node.
    pub fn heal(&self, node: u8) {
        // Without `iptables` there is no rule.
        drop(self.ip(&["netns", "exec", &self.inside(node), "iptables", "-F", "OUTPUT"]));
        for (namespace, device) in [(self.hub(), port(node)), (self.inside(node), "eth0".to_owned())] {
            // A link without a queueing rule has nothing to delete, which is no error.
            drop(self.tc(&namespace, &["qdisc", "del", "dev", &device, "root"]));
        }
    }

    fn silence(&self, namespace: &str, device: &str) -> Result<(), Error> {
        self.tc(namespace, &["qdisc", "replace", "dev", device, "root", "pfifo", "limit", "0"])
    }

    fn in_hub(&self, words: &[&str]) -> Result<(), Error> {
        self.ip(&[&["-n", &self.hub()][..], words].concat())
    }

    fn tc(&self, namespace: &str, words: &[&str]) -> Result<(), Error> {
        run("tc", &[&["-n", namespace][..], words].concat())
    }

    fn ip(&self, words: &[&str]) -> Result<(), Error> {
        run("ip", words)
    }
}

/// Returns the hardware address of a node.
fn mac(node: u8) -> String {
    format!("02:00:00:00:00:{node:02x}")
}

fn port(node: u8) -> String {
    format!("port{node}")
}

fn run(program: &str, words: &[&str]) -> Result<(), Error> {
    let what = format!("{program} {}", words.join(" "));
    let Output { status, stderr, .. } = Command::new(program).args(words).output().map_err(Error::system(&*what))?;
    if status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&stderr).trim().to_owned();
    Err(Error::system(what)(std::io::Error::other(why)))
}

impl Drop for NetworkNamespaces {
    fn drop(&mut self) {
        for node in 1..=self.count {
            drop(run("ip", &["netns", "del", &self.inside(node)]));
        }
        drop(run("ip", &["netns", "del", &self.hub()]));
    }
}
