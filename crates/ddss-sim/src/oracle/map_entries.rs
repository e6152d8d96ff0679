//! Map checker: exact, by the versions of buckets.
//!
//! Each change of an entry, and each get of a bucket, returns a version of the bucket. So the changes of a bucket have
//! one order, and the checker replays it: each result has to be the one that the state before it explains.

use super::versions::Newest;
use ddss_core::{EntryChangeKind, EntryState};
use std::collections::{BTreeMap, BTreeSet};

/// Value of an entry, and its expiry.
pub type EntryContent = (u64, u64);

/// Change of an entry as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryCall {
    /// Number of the bucket, unique in the run.
    pub bucket: u64,
    /// Key of the entry.
    pub key: u64,
    /// Content that it writes; a touch writes only the expiry.
    pub content: EntryContent,
    /// Content that a replacement expects.
    pub expected: Option<EntryContent>,
    /// Kind of change.
    pub kind: EntryChangeKind,
    /// Time of the request.
    pub began_us: u64,
    /// Time of the reply.
    pub ended_us: u64,
    /// Version of the bucket, and the state of the entry before; `None` if the outcome is unknown.
    pub result: Option<(u64, EntryState)>,
}

impl EntryCall {
    /// Returns true if it made the version that it returned.
    fn is_commit(&self) -> bool {
        matches!(
            (self.kind, self.result),
            (EntryChangeKind::Write, Some((_, EntryState::Absent | EntryState::Present)))
                | (EntryChangeKind::Insert, Some((_, EntryState::Absent)))
                | (
                    EntryChangeKind::Remove | EntryChangeKind::Replace | EntryChangeKind::Touch,
                    Some((_, EntryState::Present))
                )
        )
    }
}

/// Entries of a bucket as a client read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketView {
    /// Number of the bucket.
    pub bucket: u64,
    /// Time of the request.
    pub began_us: u64,
    /// Time of the reply.
    pub ended_us: u64,
    /// Version of the bucket.
    pub version: u64,
    /// Keys and contents.
    pub entries: Vec<(u64, EntryContent)>,
}

/// All changes and gets of one run.
#[derive(Clone, Debug, Default)]
pub struct MapChecker {
    calls: Vec<EntryCall>,
    views: Vec<BucketView>,
    /// Keys of the entries that a sweep may have freed, by bucket and version.
    sweeps: BTreeMap<(u64, u64), BTreeSet<u64>>,
}

/// State of a bucket in the replay.
#[derive(Default)]
struct Replay {
    entries: BTreeMap<u64, EntryContent>,
    /// Keys that a change with an unknown outcome may have changed.
    doubtful: BTreeSet<u64>,
}

impl MapChecker {
    /// Records a change.
    pub fn changed(&mut self, call: EntryCall) {
        self.calls.push(call);
    }

    /// Records a get of a bucket.
    pub fn viewed(&mut self, view: BucketView) {
        self.views.push(view);
    }

    /// Expiry of entries that have expired. All others are in the far future.
    pub const EXPIRED_MS: u64 = 1;

    /// Records that a home found these entries expired, and may free them in that version of the bucket.
    pub fn swept(&mut self, bucket: u64, version: u64, keys: &[u64]) {
        self.sweeps.entry((bucket, version)).or_default().extend(keys);
    }

    /// Returns all violations.
    pub fn violations(&self) -> Vec<String> {
        let buckets: BTreeSet<u64> =
            self.calls.iter().map(|call| call.bucket).chain(self.views.iter().map(|view| view.bucket)).collect();
        let mut found = Vec::new();
        for bucket in buckets {
            let calls: Vec<&EntryCall> = self.calls.iter().filter(|call| call.bucket == bucket).collect();
            let views: Vec<&BucketView> = self.views.iter().filter(|view| view.bucket == bucket).collect();
            check_order(&calls, &views, &mut found);
            let sweeps = self.sweeps.range((bucket, 0)..=(bucket, u64::MAX));
            let sweeps = sweeps.map(|(&(_, version), keys)| (version, keys)).collect();
            check_results(&calls, &views, &sweeps, &mut found);
        }
        found
    }
}

