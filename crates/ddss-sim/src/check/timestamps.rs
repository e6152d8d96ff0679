//! The check of timestamps: a version has one, and a later version of the same segment has a later one.

use std::collections::BTreeMap;

/// What was told of the versions of each segment.
#[derive(Clone, Debug, Default)]
pub struct Stamps {
    /// By segment and version.
    told: BTreeMap<(u64, u64), u64>,
    violations: Vec<String>,
}

impl Stamps {
    /// Somebody was told of a version of a segment, and of when it was made.
    pub fn told(&mut self, segment: u64, version: u64, timestamp: u64) {
        let before = *self.told.entry((segment, version)).or_insert(timestamp);
        if before != timestamp {
            self.violations.push(format!("segment {segment}: version {version} is of {before}, and of {timestamp}"));
        }
    }

    /// Somebody made a version of a segment, wherever that is at home, and the clients of his node had been told of that
    /// timestamp, of whatever segment, before he asked.
    pub fn made(&mut self, segment: u64, version: u64, timestamp: u64, heard: u64) {
        if timestamp <= heard {
            let what = format!(
                "segment {segment}: version {version} is of {timestamp}, though its maker's node had heard of {heard}"
            );
            self.violations.push(what);
        }
    }

    /// Everything that must not be.
    pub fn violations(&self) -> Vec<String> {
        let mut found = self.violations.clone();
        for ((&(segment, version), timestamp), (&(same, next), later)) in self.told.iter().zip(self.told.iter().skip(1))
        {
            if segment == same && timestamp >= later {
                found.push(format!("segment {segment}: version {version} is of {timestamp}, and {next} of {later}"));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_version_to_version_and_nowhere_else() {
        // If this broke, whoever sorts by timestamps what came from several segments could be told any order.
        let violations = |told: &[(u64, u64, u64)]| {
            let mut stamps = Stamps::default();
            told.iter().for_each(|&(segment, version, timestamp)| stamps.told(segment, version, timestamp));
            stamps.violations().len()
        };
        assert_eq!(violations(&[(1, 3, 30), (1, 1, 10), (1, 3, 30), (2, 2, 5), (2, 9, 6)]), 0);
        assert_eq!(violations(&[(1, 1, 10), (1, 1, 11)]), 1, "two times of one version");
        assert_eq!(violations(&[(1, 1, 10), (1, 2, 10)]), 1, "it stands still");
        let mut stamps = Stamps::default();
        stamps.made(1, 1, 11, 10);
        assert_eq!(stamps.violations().len(), 0);
        stamps.made(1, 2, 12, 12);
        assert_eq!(stamps.violations().len(), 1, "it does not come after what was known");
        assert_eq!(violations(&[(1, 9, 10), (1, 2, 11), (1, 1, 9)]), 1, "it goes back");
    }
}
