//! What each user may have here, and what he has. A segment counts for its owner, whoever asked for it and from
//! where, from the moment it gets its place until it is released; also while the daemon was away. So does the mirror of
//! one that is at home elsewhere: it takes as much.

use super::lock_queue::Requester;
use crate::engine::engine::Engine;
use crate::engine::home::home_ops::ReplyFields;
use crate::limits::BLOCK_BYTES;
use crate::model::segment::{Header, Principal};
use crate::model::spec::Spec;
use crate::{Failure, Outcome, Version};
use std::collections::BTreeMap;

/// How much of something. The default is no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Bytes of memory that segments take, with their headers and the versions that they keep.
    pub bytes: u64,
    /// Segments.
    pub segments: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self { bytes: u64::MAX, segments: u64::MAX }
    }
}

/// Who may have how much.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quotas {
    /// Everybody of whom nothing else is said, but root.
    pub everybody: Quota,
    /// Users of whom something else is said.
    pub users: BTreeMap<u32, Quota>,
}

impl Quotas {
    /// What one may have.
    pub fn of(&self, uid: u32) -> Quota {
        match self.users.get(&uid) {
            Some(quota) => *quota,
            None if uid == 0 => Quota::default(),
            None => self.everybody,
        }
    }
}

/// What one has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Bytes of memory.
    pub bytes: u64,
    /// Segments.
    pub segments: u64,
}

/// What everybody may have, and has.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    quotas: Quotas,
    used: BTreeMap<u32, Usage>,
}

impl Accounts {
    /// Memory that a segment takes.
    fn bytes_of(spec: &Spec) -> u64 {
        Header::bytes_with(spec.bytes, spec.keeps()).next_multiple_of(BLOCK_BYTES as u64)
    }

    /// One more segment of a user.
    pub(crate) fn take(&mut self, uid: u32, spec: &Spec) {
        let usage = self.used.entry(uid).or_default();
        usage.segments += 1;
        usage.bytes = usage.bytes.saturating_add(Self::bytes_of(spec));
    }

    /// One less.
    pub(crate) fn give(&mut self, uid: u32, spec: &Spec) {
        let Some(usage) = self.used.get_mut(&uid) else { return };
        usage.segments = usage.segments.saturating_sub(1);
        usage.bytes = usage.bytes.saturating_sub(Self::bytes_of(spec));
        if usage.segments == 0 {
            self.used.remove(&uid);
        }
    }

    /// A segment has another owner.
    pub(crate) fn hand_on(&mut self, from: u32, to: u32, spec: &Spec) {
        if from != to {
            self.give(from, spec);
            self.take(to, spec);
        }
    }

    fn usage(&self, uid: u32) -> Usage {
        self.used.get(&uid).copied().unwrap_or_default()
    }

    /// Which quota one more segment would break: what there is of it, and how much is allowed.
    fn broken_by(&self, uid: u32, spec: &Spec) -> Option<(Failure, u64, u64)> {
        let (quota, usage) = (self.quotas.of(uid), self.usage(uid));
        if usage.segments >= quota.segments {
            return Some((Failure::QuotaSegments, usage.segments, quota.segments));
        }
        let bytes = usage.bytes.saturating_add(Self::bytes_of(spec));
        (bytes > quota.bytes).then_some((Failure::QuotaBytes, usage.bytes, quota.bytes))
    }
}

impl Engine {
    /// Who may have how much, from now on. Nobody loses what he has.
    pub fn set_quotas(&mut self, quotas: Quotas) {
        self.segments.accounts.quotas = quotas;
    }

    /// What everybody has who has anything, and what he may have.
    pub fn usages(&self) -> impl Iterator<Item = (u32, Usage, Quota)> + '_ {
        let accounts = &self.segments.accounts;
        accounts.used.iter().map(|(&uid, &usage)| (uid, usage, accounts.quotas.of(uid)))
    }

    /// Tells whoever asked for a segment that its owner may not have it: the word is what he has, the version what he may
    /// have. False if he may.
    pub(crate) fn refuse_over_quota(&mut self, asker: Requester, who: Principal, spec: &Spec) -> bool {
        let Some((failure, used, allowed)) = self.segments.accounts.broken_by(who.uid, spec) else { return false };
        self.counters.over_quota += 1;
        let told = ReplyFields { version: Version(allowed), word: used, ..ReplyFields::default() };
        self.answer(asker, Outcome::Failed(failure), told);
        true
    }

    /// Whether the owner of a segment at home elsewhere may not have a copy of it here.
    pub(crate) fn is_over_quota(&mut self, owner: Principal, spec: &Spec) -> bool {
        let is_over = self.segments.accounts.broken_by(owner.uid, spec).is_some();
        self.counters.over_quota += u64::from(is_over);
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_may_have_is_what_is_said_of_him_or_of_everybody() {
        // If this broke, one user could take all memory of a node, or root could not mend one that is full.
        let mut accounts = Accounts::default();
        assert_eq!(accounts.broken_by(5, &Spec::new(1 << 40)), None);
        let quota = |bytes, segments| Quota { bytes, segments };
        accounts.quotas = Quotas { everybody: quota(3 * 4096, 2), users: BTreeMap::from([(7, quota(u64::MAX, 1))]) };
        let (page, two) = (Spec::new(4096 - 64), Spec::new(4096));
        for uid in [0, 5, 7] {
            accounts.take(uid, &two);
        }
        assert_eq!(accounts.usage(5), Usage { bytes: 8192, segments: 1 });
        assert_eq!(accounts.broken_by(5, &page), None);
        assert_eq!(accounts.broken_by(5, &two), Some((Failure::QuotaBytes, 8192, 3 * 4096)));
        assert_eq!(accounts.broken_by(7, &page), Some((Failure::QuotaSegments, 1, 1)));
        assert_eq!(accounts.broken_by(0, &Spec::new(1 << 40)), None);
        accounts.take(5, &page);
        assert_eq!(accounts.broken_by(5, &page), Some((Failure::QuotaSegments, 2, 2)));
        accounts.hand_on(5, 9, &page);
        assert_eq!((accounts.usage(5).segments, accounts.usage(9)), (1, Usage { bytes: 4096, segments: 1 }));
        accounts.hand_on(9, 5, &page);
        accounts.give(5, &two);
        accounts.give(5, &page);
        accounts.give(5, &page);
        assert_eq!((accounts.usage(5), accounts.used.len()), (Usage::default(), 2));
        assert_eq!(
            accounts.broken_by(5, &Spec { history: 4, ..page }),
            Some((Failure::QuotaBytes, 0, 3 * 4096)),
            "what is kept counts"
        );
    }
}
