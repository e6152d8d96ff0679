//! Settings of a run, and its report.

/// Settings of one run that a caller may fix; a seed selects the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct RiverScenario {
    /// The bug that every engine has.
    #[cfg(feature = "planted")]
    pub bug: Option<ddss_river_core::Bug>,
}

/// Result of one run.
#[derive(Clone, Debug, Default)]
pub struct RiverReport {
    /// Rules that were broken; empty if none was.
    pub violations: Vec<String>,
    /// Hash over the run: the same for the same seed and build.
    pub trace: u64,
    /// Counts by name.
    pub counts: Vec<(&'static str, u64)>,
}
