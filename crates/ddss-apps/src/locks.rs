//! A lock manager: named locks for the processes of all nodes, which end with their holder.
//!
//! Each lock is the lock of a segment. It has a *token* that is greater than those of all holders before. The lease of
//! a slow holder can end while the holder still believes that it has the lock. So a resource outside of DDSS should
//! remember the greatest token that it has seen, and refuse requests with a smaller one.
//!
//! Locks are spread over the nodes by their names. A lock lives as long as its home; segments of locks are small, and stay.
//!
//! ```
//! # let folder = std::env::temp_dir().join(format!("ddss-apps-locks-{}", std::process::id()));
//! # let mut config = ddssd::Config::single(&folder);
//! # config.pool_bytes = 16 << 20;
//! # let node = ddssd::Node::start(config)?;
//! # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(&folder))?;
//! use ddss_apps::locks::LockManager;
//!
//! let locks = LockManager::new(&client, "accounts");
//! // Both or none, in an order that everybody keeps: nobody waits in a circle.
//! let held = locks.acquire_all(&["alice", "bob"])?;
//! println!("nobody before had tokens like {} and {}", held[0].token(), held[1].token());
//! assert!(locks.try_acquire("bob")?.is_none());
//! drop(held);
//! assert!(locks.try_acquire("bob")?.is_some());
//! # node.stop()?;
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use ddss::{Client, ErrorKind, LockGuard, LockOptions, Mode, Placement, Segment, Spec};

use crate::Error;
use crate::cache::open_or_allocate;

/// Locks by name. See the [module](self).
#[derive(Debug, Clone)]
pub struct LockManager {
    client: Client,
    prefix: String,
}

impl LockManager {
    /// Creates a lock manager whose lock names begin with `prefix`.
    pub fn new(client: &Client, prefix: &str) -> LockManager {
        LockManager { client: client.clone(), prefix: prefix.to_owned() }
    }

    fn segment(&self, name: &str) -> Result<Segment, Error> {
        let spec = Spec::new(8).placement(Placement::Hash).mode(Mode(0o666));
        open_or_allocate(&self.client, &format!("locks/{}/{name}", self.prefix), spec)
    }

    /// Takes a lock; waits in its lock queue until the client's deadline.
    pub fn acquire(&self, name: &str) -> Result<LockGuard<Segment>, Error> {
        self.acquire_with(name, LockOptions::new())
    }

    /// Takes a lock with these options.
    pub fn acquire_with(&self, name: &str, options: LockOptions) -> Result<LockGuard<Segment>, Error> {
        Ok(self.segment(name)?.lock_with(options)?)
    }

    /// Takes a lock if it is free.
    pub fn try_acquire(&self, name: &str) -> Result<Option<LockGuard<Segment>>, Error> {
        match self.segment(name)?.lock_with(LockOptions::new().timeout(std::time::Duration::ZERO)) {
            Err(error) if error.kind() == ErrorKind::Locked => Ok(None),
            ended => Ok(Some(ended?)),
        }
    }

    /// Takes several locks, one for each different name. The order of the names prevents deadlocks between callers.
    /// After an error the caller holds none of them.
    pub fn acquire_all(&self, names: &[&str]) -> Result<Vec<LockGuard<Segment>>, Error> {
        let mut names = names.to_vec();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| self.acquire(name)).collect()
    }
}
