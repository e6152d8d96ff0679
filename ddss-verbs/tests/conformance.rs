//! The one suite that every fabric passes, written against the trait.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[macro_use]
mod suite;

use std::net::SocketAddr;

use common::Lab;
use ddss_verbs::sim::{Sim, SimConfig, SimNet};
use ddss_verbs::{Iwarp, IwarpConfig, Revision, Trust};

struct Loopback(IwarpConfig, Trust);

impl Lab for Loopback {
    type Fabric = Iwarp;

    fn fabric(&mut self) -> Iwarp {
        Iwarp::new(self.0.clone()).unwrap()
    }

    fn address(&mut self) -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    fn trust(&self) -> Trust {
        self.1
    }
}

fn iwarp(change: impl FnOnce(&mut IwarpConfig)) -> Loopback {
    let mut config = IwarpConfig::default();
    change(&mut config);
    Loopback(config, Trust::Sealed)
}

every!(crc, iwarp(|_| {}));
every!(own, Loopback(IwarpConfig::default(), Trust::Own));
every!(plain, iwarp(|config| config.crc = false));
every!(markers, iwarp(|config| config.markers = true));
every!(
    plain_markers,
    iwarp(|config| {
        config.markers = true;
        config.crc = false;
    })
);
every!(revision_one, iwarp(|config| config.revision = Revision::One));
every!(
    few_reads,
    iwarp(|config| {
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
