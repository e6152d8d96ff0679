//! Factory of nodes of one simulated network.

use std::net::SocketAddr;

use ddss_verbs::sim::{Sim, SimConfig, SimNet};

use super::FabricFactory;

/// A simulated network with a random delay for each packet.
pub(crate) struct Simulated(pub(crate) SimNet);

impl Simulated {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, |_| {})
    }

    pub(crate) fn with(seed: u64, change: impl FnOnce(&mut SimConfig)) -> Self {
        let mut config = SimConfig::default();
        config.seed = seed;
        change(&mut config);
        Self(SimNet::new(config))
    }
}

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
