//! iWARP in user space against the kernel's Soft-iWARP, in both directions: they are each other's peers by the standard
//! alone, without frames or credits of ours. Skipped without an iWARP adapter, as in `adapter.rs`.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[macro_use]
mod suite;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Instant;

use common::{Lab, addresses};
use ddss_verbs::rdma::{Framing, Rdma, RdmaConfig, adapters};
use ddss_verbs::{
    Capabilities, Events, Fabric, FabricError, Iwarp, IwarpConfig, PeerId, PostError, RegionId, Revision, Rights,
    Trust, Window, Work,
};

/// One of the two.
#[allow(clippy::large_enum_variant, reason = "there are two of it")]
enum Either {
    User(Iwarp),
    Kernel(Rdma),
}

macro_rules! forward {
    ($(($($receiver:tt)+) $this:ident: fn $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        impl Fabric for Either {
            $(fn $name($($receiver)+, $($argument: $type),*) $(-> $answer)? {
                match $this {
                    Either::User(fabric) => fabric.$name($($argument),*),
                    Either::Kernel(fabric) => fabric.$name($($argument),*),
                }
            })*
        }
    };
}

forward! {
    (&self) self: fn capabilities() -> Capabilities;
    (&mut self) self: fn listen(address: SocketAddr) -> io::Result<SocketAddr>;
    (&mut self) self: fn connect(address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError>;
    (&mut self) self: fn accept(peer: PeerId, hello: &[u8]) -> Result<(), FabricError>;
    (&mut self) self: fn reject(peer: PeerId, reason: &[u8]) -> Result<(), FabricError>;
    (&mut self) self: fn close(peer: PeerId);
    (&mut self) self: fn register(memory: BorrowedFd<'_>, trust: Trust, offset: u64, bytes: u64) -> Result<RegionId, FabricError>;
    (&mut self) self: fn deregister(region: RegionId);
    (&mut self) self: fn expose(peer: PeerId, region: RegionId, offset: u64, bytes: u64, rights: Rights) -> Result<Window, FabricError>;
    (&mut self) self: fn withdraw(peer: PeerId, key: u32);
    (&mut self) self: fn post(work: &[Work<'_>]) -> Result<(), PostError>;
    (&mut self) self: fn abandon(peer: PeerId, tag: u64) -> bool;
    (&mut self) self: fn poll(events: &mut Events) -> usize;
    (&mut self) self: fn arm() -> bool;
    (&mut self) self: fn disarm();
    (&self) self: fn descriptor() -> BorrowedFd<'_>;
    (&self) self: fn next_deadline() -> Option<Instant>;
}

/// `a` connects to `b`; which of them is the kernel's.
struct Mixed {
    ways: (IpAddr, IpAddr),
    made: usize,
    kernel_connects: bool,
    config: IwarpConfig,
}

impl Lab for Mixed {
    type Fabric = Either;

    fn fabric(&mut self) -> Either {
        let first = self.made == 0;
        self.made += 1;
        if first != self.kernel_connects {
            return Either::User(Iwarp::new(self.config.clone()).unwrap());
        }
        let mut config = RdmaConfig::default();
        config.address = Some(if first { self.ways.0 } else { self.ways.1 });
        config.framing = Framing::Plain;
        Either::Kernel(Rdma::new(config).unwrap())
    }

    fn address(&mut self) -> SocketAddr {
        SocketAddr::new(self.ways.1, 0)
    }

    fn checks_reads(&self) -> bool {
        self.kernel_connects
    }

    fn has_extensions(&self) -> bool {
        false
    }
}

fn mixed(kernel_connects: bool, change: impl FnOnce(&mut IwarpConfig)) -> Option<Mixed> {
    let ways = addresses()?;
    let mut config = IwarpConfig::default();
    change(&mut config);
    adapters().unwrap().iter().all(|adapter| adapter.is_iwarp).then_some(Mixed {
        ways,
        made: 0,
        kernel_connects,
        config,
    })
}

macro_rules! kernel {
    ($connects:expr, $change:expr) => {
        match mixed($connects, $change) {
            Some(lab) => lab,
            None => return,
        }
    };
}

macro_rules! both {
    ($asks:ident, $asked:ident, $change:expr) => {
        standard!($asks, kernel!(true, $change));
        standard!($asked, kernel!(false, $change));
    };
}

// Not the other way round: Soft-iWARP takes the first four bytes of a rejection for read limits, and shows the rest.
mod kernel_rejects {
    use super::*;

    #[test]
    fn a_rejected_peer_reads_why() {
        suite::a_rejected_peer_reads_why(kernel!(false, |_| {}));
    }
}

/// What the standard alone carries: no immediates and no atomics, which Soft-iWARP does not know.
macro_rules! standard {
    ($fabric:ident, $lab:expr) => {
        conformance!(
            $fabric,
            $lab,
            [
                bytes_arrive_at_every_size_and_offset,
                many_reads_are_under_way,
                a_bad_key_ends_the_connection_and_names_the_read,
                bounds_and_rights_hold,
                local_mistakes_are_refused_before_anything_goes_out,
                closing_ends_every_operation_once,
                both_sides_talk_at_once,
                memory_outlives_its_deregistration_while_it_is_used,
            ]
        );
    };
}

both!(kernel_asks, kernel_is_asked, |_| {});
both!(kernel_asks_without_crc, kernel_is_asked_without_crc, |config| config.crc = false);
// There nothing is said about reads, and Soft-iWARP takes 128.
both!(kernel_asks_revision_one, kernel_is_asked_revision_one, |config| {
    config.revision = Revision::One;
    config.reads_outbound = 128;
});
