//! What happened while somebody held a lock: nothing that the model excludes.

use ddss_core::Model;

/// A time in which a lock was certainly held: from its grant as its holder saw it to the moment when the holder asked to
/// let it go, of a lock that was still in force then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Of which segment.
    pub segment: u64,
    /// Whose.
    pub holder: (usize, usize),
    /// Whether others may share it.
    pub shared: bool,
    /// From when on.
    pub began_us: u64,
    /// To when.
    pub ended_us: u64,
}

/// A call that ended as done.
#[derive(Clone, Copy, Debug)]
struct Call {
    segment: u64,
    by: (usize, usize),
    put: bool,
    model: Model,
    began_us: u64,
    ended_us: u64,
}

/// All sections and calls of one run.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    sections: Vec<Section>,
    calls: Vec<Call>,
}

impl Sections {
    /// Notes a section.
    pub fn held(&mut self, section: Section) {
        self.sections.push(section);
    }

    /// How many were noted.
    pub fn count(&self) -> usize {
        self.sections.len()
    }

    /// Notes a call that took effect between two moments, of a segment of that model or made as strictly.
    pub fn called(&mut self, segment: u64, by: (usize, usize), put: bool, model: Model, times_us: (u64, u64)) {
        let (began_us, ended_us) = times_us;
        self.calls.push(Call { segment, by, put, model, began_us, ended_us });
    }

    fn excludes(section: &Section, call: &Call) -> bool {
        if call.put {
            return !matches!(call.model, Model::Null | Model::Read);
        }
        match call.model {
            Model::Read => true,
            Model::Strict => !section.shared,
            _ => false,
        }
    }

    /// Everything that must not be.
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
        let mut alone: Vec<&Section> = self.sections.iter().filter(|section| !section.shared).collect();
        alone.sort_by_key(|section| (section.segment, section.began_us));
        for pair in alone.windows(2) {
            if pair[0].segment == pair[1].segment && pair[1].began_us < pair[0].ended_us {
                found.push(format!("two held one lock alone: {:?} and {:?}", pair[0], pair[1]));
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
        // If this broke, a lock that excludes nobody would pass every run.
        let section = Section { segment: 1, holder: (0, 0), shared: false, began_us: 10, ended_us: 20 };
        let run = |section: Section, put, model, times| {
            let mut all = Sections::default();
            all.held(section);
            all.called(1, (1, 1), put, model, times);
            all.violations().len()
        };
        assert_eq!(run(section, true, Model::Strict, (11, 19)), 1);
        assert_eq!(run(section, true, Model::Strict, (9, 19)), 0, "it may have happened before");
        assert_eq!(run(section, true, Model::Strict, (11, 21)), 0, "it may have happened behind");
        assert_eq!(run(section, false, Model::Strict, (11, 19)), 1);
        assert_eq!(run(section, false, Model::Write, (11, 19)), 0);
        assert_eq!(run(section, true, Model::Read, (11, 19)), 0);
        let shared = Section { shared: true, ..section };
        assert_eq!(run(shared, false, Model::Read, (11, 19)), 1, "gets of Read exclude each other");
        assert_eq!(run(shared, false, Model::Strict, (11, 19)), 0);
        assert_eq!(run(shared, true, Model::Write, (11, 19)), 1);
        let mut two = Sections::default();
        two.held(section);
        two.held(Section { holder: (1, 1), began_us: 15, ended_us: 30, ..section });
        assert_eq!(two.violations().len(), 1);
    }
}
