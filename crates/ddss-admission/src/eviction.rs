//! Choice of the connection to drop when too many wait for admission.

use std::net::IpAddr;

/// Selects the waiting connection to evict, from the addresses in order of arrival: the oldest one of the address with
/// the most. So an address that floods the listener evicts its own connections.
///
/// ```
/// let [crowd, other] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
/// assert_eq!(ddss_admission::select_eviction([other, crowd, crowd]), Some(1));
/// assert_eq!(ddss_admission::select_eviction([]), None);
/// ```
pub fn select_eviction(waiting: impl IntoIterator<Item = IpAddr>) -> Option<usize> {
    // Address, number of connections, index of its first one.
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
    fn oldest_connection_of_busiest_address_is_evicted() {
        // If this broke, one address with many sockets could keep a node of another address out of its cluster.
        let from = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert_eq!(select_eviction([from(1)]), Some(0));
        assert_eq!(select_eviction([from(1), from(2)]), Some(0), "as many each: who came first");
        assert_eq!(select_eviction([from(1), from(2), from(3), from(2)]), Some(1));
        assert_eq!(select_eviction([from(9), from(7), from(7), from(9), from(7)]), Some(1));
    }
}
