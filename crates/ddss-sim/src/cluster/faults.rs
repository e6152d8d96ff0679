//! Faults of connections, clients and nodes.

use super::network::Event;
use super::node::LargeCommit;
use super::simulator::Simulator;
use crate::load::calls::{ARENA_BYTES, Client};
use crate::oracle::permission_oracle::user_of;
use ddss_core::{ClientId, Failure, Header, LockToken, NodeId, Record, Timestamp, Version};

impl Simulator {
    pub(crate) fn inject_fault(&mut self, node: usize, client: usize) {
        if !self.plan.faults {
            return;
        }
        let soon = self.now_us + self.random.below(200);
        if self.random.one_in(200) {
            self.network.at(soon, Event::Kill { node, client });
        }
        if self.random.one_in(300) && self.plan.nodes > 1 {
            let peer = (node + 1 + self.random.below(self.plan.nodes as u64 - 1) as usize) % self.plan.nodes;
            self.network.at(soon, Event::Cut { a: node, b: peer });
        }
        if self.random.one_in(500) {
            let until_us = soon + 1 + self.random.below(30_000);
            self.network.at(soon, Event::Pause { node, until_us });
        }
        if self.random.one_in(1200) && self.plan.nodes > 2 {
            let second = (node + 1 + self.random.below(2) as usize) % self.plan.nodes;
            let second = Some(second).filter(|_| self.random.one_in(2));
            let until_us = soon + 1 + self.random.below(120_000);
            self.network.at(soon, Event::Isolate { first: node, second, until_us });
        }
        if self.random.one_in(2000) {
            self.network.at(soon, Event::Crash { node });
        }
    }

    pub(crate) fn kill(&mut self, node: usize, index: usize) {
        self.report.client_kills += 1;
        let client = &mut self.nodes[node].clients[index];
        let old = client.id;
        let asked = client.asked.take();
        *client = Client::new(ClientId { index: old.index, generation: old.generation + 1 });
        let fresh = client.id;
        if let Some(asked) = asked {
            self.record_unknown(node, &asked);
        }
        let now = self.now(node);
        self.nodes[node].engine.detach(now, old);
        self.nodes[node].engine.attach(fresh, user_of(index), ARENA_BYTES as u64);
        self.perform(node);
        self.network.at(self.now_us + 1 + self.random.below(100), Event::Ask { node, client: index });
    }

    pub(crate) fn cut(&mut self, a: usize, b: usize) {
        if !self.network.cut(a, b) {
            return;
        }
        self.report.cuts += 1;
        self.transfers.windows.retain(|_, &mut (home, peer, _)| (home, peer) != (a, b) && (home, peer) != (b, a));
        let (first, second) = (self.random.below(500), self.random.below(500));
        self.network.at(self.now_us + first, Event::Down { node: a, peer: b });
        self.network.at(self.now_us + second, Event::Down { node: b, peer: a });
        self.network.at(self.now_us + first.max(second) + 1 + self.random.below(5000), Event::Up { a, b });
    }

    pub(crate) fn down(&mut self, node: usize, peer: usize) {
        let lost: Vec<_> =
            self.transfers.fetches.iter().copied().filter(|&(from, to, _)| from == node && to == peer).collect();
        let fetches_first = self.random.one_in(2);
        for turn in [true, false] {
            if turn == fetches_first {
                for key in &lost {
                    self.transfers.fetches.remove(key);
                    self.fetched(node, key.2, Err(Failure::NodeDown));
                }
            } else {
                let now = self.now(node);
                self.nodes[node].engine.on_peer_down(now, NodeId(peer as u16 + 1));
                self.perform(node);
            }
        }
    }

    /// Crashes a node with its daemon and its clients.
    pub(crate) fn crash(&mut self, node: usize) {
        if self.nodes[node].dead {
            return;
        }
        self.report.crashes += 1;
        self.faults.last_us = self.now_us;
        for peer in (0..self.plan.nodes).filter(|&peer| peer != node) {
            self.cut(node, peer);
        }
        self.transfers.fetches.retain(|&(from, _, _)| from != node);
        for index in 0..self.plan.clients {
            if let Some(asked) = self.nodes[node].clients[index].asked.take() {
                self.record_unknown(node, &asked);
            }
        }
        self.check_counter();
        (self.nodes[node].dead, self.nodes[node].heard) = (true, 0);
        let forgets = self.random.one_in(2);
        let is_begun = |commit: &&LargeCommit| !commit.old.is_empty();
        let begun = self.nodes[node].commits.iter().filter(is_begun).count();
        self.report.large_puts_undone += if forgets { 0 } else { begun as u64 };
        let longest = if self.random.one_in(3) { 150_000 } else { 20_000 };
        let later_us = self.now_us + 600 + self.random.below(longest);
        self.network.at(later_us, Event::Restart { node, forgets });
        if forgets {
            self.lose_segments(node);
        } else {
            self.report.survived += 1;
        }
    }

