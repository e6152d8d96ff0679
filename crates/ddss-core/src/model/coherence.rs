//! The coherence models, and what each asks of a get and of a put.

use crate::failure::Failure;

/// How readers and writers of a segment see each other.
///
/// ```
/// use ddss_core::{Model, Spec};
/// // A hundred milliseconds late will do, and no get has to ask the home more often than that.
/// let spec = Spec { model: Model::Temporal(100_000), ..Spec::new(64) };
/// assert_eq!((spec.model, Model::default()), (Model::Temporal(100_000), Model::Strict));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Model {
    /// A get takes what is there; each aligned word is whole.
    Null,
    /// Gets exclude each other.
    Read,
    /// Puts exclude each other; a get takes the newest committed value and no lock.
    Write,
    /// Linearizable.
    #[default]
    Strict,
    /// A put commits only on the version that it names.
    Version,
    /// A get may be so many versions old and never waits.
    Delta(u32),
    /// A get may be so many microseconds old.
    Temporal(u32),
}

impl Model {
    /// The model as a kind and its parameter.
    pub const fn to_parts(self) -> (u8, u32) {
        match self {
            Model::Null => (1, 0),
            Model::Read => (2, 0),
            Model::Write => (3, 0),
            Model::Strict => (4, 0),
            Model::Version => (5, 0),
            Model::Delta(versions) => (6, versions),
            Model::Temporal(micros) => (7, micros),
        }
    }

    /// The model of that kind, if there is one.
    pub fn from_parts(kind: u8, parameter: u32) -> Result<Self, Failure> {
        Ok(match kind {
            1 => Model::Null,
            2 => Model::Read,
            3 => Model::Write,
            4 => Model::Strict,
            5 => Model::Version,
            6 => Model::Delta(parameter),
            7 => Model::Temporal(parameter),
            _ => return Err(Failure::Malformed),
        })
    }
}

/// Whose lock a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockDependency {
    /// Nobody's.
    Nobody,
    /// That of one who holds it alone.
    Alone,
    /// Anybody's, those who share it included.
    Anyone,
}

/// What a get has to keep to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetRules {
    /// Whose lock it waits for.
    pub minds: LockDependency,
    /// How old a copy on the reader's own node may be that answers in place of the home, in microseconds.
    pub copy_us: u32,
    /// Whether it takes the version before the newest one rather than wait for a writer.
    pub older: bool,
}

impl Model {
    /// The rules of a get of a segment of this model, made stricter by what the call asks for.
    pub fn get_rules(self, asks: Option<Model>) -> GetRules {
        let (own, more) = (self.on_get(), asks.unwrap_or(Model::Null).on_get());
        GetRules {
            minds: own.minds.max(more.minds),
            copy_us: own.copy_us.min(more.copy_us),
            older: own.older && more.older,
        }
    }

    /// Null takes local copies of any age by its rules; there are none of a segment that is not Temporal.
    const fn on_get(self) -> GetRules {
        let (minds, copy_us, older) = match self {
            Model::Null => (LockDependency::Nobody, u32::MAX, true),
            Model::Read => (LockDependency::Anyone, 0, false),
            Model::Write | Model::Version => (LockDependency::Nobody, 0, false),
            Model::Strict => (LockDependency::Alone, 0, false),
            Model::Delta(_) => (LockDependency::Nobody, 0, true),
            Model::Temporal(micros) => (LockDependency::Nobody, micros, true),
        };
        GetRules { minds, copy_us, older }
    }

    /// Whether a put waits for whoever holds the segment's lock.
    pub fn put_minds(self, asks: Option<Model>) -> bool {
        let minds = |model| !matches!(model, Model::Null | Model::Read);
        minds(self) || asks.is_some_and(minds)
    }

    /// Whether a put has to name the version that it is for.
    pub fn put_names_version(self, asks: Option<Model>) -> bool {
        self == Model::Version || asks == Some(Model::Version)
    }

    /// How many versions before the newest one are kept for readers.
    pub const fn keeps(self) -> u32 {
        match self {
            Model::Delta(versions) => versions,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_may_ask_for_more_and_never_gets_less() {
        // If this broke, a reader could switch off what the segment's owner had asked for.
        let strict = Model::Strict.get_rules(None);
        for weaker in [Model::Null, Model::Write, Model::Delta(9), Model::Temporal(9)] {
            assert_eq!(Model::Strict.get_rules(Some(weaker)), strict);
        }
        assert_eq!(Model::Temporal(5000).get_rules(None).copy_us, 5000);
        assert_eq!(Model::Temporal(5000).get_rules(Some(Model::Temporal(10))).copy_us, 10);
        assert_eq!(Model::Temporal(10).get_rules(Some(Model::Temporal(5000))).copy_us, 10);
        assert_eq!(Model::Temporal(5000).get_rules(Some(Model::Write)).copy_us, 0);
        assert_eq!(Model::Delta(3).get_rules(Some(Model::Strict)), strict);
        assert_eq!(Model::Null.get_rules(Some(Model::Read)).minds, LockDependency::Anyone);
        assert!(!Model::Read.put_minds(None) && Model::Read.put_minds(Some(Model::Strict)));
        assert!(Model::Write.put_minds(Some(Model::Null)));
        assert!(Model::Version.put_names_version(Some(Model::Null)));
    }
}
