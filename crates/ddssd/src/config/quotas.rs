//! What each user may have on this node, as it is written in settings, and as the threads share it.
//!
//! A rule is `USER:bytes=SIZE,segments=N,clients=N`, each part of it optional; USER is a number, a name that the system knows, or
//! `default` for everybody of whom nothing else is said but root.

use super::accounts::uid_of;
use super::byte_size::amount;
use ddss_core::engine::{Quota, Quotas};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Whom a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
enum QuotaSubject {
    Everybody,
    User(u32),
    Named(String),
}

/// What one may have; nothing is said of what is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct QuotaLimits {
    bytes: Option<u64>,
    segments: Option<u64>,
    clients: Option<u64>,
}

/// One rule, as it is written.
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
    whom: QuotaSubject,
    bounds: QuotaLimits,
}

impl FromStr for QuotaRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, bounds) = text.split_once(':').ok_or_else(|| {
            format!("{text:?} is no quota: give USER:bytes=SIZE,segments=N,clients=N, as in default:bytes=1G")
        })?;
        let whom = match (user, user.parse()) {
            ("default", _) => QuotaSubject::Everybody,
            ("", _) => return Err(format!("{text:?} names no user")),
            (_, Ok(uid)) => QuotaSubject::User(uid),
            (name, Err(_)) => QuotaSubject::Named(name.to_owned()),
        };
        let mut rule = Self { whom, bounds: QuotaLimits::default() };
        for part in bounds.split(',') {
            let (what, how_much) = part.split_once('=').unwrap_or((part, ""));
            let bound = match what {
                "bytes" => &mut rule.bounds.bytes,
                "segments" => &mut rule.bounds.segments,
                "clients" => &mut rule.bounds.clients,
                _ => return Err(format!("{what:?} in {text:?} has no quota: there are bytes, segments and clients")),
            };
            let amount = amount(how_much).ok_or_else(|| {
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
        match &self.whom {
            QuotaSubject::Everybody => f.write_str("default"),
            QuotaSubject::User(uid) => write!(f, "{uid}"),
            QuotaSubject::Named(name) => f.write_str(name),
        }?;
        let QuotaLimits { bytes, segments, clients } = self.bounds;
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

/// All rules, with every name made a number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaTable {
    quotas: Quotas,
    clients_of_everybody: Option<u64>,
    clients: BTreeMap<u32, u64>,
}

impl QuotaTable {
    /// Of rules; of a user of whom only a part is said, the rest is everybody's.
    pub fn new(rules: &[QuotaRule]) -> Result<Self, String> {
        Self::among(rules, uid_of)
    }

    fn among(rules: &[QuotaRule], uid_of: impl Fn(&str) -> Result<u32, String>) -> Result<Self, String> {
        let mut everybody = QuotaLimits::default();
        let mut users: BTreeMap<u32, QuotaLimits> = BTreeMap::new();
        let mut named_default = false;
        for rule in rules {
            let uid = match &rule.whom {
                QuotaSubject::Everybody if named_default => {
                    return Err("the quota of default is given twice".to_owned());
                }
                QuotaSubject::Everybody => {
                    (everybody, named_default) = (rule.bounds, true);
                    continue;
                }
                QuotaSubject::User(uid) => *uid,
                QuotaSubject::Named(name) => uid_of(name)?,
            };
            if users.insert(uid, rule.bounds).is_some() {
                return Err(format!("the quota of user {uid} is given twice"));
            }
        }
        let quota = |bounds: QuotaLimits| Quota {
            bytes: bounds.bytes.unwrap_or(u64::MAX),
            segments: bounds.segments.unwrap_or(u64::MAX),
        };
        let mut table = Self { clients_of_everybody: everybody.clients, ..Self::default() };
        table.quotas.everybody = quota(everybody);
        for (uid, bounds) in users {
            // What is said of everybody is not said of root.
            let rest = if uid == 0 { QuotaLimits::default() } else { everybody };
            let bytes = bounds.bytes.or(rest.bytes);
            let segments = bounds.segments.or(rest.segments);
            table.quotas.users.insert(uid, quota(QuotaLimits { bytes, segments, clients: None }));
            if let Some(clients) = bounds.clients.or(rest.clients) {
                table.clients.insert(uid, clients);
            }
        }
        Ok(table)
    }

    /// What each of so many planes allows: an equal part of the bytes and segments, rounded up. Clients attach to a plane
    /// when they need it, so each plane counts all of them.
    pub(crate) fn of_plane(&self, planes: u8) -> Self {
        let part = |all: u64| if all == u64::MAX { all } else { all.div_ceil(planes.max(1).into()) };
        let quota = |quota: Quota| Quota { bytes: part(quota.bytes), segments: part(quota.segments) };
        let mut table = self.clone();
        table.quotas.everybody = quota(table.quotas.everybody);
        table.quotas.users.values_mut().for_each(|theirs| *theirs = quota(*theirs));
        table
    }

    /// How many clients a user may have at the same time.
    fn clients_of(&self, uid: u32) -> u64 {
        let everybody = if uid == 0 { None } else { self.clients_of_everybody };
        self.clients.get(&uid).copied().or(everybody).unwrap_or(u64::MAX)
    }
}

/// The table that is in force, for the progress thread, the reception, and whoever changes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedQuotas(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<QuotaTable>,
    changed: AtomicBool,
    /// Clients that were refused.
    refused: AtomicU64,
}

impl SharedQuotas {
    pub(crate) fn set(&self, table: QuotaTable) {
        *self.0.table.lock().unwrap_or_else(PoisonError::into_inner) = table;
        // pairs with the swap in `changed`
        self.0.changed.store(true, Ordering::Release);
    }

    /// What the engine is to be told, if it was not yet. A load when there is nothing.
    #[inline]
    pub(crate) fn changed(&self) -> Option<Quotas> {
        if !self.0.changed.load(Ordering::Relaxed) || !self.0.changed.swap(false, Ordering::Acquire) {
            return None;
        }
        Some(self.0.table.lock().unwrap_or_else(PoisonError::into_inner).quotas.clone())
    }

    /// Whether a user who has so many clients may have one more; else why not.
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

    /// Clients that were refused so far.
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
    fn rules_are_read_as_they_are_written() {
        // If this broke, a user would have more or less than what the operator wrote.
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
    fn of_a_user_counts_what_is_said_of_him_and_then_what_is_said_of_everybody() {
        // If this broke, a rule for one user would lift every bound from him that it does not name.
        let accounts = |name: &str| if name == "alice" { Ok(1001) } else { Err(format!("no user {name:?}")) };
        let table = QuotaTable::among(
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
            let error = QuotaTable::among(&rules(texts), accounts).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn planes_share_what_a_user_may_have() {
        // If this broke, a user would have his quota once for each progress thread, or less than nothing.
        let table = QuotaTable::new(&rules(&["default:bytes=100,segments=5,clients=2", "7:segments=0"])).unwrap();
        assert_eq!(table.of_plane(1), table);
        let part = table.of_plane(2);
        assert_eq!(part.quotas.of(5), Quota { bytes: 50, segments: 3 });
        assert_eq!(part.quotas.of(7), Quota { bytes: 50, segments: 0 });
        assert_eq!((part.quotas.of(0), part.clients_of(5)), (Quota::default(), 2));
    }

    #[test]
    fn a_table_that_was_changed_is_told_once() {
        // If this broke, a quota that was raised would be in force with the next start only.
        let shared = SharedQuotas::default();
        assert_eq!(shared.changed(), None);
        shared.set(QuotaTable::new(&rules(&["5:segments=1,clients=1"])).unwrap());
        assert_eq!(shared.changed().unwrap().of(5).segments, 1);
        assert_eq!(shared.changed(), None);
        assert!(shared.admit(5, 0).is_ok() && shared.admit(6, 100).is_ok());
        assert!(shared.admit(5, 1).unwrap_err().contains("has 1 clients attached and may have 1"));
        assert_eq!(shared.refused(), 1);
    }
}
