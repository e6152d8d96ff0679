//! A tour, or its first cities.

use super::cities::{CITIES_MAX, Cities};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// First cities of a tour, which begins at city 0; or a complete tour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Tour {
    /// No complete tour that begins so is shorter.
    pub(super) bound: u32,
    /// Length of the path through the cities.
    length: u32,
    /// Number of the cities.
    count: u32,
    order: [u8; CITIES_MAX],
}

impl Tour {
    /// Longer than each complete tour.
    pub(super) const NONE: Self = Self { bound: u32::MAX, length: 0, count: 0, order: [0; CITIES_MAX] };

    /// Begins at city 0.
    pub(super) fn begin(cities: &Cities) -> Self {
        Self { bound: cities.spanning_tree((1 << cities.count()) - 1), count: 1, ..Self::NONE }
    }

    pub(super) fn count(&self) -> usize {
        // Another rank may have written it.
        (self.count as usize).min(CITIES_MAX)
    }

    /// Returns the cities, in their order.
    pub(super) fn cities(&self) -> impl Iterator<Item = usize> + '_ {
        self.order[..self.count()].iter().map(|city| usize::from(*city) % CITIES_MAX)
    }

    /// Returns the tours that are longer by one city. One with all cities goes back to the first one, and is complete.
    pub(super) fn extensions<'a>(&self, cities: &'a Cities) -> impl Iterator<Item = Self> + use<'a> {
        let tour = *self;
        let seen: u32 = tour.cities().map(|city| 1 << city).sum();
        let left = ((1_u32 << cities.count()) - 1) & !seen;
        let last = tour.cities().last().unwrap_or(0);
        (0..cities.count()).filter(move |city| left >> city & 1 == 1).map(move |city| {
            let mut longer = Self { length: tour.length + cities.distance(last, city), count: tour.count + 1, ..tour };
            longer.order[tour.count()] = city as u8;
            // The rest is a path from this city through those that are left to the first one.
            longer.bound = match left & !(1 << city) {
                0 => longer.length + cities.distance(city, 0),
                rest => longer.length + cities.spanning_tree(rest | 1 << city | 1),
            };
            longer
        })
    }

    /// Returns true if the tour visits each city once, and has this length.
    pub(super) fn is_complete(&self, cities: &Cities) -> bool {
        let order: Vec<usize> = self.cities().collect();
        let seen = order.iter().fold(0_u32, |seen, city| seen | 1 << city);
        let back = order.iter().zip(order.iter().cycle().skip(1));
        let length: u32 = back.map(|(a, b)| cities.distance(*a, *b)).sum();
        order.len() == cities.count() && seen == (1 << cities.count()) - 1 && length == self.bound
    }
}
