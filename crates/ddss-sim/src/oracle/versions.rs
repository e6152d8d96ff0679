//! Version checker: exact, and O(n log n).
//!
//! Each put writes the whole segment with unique bytes; each get returns a version and bytes. The checker verifies: a
//! version has one writer and one value; a get returns the value of its version; and an operation that began after another
//! had ended sees no lower version, as far as the segment's model promises it.

use ddss_core::Model;
use std::collections::{BTreeMap, HashMap};

/// Kind of an observed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// A get of the newest value, under the model of the segment or under this stricter one.
    Get(Option<Model>),
    /// A get of this version.
    GetAt(u64),
    /// A put.
    Put,
    /// A put on condition of this version.
    PutIf(u64),
}

impl OperationKind {
    fn is_put(self) -> bool {
        matches!(self, OperationKind::Put | OperationKind::PutIf(_))
    }
}

/// An operation as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Id of the segment.
    pub segment: u64,
    /// Node of the client.
    pub node: usize,
    /// Time of the request in virtual microseconds.
    pub began_us: u64,
    /// Time of the reply; `u64::MAX` if the outcome is unknown.
    pub ended_us: u64,
    /// Kind of the operation.
    pub what: OperationKind,
    /// Version that was written or read; `None` if the outcome is unknown.
    pub version: Option<u64>,
    /// Mark of the writer in the bytes; `None` if the bytes were torn.
    pub mark: Option<u64>,
}

/// All observations of one run.
#[derive(Clone, Debug, Default)]
pub struct History {
    observations: Vec<Observation>,
    models: BTreeMap<u64, Model>,
}

impl History {
    /// Mark of a segment without a put.
    pub const FRESH: u64 = 0;

    /// Sets the model of a segment; the default is Strict.
    pub fn model(&mut self, segment: u64, model: Model) {
        self.models.insert(segment, model);
    }

    /// Records an observation.
    pub fn note(&mut self, observation: Observation) {
        self.observations.push(observation);
    }

    /// Returns the number of observations.
    pub fn len(&self) -> usize {
        self.observations.len()
    }

    /// Returns true without observations.
    pub fn is_empty(&self) -> bool {
        self.observations.is_empty()
    }

