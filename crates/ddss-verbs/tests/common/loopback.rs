//! User-space iWARP over this machine's loopback.

use std::net::SocketAddr;

use ddss_verbs::{Iwarp, IwarpConfig, Trust};

use super::FabricFactory;

pub(crate) struct Loopback {
    config: IwarpConfig,
    trust: Trust,
}

impl Loopback {
    pub(crate) fn new(change: impl FnOnce(&mut IwarpConfig)) -> Self {
        let mut config = IwarpConfig::default();
        change(&mut config);
        Self::of(config)
    }

    pub(crate) fn of(config: IwarpConfig) -> Self {
        Self { config, trust: Trust::Sealed }
    }

    /// Registers the memory of both sides as exclusive to the polling threads.
    pub(crate) fn exclusive(mut self) -> Self {
        self.trust = Trust::Exclusive;
        self
    }
}

impl FabricFactory for Loopback {
    type Fabric = Iwarp;

    fn fabric(&mut self) -> Iwarp {
        Iwarp::new(self.config.clone()).unwrap()
    }

    fn address(&mut self) -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    fn trust(&self) -> Trust {
        self.trust
    }
}
