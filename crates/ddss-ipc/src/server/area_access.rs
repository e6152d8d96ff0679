//! Access check for areas of the node's memory.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sys::Credentials;

type Decide = dyn Fn(u32, &Credentials) -> Option<OwnedFd> + Send + Sync;

/// Access check of the acceptor for areas: returns a read-only descriptor, or nothing.
#[derive(Clone)]
pub struct AreaAccess(Arc<Decide>);

impl AreaAccess {
    /// Calls `decide` with the area and the credentials of each request. It runs on the acceptor's thread.
    pub fn new(decide: impl Fn(u32, &Credentials) -> Option<OwnedFd> + Send + Sync + 'static) -> Self {
        Self(Arc::new(decide))
    }

    /// Grants access to no area.
    pub(crate) fn none() -> Self {
        Self::new(|_, _| None)
    }

    pub(crate) fn decide(&self, area: u32, credentials: &Credentials) -> Option<OwnedFd> {
        (self.0)(area, credentials)
    }
}

impl fmt::Debug for AreaAccess {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("AreaAccess")
    }
}
