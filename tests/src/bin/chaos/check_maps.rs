//! Checks that the workers' observations of maps are possible.
//!
//! Each key has one writer, so its changes have one order. A get sees the last change that had ended before it began, or a
//! later one that began before the get ended. A change with an unknown outcome may appear at any time after it began.
//! A get that began after another had ended sees no older value.

use crate::check::Verdict;
use crate::log::{End, Kind, Record};
use crate::maps::ABSENT;
use crate::worker::TORN;
use std::collections::{BTreeMap, HashMap};

/// A change of a key; one with an unknown outcome has no end.
#[derive(Clone, Copy, Debug)]
struct Change {
    value: u64,
    began_ns: u64,
    ended_ns: Option<u64>,
}

/// Changes and gets of one key of one map.
#[derive(Default, Debug)]
pub(crate) struct KeyRecords {
    changes: Vec<Change>,
    gets: Vec<Record>,
}

/// All records of maps, by place and key.
pub(crate) type MapRecords = BTreeMap<(usize, u64), KeyRecords>;

/// Sorts the records of maps in one life's log.
pub(crate) fn sort(records: &[Record], into: &mut MapRecords) {
    for (index, record) in records.iter().enumerate() {
        let key = || (record.segment, record.version);
        match (record.kind, record.end) {
            (Kind::Find, End::Done) => into.entry(key()).or_default().gets.push(*record),
            (Kind::Insert | Kind::Remove, end) => {
                // A change with a result has a second record; the last change of a killed worker has none.
                let has_result = end == End::Begun && index + 1 < records.len();
                if !has_result && end != End::Failed {
                    let Record { value, began_ns, ended_ns, .. } = *record;
                    let ended_ns = (end == End::Done).then_some(ended_ns);
                    into.entry(key()).or_default().changes.push(Change { value, began_ns, ended_ns });
                }
            }
            _ => {}
        }
    }
}

/// Checks all keys. `last` has the final value of each key.
pub(crate) fn check(records: &mut MapRecords, last: &BTreeMap<(usize, u64), u64>, verdict: &mut Verdict) {
    for &key in last.keys() {
        records.entry(key).or_default();
    }
    for (place, KeyRecords { changes, gets }) in records {
        changes.sort_unstable_by_key(|change| change.began_ns);
        gets.sort_unstable_by_key(|get| get.began_ns);
        let key = KeyHistory::new(changes);
        let found = key.check(gets).into_iter();
        verdict.violations.extend(found.map(|what| format!("key {} of map {}: {what}", place.1, place.0)));
        if let Some(&value) = last.get(place)
            && let Err(what) = key.explain(value, u64::MAX, u64::MAX)
        {
            verdict.lost += 1;
            verdict.violations.push(format!("key {} of map {} in the end: {what}", place.1, place.0));
        }
    }
}

/// Changes of a key in their order.
struct KeyHistory<'a> {
    changes: &'a [Change],
    /// Ends and places of the changes with a known outcome.
    ends: Vec<(u64, usize)>,
    by_value: HashMap<u64, usize>,
    /// Places of the removals.
    removals: Vec<usize>,
}

impl<'a> KeyHistory<'a> {
    fn new(changes: &'a [Change]) -> Self {
        let places = || changes.iter().enumerate();
        Self {
            changes,
            ends: places().filter_map(|(place, change)| Some((change.ended_ns?, place))).collect(),
            by_value: places().filter(|(_, change)| change.value != ABSENT).map(|(i, c)| (c.value, i)).collect(),
            removals: places().filter(|(_, change)| change.value == ABSENT).map(|(place, _)| place).collect(),
        }
    }

    /// Finds the change that a get between these times saw; `None` is the key's absence before all changes.
    fn explain(&self, value: u64, began_ns: u64, ended_ns: u64) -> Result<Option<usize>, String> {
        if value == TORN {
            return Err("a torn value".to_owned());
        }
        // The last change that had certainly happened.
        let before = self.ends.partition_point(|&(end_ns, _)| end_ns < began_ns);
        let last = before.checked_sub(1).map(|index| self.ends[index].1);
        let is_possible = |&place: &usize| {
            let change = &self.changes[place];
            change.began_ns <= ended_ns && (change.ended_ns.is_none() || last.is_none_or(|last| place >= last))
        };
        let seen = if value == ABSENT {
            let first = last.map_or(0, |last| self.removals.partition_point(|&place| place < last));
            let unknown = || self.removals.iter().find(|&&place| self.changes[place].ended_ns.is_none());
            self.removals[first..].first().into_iter().chain(unknown()).copied().find(is_possible)
        } else {
            self.by_value.get(&value).copied().filter(is_possible)
        };
        match seen {
            None if value == ABSENT && last.is_none() => Ok(None),
            None => Err(format!("{value:x} was seen after {:?}", last.map(|last| self.changes[last]))),
            seen => Ok(seen),
        }
    }

