//! Result of one check of `doctor`.

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CheckResult {
    Good,
    /// Works, but slower than possible.
    Poor,
    /// Does not work.
    Bad,
}

impl CheckResult {
    pub(super) fn word(self) -> &'static str {
        match self {
            CheckResult::Good => "good",
            CheckResult::Poor => "poor",
            CheckResult::Bad => "bad",
        }
    }
}

pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) state: CheckResult,
    pub(super) found: String,
    pub(super) advice: String,
}

pub(super) fn finding(check: &'static str, state: CheckResult, found: impl Into<String>, advice: &str) -> Finding {
    let advice = if state == CheckResult::Good { String::new() } else { advice.to_owned() };
    Finding { check, state, found: found.into(), advice }
}
