//! Pages that cost a rank most: those that it fetches often, and those that several ranks write between two barriers.

use crate::limits::HOT_PAGES_MAX;
use crate::model::{PageId, Rank, RankSet};

/// A page, and how often something has happened to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotPage {
    /// Page.
    pub page: PageId,
    /// How often this rank has fetched it; or between how many pairs of barriers several ranks have written it.
    pub count: u32,
    /// Ranks that have written it.
    pub writers: RankSet,
}

/// The pages with the highest counts. Counts only grow, so that a page outside has none that is higher.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranking(Vec<HotPage>);

impl Ranking {
    /// Records the new count of a page.
    pub(crate) fn raise(&mut self, hot: HotPage) {
        if let Some(known) = self.0.iter_mut().find(|known| known.page == hot.page) {
            *known = hot;
        } else if self.0.len() < HOT_PAGES_MAX {
            self.0.push(hot);
        } else if let Some(least) =
            self.0.iter_mut().min_by_key(|known| known.count).filter(|least| least.count < hot.count)
        {
            *least = hot;
        }
    }

    /// Returns the pages, that with the highest count first.
    pub(crate) fn sorted(&self) -> Vec<HotPage> {
        let mut pages = self.0.clone();
        pages.sort_by_key(|hot| (std::cmp::Reverse(hot.count), hot.page));
        pages
    }
}

/// The rankings of a rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct HotPages {
    pub(crate) fetched: Ranking,
    pub(crate) shared: Ranking,
}

/// Writers of a page since the last barrier, and since the space began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writers {
    /// Number of the barrier behind which `now` has written.
    barrier: u64,
    now: RankSet,
    /// Pairs of barriers between which several ranks wrote, and those ranks.
    shared: u32,
    all: RankSet,
}

impl Writers {
    /// Records a writer behind a barrier. Returns the count and the ranks if it is not the only one there.
    pub(crate) fn add(&mut self, rank: Rank, barrier: u64) -> Option<(u32, RankSet)> {
        if self.barrier != barrier {
            (self.barrier, self.now) = (barrier, RankSet::default());
        }
        if !self.now.insert(rank) || self.now.len() < 2 {
            return None;
        }
        self.shared += u32::from(self.now.len() == 2);
        for rank in self.now.iter() {
            self.all.insert(rank);
        }
        Some((self.shared, self.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, `ddss dsm top` would show pages that cost nothing, and hide those that cost most.
    #[test]
    fn ranking_holds_the_pages_with_the_highest_counts() {
        let mut ranking = Ranking::default();
        let page = |page: u32, count| HotPage { page: PageId(page), count, writers: RankSet::default() };
        for round in 1..=40_u32 {
            (0..40).filter(|number| *number < round).for_each(|number| ranking.raise(page(number, round - number)));
        }
        let found: Vec<_> = ranking.sorted().iter().map(|hot| (hot.page.0, hot.count)).collect();
        assert_eq!(found, (0..HOT_PAGES_MAX as u32).map(|number| (number, 40 - number)).collect::<Vec<_>>());
    }

    // If this failed, pages that one rank writes would look like false sharing, or false sharing would stay unseen.
    #[test]
    fn several_writers_count_once_between_two_barriers() {
        let rank = |number| Rank::new(number).unwrap();
        let mut writers = Writers::default();
        assert_eq!(writers.add(rank(0), 0), None);
        assert_eq!(writers.add(rank(0), 0), None);
        assert_eq!(writers.add(rank(1), 1), None, "the other wrote before the barrier");
        assert_eq!(writers.add(rank(2), 1).map(|(count, all)| (count, all.len())), Some((1, 2)));
        assert_eq!(writers.add(rank(3), 1).map(|(count, all)| (count, all.len())), Some((1, 3)));
        assert_eq!(writers.add(rank(3), 2), None);
        assert_eq!(writers.add(rank(2), 2).map(|(count, all)| (count, all.len())), Some((2, 3)));
    }
}