/// Checks that no call returned an older version than a call that had ended before.
fn check_order(calls: &[&EntryCall], views: &[&BucketView], found: &mut Vec<String>) {
    let ends = calls.iter().filter_map(|call| Some((call.ended_us, call.result?.0)));
    let newest = Newest::of_ends(ends.chain(views.iter().map(|view| (view.ended_us, view.version))).collect());
    for call in calls {
        let Some((version, _)) = call.result else { continue };
        if version < newest.before(call.began_us) + u64::from(call.is_commit()) {
            found.push(format!("an entry was changed at an older version: {call:?}"));
        }
    }
    for view in views.iter().filter(|view| view.version < newest.before(view.began_us)) {
        found.push(format!("an older version of a bucket was read: {view:?}"));
    }
}

fn check_results(
    calls: &[&EntryCall],
    views: &[&BucketView],
    sweeps: &BTreeMap<u64, &BTreeSet<u64>>,
    found: &mut Vec<String>,
) {
    let mut commits: BTreeMap<u64, &EntryCall> = BTreeMap::new();
    let mut others: BTreeMap<u64, Vec<&EntryCall>> = BTreeMap::new();
    for &call in calls {
        let Some((version, _)) = call.result else { continue };
        if !call.is_commit() {
            others.entry(version).or_default().push(call);
        } else if let Some(other) = commits.insert(version, call) {
            found.push(format!("two changes made one version: {other:?} and {call:?}"));
        }
    }
    let unknown: BTreeSet<u64> = calls.iter().filter(|call| call.result.is_none()).map(|call| call.key).collect();
    let seen = commits.keys().chain(others.keys()).copied().chain(views.iter().map(|view| view.version));
    let mut state = Replay::default();
    for version in 0..=seen.max().unwrap_or(0) {
        let removal = others.get(&version).into_iter().flatten().find(|call| state.frees_expired(call));
        match commits.get(&version).copied().or(removal.copied()) {
            Some(call) => {
                state.commit(call, found);
                if removal.is_some() {
                    // The version may be that of a sweep before the removal.
                    state.doubtful.extend(sweeps.get(&version).copied().into_iter().flatten());
                }
            }
            None if version == 0 => {}
            None if sweeps.contains_key(&version) => state.sweep(sweeps[&version], &unknown, version, found),
            None if unknown.is_empty() => found.push(format!("version {version} of a bucket was made by no client")),
            None => state.doubtful.extend(&unknown),
        }
        for call in others.get(&version).into_iter().flatten() {
            state.check_state(call, found);
        }
        for view in views.iter().filter(|view| view.version == version) {
            state.check_view(view, found);
        }
    }
}

impl Replay {
    /// Returns the content of a key that is present: it has not expired.
    fn live(&self, key: u64) -> Option<&EntryContent> {
        self.entries.get(&key).filter(|content| content.1 != MapChecker::EXPIRED_MS)
    }

    /// Returns true for the removal of an absent key that freed its expired entry, and so made a version.
    fn frees_expired(&self, call: &EntryCall) -> bool {
        call.kind == EntryChangeKind::Remove && self.entries.contains_key(&call.key) && self.live(call.key).is_none()
    }

    /// Frees expired entries. With changes of unknown outcome one of those may have made the version.
    fn sweep(&mut self, keys: &BTreeSet<u64>, unknown: &BTreeSet<u64>, version: u64, found: &mut Vec<String>) {
        for key in keys {
            if unknown.is_empty() && !self.doubtful.contains(key) && self.live(*key).is_some() {
                found.push(format!("a sweep made version {version} and freed key {key}, which had not expired"));
            }
            if unknown.is_empty() {
                self.entries.remove(key);
            } else {
                self.doubtful.insert(*key);
            }
        }
        self.doubtful.extend(unknown);
    }

