//! The one suite over an RDMA adapter. Without one (`DDSS_RDMA_A` and `DDSS_RDMA_B`: two addresses of adapters of this
//! machine) every test says so and passes; `scripts/vm` runs them on the kernel's own adapters.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[macro_use]
mod suite;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use common::Lab;
use ddss_verbs::rdma::{Rdma, RdmaConfig};

/// The addresses, if there are any.
fn addresses() -> Option<(IpAddr, IpAddr)> {
    let find = |name| std::env::var(name).ok().map(|address: String| address.parse().unwrap());
    let found = find("DDSS_RDMA_A").zip(find("DDSS_RDMA_B"));
    if found.is_none() {
        let name = std::thread::current().name().unwrap_or("adapter").to_owned();
        let line = format!("skipped: {name}: no rdma adapter (DDSS_RDMA_A, DDSS_RDMA_B); scripts/vm has some\n");
        drop(std::io::stderr().lock().write_all(line.as_bytes()));
    }
    found
}

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
        !ddss_verbs::rdma::adapters().unwrap().iter().any(|adapter| adapter.name.starts_with("siw"))
    }
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
        config.fence_reads = Some(true);
    })
);
