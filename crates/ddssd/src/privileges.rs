//! What the process may do beyond its user, and gives away before it reads or makes anything.
//!
//! Root's way past the permissions of files is not needed: folders and key have to be the daemon's own. Message queues for
//! other users are not, either: the kernel lets whoever made a queue use and remove it. What stays is what an operator of a
//! root daemon counts on: memory locked for an adapter, and a port below 1024.

use rustix::io;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// What is kept, where it was there.
const KEPT: CapabilitySet = CapabilitySet::IPC_LOCK.union(CapabilitySet::NET_BIND_SERVICE);

/// Gives the rest away for good, of this thread and those that it starts: no program that it could be made to start gets
/// anything back. To be called first of all.
pub fn drop_privileges() -> io::Result<()> {
    // Root may lift the limit of what is locked only as long as it may do everything. Whoever may not has what he has.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    set_no_new_privs(true)?;
    let now = capabilities(None)?;
    let (effective, permitted) = (now.effective & KEPT, now.permitted & KEPT);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}
