//! A second opinion: a search for one order of all operations that explains what everybody saw, as of a register.
//!
//! The history is cut where nothing is under way. Each window is searched exhaustively, with the values that the window
//! before may have left; a window with more operations than the search is made for is left out, and what it left is
//! whatever its puts wrote.

use std::collections::{BTreeSet, HashSet};

/// One operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it began.
    pub began_us: u64,
    /// When it ended.
    pub ended_us: u64,
    /// Whether it wrote.
    pub put: bool,
    /// What it wrote or read.
    pub value: u64,
}

/// Operations of one window at the most.
const WINDOW_MAX: usize = 14;

/// Whether some order explains all steps of a register that began as `fresh`; the window that none explains, and how many
/// windows were searched.
pub fn explain(steps: &[Step], fresh: u64) -> (usize, Result<(), Vec<Step>>) {
    let mut steps = steps.to_vec();
    steps.sort_by_key(|step| (step.began_us, step.ended_us));
    let (mut values, mut rest, mut searched) = (BTreeSet::from([fresh]), &steps[..], 0);
    while !rest.is_empty() {
        let (window, behind) = rest.split_at(quiet_at(rest));
        rest = behind;
        if window.len() > WINDOW_MAX {
            values.extend(window.iter().map(|step| step.value));
            continue;
        }
        searched += 1;
        let mut left = BTreeSet::new();
        let mut seen = HashSet::new();
        for &value in &values {
            go_on(window, 0, value, &mut seen, &mut left);
        }
        if left.is_empty() {
            return (searched, Err(window.to_vec()));
        }
        values = left;
    }
    (searched, Ok(()))
}

/// How many steps there are up to the first moment when nothing is under way.
fn quiet_at(steps: &[Step]) -> usize {
    let mut latest = 0;
    for (index, step) in steps.iter().enumerate() {
        if index > 0 && step.began_us > latest {
            return index;
        }
        latest = latest.max(step.ended_us);
    }
    steps.len()
}

/// Tries every step that may be next; notes the values with which all may have been done.
fn go_on(window: &[Step], done: u32, value: u64, seen: &mut HashSet<(u32, u64)>, left: &mut BTreeSet<u64>) {
    if !seen.insert((done, value)) {
        return;
    }
    let open = || (0..window.len()).filter(|index| done >> index & 1 == 0);
    // What ended before another began has to come before it.
    let Some(first_end) = open().map(|index| window[index].ended_us).min() else {
        left.insert(value);
        return;
    };
    for index in open().filter(|&index| window[index].began_us <= first_end) {
        let step = window[index];
        if step.put {
            go_on(window, done | 1 << index, step.value, seen, left);
        } else if step.value == value {
            go_on(window, done | 1 << index, value, seen, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(put: bool, began_us: u64, ended_us: u64, value: u64) -> Step {
        Step { began_us, ended_us, put, value }
    }

    #[test]
    fn an_order_is_found_where_there_is_one_and_nowhere_else() {
        // If this broke, the second opinion would be no opinion.
        let overlapping = [step(true, 0, 10, 1), step(true, 0, 10, 2), step(false, 5, 20, 1), step(false, 30, 40, 1)];
        assert_eq!(explain(&overlapping, 0), (2, Ok(())));
        let back = [step(true, 0, 10, 1), step(true, 20, 30, 2), step(false, 40, 50, 1)];
        assert!(explain(&back, 0).1.is_err());
        let flips = [step(true, 0, 100, 1), step(false, 10, 20, 1), step(false, 30, 40, 0)];
        assert!(explain(&flips, 0).1.is_err(), "seen and then not seen");
        assert!(explain(&[step(false, 0, 1, 7)], 0).1.is_err(), "from nowhere");
        assert_eq!(explain(&[], 0), (0, Ok(())));
    }
}
