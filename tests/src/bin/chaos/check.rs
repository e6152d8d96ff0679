//! Checks that the workers' observations are possible.
//!
//! For each segment by version: a version has one writer and one value. A call that began after another had ended sees
//! no lower version (a put: a higher one). No get ends before the put that it saw began. For counters, no two changes
//! saw the same word, a word equals its version, and the final word is the number of additions. Every acknowledged put
//! is present in the end. `check_maps.rs` checks maps.

use crate::check_maps::{self, MapRecords};
use crate::log::{End, Kind, Record};
use crate::worker::{COUNTERS, TIMEOUT, TORN, VALUES};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Permitted delay of a call beyond its deadline on a machine with shared cores.
const GRACE_NS: u64 = 1_000_000_000;

/// Result of the check.
#[derive(Default, Debug)]
pub(crate) struct Verdict {
    pub(crate) operations: u64,
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
    pub(crate) violations: Vec<String>,
    pub(crate) lost: u64,
    pub(crate) late: u64,
}

/// Splits a mark into the worker with its life, and the number of the put.
fn author(mark: u64) -> (u64, u64) {
    (mark >> 32, mark & u64::from(u32::MAX))
}

/// Checks all observations. `logs` has the log of each life, by worker and life. `last` has the final version and value
/// of each segment, `keys` the final value of each key of each map.
pub(crate) fn check(
    logs: &HashMap<u64, Vec<Record>>,
    last: &[(u64, u64)],
    keys: &BTreeMap<(usize, u64), u64>,
) -> Verdict {
    let mut verdict = Verdict::default();
    let mut of_maps = MapRecords::new();
    let mut by_segment: Vec<Vec<Record>> = vec![Vec::new(); VALUES + COUNTERS];
    let mut last_put: HashMap<u64, u64> = HashMap::new();
    for (&life, records) in logs {
        check_maps::sort(records, &mut of_maps);
        for record in records {
            verdict.operations += u64::from(record.end == End::Done);
            verdict.failed += u64::from(record.end == End::Failed);
            verdict.unknown += u64::from(record.end == End::Unknown);
            verdict.late += u64::from(record.ended_ns - record.began_ns > TIMEOUT.as_nanos() as u64 + GRACE_NS);
            if record.kind == Kind::Put {
                last_put.insert(life, author(record.value).1);
            }
            if let Some(of_segment) = by_segment.get_mut(record.segment) {
                of_segment.push(*record);
            }
        }
    }
    for (segment, records) in by_segment.iter_mut().enumerate() {
        records.sort_unstable_by_key(|record| record.began_ns);
        if segment < VALUES {
            values(segment, records, &last_put, last[segment], &mut verdict);
        } else {
            counter(segment, records, last[segment], logs.len() as u64, &mut verdict);
        }
        real_time(segment, records, &mut verdict);
    }
    check_maps::check(&mut of_maps, keys, &mut verdict);
    verdict
}

fn values(segment: usize, records: &[Record], last_put: &HashMap<u64, u64>, last: (u64, u64), verdict: &mut Verdict) {
    let mut written: HashMap<u64, Record> = HashMap::new();
    let mut failed: HashSet<u64> = HashSet::new();
    for put in records.iter().filter(|record| record.kind == Kind::Put) {
        match put.end {
            End::Done => {
                if let Some(other) = written.insert(put.version, *put) {
                    verdict.violations.push(format!(
                        "segment {segment}: version {} was made by {:x} and by {:x}",
                        put.version, other.value, put.value
                    ));
                }
            }
            End::Failed => drop(failed.insert(put.value)),
            End::Unknown | End::Begun => {}
        }
    }
    let mut seen: HashMap<u64, u64> = HashMap::new();
    let gets = records.iter().filter(|record| record.kind == Kind::Get && record.end == End::Done).copied();
    let end = Record {
        kind: Kind::Get,
        end: End::Done,
        segment,
        began_ns: u64::MAX,
        ended_ns: u64::MAX,
        version: last.0,
        value: last.1,
    };
    for get in gets.chain([end]) {
        let Record { version, value, .. } = get;
        if value == TORN {
            verdict.violations.push(format!("segment {segment}: a torn value of version {version}"));
        }
        if *seen.entry(version).or_insert(value) != value {
            verdict.violations.push(format!("segment {segment}: two values of version {version}"));
        }
        if failed.contains(&value) {
            verdict.violations.push(format!("segment {segment}: {value:x} is there, and its put had failed"));
        }
        match written.get(&version) {
            Some(put) if put.value != value => {
                verdict
                    .violations
                    .push(format!("segment {segment}: version {version} is {:x}, and {value:x} was seen", put.value));
            }
            Some(put) if put.began_ns > get.ended_ns => {
                verdict.violations.push(format!("segment {segment}: version {version} was seen before its put began"));
            }
            Some(_) => {}
            // For a put with an unknown outcome, or one that its worker did not live to record.
            None if version > 0 => {
                let (life, sequence) = author(value);
                if last_put.get(&life).copied().unwrap_or(0) + 1 < sequence {
                    verdict.violations.push(format!("segment {segment}: {value:x} was never put"));
                }
            }
            None => {}
        }
    }
    verdict.lost += written.keys().filter(|&&version| version > last.0).count() as u64;
}

