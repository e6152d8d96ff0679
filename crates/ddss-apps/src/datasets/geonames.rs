//! Places of the world from GeoNames, a published data set that fills the trees.

use std::env;
use std::fs;
use std::path::PathBuf;

use crate::Error;
use crate::storage::PageStore;
use crate::tree::{BTree, RTree, Rect};

/// Environment variable that names another file of places.
pub const PLACES_VARIABLE: &str = "DDSS_PLACES";

/// File of the repository with every eighth place.
const SOME: &str = include_str!("../../data/places.tsv");

/// Number of places added in one commit, so that a commit ends before the writer's lease.
const TOGETHER: usize = 1000;

/// A place.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// The two letters of its country.
    pub country: String,
    /// Degrees east and north.
    pub at: [f64; 2],
}

impl Place {
    /// Returns the key of the `index`-th place: its name and a suffix that makes it unique.
    pub fn key(&self, index: usize) -> Vec<u8> {
        let mut key = self.name.clone().into_bytes();
        key.push(0);
        key.extend_from_slice(self.country.as_bytes());
        key.extend_from_slice(&(index as u32).to_be_bytes());
        key
    }

    /// Returns its position as bytes.
    pub fn value(&self) -> [u8; 16] {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&self.at[0].to_le_bytes());
        value[8..].copy_from_slice(&self.at[1].to_le_bytes());
        value
    }

    /// Returns the distance of two places in kilometres, on a sphere.
    pub fn distance_km(a: [f64; 2], b: [f64; 2]) -> f64 {
        let [a, b] = [a, b].map(|at| at.map(f64::to_radians));
        let half = |x: f64| (x / 2.0).sin().powi(2);
        let angle = half(b[1] - a[1]) + a[1].cos() * b[1].cos() * half(b[0] - a[0]);
        2.0 * 6371.0 * angle.sqrt().min(1.0).asin()
    }
}

/// Reads the places of the file that `DDSS_PLACES` names, or else those of the repository.
pub fn places() -> Result<Vec<Place>, Error> {
    let Some(path) = env::var_os(PLACES_VARIABLE).map(PathBuf::from) else { return parse(SOME) };
    let text = fs::read_to_string(&path).map_err(Error::system(format!("reading {}", path.display())))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Place>, Error> {
    let place = |line: &str| {
        let mut fields = line.split('\t');
        let (name, country) = (fields.next()?, fields.next()?);
        let (latitude, longitude) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Place { name: name.into(), country: country.into(), at: [longitude, latitude] })
    };
    let all = text.lines().map(|line| {
        place(line).ok_or_else(|| Error::Protocol { server: "the file of places", answer: format!("{line:?}") })
    });
    all.collect()
}

/// Returns `count` places, evenly selected from all places.
pub fn spread(all: &[Place], count: usize) -> Vec<Place> {
    let step = (all.len() / count.max(1)).max(1);
    all.iter().step_by(step).take(count).cloned().collect()
}

/// Builds a B-tree of places by name.
pub fn by_name<S: PageStore>(store: S, places: &[Place]) -> Result<BTree<S>, Error> {
    let mut tree = BTree::create(store)?;
    for (part, some) in places.chunks(TOGETHER).enumerate() {
        tree.write(|tree| {
            let mut numbered = (part * TOGETHER..).zip(some);
            numbered.try_for_each(|(index, place)| tree.insert(&place.key(index), &place.value()).map(drop))
        })?;
    }
    Ok(tree)
}

/// Builds an R-tree of places by position.
pub fn by_position<S: PageStore>(store: S, places: &[Place]) -> Result<RTree<S>, Error> {
    let mut tree = RTree::create(store)?;
    for (part, some) in places.chunks(TOGETHER).enumerate() {
        tree.write(|tree| {
            let mut numbered = (part * TOGETHER..).zip(some);
            numbered.try_for_each(|(index, place)| tree.insert(Rect::point(place.at), index as u64))
        })?;
    }
    Ok(tree)
}

/// Returns the key up to which `percent` of the places lie, in the order of their names.
pub fn key_at(places: &[Place], percent: usize) -> Vec<u8> {
    let mut keys: Vec<Vec<u8>> = places.iter().enumerate().map(|(index, place)| place.key(index)).collect();
    keys.sort();
    let count = (keys.len() * percent / 100).clamp(1, keys.len());
    keys.swap_remove(count - 1)
}

/// Returns the westernmost area that contains `percent` of the places.
pub fn area_of(places: &[Place], percent: usize) -> Rect {
    let mut east: Vec<f64> = places.iter().map(|place| place.at[0]).collect();
    east.sort_by(f64::total_cmp);
    let count = (east.len() * percent / 100).clamp(1, east.len());
    Rect::new([-180.0, -90.0], [east[count - 1], 90.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_their_published_positions() {
        let all = parse(SOME).unwrap();
        assert!(all.len() > 20_000, "{} places", all.len());
        assert!(
            all.iter().all(|place| place.at[0].abs() <= 180.0 && place.at[1].abs() <= 90.0 && !place.name.is_empty())
        );
        let (bern, lima) = ([7.44744, 46.94809], [-77.02824, -12.04318]);
        assert!((Place::distance_km(bern, lima) - 10_500.0).abs() < 250.0, "{}", Place::distance_km(bern, lima));
        assert_eq!(spread(&all, 1000).len(), 1000);
        for percent in [20, 100] {
            let (area, key) = (area_of(&all, percent), key_at(&all, percent));
            let inside = all.iter().filter(|place| area.holds(&Rect::point(place.at))).count();
            let before = all.iter().enumerate().filter(|(index, place)| place.key(*index) <= key).count();
            assert_eq!((inside * 100).div_ceil(all.len()), percent);
            assert_eq!(before, all.len() * percent / 100);
        }
        assert!(parse("a place\twithout numbers\n").is_err());
    }
}
