//! Who makes room at a door in front of which too many wait.

use std::net::IpAddr;

/// Of those who wait, named by where they come from and those who came first first: the one that makes room for another.
/// It is the one that has waited longest of the address that has the most: so whoever crowds the door crowds out himself.
///
/// ```
/// let [crowd, other] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
/// assert_eq!(ddss_core::makes_room([other, crowd, crowd]), Some(1));
/// assert_eq!(ddss_core::makes_room([]), None);
/// ```
pub fn select_eviction(waiting: impl IntoIterator<Item = IpAddr>) -> Option<usize> {
    // Address, how many, the first one of it.
    let mut crowds: Vec<(IpAddr, usize, usize)> = Vec::new();
    for (index, from) in waiting.into_iter().enumerate() {
        match crowds.iter_mut().find(|(address, ..)| *address == from) {
            Some((_, count, _)) => *count += 1,
            None => crowds.push((from, 1, index)),
        }
    }
    let largest = crowds.iter().map(|&(_, count, _)| count).max()?;
    crowds.iter().find(|&&(_, count, _)| count == largest).map(|&(.., first)| first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_largest_crowd_makes_room() {
        // If this broke, one address with many sockets could keep a node of another address out of its cluster.
        let from = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert_eq!(select_eviction([from(1)]), Some(0));
        assert_eq!(select_eviction([from(1), from(2)]), Some(0), "as many each: who came first");
        assert_eq!(select_eviction([from(1), from(2), from(3), from(2)]), Some(1));
        assert_eq!(select_eviction([from(9), from(7), from(7), from(9), from(7)]), Some(1));
    }
}
