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

use common::{Endpoint, EndpointError, FabricFactory, WAIT_MAX, addresses};
use ddss_verbs::rdma::{Rdma, RdmaConfig};
use ddss_verbs::{CloseReason, Fabric};

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
all_tests!(long_messages, adapters!(|config| config.message_bytes_max = 32 << 10));

#[test]
fn different_limits_of_messages_are_found_before_the_first_one() {
    // If this failed, a message would be longer than the slot that receives it, or credits would count slots that do not exist.
    let mut short = adapters!(|_| {});
    let mut long = adapters!(|config| config.message_bytes_max = 8 << 10);
    let (caller, mut home) = (short.fabric(), {
        long.made = 1;
        long.fabric()
    });
    let address = home.listen(short.address()).unwrap();
    let server = std::thread::spawn(move || Endpoint::accept(home, WAIT_MAX / 2, |_| Ok(Vec::new())).err());
    let ended = Endpoint::connect(caller, address, b"", WAIT_MAX).err().unwrap();
    let is_named = matches!(ended, EndpointError::Closed(CloseReason::Rejected | CloseReason::ProtocolViolation(_)));
    assert!(is_named, "{ended}");
    drop(server.join().unwrap());
    assert!(
        Rdma::new({
            let mut config = RdmaConfig::default();
            config.message_bytes_max = 1000;
            config
        })
        .is_err_and(|error| error.to_string().contains("message_bytes_max of 1000"))
    );
}

/// Opens the fabric of this process on the first adapter, or that of the helper process on the second one.
fn open_with_long_messages((a, b): (IpAddr, IpAddr)) -> impl Fn(bool) -> Rdma {
    move |is_helper| {
        let mut config = RdmaConfig::default();
        config.address = Some(if is_helper { b } else { a });
        config.message_bytes_max = 32 << 10;
        Rdma::new(config).unwrap()
    }
}

#[test]
fn stream_between_processes_sends_every_byte_back() {
    let Some(ways) = addresses() else { return };
    let (test, address) = ("stream_between_processes_sends_every_byte_back", SocketAddr::new(ways.1, 0));
    suite::process_streams::bytes_come_back_from_another_process(test, open_with_long_messages(ways), address);
}

#[test]
fn stream_of_a_killed_process_ends_with_a_prefix() {
    let Some(ways) = addresses() else { return };
    let (test, address) = ("stream_of_a_killed_process_ends_with_a_prefix", SocketAddr::new(ways.1, 0));
    suite::process_streams::killed_process_leaves_a_prefix(test, open_with_long_messages(ways), address);
}
