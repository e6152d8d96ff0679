//! Conformance suite over an RDMA adapter.
//!
//! Without adapters (`DDSS_RDMA_A` and `DDSS_RDMA_B`: two addresses of adapters of this machine) every test reports
//! that and passes. `scripts/vm` runs them on the kernel's software adapters.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[macro_use]
mod suite;

use std::net::{IpAddr, SocketAddr};

use common::{FabricFactory, addresses};
use ddss_verbs::rdma::{Rdma, RdmaConfig};

/// Factory with `a` on one adapter and `b` on the other.
struct Adapters {
    ways: (IpAddr, IpAddr),
    made: usize,
    change: fn(&mut RdmaConfig),
}

impl FabricFactory for Adapters {
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

    fn checks_read_rights(&self) -> bool {
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

all_tests!(adapter, adapters!(|_| {}));
all_tests!(
    careful,
    adapters!(|config| {
        config.reads_outstanding_max = 3;
        // Soft-iWARP rejects a fence on a read.
        config.fence_reads = Some(!is_soft_iwarp());
    })
);

#[test]
fn endpoint_carries_messages_and_borrowed_memory_over_adapters() {
    let mut adapters = adapters!(|_| {});
    let (here, there) = (adapters.fabric(), adapters.fabric());
    let address = adapters.address();
    suite::endpoint::endpoint_carries_messages_and_borrowed_memory(here, there, address);
}
