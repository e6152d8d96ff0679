//! Tables of a settings file: `[metrics] listen = ".."` means `metrics-listen`, and `[quota.alice] bytes = "1G"` means
//! `quota = ["alice:bytes=1G"]`.

use toml::{Table, Value};

/// Tables whose keys are settings, with the table's name as prefix.
const GROUPS: &[&str] = &["metrics"];

/// Replaces the tables by their settings. Returns true if there were any.
pub(crate) fn expand_tables(settings: &mut Table) -> Result<bool, String> {
    let mut found = expand_quota_tables(settings)?;
    for &group in GROUPS {
        let Some(value) = settings.remove(group) else { continue };
        let Value::Table(inner) = value else {
            return Err(format!("`{group}` is a table: write `[{group}]`, and its settings below"));
        };
        found = true;
        for (key, value) in inner {
            let name = format!("{group}-{key}");
            if settings.insert(name.clone(), value).is_some() {
                return Err(format!("`{name}` and `[{group}] {key}` say the same thing twice"));
            }
        }
    }
    Ok(found)
}

fn expand_quota_tables(settings: &mut Table) -> Result<bool, String> {
    let Some(Value::Table(users)) = settings.get("quota") else { return Ok(false) };
    let mut rules = Vec::new();
    for (user, bounds) in users {
        let Value::Table(bounds) = bounds else {
            return Err(format!(
                "write `[quota.default]`, or the user's name or number instead of default, and `{user}` below"
            ));
        };
        let parts = bounds.iter().map(|(what, amount)| match amount {
            Value::String(amount) => format!("{what}={amount}"),
            amount => format!("{what}={amount}"),
        });
        rules.push(Value::String(format!("{user}:{}", parts.collect::<Vec<_>>().join(","))));
    }
    settings.insert("quota".to_owned(), Value::Array(rules));
    Ok(true)
}
