//! Conformance suite over iWARP on loopback and over the simulated network.

use std::net::SocketAddr;

use crate::common::{FabricFactory, Loopback};
use crate::suite;
use ddss_verbs::Revision;
use ddss_verbs::sim::{Sim, SimConfig, SimNet};

all_tests!(crc, Loopback::new(|_| {}));
all_tests!(exclusive_memory, Loopback::new(|_| {}).exclusive());
all_tests!(no_crc, Loopback::new(|config| config.crc = false));
all_tests!(markers, Loopback::new(|config| config.markers = true));
all_tests!(
    markers_without_crc,
    Loopback::new(|config| {
        config.markers = true;
        config.crc = false;
    })
);
all_tests!(revision_one, Loopback::new(|config| config.revision = Revision::One));
all_tests!(
    few_reads,
    Loopback::new(|config| {
        config.reads_inbound = 2;
        config.reads_outbound = 3;
    })
);

/// A simulated network with a random delay for each packet.
struct Simulated(SimNet);

impl FabricFactory for Simulated {
    type Fabric = Sim;

    fn fabric(&mut self) -> Sim {
        self.0.node()
    }

    fn address(&mut self) -> SocketAddr {
        "10.0.0.1:0".parse().unwrap()
    }

    fn advance(&mut self) {
        self.0.advance_to_next();
    }
}

fn simulated(seed: u64) -> Simulated {
    let mut config = SimConfig::default();
    config.seed = seed;
    Simulated(SimNet::new(config))
}

all_tests!(sim, simulated(1));
all_tests!(sim_other_seed, simulated(4711));
