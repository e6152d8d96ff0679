//! Which core a daemon takes when none is named. Several daemons of one machine spread: a core that is taken is
//! claimed by a name that ends with its daemon, however that ends.

use ddss_runtime::allowed_cores;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A core that this daemon took.
#[derive(Debug)]
pub(crate) struct CoreClaim {
    pub(crate) core: usize,
    _name: Option<UnixDatagram>,
}

impl CoreClaim {
    /// The last core that no other daemon took, and never the first one, which is left to the applications. When all
    /// are taken the last one is shared: two daemons that wait for each other do well on one core.
    pub(crate) fn take() -> Option<Self> {
        let cores = allowed_cores().ok()?;
        let others = cores.get(1..).unwrap_or_default();
        let free = others.iter().rev().find_map(|&core| Self::claim(core));
        free.or_else(|| others.last().map(|&core| Self { core, _name: None }))
    }

    fn claim(core: usize) -> Option<Self> {
        let address = SocketAddr::from_abstract_name(format!("ddssd-core-{core}")).ok()?;
        let name = UnixDatagram::bind_addr(&address).ok()?;
        Some(Self { core, _name: Some(name) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_taken_once_and_given_back() {
        // If this broke, all daemons of a machine would sit on one core.
        let core = usize::MAX;
        let first = CoreClaim::claim(core).unwrap();
        assert!(CoreClaim::claim(core).is_none());
        drop(first);
        assert!(CoreClaim::claim(core).is_some());
    }
}