    /// Checks the state of an entry that a call returned.
    fn check_state(&self, call: &EntryCall, found: &mut Vec<String>) {
        let present = self.live(call.key);
        let is_expected = call.expected.is_none_or(|expected| present == Some(&expected));
        let needs_room = matches!(call.kind, EntryChangeKind::Write | EntryChangeKind::Insert);
        let is_wrong = match call.result {
            Some((_, EntryState::Present)) => present.is_none() || !is_expected,
            Some((_, EntryState::Absent)) => present.is_some(),
            Some((_, EntryState::Changed)) => present.is_none() || is_expected,
            // The bucket was full.
            Some((_, EntryState::Elsewhere)) => self.entries.contains_key(&call.key) || !needs_room,
            None => false,
        };
        if is_wrong && !self.doubtful.contains(&call.key) {
            found.push(format!("the content of the key was {present:?}: {call:?}"));
        }
    }

    fn commit(&mut self, call: &EntryCall, found: &mut Vec<String>) {
        self.check_state(call, found);
        match call.kind {
            // The value stays, and stays doubtful.
            EntryChangeKind::Touch => {
                self.entries.entry(call.key).and_modify(|(_, expiry)| *expiry = call.content.1);
                return;
            }
            EntryChangeKind::Remove => drop(self.entries.remove(&call.key)),
            _ => drop(self.entries.insert(call.key, call.content)),
        }
        self.doubtful.remove(&call.key);
    }

