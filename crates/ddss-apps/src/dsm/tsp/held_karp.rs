//! The dynamic program of Held and Karp: the length of the shortest tour, without a bound.

use super::cities::Cities;

/// Returns the length of the shortest tour: for each set of cities and each last one of them, the shortest path from city 0.
pub(super) fn shortest(cities: &Cities) -> u32 {
    let others = cities.count() - 1;
    let mut paths = vec![u32::MAX; others << others];
    for city in 0..others {
        paths[(1 << city) * others + city] = cities.distance(0, city + 1);
    }
    for set in 1..1_usize << others {
        let members = || (0..others).filter(move |city| set >> city & 1 == 1);
        for last in members() {
            let before = set & !(1 << last);
            let path = |city| paths[before * others + city] + cities.distance(city + 1, last + 1);
            if let Some(length) = members().filter(|city| *city != last).map(path).min() {
                paths[set * others + last] = length;
            }
        }
    }
    let all = (1 << others) - 1;
    let tour = |last: usize| paths[all * others + last] + cities.distance(last + 1, 0);
    (0..others).map(tour).min().unwrap_or(0)
}
