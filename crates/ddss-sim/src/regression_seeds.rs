//! Seeds that have found a bug. Each campaign begins with them; `docs/notes/found-bugs.md` lists the bug of each.

/// All regression seeds.
pub const KNOWN_SEEDS: &[u64] =
    &[1, 2, 3, 5, 6, 10, 12, 15, 26, 27, 32, 49, 98, 167, 181, 205, 250, 374, 452, 476, 971, 1102, 1272];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Extracts the seeds in cells like "`ddss-sim`, seeds 6 and 32" of the table of found bugs.
    fn documented_seeds(page: &str) -> BTreeSet<u64> {
        let (_, table) = page.split_once("# Found bugs\n").expect("the page has that table");
        let cells = table.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('|'));
        let seeds = cells.filter_map(|cell| cell.trim().strip_prefix("`ddss-sim`, seed"));
        seeds.flat_map(|cell| cell.split(|letter: char| !letter.is_ascii_digit())).flat_map(str::parse).collect()
    }

    #[test]
    fn every_documented_seed_is_run_again() {
        // Other seeds may not detect the return of a bug.
        let known = BTreeSet::from_iter(KNOWN_SEEDS.iter().copied());
        assert_eq!(known.len(), KNOWN_SEEDS.len(), "a seed is listed twice");
        assert_eq!(documented_seeds(include_str!("../../../docs/notes/found-bugs.md")), known);
        let page =
            "seed 9\n## Found bugs\n| a | `ddss-sim`, seeds 6 and 32 | seed 1 |\n| b | `ddss-sim`, seed 374, 2, 3 |\n";
        assert_eq!(documented_seeds(page), BTreeSet::from([2, 3, 6, 32, 374]));
    }
}
