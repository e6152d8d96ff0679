//! Quotas and usage of each user on this node.
//!
//! A segment counts for its owner from its creation to its release, whichever client or node created it, also while the
//! daemon is down. A replica of a remote segment counts as well, since it takes as much memory.

use ddss_core::limits::BLOCK_BYTES;
use ddss_core::{Failure, Spec};
use std::collections::BTreeMap;

/// Limit of one user. The default is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Bytes of memory of the user's segments, with headers and history.
    pub bytes: u64,
    /// Number of segments.
    pub segments: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self { bytes: u64::MAX, segments: u64::MAX }
    }
}

/// Limits of all users.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quotas {
    /// Limit of every user that is not listed, except root.
    pub everybody: Quota,
    /// Limits of listed users.
    pub users: BTreeMap<u32, Quota>,
}

impl Quotas {
    /// Returns the limit of a user.
    pub fn of(&self, uid: u32) -> Quota {
        match self.users.get(&uid) {
            Some(quota) => *quota,
            None if uid == 0 => Quota::default(),
            None => self.everybody,
        }
    }
}

/// Usage of one user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Usage {
    /// Bytes of memory.
    bytes: u64,
    /// Number of segments.
    segments: u64,
}

/// Limits and usage of all users.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    quotas: Quotas,
    used: BTreeMap<u32, Usage>,
}

impl Accounts {
    /// Returns the memory that a segment takes.
    fn bytes_of(spec: &Spec) -> u64 {
        spec.pool_bytes().next_multiple_of(BLOCK_BYTES as u64)
    }

    /// Adds a segment to a user.
    pub(crate) fn take(&mut self, uid: u32, spec: &Spec) {
        let usage = self.used.entry(uid).or_default();
        usage.segments += 1;
        usage.bytes = usage.bytes.saturating_add(Self::bytes_of(spec));
    }

    /// Removes a segment from a user.
    pub(crate) fn give(&mut self, uid: u32, spec: &Spec) {
        let usage = self.used.get_mut(&uid).expect("a user that gives a segment back has one");
        assert!(usage.segments > 0 && usage.bytes >= Self::bytes_of(spec), "a segment is given back once");
        usage.segments -= 1;
        usage.bytes -= Self::bytes_of(spec);
        if usage.segments == 0 {
            assert!(usage.bytes == 0, "a user without segments takes no memory");
            self.used.remove(&uid);
        }
    }

    /// Moves a segment from one user to another.
    pub(crate) fn transfer(&mut self, from: u32, to: u32, spec: &Spec) {
        if from != to {
            self.give(from, spec);
            self.take(to, spec);
        }
    }

    /// Replaces all limits.
    pub(crate) fn set_quotas(&mut self, quotas: Quotas) {
        self.quotas = quotas;
    }

    fn usage(&self, uid: u32) -> Usage {
        self.used.get(&uid).copied().unwrap_or_default()
    }

    /// Returns the quota that one more segment would exceed, with its usage and limit.
    pub(crate) fn exceeded_by(&self, uid: u32, spec: &Spec) -> Option<(Failure, u64, u64)> {
        let (quota, usage) = (self.quotas.of(uid), self.usage(uid));
        if usage.segments >= quota.segments {
            return Some((Failure::QuotaSegments, usage.segments, quota.segments));
        }
        let bytes = usage.bytes.saturating_add(Self::bytes_of(spec));
        (bytes > quota.bytes).then_some((Failure::QuotaBytes, usage.bytes, quota.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_quota_overrides_default() {
        // If this broke, one user could take all memory of a node, or root could not repair a full one.
        let mut accounts = Accounts::default();
        assert_eq!(accounts.exceeded_by(5, &Spec::new(1 << 40)), None);
        let quota = |bytes, segments| Quota { bytes, segments };
        accounts.quotas = Quotas { everybody: quota(3 * 4096, 2), users: BTreeMap::from([(7, quota(u64::MAX, 1))]) };
        let (page, two) = (Spec::new(4096 - 64), Spec::new(8192 - 64));
        for uid in [0, 5, 7] {
            accounts.take(uid, &two);
        }
        assert_eq!(accounts.usage(5), Usage { bytes: 8192, segments: 1 });
        assert_eq!(accounts.exceeded_by(5, &page), None);
        assert_eq!(accounts.exceeded_by(5, &two), Some((Failure::QuotaBytes, 8192, 3 * 4096)));
        assert_eq!(accounts.exceeded_by(7, &page), Some((Failure::QuotaSegments, 1, 1)));
        assert_eq!(accounts.exceeded_by(0, &Spec::new(1 << 40)), None);
        accounts.take(5, &page);
        assert_eq!(accounts.exceeded_by(5, &page), Some((Failure::QuotaSegments, 2, 2)));
        accounts.transfer(5, 9, &page);
        assert_eq!((accounts.usage(5).segments, accounts.usage(9)), (1, Usage { bytes: 4096, segments: 1 }));
        accounts.transfer(9, 5, &page);
        accounts.give(5, &two);
        accounts.give(5, &page);
        assert_eq!((accounts.usage(5), accounts.used.len()), (Usage::default(), 2));
        assert_eq!(
            accounts.exceeded_by(5, &Spec { history: 4, ..page }),
            Some((Failure::QuotaBytes, 0, 3 * 4096)),
            "the history counts"
        );
    }
}
