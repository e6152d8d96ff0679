//! Result of one check of `doctor`.

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Good,
    /// Works, but slower than possible.
    Poor,
    /// Does not work.
    Bad,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Poor => "poor",
            State::Bad => "bad",
        }
    }
}

pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) state: State,
    pub(super) found: String,
    pub(super) advice: String,
}

pub(super) fn finding(check: &'static str, state: State, found: impl Into<String>, advice: &str) -> Finding {
    let advice = if state == State::Good { String::new() } else { advice.to_owned() };
    Finding { check, state, found: found.into(), advice }
}