    /// Checks the gets, in the order in which they began.
    fn check(&self, gets: &[Record]) -> Vec<String> {
        let mut found = Vec::new();
        // Ends of the gets of values, and the changes that they saw.
        let mut seen: Vec<(u64, usize)> = Vec::new();
        for get in gets {
            match self.explain(get.value, get.began_ns, get.ended_ns) {
                Ok(Some(place)) if get.value != ABSENT => seen.push((get.ended_ns, place)),
                Ok(_) => {}
                Err(what) => found.push(format!("{what}: {get:?}")),
            }
        }
        seen.sort_unstable();
        let mut newest = 0;
        let newest_until: Vec<usize> = seen
            .iter()
            .map(|&(_, place)| {
                newest = newest.max(place);
                newest
            })
            .collect();
        for get in gets.iter().filter(|get| get.value != ABSENT) {
            let Some(&place) = self.by_value.get(&get.value) else { continue };
            let before = seen.partition_point(|&(end_ns, _)| end_ns < get.began_ns);
            let older = before.checked_sub(1).is_some_and(|index| place < newest_until[index]);
            if older && self.changes[place].ended_ns.is_some() {
                found.push(format!("an older value was seen after a newer one: {get:?}"));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, end: End, times: (u64, u64), value: u64) -> Record {
        Record { kind, end, segment: 9, began_ns: times.0, ended_ns: times.1, version: 5, value }
    }

    /// Checks the log of the key's writer, that of another worker, and the last value; returns the number of violations.
    fn judge(writer: &[Record], other: &[Record], last: u64) -> (usize, u64) {
        let (mut records, mut verdict) = (MapRecords::new(), Verdict::default());
        sort(writer, &mut records);
        sort(other, &mut records);
        check(&mut records, &BTreeMap::from([((9, 5), last)]), &mut verdict);
        (verdict.violations.len(), verdict.lost)
    }

    #[test]
    fn values_that_the_order_of_changes_explains_pass_and_no_others() {
        // If this failed, a map that loses changes or brings removed keys back would pass each run.
        let change = |kind, end, times, value| record(kind, end, times, value);
        let both = |kind, times: (u64, u64), value| {
            [change(kind, End::Begun, (times.0, times.0), value), change(kind, End::Done, times, value)]
        };
        let find = |times, value| record(Kind::Find, End::Done, times, value);
        let done = [both(Kind::Insert, (10, 12), 1), both(Kind::Insert, (20, 22), 2), both(Kind::Remove, (30, 32), 0)]
            .concat();
        let good = [
            find((5, 6), 0),
            find((9, 11), 1),
            find((13, 14), 1),
            find((19, 21), 2),
            find((25, 31), 0),
            find((40, 41), 0),
        ];
        assert_eq!(judge(&done, &good, 0), (0, 0));
        for bad in [
            find((13, 14), 0),
            find((13, 14), 2),
            find((23, 24), 1),
            find((33, 34), 2),
            find((40, 41), 7),
            find((40, 41), TORN),
        ] {
            assert_eq!(judge(&done, &[bad], 0), (1, 0), "{bad:?}");
        }
        assert_eq!(judge(&done, &[], 2), (1, 1), "the removal is lost");
        assert_eq!(judge(&done[..4], &[], 0), (1, 1), "the insert is lost");
        let inversion = [find((20, 21), 2), find((22, 24), 1)];
        assert_eq!(judge(&done[..4], &inversion, 2), (1, 0), "an older value after a newer one");
        // A worker that was killed in its last change, and one that does not know how its last change ended.
        let killed = [&done[..4], &[change(Kind::Remove, End::Begun, (30, 30), 0)]].concat();
        let in_doubt = [&done[..4], &[change(Kind::Remove, End::Unknown, (30, 35), 0)]].concat();
        for unknown in [killed, in_doubt] {
            for last in [0, 2] {
                assert_eq!(judge(&unknown, &[find((40, 41), 2), find((50, 51), 0)], last), (0, 0));
            }
            assert_eq!(judge(&unknown, &[find((28, 29), 0)], 0), (1, 0), "seen before it began");
        }
        let failed = [
            &done[..4],
            &[change(Kind::Insert, End::Begun, (30, 30), 3), change(Kind::Insert, End::Failed, (30, 31), 3)],
        ]
        .concat();
        assert_eq!(judge(&failed, &[find((40, 41), 3)], 2), (1, 0), "its insert had failed");
    }
}
