//! Quotas of users on this node: their syntax in settings, and the table that the threads share.
//!
//! A rule is `USER:bytes=SIZE,segments=N,clients=N`, each part of it optional. USER is a uid, a user name, or
//! `default` for all users without a rule of their own except root.

use super::accounts::uid_of;
use super::byte_size::parse_amount;
use ddss_core::engine::{Quota, Quotas};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Users that a rule applies to.
#[derive(Clone, PartialEq, Eq, Debug)]
enum QuotaSubject {
    Default,
    User(u32),
    Named(String),
}

/// Limits of one user. `None` means that this rule does not limit the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct QuotaLimits {
    bytes: Option<u64>,
    segments: Option<u64>,
    clients: Option<u64>,
}

/// One rule in its written form.
///
/// ```
/// use ddssd::QuotaRule;
/// let rule: QuotaRule = "default:bytes=1G,segments=1000".parse()?;
/// assert_eq!(rule.to_string(), "default:bytes=1073741824,segments=1000");
/// assert!("default".parse::<QuotaRule>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QuotaRule {
    subject: QuotaSubject,
    limits: QuotaLimits,
}

impl FromStr for QuotaRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, limits) = text.split_once(':').ok_or_else(|| {
            format!("{text:?} is no quota: give USER:bytes=SIZE,segments=N,clients=N, as in default:bytes=1G")
        })?;
        let subject = match (user, user.parse()) {
            ("default", _) => QuotaSubject::Default,
            ("", _) => return Err(format!("{text:?} names no user")),
            (_, Ok(uid)) => QuotaSubject::User(uid),
            (name, Err(_)) => QuotaSubject::Named(name.to_owned()),
        };
        let mut rule = Self { subject, limits: QuotaLimits::default() };
        for part in limits.split(',') {
            let (what, how_much) = part.split_once('=').unwrap_or((part, ""));
            let bound = match what {
                "bytes" => &mut rule.limits.bytes,
                "segments" => &mut rule.limits.segments,
                "clients" => &mut rule.limits.clients,
                _ => return Err(format!("{what:?} in {text:?} has no quota: there are bytes, segments and clients")),
            };
            let amount = parse_amount(how_much).ok_or_else(|| {
                format!("{how_much:?} in {text:?} is no amount: give a number, or one with K, M, G or T")
            })?;
            if bound.replace(amount).is_some() {
                return Err(format!("{text:?} says {what} twice"));
            }
        }
        Ok(rule)
    }
}

impl fmt::Display for QuotaRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            QuotaSubject::Default => f.write_str("default"),
            QuotaSubject::User(uid) => write!(f, "{uid}"),
            QuotaSubject::Named(name) => f.write_str(name),
        }?;
        let QuotaLimits { bytes, segments, clients } = self.limits;
        let parts = [("bytes", bytes), ("segments", segments), ("clients", clients)];
        for (index, (what, bound)) in parts.iter().filter_map(|&(what, bound)| Some((what, bound?))).enumerate() {
            write!(f, "{}{what}={bound}", if index == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl TryFrom<String> for QuotaRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<QuotaRule> for String {
    fn from(rule: QuotaRule) -> String {
        rule.to_string()
    }
}

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
    fn quota_rules_round_trip_as_text() {
        // If this broke, a user would have more or less than the operator configured.
        for text in ["default:bytes=1,segments=2,clients=3", "1000:clients=0", "alice:bytes=5"] {
            assert_eq!(text.parse::<QuotaRule>().unwrap().to_string(), text);
        }
        assert_eq!(rules(&["7:bytes=3k"])[0].to_string(), "7:bytes=3072");
        for wrong in [
            "",
            "default",
            "default:",
            ":bytes=1",
            "7:byte=1",
            "7:bytes",
            "7:bytes=",
            "7:bytes=-1",
            "7:bytes=99999999999999T",
            "7:clients=1,clients=2",
            "7:bytes=M",
        ] {
            let error = wrong.parse::<QuotaRule>().unwrap_err();
            assert!(
                error.contains("quota")
                    || error.contains("amount")
                    || error.contains("user")
                    || error.contains("twice"),
                "{error}"
            );
        }
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