    /// Returns all violations.
    pub fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (segment, observations) in self.by_segment() {
            let model = self.models.get(&segment).copied().unwrap_or_default();
            Self::check_values(segment, model, &observations, &mut found);
            Self::check_order(segment, model, &observations, &mut found);
        }
        found
    }

    /// Returns the observations of all segments with this model.
    pub fn of_model(&self, wanted: Model) -> impl Iterator<Item = (u64, Vec<&Observation>)> + '_ {
        let all = self.by_segment().into_iter();
        all.filter(move |(segment, _)| self.models.get(segment).copied().unwrap_or_default() == wanted)
    }

    fn by_segment(&self) -> BTreeMap<u64, Vec<&Observation>> {
        let mut by_segment: BTreeMap<u64, Vec<&Observation>> = BTreeMap::new();
        for observation in &self.observations {
            by_segment.entry(observation.segment).or_default().push(observation);
        }
        by_segment
    }

    fn check_values(segment: u64, model: Model, observations: &[&Observation], found: &mut Vec<String>) {
        let mut value_of: HashMap<u64, (u64, u64)> = HashMap::from([(0, (Self::FRESH, 0))]);
        let mut maybe: HashMap<u64, u64> = HashMap::new();
        for put in observations.iter().filter(|observation| observation.what.is_put()) {
            let Some(mark) = put.mark else { continue };
            match put.version {
                Some(version) => {
                    if let Some((other, _)) = value_of.insert(version, (mark, put.began_us)) {
                        found.push(format!("segment {segment}: version {version} has two writers: {other} and {mark}"));
                    }
                    if matches!(put.what, OperationKind::PutIf(on) if on + 1 != version) {
                        found.push(format!("segment {segment}: a put on one version made {version}: {put:?}"));
                    }
                }
                None => {
                    maybe.insert(mark, put.began_us);
                }
            }
        }
        for get in observations.iter().filter(|observation| !observation.what.is_put()) {
            let (Some(version), Some(mark)) = (get.version, get.mark) else {
                if model != Model::Null {
                    found.push(format!("segment {segment}: a get at {} returned a mix: {get:?}", get.began_us));
                }
                continue;
            };
            if matches!(get.what, OperationKind::GetAt(named) if named != version) {
                found.push(format!("segment {segment}: another version than the one that was named: {get:?}"));
            }
            match value_of.get(&version) {
                Some(&(value, began_us)) if value == mark && began_us <= get.ended_us => {}
                Some((value, _)) => {
                    found.push(format!("segment {segment}: version {version} is {value}, read as {mark}: {get:?}"));
                }
                None => match maybe.remove(&mark) {
                    Some(began_us) if began_us <= get.ended_us => {
                        value_of.insert(version, (mark, began_us));
                    }
                    _ => found.push(format!("segment {segment}: version {version} was read as {mark}, by nobody put")),
                },
            }
        }
    }

    fn check_order(segment: u64, model: Model, observations: &[&Observation], found: &mut Vec<String>) {
        let known: Vec<&Observation> = observations.iter().copied().filter(|seen| seen.version.is_some()).collect();
        // An observed version existed, under every model and call.
        let newest = Newest::of(known.iter().copied());
        // Clients of a node see the puts of their own node, in spite of its read cache.
        let mut own: BTreeMap<usize, Vec<&Observation>> = BTreeMap::new();
        for put in known.iter().filter(|seen| seen.what.is_put()) {
            own.entry(put.node).or_default().push(put);
        }
        let own: BTreeMap<usize, Newest> =
            own.into_iter().map(|(node, puts)| (node, Newest::of(puts.into_iter()))).collect();
        for seen in known {
            let version = seen.version.unwrap_or(0);
            let own = own.get(&seen.node).map_or(0, |own| own.before(seen.began_us));
            let least = match (seen.what, model) {
                (OperationKind::GetAt(_), _) => continue,
                (OperationKind::Put | OperationKind::PutIf(_), _) => newest.before(seen.began_us) + 1,
                (OperationKind::Get(Some(asked)), _) if Self::is_exact(asked) => newest.before(seen.began_us),
                (OperationKind::Get(_), Model::Delta(x)) => {
                    newest.before(seen.began_us).saturating_sub(x.into()).max(own)
                }
                (OperationKind::Get(_), Model::Temporal(us)) => {
                    newest.before(seen.began_us.saturating_sub(us.into())).max(own)
                }
                (OperationKind::Get(_), _) => newest.before(seen.began_us),
            };
            if version < least {
                found.push(format!(
                    "segment {segment} ({model:?}): {:?} that began at {} has version {version}, at least {least} was due",
                    seen.what, seen.began_us
                ));
            }
        }
    }

    /// Returns true if a get under this model promises the newest version.
    fn is_exact(model: Model) -> bool {
        matches!(model, Model::Strict | Model::Write | Model::Read | Model::Version)
    }
}

/// Newest version before each time.
pub(super) struct Newest(Vec<(u64, u64)>);

