//! Quota of a user in its written form.
//!
//! A rule is `USER:bytes=SIZE,segments=N,clients=N`, each part of it optional. USER is a uid, a user name, or
//! `default` for all users without a rule of their own except root.

use super::byte_size::parse_amount;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Users that a rule applies to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuotaSubject {
    /// All users without a rule of their own, except root.
    Default,
    /// The user with this uid.
    User(u32),
    /// The user with this name.
    Named(String),
}

/// Limits of one user. `None` means that this rule does not limit the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaLimits {
    /// Bytes of all segments.
    pub bytes: Option<u64>,
    /// Number of segments.
    pub segments: Option<u64>,
    /// Number of clients at the same time.
    pub clients: Option<u64>,
}

/// One rule in its written form.
///
/// ```
/// use ddss_admin::QuotaRule;
/// let rule: QuotaRule = "default:bytes=1G,segments=1000".parse()?;
/// assert_eq!(rule.to_string(), "default:bytes=1073741824,segments=1000");
/// assert!("default".parse::<QuotaRule>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QuotaRule {
    /// Users that the rule applies to.
    pub subject: QuotaSubject,
    /// Limits of each of these users.
    pub limits: QuotaLimits,
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

as_text!(QuotaRule);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_rules_round_trip_as_text() {
        // If this failed, a user would have more or less than the operator configured.
        for text in ["default:bytes=1,segments=2,clients=3", "1000:clients=0", "alice:bytes=5"] {
            assert_eq!(text.parse::<QuotaRule>().unwrap().to_string(), text);
        }
        assert_eq!("7:bytes=3k".parse::<QuotaRule>().unwrap().to_string(), "7:bytes=3072");
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
}