    fn check_view(&self, view: &BucketView, found: &mut Vec<String>) {
        let entries: BTreeMap<u64, EntryContent> = view.entries.iter().copied().collect();
        if entries.len() < view.entries.len() {
            found.push(format!("a key is in a bucket twice: {view:?}"));
        }
        let keys: BTreeSet<&u64> = entries.keys().chain(self.entries.keys()).collect();
        for key in keys.into_iter().filter(|key| !self.doubtful.contains(key)) {
            let (read, wanted) = (entries.get(key), self.entries.get(key));
            if read != wanted {
                found.push(format!("key {key} was read as {read:?}, and is {wanted:?}: {view:?}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EntryState::{Absent, Changed, Elsewhere, Present};

    fn call(kind: EntryChangeKind, key: u64, time: u64, version: u64, state: EntryState) -> EntryCall {
        let result = Some((version, state));
        let (expiry, ended_us) = (if kind == EntryChangeKind::Touch { version } else { 0 }, time + 5);
        let content = (10 * version, expiry);
        EntryCall { bucket: 1, key, content, expected: None, kind, began_us: time, ended_us, result }
    }

    fn replacement(key: u64, time: u64, version: u64, state: EntryState, expected: EntryContent) -> EntryCall {
        EntryCall { expected: Some(expected), ..call(EntryChangeKind::Replace, key, time, version, state) }
    }

    fn view(time: u64, version: u64, entries: &[(u64, u64)]) -> BucketView {
        let entries = entries.iter().map(|&(key, value)| (key, (value, 0))).collect();
        BucketView { bucket: 1, began_us: time, ended_us: time + 5, version, entries }
    }

    fn violations(calls: &[EntryCall], views: &[BucketView]) -> usize {
        MapChecker { calls: calls.to_vec(), views: views.to_vec(), ..MapChecker::default() }.violations().len()
    }

    #[test]
    fn results_that_the_order_of_versions_explains_pass_and_no_others() {
        // If this failed, a key that is inserted twice would pass every run.
        use EntryChangeKind::{Insert, Remove, Write};
        let good = [
            call(Insert, 7, 0, 1, Absent),
            call(Insert, 7, 10, 1, Present),
            call(Write, 8, 10, 2, Absent),
            call(Write, 7, 20, 3, Present),
            call(Remove, 8, 30, 4, Present),
            call(Remove, 8, 40, 4, Absent),
            call(Insert, 9, 50, 4, Elsewhere),
        ];
        assert_eq!(violations(&good, &[view(17, 2, &[(7, 10), (8, 20)]), view(60, 4, &[(7, 30)])]), 0);
        let with = |call: EntryCall| violations(&[good.as_slice(), &[call]].concat(), &[]);
        assert!(with(call(Insert, 7, 70, 5, Absent)) > 0, "inserted twice");
        assert!(with(call(Remove, 9, 70, 5, Present)) > 0, "removed, and never inserted");
        assert!(with(call(Write, 7, 70, 3, Present)) > 0, "two changes of one version");
        assert!(with(call(Insert, 7, 70, 1, Present)) > 0, "at an older version");
        assert!(with(call(Write, 5, 70, 6, Absent)) > 0, "nobody made version 5");
        assert_eq!(violations(&good, &[view(60, 4, &[(7, 31)])]), 1, "another value");
        assert_eq!(violations(&good, &[view(60, 4, &[])]), 1, "a lost key");
        assert_eq!(violations(&good, &[view(60, 4, &[(7, 30), (9, 1)])]), 1, "a key from nowhere");
        assert!(violations(&good, &[view(60, 4, &[(7, 30), (7, 30)])]) > 0, "a key twice");
        assert!(violations(&good, &[view(60, 3, &[(7, 30), (8, 20)])]) > 0, "an older version");
    }

    #[test]
    fn replacement_needs_its_expected_entry_and_a_touch_changes_only_the_expiry() {
        // If this failed, a lost update, or a touch that brings back an old value, would pass every run.
        use EntryChangeKind::{Insert, Touch};
        let good = [
            call(Insert, 7, 0, 1, Absent),
            call(Insert, 8, 10, 2, Absent),
            replacement(7, 20, 3, Present, (10, 0)),
            replacement(7, 30, 3, Changed, (10, 0)),
            call(Touch, 7, 40, 4, Present),
            replacement(7, 50, 4, Changed, (30, 0)),
            replacement(7, 60, 5, Present, (30, 4)),
            replacement(9, 70, 5, Absent, (30, 4)),
            call(Touch, 9, 70, 5, Absent),
        ];
        assert_eq!(violations(&good, &[view(80, 5, &[(7, 50), (8, 20)])]), 0);
        let with = |call: EntryCall| violations(&[good.as_slice(), &[call]].concat(), &[]);
        assert_eq!(with(replacement(7, 90, 6, Present, (30, 4))), 1, "an entry that was replaced since");
        assert_eq!(with(replacement(7, 90, 5, Changed, (50, 0))), 1, "the expected entry");
        assert_eq!(with(replacement(7, 90, 5, Elsewhere, (50, 0))), 1, "it needs no room");
        assert_eq!(with(call(Touch, 9, 90, 6, Present)), 1, "an absent key");
        assert_eq!(with(call(Touch, 8, 90, 5, Absent)), 1, "a present key");
        let touched = [good.as_slice(), &[call(Touch, 8, 90, 6, Present)]].concat();
        assert_eq!(violations(&touched, &[view(95, 6, &[(7, 50), (8, 20)])]), 1, "the touch is lost");
    }

    #[test]
    fn change_with_unknown_outcome_excuses_its_own_key_until_the_next_change_of_it() {
        // If this failed, each fault would be a violation, or hide one.
        let unknown = EntryCall { result: None, ..call(EntryChangeKind::Remove, 7, 12, 0, Absent) };
        let calls = [
            call(EntryChangeKind::Insert, 7, 0, 1, Absent),
            unknown,
            call(EntryChangeKind::Insert, 7, 30, 3, Absent),
            call(EntryChangeKind::Insert, 8, 40, 4, Absent),
        ];
        assert_eq!(violations(&calls, &[view(20, 2, &[])]), 0);
        assert_eq!(violations(&calls, &[view(20, 2, &[(7, 10)])]), 0);
        assert_eq!(violations(&calls, &[view(50, 4, &[(8, 40)])]), 1, "key 7 was inserted again");
        assert_eq!(violations(&calls, &[view(20, 2, &[(9, 1)])]), 1, "another key");
    }
}
