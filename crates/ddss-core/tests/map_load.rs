//! Load of a map: how seldom an insert finds no room although the map has fewer keys than it was allocated for.
//!
//! The inserts here follow the rule of the client: a free slot of the key's own bucket, else one of the first bucket in
//! the order of the steps that has a free slot, and a link.

#![allow(clippy::print_stdout, reason = "the output shows the load")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_core::BucketLayout;

/// Sizes of keys and values, with 16, 8 and 7 slots.
const SIZES: [(usize, usize); 3] = [(8, 64), (8, 512), (8, 65_536)];

/// Map after inserts of all keys.
struct Filled {
    buckets: u64,
    links_max: usize,
    /// Entries behind links, by the number of their step.
    steps: [u64; BucketLayout::STEPS],
}

/// Random numbers (SplitMix64), so that each run is the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

/// Fills a map at the load limit of 0.8; `None` if an insert finds no room.
fn fill(layout: BucketLayout, keys: u64, seed: u64) -> Option<Filled> {
    let buckets = (5 * keys).div_ceil(4 * layout.slots as u64).max(2);
    let (offsets, mut random) = (BucketLayout::link_offsets(buckets), Random(seed));
    let mut used = vec![0; buckets as usize];
    let mut links = vec![0; buckets as usize];
    let mut steps = [0; BucketLayout::STEPS];
    for _ in 0..keys {
        let bucket = ((u128::from(random.next()) * u128::from(buckets)) >> 64) as u64;
        if used[bucket as usize] < layout.slots {
            used[bucket as usize] += 1;
            continue;
        }
        let other = |offset: u64| ((bucket + offset) % buckets) as usize;
        let step = offsets.iter().position(|&offset| used[other(offset)] < layout.slots)?;
        used[other(offsets[step])] += 1;
        links[bucket as usize] += 1;
        steps[step] += 1;
    }
    let links_max = links.into_iter().max().unwrap_or(0);
    (links_max <= BucketLayout::LINKS).then_some(Filled { buckets, links_max, steps })
}

/// Returns an upper bound of the probability that a Poisson number is above `bound`, which is above its mean.
fn poisson_above(mean: f64, bound: u64) -> f64 {
    let first = bound + 1;
    let log_factorial: f64 = (1..=first).map(|number| (number as f64).ln()).sum();
    let term = (first as f64 * mean.ln() - mean - log_factorial).exp();
    // The terms that follow are smaller than a geometric series.
    term / (1.0 - mean / (first as f64 + 1.0))
}

#[test]
fn maps_of_all_sizes_take_the_keys_that_they_are_for() {
    // If this broke, a map would refuse keys although it has fewer than it was allocated for.
    for (key_bytes, value_bytes) in SIZES {
        let layout = BucketLayout::new(key_bytes, value_bytes).unwrap();
        for keys in (1..1500).chain([2_000, 5_000, 40_000]) {
            let filled = fill(layout, keys, keys * 7 + 1);
            assert!(filled.is_some(), "{keys} keys with {layout:?}");
        }
    }
}

/// Returns how many of the entries need more steps than there are: the share of those that need one more step falls by a
/// constant factor, which the last steps with enough entries show.
fn beyond_all_steps(steps: &[f64; BucketLayout::STEPS]) -> f64 {
    let from = |step: usize| steps[step..].iter().sum::<f64>();
    let last = (0..steps.len()).rfind(|&step| from(step) >= 100.0).expect("many entries lie behind links");
    let factor = (from(last) / from(last / 2)).powf(1.0 / (last - last / 2) as f64);
    from(last) * factor.powi((steps.len() - last) as i32)
}

#[test]
fn a_million_keys_find_room_but_for_one_map_in_ten_thousand() {
    // If this broke, one of a few maps would refuse a key before it has a million.
    const KEYS: u64 = 1_000_000;
    const MAPS: u64 = 3;
    for (key_bytes, value_bytes) in SIZES {
        let layout = BucketLayout::new(key_bytes, value_bytes).unwrap();
        let maps: Vec<Filled> = (0..MAPS).map(|seed| fill(layout, KEYS, seed).expect("all keys find room")).collect();
        let steps: [f64; BucketLayout::STEPS] =
            std::array::from_fn(|step| maps.iter().map(|map| map.steps[step] as f64).sum());
        let (buckets, linked) = (maps[0].buckets as f64, steps.iter().sum::<f64>() / MAPS as f64);
        let no_slot = beyond_all_steps(&steps) / MAPS as f64;
        // A bucket runs out of links when its keys, and entries of other buckets in its slots, are more than both.
        let entries = (KEYS as f64 + linked) / buckets;
        let no_link = buckets * poisson_above(entries, (layout.slots + BucketLayout::LINKS) as u64);
        let links = maps.iter().map(|map| map.links_max).max();
        println!(
            "{layout:?}: {:.2} % behind links, at most {links:?} links of a bucket; no slot {no_slot:.1e}, no link {no_link:.1e}",
            100.0 * linked / KEYS as f64
        );
        assert!(no_slot + no_link < 1e-4, "{layout:?}: {no_slot:.1e} and {no_link:.1e}");
    }
}
