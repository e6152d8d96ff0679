//! Coherence models, and their rules for gets and puts.

use crate::failure::Failure;

/// Coherence model of a segment: how its readers and writers see each other.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::{Model, Spec};
/// // A hundred milliseconds late will do, and no get has to ask the home more often than that.
/// let spec = Spec::new(64).model(Model::Temporal(100_000));
/// assert_ne!(spec, Spec::new(64));
/// assert_eq!(Model::default(), Model::Strict);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Model {
    /// A get reads what is there; each aligned word is whole.
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
    /// A get may be this many versions old and never waits.
    Delta(u32),
    /// A get may be this many microseconds old.
    Temporal(u32),
}

impl Model {
    /// Returns the kind and its parameter.
    #[doc(hidden)]
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

    /// Makes the model of that kind, if there is one.
    #[doc(hidden)]
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

/// Holders that a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockDependency {
    /// No holder.
    None,
    /// An exclusive holder.
    Exclusive,
    /// Any holder, shared ones included.
    Any,
}

/// Rules for one get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetRules {
    /// Holders that it waits for.
    pub lock_dependency: LockDependency,
    /// Maximum age, in microseconds, of a cached copy on the reader's node that may answer.
    pub copy_us: u32,
    /// True if it takes the previous version rather than wait for a writer.
    pub older: bool,
}

impl Model {
    /// Returns the rules for a get of a segment of this model, tightened by the model that the call asks for.
    /// For the daemon.
    #[doc(hidden)]
    pub fn get_rules(self, requested_model: Option<Model>) -> GetRules {
        let (own, more) = (self.on_get(), requested_model.unwrap_or(Model::Null).on_get());
        GetRules {
            lock_dependency: own.lock_dependency.max(more.lock_dependency),
            copy_us: own.copy_us.min(more.copy_us),
            older: own.older && more.older,
        }
    }

    /// By its rules Null allows cached copies of any age; only Temporal segments have any.
    const fn on_get(self) -> GetRules {
        let (lock_dependency, copy_us, older) = match self {
            Model::Null => (LockDependency::None, u32::MAX, true),
            Model::Read => (LockDependency::Any, 0, false),
            Model::Write | Model::Version => (LockDependency::None, 0, false),
            Model::Strict => (LockDependency::Exclusive, 0, false),
            Model::Delta(_) => (LockDependency::None, 0, true),
            Model::Temporal(micros) => (LockDependency::None, micros, true),
        };
        GetRules { lock_dependency, copy_us, older }
    }

    /// Returns true if a put waits for the lock's holders.
    #[doc(hidden)]
    pub fn put_waits_for_lock(self, requested_model: Option<Model>) -> bool {
        let lock_dependency = |model| !matches!(model, Model::Null | Model::Read);
        lock_dependency(self) || requested_model.is_some_and(lock_dependency)
    }

    /// Returns true if a put has to name the version that it replaces.
    #[doc(hidden)]
    pub fn put_names_version(self, requested_model: Option<Model>) -> bool {
        self == Model::Version || requested_model == Some(Model::Version)
    }

    /// Returns the number of older versions that the model itself requires.
    #[doc(hidden)]
    pub const fn history_len(self) -> u32 {
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
    fn call_model_only_tightens_segment_model() {
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
        assert_eq!(Model::Null.get_rules(Some(Model::Read)).lock_dependency, LockDependency::Any);
        assert!(!Model::Read.put_waits_for_lock(None) && Model::Read.put_waits_for_lock(Some(Model::Strict)));
        assert!(Model::Write.put_waits_for_lock(Some(Model::Null)));
        assert!(Model::Version.put_names_version(Some(Model::Null)));
    }
}
