//! Checks that no call excluded by the model happened while a lock was held.

use ddss_core::Model;

/// Interval in which a lock was certainly held: from its grant as its holder saw it to the holder's unlock request, if the
/// lease was still valid then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriticalSection {
    /// Id of the segment.
    pub segment: u64,
    /// Row of a table; `None` for the lock of the whole segment.
    pub row: Option<u64>,
    /// Node and client of the holder.
    pub holder: (usize, usize),
    /// True for a shared lock.
    pub shared: bool,
    /// Time of the grant.
    pub began_us: u64,
    /// Time of the unlock request.
    pub ended_us: u64,
}

/// A call that ended as done.
#[derive(Clone, Copy, Debug)]
struct Call {
    segment: u64,
    row: Option<u64>,
    by: (usize, usize),
    put: bool,
    model: Model,
    began_us: u64,
    ended_us: u64,
}

/// All sections and calls of one run.
#[derive(Clone, Debug, Default)]
pub struct MutexChecker {
    sections: Vec<CriticalSection>,
    calls: Vec<Call>,
}

impl MutexChecker {
    /// Records an interval.
    pub fn held(&mut self, section: CriticalSection) {
        self.sections.push(section);
    }

    /// Returns the number of recorded intervals.
    pub fn count(&self) -> usize {
        self.sections.len()
    }

    /// Records a call of a segment or of a row that took effect between two times, under the model of the segment or of
    /// the call.
    pub fn called(
        &mut self,
        (segment, row): (u64, Option<u64>),
        by: (usize, usize),
        put: bool,
        model: Model,
        times_us: (u64, u64),
    ) {
        let (began_us, ended_us) = times_us;
        self.calls.push(Call { segment, row, by, put, model, began_us, ended_us });
    }

    /// Returns true if two rows are the same, or one of them stands for all.
    fn overlap(one: Option<u64>, other: Option<u64>) -> bool {
        one.is_none() || other.is_none() || one == other
    }

    fn excludes(section: &CriticalSection, call: &Call) -> bool {
        if !Self::overlap(section.row, call.row) {
            return false;
        }
        if call.put {
            return !matches!(call.model, Model::Null | Model::Read);
        }
        match call.model {
            Model::Read => true,
            Model::Strict => !section.shared,
            _ => false,
        }
    }

    /// Returns all violations.
    pub fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut calls = self.calls.clone();
        calls.sort_by_key(|call| (call.segment, call.began_us));
        for section in &self.sections {
            let from =
                calls.partition_point(|call| (call.segment, call.began_us) <= (section.segment, section.began_us));
            let inside = calls[from..]
                .iter()
                .take_while(|call| call.segment == section.segment && call.began_us <= section.ended_us);
            for call in inside.filter(|call| call.ended_us < section.ended_us && call.by != section.holder) {
                if Self::excludes(section, call) {
                    found.push(format!("while somebody held the lock: {call:?} in {section:?}"));
                }
            }
        }
        let mut sections: Vec<&CriticalSection> = self.sections.iter().collect();
        sections.sort_by_key(|section| (section.segment, section.began_us));
        for (index, first) in sections.iter().enumerate() {
            let during = |next: &&&CriticalSection| next.segment == first.segment && next.began_us < first.ended_us;
            let overlapping = sections[index + 1..].iter().take_while(during);
            for next in overlapping.filter(|next| Self::overlap(first.row, next.row)) {
                if !first.shared || !next.shared || first.row.is_some() != next.row.is_some() {
                    found.push(format!("two held locks that exclude each other: {first:?} and {next:?}"));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lock_excludes_is_found_and_nothing_else() {
        // Otherwise a lock that excludes no call would pass every run.
        let section =
            CriticalSection { segment: 1, row: None, holder: (0, 0), shared: false, began_us: 10, ended_us: 20 };
        let run = |section: CriticalSection, put, model, times| {
            let mut all = MutexChecker::default();
            all.held(section);
            all.called((1, Some(3)), (1, 1), put, model, times);
            all.violations().len()
        };
        assert_eq!(run(section, true, Model::Strict, (11, 19)), 1);
        assert_eq!(run(section, true, Model::Strict, (9, 19)), 0, "it may have happened before");
        assert_eq!(run(section, true, Model::Strict, (11, 21)), 0, "it may have happened behind");
        assert_eq!(run(section, false, Model::Strict, (11, 19)), 1);
        assert_eq!(run(section, false, Model::Write, (11, 19)), 0);
        assert_eq!(run(section, true, Model::Read, (11, 19)), 0);
        let shared = CriticalSection { shared: true, ..section };
        assert_eq!(run(shared, false, Model::Read, (11, 19)), 1, "gets of Read exclude each other");
        assert_eq!(run(shared, false, Model::Strict, (11, 19)), 0);
        assert_eq!(run(shared, true, Model::Write, (11, 19)), 1);
        let mut two = MutexChecker::default();
        two.held(section);
        two.held(CriticalSection { holder: (1, 1), began_us: 15, ended_us: 30, ..section });
        assert_eq!(two.violations().len(), 1);
        let sections = |first, second| {
            let mut all = MutexChecker::default();
            let (first, second) =
                (CriticalSection { row: first, ..shared }, CriticalSection { row: second, ..section });
            all.held(first);
            all.held(CriticalSection { holder: (1, 1), began_us: 15, ended_us: 30, ..second });
            all.violations().len()
        };
        assert_eq!([sections(Some(3), Some(3)), sections(Some(3), Some(4)), sections(None, Some(4))], [1, 0, 1]);
        let row = CriticalSection { row: Some(3), ..section };
        assert_eq!(run(row, true, Model::Strict, (11, 19)), 1);
        assert_eq!(run(CriticalSection { row: Some(4), ..row }, true, Model::Strict, (11, 19)), 0, "another row");
    }
}
