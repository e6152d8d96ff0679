//! Segments as users see them: coherence models, specs, headers, records.

pub(crate) mod coherence;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod spec;
