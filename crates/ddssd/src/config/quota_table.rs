//! Quotas of users on this node: the table that the threads share.

use super::accounts::uid_of;
use ddss_admin::{QuotaLimits, QuotaRule, QuotaSubject};
use ddss_engine::{Quota, Quotas};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// All rules, with names resolved to uids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaTable {
    quotas: Quotas,
    default_clients: Option<u64>,
    clients: BTreeMap<u32, u64>,
}

impl QuotaTable {
    /// Builds the table. The default rule fills the parts that a user's own rule leaves out.
    pub fn new(rules: &[QuotaRule]) -> Result<Self, String> {
        Self::with_lookup(rules, uid_of)
    }

    fn with_lookup(rules: &[QuotaRule], uid_of: impl Fn(&str) -> Result<u32, String>) -> Result<Self, String> {
        let mut everybody = QuotaLimits::default();
        let mut users: BTreeMap<u32, QuotaLimits> = BTreeMap::new();
        let mut named_default = false;
        for rule in rules {
            let uid = match &rule.subject {
                QuotaSubject::Default if named_default => {
                    return Err("the quota of default is given twice".to_owned());
                }
                QuotaSubject::Default => {
                    (everybody, named_default) = (rule.limits, true);
                    continue;
                }
                QuotaSubject::User(uid) => *uid,
                QuotaSubject::Named(name) => uid_of(name)?,
            };
            if users.insert(uid, rule.limits).is_some() {
                return Err(format!("the quota of user {uid} is given twice"));
            }
        }
        let quota = |limits: QuotaLimits| Quota {
            bytes: limits.bytes.unwrap_or(u64::MAX),
            segments: limits.segments.unwrap_or(u64::MAX),
        };
        let mut table = Self { default_clients: everybody.clients, ..Self::default() };
        table.quotas.everybody = quota(everybody);
        for (uid, limits) in users {
            // The default rule does not apply to root.
            let rest = if uid == 0 { QuotaLimits::default() } else { everybody };
            let bytes = limits.bytes.or(rest.bytes);
            let segments = limits.segments.or(rest.segments);
            table.quotas.users.insert(uid, quota(QuotaLimits { bytes, segments, clients: None }));
            if let Some(clients) = limits.clients.or(rest.clients) {
                table.clients.insert(uid, clients);
            }
        }
        Ok(table)
    }

    /// Returns the table of one of `shards` shards: an equal part of the bytes and segments, rounded up. A client
    /// attaches to a shard when it needs it, so each shard counts all clients.
    pub(crate) fn for_shard(&self, shards: u8) -> Self {
        let part = |all: u64| if all == u64::MAX { all } else { all.div_ceil(shards.max(1).into()) };
        let quota = |quota: Quota| Quota { bytes: part(quota.bytes), segments: part(quota.segments) };
        let mut table = self.clone();
        table.quotas.everybody = quota(table.quotas.everybody);
        table.quotas.users.values_mut().for_each(|theirs| *theirs = quota(*theirs));
        table
    }

    /// Returns the number of clients that a user may have at a time.
    fn clients_of(&self, uid: u32) -> u64 {
        let everybody = if uid == 0 { None } else { self.default_clients };
        self.clients.get(&uid).copied().or(everybody).unwrap_or(u64::MAX)
    }
}

/// The current table, shared by the progress thread, the acceptor and the reload of settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedQuotas(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<QuotaTable>,
    changed: AtomicBool,
    /// Refused clients.
    refused: AtomicU64,
}

impl SharedQuotas {
    pub(crate) fn set(&self, table: QuotaTable) {
        *self.0.table.lock().unwrap_or_else(PoisonError::into_inner) = table;
        // pairs with the swap in `take_changed`
        self.0.changed.store(true, Ordering::Release);
    }

    /// Returns the engine's quotas if they have changed since the last call. Costs one load otherwise.
    #[inline]
    pub(crate) fn take_changed(&self) -> Option<Quotas> {
        if !self.0.changed.load(Ordering::Relaxed) || !self.0.changed.swap(false, Ordering::Acquire) {
            return None;
        }
        Some(self.0.table.lock().unwrap_or_else(PoisonError::into_inner).quotas.clone())
    }

    /// Checks that a user with `clients` clients may attach one more; the error says why not.
    pub(crate) fn admit(&self, uid: u32, clients: usize) -> Result<(), String> {
        let most = self.0.table.lock().unwrap_or_else(PoisonError::into_inner).clients_of(uid);
        if (clients as u64) < most {
            return Ok(());
        }
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        Err(format!(
            "user {uid} has {clients} clients attached and may have {most}: end some, or have the quota raised (ddssd --quota)"
        ))
    }

    /// Returns the number of refused clients.
    pub(crate) fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<QuotaRule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn user_rule_is_completed_by_default_rule() {
        // If this broke, a user's own rule would lift every default limit that it does not name.
        let accounts = |name: &str| if name == "alice" { Ok(1001) } else { Err(format!("no user {name:?}")) };
        let table = QuotaTable::with_lookup(
            &rules(&["default:bytes=100,segments=5,clients=2", "alice:bytes=1000", "1002:clients=9"]),
            accounts,
        )
        .unwrap();
        assert_eq!(table.quotas.of(1001), Quota { bytes: 1000, segments: 5 });
        assert_eq!(table.quotas.of(1002), Quota { bytes: 100, segments: 5 });
        assert_eq!(table.quotas.of(0), Quota::default());
        assert_eq!([0, 1001, 1002, 5].map(|uid| table.clients_of(uid)), [u64::MAX, 2, 9, 2]);
        for (texts, part) in [
            (&["bob:bytes=1"][..], "no user \"bob\""),
            (&["alice:bytes=1", "1001:bytes=2"], "1001 is given twice"),
            (&["default:bytes=1", "default:clients=2"], "default is given twice"),
        ] {
            let error = QuotaTable::with_lookup(&rules(texts), accounts).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn quota_is_split_over_shards() {
        // If this broke, a user would have the quota once for each progress thread, or less than nothing.
        let table = QuotaTable::new(&rules(&["default:bytes=100,segments=5,clients=2", "7:segments=0"])).unwrap();
        assert_eq!(table.for_shard(1), table);
        let part = table.for_shard(2);
        assert_eq!(part.quotas.of(5), Quota { bytes: 50, segments: 3 });
        assert_eq!(part.quotas.of(7), Quota { bytes: 50, segments: 0 });
        assert_eq!((part.quotas.of(0), part.clients_of(5)), (Quota::default(), 2));
    }

    #[test]
    fn changed_table_is_returned_once() {
        // If this broke, a raised quota would apply only after the next start.
        let shared = SharedQuotas::default();
        assert_eq!(shared.take_changed(), None);
        shared.set(QuotaTable::new(&rules(&["5:segments=1,clients=1"])).unwrap());
        assert_eq!(shared.take_changed().unwrap().of(5).segments, 1);
        assert_eq!(shared.take_changed(), None);
        assert!(shared.admit(5, 0).is_ok() && shared.admit(6, 100).is_ok());
        assert!(shared.admit(5, 1).unwrap_err().contains("has 1 clients attached and may have 1"));
        assert_eq!(shared.refused(), 1);
    }
}
