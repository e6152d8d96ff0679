//! Tables of a configuration file as the settings that they stand for: `[metrics] listen = ".."` is `metrics-listen`.

use toml::{Table, Value};

/// Tables whose keys are settings of their own, under the table's name.
const GROUPS: &[&str] = &["metrics"];

/// Takes the tables apart; whether there were any.
pub(crate) fn take_apart(settings: &mut Table) -> Result<bool, String> {
    let mut found = false;
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
