//! Aggregation of the status pages of all shards of a daemon.

use super::counters::Gauge;
use super::rows::PeerRow;
use super::snapshot::{DaemonState, OperationCount, Status};

impl Status {
    /// Adds up the pages of all shards of a daemon, the first one first; `None` if there are none. Counters are added
    /// and rows concatenated; the daemon is in the state of its worst shard. A client attaches to the first shard and
    /// then to others, so the first one has the number of clients.
    pub fn sum(all: &[Status]) -> Option<Status> {
        let (first, others) = all.split_first()?;
        let mut sum = first.clone();
        others.iter().for_each(|other| sum.add(other));
        sum.clients.sort_by_key(|row| row.client);
        sum.segments.sort_by_key(|row| (std::cmp::Reverse(row.calls()), row.segment));
        sum.samples.sort_by_key(|row| (row.ended_us, row.number));
        Some(sum)
    }

    fn add(&mut self, other: &Status) {
        let add = |mine: &mut Vec<u64>, theirs: &[u64]| {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine = mine.saturating_add(*theirs));
        };
        add(&mut self.counters, &other.counters);
        add(&mut self.failures, &other.failures);
        for (index, mine) in self.gauges.iter_mut().enumerate() {
            let theirs = other.gauges.get(index).copied().unwrap_or(0);
            let Some(gauge) = Gauge::ALL.iter().find(|gauge| gauge.index() == index) else { continue };
            *mine = match gauge {
                // Each shard has the same view of the cluster, and the same clients or fewer.
                Gauge::Clients
                | Gauge::Peers
                | Gauge::Clustered
                | Gauge::Leader
                | Gauge::Members
                | Gauge::Names
                | Gauge::Majority => *mine,
                Gauge::LatencyNs => (*mine).max(theirs),
                // A node that only one shard reaches cannot be relied on.
                Gauge::Connections => (*mine).min(theirs),
                _ => mine.saturating_add(theirs),
            };
        }
        self.operations.iter_mut().zip(&other.operations).for_each(|(mine, theirs)| *mine = mine.plus(theirs));
        self.histograms.iter_mut().zip(&other.histograms).for_each(|(mine, theirs)| mine.add(theirs));
        self.clients.extend_from_slice(&other.clients);
        self.segments.extend_from_slice(&other.segments);
        self.samples.extend_from_slice(&other.samples);
        self.torn += other.torn;
        other.peers.iter().for_each(|theirs| self.add_peer(theirs));
        let (mine, theirs) = (&mut self.daemon, &other.daemon);
        let rank = |state| {
            [
                DaemonState::Serving,
                DaemonState::Starting,
                DaemonState::Unknown,
                DaemonState::Stopping,
                DaemonState::Stopped,
            ]
            .iter()
            .position(|&s| s == state)
        };
        if rank(theirs.state) > rank(mine.state) {
            mine.state = theirs.state;
        }
        mine.heartbeat_ns = mine.heartbeat_ns.min(theirs.heartbeat_ns);
        mine.heartbeat_us = mine.heartbeat_us.min(theirs.heartbeat_us);
    }

    fn add_peer(&mut self, theirs: &PeerRow) {
        match self.peers.iter_mut().find(|mine| mine.node == theirs.node) {
            Some(mine) => {
                mine.connected &= theirs.connected;
                mine.waiting = mine.waiting.saturating_add(theirs.waiting);
                mine.windows = mine.windows.saturating_add(theirs.windows);
                mine.since_us = mine.since_us.max(theirs.since_us);
            }
            None => self.peers.push(*theirs),
        }
    }
}

impl OperationCount {
    /// Returns the sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            done: self.done.saturating_add(other.done),
            failed: self.failed.saturating_add(other.failed),
            indeterminate: self.indeterminate.saturating_add(other.indeterminate),
            bytes: self.bytes.saturating_add(other.bytes),
            waited: self.waited.saturating_add(other.waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;
    use crate::status::{Counter, Kind, Layout, Tally};
    use std::net::SocketAddr;

    fn page(words: &[(usize, u64)]) -> Status {
        let mut page = vec![0; Layout::BYTES];
        let mut set = |at: usize, word: u64| page[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        Layout::begin(&mut set);
        words.iter().for_each(|&(at, word)| set(at, word));
        Status::decode(&page).unwrap()
    }

    #[test]
    fn shard_pages_aggregate_to_one_daemon() {
        // If this broke, an operator would see half of a node's work, or a healthy node while half of it hangs.
        let gauge = Layout::gauge_at;
        let done = Layout::operation_at(Kind::Put, Tally::Done);
        let commits = Layout::counter_at(Counter::Commits);
        let mut one = page(&[(commits, 3), (done, 5), (gauge(Gauge::Segments), 2), (gauge(Gauge::Clients), 4)]);
        let mut other = page(&[(commits, 4), (done, 6), (gauge(Gauge::Segments), 1), (gauge(Gauge::Clients), 1)]);
        (one.daemon.state, other.daemon.state) = (DaemonState::Serving, DaemonState::Starting);
        (one.daemon.heartbeat_ns, other.daemon.heartbeat_ns) = (900, 100);
        let address: SocketAddr = "127.0.0.2:7400".parse().unwrap();
        let (node, waiting, windows, since_us) = (NodeId(2), 1, 2, 3);
        let peer = PeerRow { node, connected: true, waiting, windows, since_us, address };
        one.peers.push(peer);
        other.peers.push(PeerRow { connected: false, ..peer });
        let sum = Status::sum(&[one.clone(), other]).unwrap();
        assert_eq!((sum.counter(Counter::Commits), sum.operation(Kind::Put).done), (7, 11));
        assert_eq!((sum.gauge(Gauge::Segments), sum.gauge(Gauge::Clients)), (3, 4));
        assert_eq!((sum.daemon.state, sum.daemon.heartbeat_ns), (DaemonState::Starting, 100));
        assert_eq!((sum.peers.len(), sum.peers[0].connected, sum.peers[0].windows), (1, false, 4));
        assert_eq!(Status::sum(std::slice::from_ref(&one)), Some(one));
        assert_eq!(Status::sum(&[]), None);
    }
}
