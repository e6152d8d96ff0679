//! A set of pages.

use super::page::{PageId, PageRange};
use std::collections::BTreeMap;

/// Pages as ranges without neighbours: the first page of each, and the page behind its last.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageSet(BTreeMap<u32, u32>);

impl PageSet {
    /// Adds a range of a space. Returns the parts of it that the set did not have.
    pub(crate) fn insert(&mut self, range: PageRange) -> Vec<PageRange> {
        let (first, end) = (range.first.0, range.first.0 + range.pages);
        let in_front = self.0.range(..first).next_back().filter(|(_, stop)| **stop >= first);
        let start = in_front.map_or(first, |(start, _)| *start);
        let known: Vec<(u32, u32)> = self.0.range(start..=end).map(|(start, stop)| (*start, *stop)).collect();
        let (mut added, mut at, mut last) = (Vec::new(), first, end);
        let mut add = |from: u32, to: u32| {
            if from < to {
                added.push(PageRange { first: PageId(from), pages: to - from });
            }
        };
        for (start, stop) in known {
            add(at, start);
            at = stop.max(at);
            last = stop.max(last);
            self.0.remove(&start);
        }
        add(at, end);
        self.0.insert(start, last);
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    // If this failed, a notice would be lost, or the same pages would be worked on again for each notice.
    #[test]
    fn each_page_is_added_once() {
        let all: Vec<PageRange> = (0..6)
            .flat_map(|first| (1..=6 - first).map(move |pages| PageRange { first: PageId(first), pages }))
            .collect();
        for at in 0..all.len().pow(3) {
            let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
            for range in [at, at / all.len(), at / all.len().pow(2)].map(|at| all[at % all.len()]) {
                let added: Vec<PageId> = set.insert(range).into_iter().flat_map(PageRange::iter).collect();
                let expected: Vec<PageId> = range.iter().filter(|page| model.insert(*page)).collect();
                assert_eq!(added, expected);
            }
            assert!(set.0.iter().zip(set.0.iter().skip(1)).all(|((_, stop), (next, _))| stop < next));
        }
    }
}
