//! The one suite over an RDMA adapter. Without one (`DDSS_RDMA_A` and `DDSS_RDMA_B`: two addresses of adapters of this
//! machine) every test says so and passes; `scripts/vm` runs them on the kernel's own adapters.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[macro_use]
mod suite;

use std::net::{IpAddr, SocketAddr};

use common::{Lab, addresses};
use ddss_verbs::rdma::{Rdma, RdmaConfig};

/// `a` on one adapter, `b` on the other.
struct Adapters {
    ways: (IpAddr, IpAddr),
    made: usize,
    change: fn(&mut RdmaConfig),
}

impl Lab for Adapters {
    type Fabric = Rdma;

    fn fabric(&mut self) -> Rdma {
        let mut config = RdmaConfig::default();
        config.address = Some(if self.made == 0 { self.ways.0 } else { self.ways.1 });
        (self.change)(&mut config);
        self.made += 1;
        Rdma::new(config).unwrap()
    }

    fn address(&mut self) -> SocketAddr {
        SocketAddr::new(self.ways.1, 0)
    }

    fn checks_reads(&self) -> bool {
        !is_soft_iwarp()
    }
}

fn is_soft_iwarp() -> bool {
    ddss_verbs::rdma::adapters().unwrap().iter().any(|adapter| adapter.name.starts_with("siw"))
}

macro_rules! adapters {
    ($change:expr) => {
        match addresses() {
            Some(ways) => Adapters { ways, made: 0, change: $change },
            None => return,
        }
    };
}

every!(adapter, adapters!(|_| {}));
every!(
    careful,
    adapters!(|config| {
        config.reads = 3;
        // Soft-iWARP refuses a fence on a read.
        config.fence_reads = Some(!is_soft_iwarp());
    })
);
