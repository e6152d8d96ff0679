//! Timestamp checker: a version has one timestamp, and later versions of a segment have later timestamps.

use std::collections::BTreeMap;

/// Timestamps that clients have seen, by segment and version.
#[derive(Clone, Debug, Default)]
pub struct TimestampChecker {
    /// By segment and version.
    told: BTreeMap<(u64, u64), u64>,
    violations: Vec<String>,
}

impl TimestampChecker {
    /// Records that a client has seen a version and its timestamp.
    pub fn told(&mut self, segment: u64, version: u64, timestamp: u64) {
        let before = *self.told.entry((segment, version)).or_insert(timestamp);
        if before != timestamp {
            self.violations.push(format!("segment {segment}: version {version} is of {before}, and of {timestamp}"));
        }
    }

    /// Records that a client made a version. `heard` is the newest timestamp, of any segment, that the clients of its node
    /// had seen before the request.
    pub fn made(&mut self, segment: u64, version: u64, timestamp: u64, heard: u64) {
        if timestamp <= heard {
            let what = format!(
                "segment {segment}: version {version} is of {timestamp}, though its maker's node had heard of {heard}"
            );
            self.violations.push(what);
        }
    }

    /// Returns all violations.
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
    fn timestamps_must_increase_with_versions() {
        // Applications sort versions of several segments by their timestamps.
        let violations = |told: &[(u64, u64, u64)]| {
            let mut stamps = TimestampChecker::default();
            told.iter().for_each(|&(segment, version, timestamp)| stamps.told(segment, version, timestamp));
            stamps.violations().len()
        };
        assert_eq!(violations(&[(1, 3, 30), (1, 1, 10), (1, 3, 30), (2, 2, 5), (2, 9, 6)]), 0);
        assert_eq!(violations(&[(1, 1, 10), (1, 1, 11)]), 1, "two times of one version");
        assert_eq!(violations(&[(1, 1, 10), (1, 2, 10)]), 1, "it stands still");
        let mut stamps = TimestampChecker::default();
        stamps.made(1, 1, 11, 10);
        assert_eq!(stamps.violations().len(), 0);
        stamps.made(1, 2, 12, 12);
        assert_eq!(stamps.violations().len(), 1, "it does not come after what was known");
        assert_eq!(violations(&[(1, 9, 10), (1, 2, 11), (1, 1, 9)]), 1, "it goes back");
    }
}