impl Newest {
    fn of<'a>(seen: impl Iterator<Item = &'a Observation>) -> Self {
        Self::of_ends(seen.filter_map(|seen| Some((seen.ended_us, seen.version?))).collect())
    }

    /// Builds the list from the end and the version of each operation.
    pub(super) fn of_ends(mut ends: Vec<(u64, u64)>) -> Self {
        ends.sort_unstable();
        let mut newest = 0;
        for (_, version) in &mut ends {
            newest = newest.max(*version);
            *version = newest;
        }
        Self(ends)
    }

    pub(super) fn before(&self, time_us: u64) -> u64 {
        let count = self.0.partition_point(|&(ended_us, _)| ended_us < time_us);
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(what: OperationKind, began_us: u64, ended_us: u64, version: u64, mark: u64) -> Observation {
        let (version, mark) = (Some(version), Some(mark));
        Observation { segment: 1, node: 0, began_us, ended_us, what, version, mark }
    }

    fn put(began_us: u64, ended_us: u64, version: u64) -> Observation {
        seen(OperationKind::Put, began_us, ended_us, version, version + 4)
    }

    fn get(began_us: u64, ended_us: u64, version: u64) -> Observation {
        Observation { node: 1, ..seen(OperationKind::Get(None), began_us, ended_us, version, version + 4) }
    }

    fn violations(model: Model, observations: &[Observation]) -> usize {
        let mut history = History { observations: observations.to_vec(), ..History::default() };
        history.model(1, model);
        history.violations().len()
    }

    #[test]
    fn checker_finds_each_kind_of_violation() {
        for model in [Model::Strict, Model::Write, Model::Version, Model::Read, Model::Null] {
            let good = [put(0, 10, 1), get(11, 12, 1), put(11, 20, 2)];
            assert_eq!(violations(model, &good), 0);
            assert_eq!(violations(model, &[good[0].clone(), good[2].clone(), get(30, 31, 1)]), 1);
            let lost_update = seen(OperationKind::Put, 5, 9, 1, 7);
            assert_eq!(violations(model, &[good[0].clone(), lost_update]), 1);
            let wrong_value = seen(OperationKind::Get(None), 11, 12, 1, 6);
            assert_eq!(violations(model, &[good[0].clone(), wrong_value]), 1);
            let torn = Observation { mark: None, ..get(11, 12, 1) };
            assert_eq!(violations(model, &[good[0].clone(), torn]), usize::from(model != Model::Null));
            assert_eq!(violations(model, &[good[0].clone(), get(11, 12, 9)]), 1);
            assert!(violations(model, &[put(10, 20, 1), get(0, 5, 1)]) > 0, "read before it was put");
            let on_another = seen(OperationKind::PutIf(3), 30, 31, 2, 8);
            assert_eq!(violations(model, &[good[0].clone(), on_another]), 1);
            let not_named = seen(OperationKind::GetAt(2), 30, 31, 1, 5);
            assert_eq!(violations(model, &[good[0].clone(), not_named]), 1);
        }
    }

    #[test]
    fn delta_and_temporal_bound_the_staleness() {
        let puts = [put(0, 10, 1), put(20, 30, 2), put(40, 50, 3)];
        let with = |get: Observation| [puts.as_slice(), &[get]].concat();
        assert_eq!(violations(Model::Delta(2), &with(get(60, 61, 1))), 0);
        assert_eq!(violations(Model::Delta(1), &with(get(60, 61, 1))), 1);
        assert_eq!(violations(Model::Temporal(40), &with(get(60, 61, 1))), 0);
        assert_eq!(violations(Model::Temporal(20), &with(get(60, 61, 1))), 1);
        let asked = Observation { what: OperationKind::Get(Some(Model::Strict)), ..get(60, 61, 2) };
        assert_eq!(violations(Model::Delta(2), &with(asked.clone())), 1);
        assert_eq!(violations(Model::Temporal(40), &with(asked)), 1);
        let own = Observation { node: 0, ..get(60, 61, 2) };
        assert_eq!(violations(Model::Temporal(1000), &with(own)), 1, "a node sees what its own clients have put");
    }

    #[test]
    fn put_with_unknown_outcome_may_take_effect_once() {
        let maybe = Observation { version: None, ended_us: u64::MAX, ..put(0, 0, 1) };
        assert_eq!(violations(Model::Strict, &[maybe.clone(), get(20, 21, 1)]), 0);
        let twice = Observation { mark: Some(5), ..get(22, 23, 2) };
        assert_eq!(violations(Model::Strict, &[maybe.clone(), get(20, 21, 1), twice]), 1);
        assert_eq!(violations(Model::Strict, &[maybe]), 0);
    }
}
