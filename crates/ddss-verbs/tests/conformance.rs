//! The one suite that every fabric passes, written against the trait.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[macro_use]
mod suite;

use std::net::SocketAddr;

use common::{Lab, Loopback};
use ddss_verbs::Revision;
use ddss_verbs::sim::{Sim, SimConfig, SimNet};

every!(crc, Loopback::new(|_| {}));
every!(own, Loopback::new(|_| {}).own());
every!(plain, Loopback::new(|config| config.crc = false));
every!(markers, Loopback::new(|config| config.markers = true));
every!(
    plain_markers,
    Loopback::new(|config| {
        config.markers = true;
        config.crc = false;
    })
);
every!(revision_one, Loopback::new(|config| config.revision = Revision::One));
every!(
    few_reads,
    Loopback::new(|config| {
        config.reads_inbound = 2;
        config.reads_outbound = 3;
    })
);

/// A simulated network, each packet with a delay of its own.
struct Simulated(SimNet);

impl Lab for Simulated {
    type Fabric = Sim;

    fn fabric(&mut self) -> Sim {
        self.0.node()
    }

    fn address(&mut self) -> SocketAddr {
        "10.0.0.1:0".parse().unwrap()
    }

    fn pass(&mut self) {
        self.0.advance_to_next();
    }
}

fn simulated(seed: u64) -> Simulated {
    let mut config = SimConfig::default();
    config.seed = seed;
    Simulated(SimNet::new(config))
}

every!(sim, simulated(1));
every!(sim_other_seed, simulated(4711));
