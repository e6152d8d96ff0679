//! A number of segments, and the first of their names.

use serde::{Deserialize, Serialize};

/// Maximum number of names that are listed.
pub(crate) const LISTED_NAMES_MAX: usize = 10;

/// Number of some segments, and the first of their names.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::control) struct NameSample {
    pub(in crate::control) count: usize,
    listed: Vec<String>,
}

impl NameSample {
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut sample = Self::default();
        for name in names {
            sample.count += 1;
            if sample.listed.len() < LISTED_NAMES_MAX {
                sample.listed.push(name.to_owned());
            }
        }
        sample
    }

    /// Returns the names as text.
    pub(in crate::control) fn names(&self) -> String {
        let more = self.count.saturating_sub(self.listed.len());
        let listed = self.listed.join(", ");
        if more == 0 { listed } else { format!("{listed} and {more} more") }
    }
}
