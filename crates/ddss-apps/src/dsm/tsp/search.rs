//! Search for the shortest tour that begins with some cities, by one rank for itself.

use super::cities::Cities;
use super::tour::Tour;

/// Returns the shortest complete tour that begins so and is shorter than the best one. Else returns the best one.
pub(super) fn search(cities: &Cities, begin: &Tour, best: Tour) -> Tour {
    if begin.bound >= best.bound {
        return best;
    }
    if begin.count() == cities.count() {
        return *begin;
    }
    let mut longer: Vec<Tour> = begin.extensions(cities).collect();
    longer.sort_unstable_by_key(|tour| tour.bound);
    longer.iter().fold(best, |best, tour| search(cities, tour, best))
}

#[cfg(test)]
mod tests {
    use super::super::held_karp::shortest;
    use super::*;

    // If this failed, ranks would agree on a tour that is not the shortest.
    #[test]
    fn search_finds_the_length_of_held_and_karp() {
        for count in 3..=11 {
            let cities = Cities::spread(count);
            let found = search(&cities, &Tour::begin(&cities), Tour::NONE);
            assert_eq!(found.bound, shortest(&cities), "{count} cities");
            assert!(found.is_complete(&cities), "{found:?}");
        }
    }
}
