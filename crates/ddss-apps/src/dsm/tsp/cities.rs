//! Cities, and the distances between them.

use ddss_testkit::Random;

/// Cities of a tour at most.
pub(super) const CITIES_MAX: usize = 20;
/// Side of the square in which cities lie.
const SIDE: u64 = 10_000;

/// Distances between cities, the same on each rank.
pub(super) struct Cities {
    count: usize,
    distances: [[u32; CITIES_MAX]; CITIES_MAX],
}

impl Cities {
    /// Spreads cities over a square.
    pub(super) fn spread(count: usize) -> Self {
        assert!((3..=CITIES_MAX).contains(&count), "a tour of {count} cities");
        let mut random = Random::new(count as u64);
        let places: Vec<[f64; 2]> =
            (0..count).map(|_| [random.below(SIDE) as f64, random.below(SIDE) as f64]).collect();
        let mut distances = [[0; CITIES_MAX]; CITIES_MAX];
        for (a, row) in places.iter().zip(&mut distances) {
            for (b, distance) in places.iter().zip(row) {
                *distance = (a[0] - b[0]).hypot(a[1] - b[1]).round() as u32;
            }
        }
        Self { count, distances }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn distance(&self, a: usize, b: usize) -> u32 {
        self.distances[a][b]
    }

    /// Returns the length of the shortest tree that joins the cities of a set: no path through all of them is shorter.
    pub(super) fn spanning_tree(&self, set: u32) -> u32 {
        let members = || (0..self.count).filter(|city| set >> city & 1 == 1);
        let Some(first) = members().next() else { return 0 };
        let (mut left, mut length, mut near) = (set & !(1 << first), 0, self.distances[first]);
        while left != 0 {
            let nearest = members().filter(|city| left >> city & 1 == 1).min_by_key(|city| near[*city]);
            let Some(city) = nearest else { break };
            length += near[city];
            left &= !(1 << city);
            near.iter_mut().zip(self.distances[city]).for_each(|(near, distance)| *near = distance.min(*near));
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a bound could be too high, and the search would leave out the shortest tour.
    #[test]
    fn spanning_tree_of_three_cities_has_the_two_shorter_distances() {
        let cities = Cities::spread(6);
        let mut sides = [cities.distance(1, 2), cities.distance(2, 4), cities.distance(4, 1)];
        sides.sort_unstable();
        assert_eq!(cities.spanning_tree(0b1_0110), sides[0] + sides[1]);
        assert_eq!(cities.spanning_tree(0b1001), cities.distance(0, 3));
        assert_eq!((cities.spanning_tree(0), cities.spanning_tree(0b100)), (0, 0));
    }
}