    /// Removes all segments whose home is this node.
    fn lose_segments(&mut self, node: usize) {
        self.segments.records.retain(|id, _| usize::from(id.home().0) != node + 1);
        self.segments.last_free_ids.retain(|place, _| place.0 != node);
        let lost: Vec<_> =
            self.segments.header_locations.iter().filter(|(_, place)| place.0 == node).map(|(&id, _)| id).collect();
        for id in lost.into_iter().filter(|id| !self.segments.replicated.contains(id)) {
            self.segments.lost.entry(id).or_insert(self.now_us);
        }
        self.find_lost();
        for temp in 0..Self::TEMPORARY_MAX {
            if let Some(target) =
                self.segments.temporary[temp].filter(|target| self.segments.lost.contains_key(&target.id))
            {
                self.segments.gone.push(target);
                self.forget_temp(temp);
            }
        }
    }

    pub(crate) fn restart(&mut self, node: usize) {
        let ids = self.ids();
        self.nodes[node].restart(ids[node], &ids, true, &mut self.random);
        self.raft.resend_decisions(node);
        self.plant();
        for index in (node..self.plan.segments).step_by(self.plan.nodes) {
            self.segments.gone.push(self.segments.targets[index]);
            self.allocate(index, node);
        }
        let first_table = self.plan.segments + self.plan.replicated;
        for index in first_table..first_table + self.plan.tables {
            if index % self.plan.nodes != node || self.spec_of(index, 1).copies > 1 {
                continue;
            }
            self.segments.gone.push(self.segments.targets[index]);
            self.allocate(index, node);
        }
        for index in std::mem::take(&mut self.segments.to_allocate) {
            self.allocate(index, node);
        }
        self.schedule_next_call(node);
    }

    fn schedule_next_call(&mut self, node: usize) {
        for client in 0..self.plan.clients {
            self.network.at(self.now_us + 1 + self.random.below(100), Event::Ask { node, client });
        }
    }

    /// Recovers the segments in the memory of the daemon before.
    pub(crate) fn recover(&mut self, node: usize) {
        let ids = self.ids();
        let floor = self.nodes[node].engine.last_timestamp();
        self.nodes[node].restart(ids[node], &ids, false, &mut self.random);
        self.raft.resend_decisions(node);
        self.plant();
        let found: Vec<Record> =
            self.segments.records.values().filter(|record| record.segment.home() == ids[node]).copied().collect();
        let here = &mut self.nodes[node];
        for record in &found {
            here.mark(record.at, LockToken::default());
            let (header, history_len) = (here.header(record.at), record.spec.history_len());
            let version = Version(header.state >> 1);
            if let Some(line) = Header::history_offset(record.spec.bytes, history_len, version) {
                here.keep(record.at, record.at + line, &header);
            }
            let restored = here.engine.restore(record, version, Timestamp(header.timestamp));
            assert_eq!(restored, Ok(()), "what was written down is found again");
            let oldest = self.segments.oldest.entry(record.known_as).or_default();
            *oldest = version.0.max(*oldest);
        }
        // Ids of released segments are not reused.
        for (_, &last) in self.segments.last_free_ids.range((node, 0)..=(node, u32::MAX)) {
            let taken = found.iter().any(|record| record.segment.index() == last.index());
            if !taken {
                self.nodes[node].engine.restore_free(last);
            }
        }
        self.nodes[node].engine.restore_clock(floor);
        self.nodes[node].clear_free(&found);
        self.schedule_next_call(node);
    }

    /// Separates some nodes from the others and from the Raft stub.
    pub(crate) fn isolate(&mut self, first: usize, second: Option<usize>, until_us: u64) {
        if self.faults.partitions.iter().any(|&island| island != 0) {
            return;
        }
        self.report.isolations += 1;
        self.faults.last_us = self.now_us;
        for node in [Some(first), second].into_iter().flatten() {
            self.faults.partitions[node] = 1;
        }
        for a in 0..self.plan.nodes {
            for b in a + 1..self.plan.nodes {
                if self.faults.partitions[a] != self.faults.partitions[b] {
                    self.cut(a, b);
                }
            }
        }
        self.network.at(until_us, Event::Heal);
    }

    pub(crate) fn heal(&mut self) {
        self.faults.partitions.fill(0);
    }

    /// Returns true for a fault that is suppressed because faults have ended.
    pub(crate) fn is_averted(&self, event: &Event) -> bool {
        let is_fault = matches!(
            event,
            Event::Kill { .. } | Event::Cut { .. } | Event::Crash { .. } | Event::Pause { .. } | Event::Isolate { .. }
        );
        self.faults.have_ended && is_fault
    }
}
