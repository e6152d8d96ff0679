//! What clients saw, and the check by version: exact, and O(n log n).
//!
//! Each put writes the whole segment with bytes that only it writes; each get returns a version and bytes. Then:
//! a version has one writer and one value; a get returns the value of the version that it names; and no operation
//! that began after another had ended goes back to a lower version.

use std::collections::HashMap;

/// One operation as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Which segment.
    pub segment: u64,
    /// When it was asked for, in virtual microseconds.
    pub began_us: u64,
    /// When the answer came; `u64::MAX` if none did that says what happened.
    pub ended_us: u64,
    /// Whether it was a put.
    pub put: bool,
    /// The version that was made or read; `None` if nobody knows whether it happened.
    pub version: Option<u64>,
    /// What was written or read, told apart by its writer's mark; `None` if the bytes were a mix.
    pub mark: Option<u64>,
}

/// All observations of one run.
#[derive(Clone, Debug, Default)]
pub struct History {
    observations: Vec<Observation>,
}

impl History {
    /// The mark of a segment that nobody has written to.
    pub const FRESH: u64 = 0;

    /// Notes one.
    pub fn note(&mut self, observation: Observation) {
        self.observations.push(observation);
    }

    /// How many were noted.
    pub fn len(&self) -> usize {
        self.observations.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.observations.is_empty()
    }

    /// Everything that must not be.
    pub fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut by_segment: HashMap<u64, Vec<&Observation>> = HashMap::new();
        for observation in &self.observations {
            by_segment.entry(observation.segment).or_default().push(observation);
        }
        let mut segments: Vec<_> = by_segment.into_iter().collect();
        segments.sort_by_key(|&(segment, _)| segment);
        for (segment, observations) in segments {
            Self::check_values(segment, &observations, &mut found);
            Self::check_order(segment, &observations, &mut found);
        }
        found
    }

    fn check_values(segment: u64, observations: &[&Observation], found: &mut Vec<String>) {
        let mut value_of: HashMap<u64, u64> = HashMap::from([(0, Self::FRESH)]);
        let mut maybe: HashMap<u64, u64> = HashMap::new();
        for put in observations.iter().filter(|observation| observation.put) {
            let Some(mark) = put.mark else { continue };
            match put.version {
                Some(version) => {
                    if let Some(other) = value_of.insert(version, mark) {
                        found.push(format!("segment {segment}: version {version} has two writers: {other} and {mark}"));
                    }
                }
                None => {
                    maybe.insert(mark, put.began_us);
                }
            }
        }
        for get in observations.iter().filter(|observation| !observation.put) {
            let (Some(version), Some(mark)) = (get.version, get.mark) else {
                found.push(format!("segment {segment}: a get at {} returned a mix: {get:?}", get.began_us));
                continue;
            };
            match value_of.get(&version) {
                Some(&value) if value == mark => {}
                Some(value) => found.push(format!("segment {segment}: version {version} is {value}, read as {mark}")),
                None => match maybe.remove(&mark) {
                    Some(began_us) if began_us <= get.ended_us => {
                        value_of.insert(version, mark);
                    }
                    _ => found.push(format!("segment {segment}: version {version} was read as {mark}, by nobody put")),
                },
            }
        }
    }

    fn check_order(segment: u64, observations: &[&Observation], found: &mut Vec<String>) {
        let mut known: Vec<&Observation> = observations.iter().copied().filter(|seen| seen.version.is_some()).collect();
        known.sort_by_key(|seen| seen.began_us);
        let mut ends: Vec<(u64, u64)> = known.iter().filter_map(|seen| Some((seen.ended_us, seen.version?))).collect();
        ends.sort_unstable();
        let (mut next, mut newest) = (0, 0);
        for seen in known {
            while next < ends.len() && ends[next].0 < seen.began_us {
                newest = newest.max(ends[next].1);
                next += 1;
            }
            let version = seen.version.unwrap_or(0);
            if version < newest || (seen.put && version == newest) {
                let what = if seen.put { "put" } else { "get" };
                found.push(format!(
                    "segment {segment}: a {what} that began at {} has version {version}, but {newest} was there before",
                    seen.began_us
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(put: bool, began_us: u64, ended_us: u64, version: u64, mark: u64) -> Observation {
        Observation { segment: 1, began_us, ended_us, put, version: Some(version), mark: Some(mark) }
    }

    fn violations(observations: &[Observation]) -> usize {
        History { observations: observations.to_vec() }.violations().len()
    }

    #[test]
    fn the_checker_finds_what_it_is_there_to_find() {
        // If this broke, every simulation and every chaos run would pass, whatever the engine did.
        let good = [seen(true, 0, 10, 1, 5), seen(false, 11, 12, 1, 5), seen(true, 11, 20, 2, 6)];
        assert_eq!(violations(&good), 0);
        let stale = seen(false, 30, 31, 1, 5);
        assert_eq!(violations(&[good[0].clone(), good[2].clone(), stale]), 1);
        let lost_update = seen(true, 5, 9, 1, 7);
        assert_eq!(violations(&[good[0].clone(), lost_update]), 1);
        let wrong_value = seen(false, 11, 12, 1, 6);
        assert_eq!(violations(&[good[0].clone(), wrong_value]), 1);
        let torn = Observation { mark: None, ..seen(false, 11, 12, 1, 0) };
        assert_eq!(violations(&[good[0].clone(), torn]), 1);
        let from_nowhere = seen(false, 11, 12, 9, 9);
        assert_eq!(violations(&[good[0].clone(), from_nowhere]), 1);
    }

    #[test]
    fn a_put_that_nobody_knows_of_may_show_up_once() {
        // If this broke, a lost connection would look like a violation, or hide one.
        let maybe = Observation { version: None, ended_us: u64::MAX, ..seen(true, 0, 0, 0, 5) };
        assert_eq!(violations(&[maybe.clone(), seen(false, 20, 21, 1, 5)]), 0);
        assert_eq!(violations(&[maybe.clone(), seen(false, 20, 21, 1, 5), seen(false, 22, 23, 2, 5)]), 1);
        assert_eq!(violations(&[maybe]), 0);
    }
}
