//! Linearizability checker for a register: searches one order of all operations that explains every result.
//!
//! The history is cut where no operation is in flight. Each window is searched exhaustively from every possible final value
//! of the window before. A window above the size limit is skipped; its possible final values are those of its puts.

use std::collections::{BTreeSet, HashSet};

/// One operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time of the request.
    pub began_us: u64,
    /// Time of the reply.
    pub ended_us: u64,
    /// True for a write.
    pub put: bool,
    /// Value that it wrote or read.
    pub value: u64,
}

/// Maximum number of operations in a window.
const WINDOW_MAX: usize = 14;

/// Searches an order that explains all steps of a register that began as `fresh`. Returns the number of searched windows,
/// and the first window without such an order as the error.
pub fn find_linear_order(steps: &[Step], fresh: u64) -> (usize, Result<(), Vec<Step>>) {
    let mut steps = steps.to_vec();
    steps.sort_by_key(|step| (step.began_us, step.ended_us));
    let (mut values, mut rest, mut searched) = (BTreeSet::from([fresh]), &steps[..], 0);
    while !rest.is_empty() {
        let (window, behind) = rest.split_at(quiescent_prefix(rest));
        rest = behind;
        if window.len() > WINDOW_MAX {
            values.extend(window.iter().map(|step| step.value));
            continue;
        }
        searched += 1;
        let mut left = BTreeSet::new();
        let mut seen = HashSet::new();
        for &value in &values {
            search_order(window, 0, value, &mut seen, &mut left);
        }
        if left.is_empty() {
            return (searched, Err(window.to_vec()));
        }
        values = left;
    }
    (searched, Ok(()))
}

/// Returns the number of steps before the first time without an operation in flight.
fn quiescent_prefix(steps: &[Step]) -> usize {
    let mut latest = 0;
    for (index, step) in steps.iter().enumerate() {
        if index > 0 && step.began_us > latest {
            return index;
        }
        latest = latest.max(step.ended_us);
    }
    steps.len()
}

/// Tries every step that may be next, and collects the possible final values.
fn search_order(window: &[Step], done: u32, value: u64, seen: &mut HashSet<(u32, u64)>, left: &mut BTreeSet<u64>) {
    if !seen.insert((done, value)) {
        return;
    }
    let open = || (0..window.len()).filter(|index| done >> index & 1 == 0);
    // A step that ended before another began precedes it.
    let Some(first_end) = open().map(|index| window[index].ended_us).min() else {
        left.insert(value);
        return;
    };
    for index in open().filter(|&index| window[index].began_us <= first_end) {
        let step = window[index];
        if step.put {
            search_order(window, done | 1 << index, step.value, seen, left);
        } else if step.value == value {
            search_order(window, done | 1 << index, value, seen, left);
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
    fn search_accepts_linearizable_histories_only() {
        let overlapping = [step(true, 0, 10, 1), step(true, 0, 10, 2), step(false, 5, 20, 1), step(false, 30, 40, 1)];
        assert_eq!(find_linear_order(&overlapping, 0), (2, Ok(())));
        let back = [step(true, 0, 10, 1), step(true, 20, 30, 2), step(false, 40, 50, 1)];
        assert!(find_linear_order(&back, 0).1.is_err());
        let flips = [step(true, 0, 100, 1), step(false, 10, 20, 1), step(false, 30, 40, 0)];
        assert!(find_linear_order(&flips, 0).1.is_err(), "seen and then not seen");
        assert!(find_linear_order(&[step(false, 0, 1, 7)], 0).1.is_err(), "from nowhere");
        assert_eq!(find_linear_order(&[], 0), (0, Ok(())));
    }
}
