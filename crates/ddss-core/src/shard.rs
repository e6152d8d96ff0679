//! Assignment of names to the shards of a daemon.
//!
//! A daemon may have several *shards*. Each has its own progress thread, engine, rings, memory and connections to other
//! nodes, and shares none of them. A name belongs to one shard, the same on every node and for every client, so that no
//! lookup is needed. Shard 1 of a node only ever speaks with shard 1 of another.

use crate::limits::SHARDS_MAX;
use crate::model::segment::Name;

/// One shard, and the number of shards.
///
/// ```
/// use ddss_core::{Name, Shard};
/// let [first, second] = Shard::all(2).collect::<Vec<_>>().try_into().expect("there are two");
/// let name = Name::new("scores")?;
/// // Each name is at home in exactly one of them.
/// assert!(first.has(&name) != second.has(&name));
/// assert!(Shard::ONLY.has(&name));
/// # Ok::<(), ddss_core::Failure>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shard {
    index: u8,
    count: u8,
}

impl Shard {
    /// Shard of a daemon that has one.
    pub const ONLY: Self = Self { index: 0, count: 1 };

    /// Makes shard `index` of `count`; `None` if either is out of range.
    pub const fn new(index: u8, count: u8) -> Option<Self> {
        if index < count && count as usize <= SHARDS_MAX { Some(Self { index, count }) } else { None }
    }

    /// Returns all shards of a daemon with `count` of them, the first one first. There is at least one, and at most the
    /// maximum.
    pub fn all(count: u8) -> impl ExactSizeIterator<Item = Self> {
        let count = count.clamp(1, SHARDS_MAX as u8);
        (0..count).map(move |index| Self { index, count })
    }

    /// Returns the index; the first is 0.
    pub const fn index(self) -> u8 {
        self.index
    }

    /// Returns the number of shards.
    pub const fn count(self) -> u8 {
        self.count
    }

    /// Returns true if it is the only one.
    pub const fn is_only(self) -> bool {
        self.count == 1
    }

    /// Returns true if a name belongs to it.
    pub fn has(self, name: &Name) -> bool {
        Self::index_of(name, self.count) == self.index
    }

    /// Returns the shard of a name. Every release has to give the same answer, since clients and nodes compute it
    /// separately.
    pub fn index_of(name: &Name, count: u8) -> u8 {
        if count <= 1 {
            return 0;
        }
        // FNV-1a, mixed like the end of MurmurHash3: without the mix, names that differ in their last letter only would
        // have the same high half.
        let mix = |bits: u64, by: u64| (bits ^ (bits >> 33)).wrapping_mul(by);
        let hash = name
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let hash = mix(mix(hash, 0xff51_afd7_ed55_8ccd), 0xc4ce_b9fe_1a85_ec53);
        (((hash >> 32) * u64::from(count)) >> 32) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_to_shard_mapping_is_stable() {
        // If this broke, clients of one release would not find the segments of another.
        let index = |name: &str, count| Shard::index_of(&Name::new(name).unwrap(), count);
        let names = ["a", "b", "scores", "scores/today", "scores/tomorrow", "ü"];
        assert_eq!(names.map(|name| index(name, 1)), [0; 6]);
        assert_eq!(names.map(|name| index(name, 2)), PINNED_2);
        assert_eq!(names.map(|name| index(name, 16)), PINNED_16);
    }

    const PINNED_2: [u8; 6] = [1, 0, 1, 1, 1, 1];
    const PINNED_16: [u8; 6] = [8, 6, 10, 15, 11, 9];

    #[test]
    fn names_spread_over_all_shards() {
        // If this broke, one progress thread would do all the work.
        for count in 2..=SHARDS_MAX as u8 {
            let mut hits = vec![0u32; count.into()];
            for number in 0..16_000 {
                let name = Name::new(&format!("table/{number}")).unwrap();
                hits[usize::from(Shard::index_of(&name, count))] += 1;
                let at_home = Shard::all(count).filter(|shard| shard.has(&name)).count();
                assert_eq!(at_home, 1);
            }
            let fair = 16_000 / u32::from(count);
            assert!(hits.iter().all(|&hits| hits > fair * 8 / 10 && hits < fair * 12 / 10), "{hits:?}");
        }
    }

    #[test]
    fn shard_index_is_bounded() {
        // If this broke, a number from a file or a socket would name a missing shard.
        assert_eq!(Shard::new(0, 1), Some(Shard::ONLY));
        assert!(Shard::new(1, 1).is_none() && Shard::new(0, 0).is_none() && Shard::new(0, 17).is_none());
        assert_eq!((Shard::all(0).len(), Shard::all(255).len()), (1, SHARDS_MAX));
    }
}
