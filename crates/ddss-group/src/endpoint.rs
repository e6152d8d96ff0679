//! Address, deadline and lease of a member, which do not depend on what its group is for.

use crate::join::{JoinError, JoinOptions};
use ddss_verbs::{Fabric, Iwarp, IwarpConfig};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Settings of a process that joins a group. The options of queues, file servers and spaces contain them.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Address at which the other members reach this one. Default: the loopback address, for processes of one machine.
    pub listen: IpAddr,
    /// Deadline of each call. Default: a minute.
    pub timeout: Duration,
    /// Time after which a process that is stopped is lost. Default 10 s.
    pub lease: Duration,
}

impl Default for Endpoint {
    fn default() -> Self {
        let (timeout, lease) = (Duration::from_secs(60), Duration::from_secs(10));
        Self { listen: Ipv4Addr::LOCALHOST.into(), timeout, lease }
    }
}

impl Endpoint {
    /// Time by which the fabric gives a silent member up later than the group does.
    const STALL_MARGIN: Duration = Duration::from_secs(5);

    /// Creates the fabric of a member, which listens, and the options of its join to a group of so many members.
    ///
    /// # Errors
    /// No other member can reach the address, or a system call failed.
    pub fn bind(&self, mut wire: IwarpConfig, members: u16) -> Result<(Iwarp, JoinOptions), JoinError> {
        if self.listen.is_unspecified() {
            return Err(JoinError::Address(self.listen));
        }
        wire.stall_timeout = self.lease.saturating_add(Self::STALL_MARGIN);
        let mut fabric = Iwarp::new(wire)?;
        let address = fabric.listen(SocketAddr::new(self.listen, 0))?;
        Ok((fabric, JoinOptions::new(members, address).lease(self.lease)))
    }
}
