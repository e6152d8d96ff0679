//! Capabilities of the process, which it drops before it reads or creates anything.
//!
//! Root's bypass of file permissions is not needed: folders and key must be the daemon's own. Message queues for other
//! users need no capability either: the kernel lets their creator use and remove them. Two capabilities stay, because
//! a root daemon needs them: locked memory for an adapter, and a port below 1024.

use rustix::io;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// Capabilities that stay, if the process has them.
const RETAINED: CapabilitySet = CapabilitySet::IPC_LOCK.union(CapabilitySet::NET_BIND_SERVICE);

/// Drops all other capabilities of this thread and its children for good: no program that it starts can regain them.
/// Call it first of all.
pub fn drop_privileges() -> io::Result<()> {
    // Lifting the limit on locked memory needs the full privileges of root; without them the old limit stays.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    set_no_new_privs(true)?;
    let now = capabilities(None)?;
    let (effective, permitted) = (now.effective & RETAINED, now.permitted & RETAINED);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}

/// Keeps the memory of this process out of core dumps, and out of reach of other processes of its user: it holds the
/// cluster's key.
pub fn forbid_core_dumps() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}