fn counter(segment: usize, records: &[Record], last: (u64, u64), lives: u64, verdict: &mut Verdict) {
    let mut before: HashSet<u64> = HashSet::new();
    let (mut done, mut unknown) = (0, 0);
    for add in records {
        // Each change adds one, so a counter's version equals its word.
        let word = add.value + u64::from(!add.kind.is_harmless());
        if add.end == End::Done && add.version != word {
            verdict.violations.push(format!("counter {segment}: version {} goes with the word {word}", add.version));
        }
        if add.kind.is_harmless() {
            continue;
        }
        match add.end {
            End::Done => {
                done += 1;
                if !before.insert(add.value) {
                    verdict.violations.push(format!("counter {segment}: two changes saw {}", add.value));
                }
            }
            End::Unknown => unknown += 1,
            End::Failed | End::Begun => {}
        }
    }
    // Each life may have had one addition in flight when it was killed.
    if last.1 < done {
        verdict.lost += done - last.1;
    } else if last.1 > done + unknown + lives {
        verdict.violations.push(format!("counter {segment}: {} is more than the {done} that were added", last.1));
    }
}

/// Checks the real-time order of records, sorted by their beginning.
fn real_time(segment: usize, records: &[Record], verdict: &mut Verdict) {
    let done = |record: &&Record| record.end == End::Done;
    let mut ends: Vec<(u64, u64)> =
        records.iter().filter(done).map(|record| (record.ended_ns, record.version)).collect();
    ends.sort_unstable();
    let (mut next, mut newest) = (0, 0);
    for record in records.iter().filter(done) {
        while next < ends.len() && ends[next].0 < record.began_ns {
            newest = newest.max(ends[next].1);
            next += 1;
        }
        let back =
            if record.kind.is_harmless() { record.version < newest } else { record.version <= newest && newest > 0 };
        if back {
            verdict.violations.push(format!(
                "segment {segment}: {:?} of version {} after version {newest}",
                record.kind, record.version
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, segment: usize, times: (u64, u64), version: u64, value: u64) -> Record {
        Record { kind, end: End::Done, segment, began_ns: times.0, ended_ns: times.1, version, value }
    }

    fn judge(records: Vec<Record>, last: (u64, u64)) -> Verdict {
        let mut ends = vec![(0, 0); VALUES + COUNTERS];
        ends[records[0].segment] = last;
        check(&HashMap::from([(1, records)]), &ends, &BTreeMap::new())
    }

    #[test]
    fn checker_reports_each_planted_violation() {
        // If this failed, a run full of violations would pass.
        let mark = |sequence: u64| 1 << 32 | sequence;
        let put = |times, version, sequence| record(Kind::Put, 0, times, version, mark(sequence));
        let get = |times, version, sequence| record(Kind::Get, 0, times, version, mark(sequence));
        let add = |times, version, before| record(Kind::Add, VALUES, times, version, before);
        let good = vec![put((1, 2), 1, 1), get((3, 4), 1, 1), put((5, 6), 2, 2)];
        let verdict = judge(good.clone(), (2, mark(2)));
        assert!(verdict.violations.is_empty() && verdict.lost == 0 && verdict.operations == 3, "{verdict:?}");
        assert_eq!(judge(good, (1, mark(1))).lost, 1);
        let bad = [
            vec![put((1, 2), 1, 1), put((3, 4), 1, 2)],
            vec![put((1, 2), 1, 1), put((3, 4), 2, 2), get((5, 6), 1, 1)],
            vec![put((1, 2), 1, 1), get((3, 4), 1, 7)],
            vec![get((1, 2), 1, 1), put((3, 4), 1, 1)],
            vec![put((1, 2), 1, 1), get((3, 4), 5, 9)],
            vec![put((1, 2), 1, 1), record(Kind::Get, 0, (3, 4), 1, TORN)],
            vec![Record { end: End::Failed, ..put((1, 2), 0, 1) }, get((3, 4), 1, 1)],
        ];
        for records in bad {
            assert!(!judge(records.clone(), (2, mark(2))).violations.is_empty(), "{records:?}");
        }
        assert!(!judge(vec![add((1, 2), 1, 0), add((3, 4), 2, 0)], (2, 2)).violations.is_empty());
        assert!(!judge(vec![add((1, 2), 1, 0)], (9, 9)).violations.is_empty());
        assert_eq!(judge(vec![add((1, 2), 1, 0), add((3, 4), 2, 1)], (1, 1)).lost, 1);
        let swap = |times, version, before| Record { kind: Kind::Swap, ..add(times, version, before) };
        let look = |times, version, before| Record { kind: Kind::Look, ..add(times, version, before) };
        let good = vec![swap((1, 2), 1, 0), look((3, 4), 1, 1), add((5, 6), 2, 1)];
        assert!(judge(good, (2, 2)).violations.is_empty());
        let bad = [
            vec![swap((1, 2), 1, 0), swap((3, 4), 2, 0)],
            vec![swap((1, 2), 1, 0), look((3, 4), 0, 0)],
            vec![swap((1, 2), 1, 0), look((3, 4), 1, 7)],
        ];
        for records in bad {
            assert!(!judge(records.clone(), (2, 2)).violations.is_empty(), "{records:?}");
        }
        assert_eq!(judge(vec![put((1, 4_000_000_001), 1, 1)], (1, mark(1))).late, 1);
    }
}
