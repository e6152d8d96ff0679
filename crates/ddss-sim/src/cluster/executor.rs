//! Executes the actions of the engines on memory, network and clients.

use super::decisions::NodeMessage;
use super::network::{Event, Fetch, Staged};
use super::node::{LargeCommit, Node};
use super::simulator::Simulator;
use crate::load::calls::Target;
use ddss_core::limits::{ARENA_SLOT_BYTES, PAGE_BYTES};
use ddss_core::{
    ArenaRange, BucketLayout, ChannelId, Entry, Failure, Header, Message, NodeId, Operation, Payload, Range,
    RecordPlace, RemoteWindow, Request, RequestId, RowList, SegmentId, TableLayout, Timestamp,
};
use ddss_engine::{
    Action, Commit, ControlAction, CopyOut, FetchTarget, GarbageSearch, PeerAction, Reply, SegmentCommit, StepId,
};

impl Simulator {
    /// Executes the actions of an engine.
    pub(crate) fn perform(&mut self, node: usize) {
        loop {
            while let Some(action) = self.nodes[node].engine.next_action() {
                self.act(node, action);
            }
            let Some((channel, completion)) = self.nodes[node].engine.next_parked() else { return };
            self.reply(node, channel.client, &completion);
        }
    }

    /// Executes the actions after a request. As in a daemon, a reply that is the only action is taken directly.
    pub(crate) fn perform_request(&mut self, node: usize, looks: bool) {
        if looks && let Some(commit) = self.nodes[node].engine.first_commit().map(Commit::action) {
            self.act(node, commit);
        }
        if looks && let Some(&reply) = self.nodes[node].engine.last_reply() {
            self.act(node, Action::Reply(reply));
        }
        self.perform(node);
    }

    /// Tries the inline request path for a small call, as daemons do first.
    pub(crate) fn perform_inline(&mut self, node: usize, channel: ChannelId, entry: &Entry) -> bool {
        let now = self.now(node);
        let Some(commit) = self.nodes[node].engine.inline_put(now, channel, entry) else { return false };
        commit.actions(channel, entry).into_iter().for_each(|action| self.act(node, action));
        self.perform(node);
        true
    }

    fn act(&mut self, node: usize, action: Action) {
        let here = &mut self.nodes[node];
        match action {
            Action::Format { record, .. }
                if record.known_as != record.segment && self.faults.full_node == Some(node) =>
            {
                let now = self.now(node);
                self.nodes[node].engine.on_formatted(now, record.segment, false);
            }
            Action::Format { record, header, .. } => {
                here.format(record.at, &header);
                if record.spec.row_bytes as usize == Target::bucket_layout().row_bytes() {
                    here.describe_map(record.at);
                }
                self.segments.header_locations.insert(record.segment, (node, record.at));
                self.segments.records.insert(record.segment, record);
                self.record_permissions(node, &record);
                let now = self.now(node);
                self.nodes[node].engine.on_formatted(now, record.segment, true);
            }
            Action::DeleteRecord { segment } => {
                self.segments.records.remove(&segment);
                self.segments.last_free_ids.insert((node, segment.index()), segment);
            }
            Action::RewriteRecord { record } => {
                self.segments.records.insert(record.segment, record);
                self.record_permissions(node, &record);
            }
            Action::Move { record, from, bytes } => {
                here.relocate(from, record.at, bytes as usize);
                self.segments.header_locations.insert(record.segment, (node, record.at));
                let now = self.now(node);
                self.nodes[node].engine.on_moved(now, record.segment, true);
            }
            Action::ZeroFill { at, bytes } => {
                here.clear(at, bytes as usize);
                for page in here.engine.on_cleared(at, bytes) {
                    here.clear(page, PAGE_BYTES);
                }
            }
            Action::EraseHeader { at } => {
                let id = SegmentId::from_bits(here.header(at).segment);
                here.erase(at);
                if self.segments.header_locations.get(&id) == Some(&(node, at))
                    && !self.segments.replicated.contains(&id)
                {
                    self.segments.erased.insert(id);
                }
            }
            Action::ReadWord { at } => {
                let word = here.word(at);
                here.engine.on_word_read(word);
            }
            Action::SetLockHolder { at, holder } => here.mark(at, holder),
            Action::CopyOut(CopyOut { at, parts, client, into }) => {
                let bytes = here.gather(at, &parts);
                here.write_arena(client, into, &bytes);
            }
            Action::Commit(SegmentCommit { at, parts, source, version, timestamp }) => {
                let bytes = here.source(&source, parts.bytes());
                self.read_meanwhile(node, at, |here, marks| {
                    here.begin_commit(RecordPlace::of_plain_segment(at), &parts, &bytes, marks.then_some(version));
                });
                self.nodes[node].commit(RecordPlace::of_plain_segment(at), &parts, &bytes, version, timestamp);
            }
            Action::CommitLarge { segment, at, offset, bytes, from, version, timestamp, has_undo } => {
                let (bytes, old, life) = (bytes as usize, Vec::new(), here.life);
                here.commits.push_back(LargeCommit {
                    segment,
                    at,
                    offset,
                    bytes,
                    from,
                    version,
                    timestamp,
                    has_undo,
                    old,
                });
                self.network.at(self.now_us + self.random.below(20), Event::CommitSlice { node, life });
            }
            Action::ReserveUndo { segment, timestamp, .. } => {
                let longest = if self.random.one_in(16) { 5000 } else { 30 };
                let (later_us, life) = (self.now_us + self.random.below(longest), here.life);
                self.network.at(later_us, Event::UndoReserved { node, life, segment, timestamp });
            }
            Action::ReleaseUndo => here.release_undo(),
            Action::ContinueSweep { segment } => {
                let (later_us, life) = (self.now_us + self.random.below(30), here.life);
                self.network.at(later_us, Event::SweepSlice { node, life, segment });
            }
            Action::FindGarbage { segment, at, layout, rows, first, end, bytes_max } => {
                self.find_garbage(node, segment, (at, layout, rows), (first, end), bytes_max);
            }
            Action::CopyAside { source, bytes, to } => {
                let bytes = here.source(&source, bytes);
                here.write(to, &bytes);
            }
            Action::Fill { at, source, parts } => {
                let bytes = here.source(&source, parts.bytes());
                for range in &here.engine.ranges(&parts) {
                    here.write(at + range.offset, &bytes);
                }
            }
            Action::WriteVersion { at, version, timestamp } => here.stamp(at, version, timestamp),
            Action::SaveVersion { at, to, header } => here.keep(at, to, &header),
            Action::Snapshot { at, parts, to } => {
                let bytes = here.gather(at, &parts);
                here.write(to, &bytes);
            }
            Action::Unstage { node: peer, at, client, into } => {
                let bytes = here.staging_of(peer)[at as usize..][..into.bytes as usize].to_vec();
                here.write_arena(client, into, &bytes);
            }
            Action::WriteOut { buffer: kept, client, into } => {
                let bytes = here.engine.buffer(kept).to_vec();
                here.write_arena(client, into, &bytes);
            }
            Action::ReadTimestamp { client, range, list } => {
                let records = here.payload(client, &Payload::Arena(records_of(range)));
                let words = records.chunks(list.record_bytes() as usize).map(|record| record.as_chunks().0[1]);
                let timestamp = words.map(u64::from_le_bytes).max().unwrap_or(0);
                let now = self.now(node);
                self.nodes[node].engine.on_timestamp_read(now, Timestamp(timestamp));
            }
            Action::ReadRecord { place, word } => {
                let (state, timestamp) = here.record(place.header);
                let word = word.map_or(0, |offset| here.word(place.data + offset));
                here.engine.on_record_read(state, timestamp, word);
            }
            Action::FindEntry { place, offset, description, change, source } => {
                let (state, timestamp) = here.record(place.header);
                let (head, bucket) = (here.head(&source, change.head_bytes()), place.data + offset);
                let read = |at: u64, into: &mut [u8]| into.copy_from_slice(&here.bytes(at, into.len()));
                let seed =
                    |into: &mut [u8; BucketLayout::SEED_BYTES]| read(description + BucketLayout::SEED_AT as u64, into);
                let found = change.search(&head, seed, |at, into| read(bucket + at as u64, into));
                let now = self.now(node);
                self.nodes[node].engine.on_entry_found(now, state, timestamp, found);
            }
            Action::CommitRecord { place, parts, source, version, timestamp } => {
                let bytes = here.source(&source, parts.bytes());
                self.read_meanwhile(node, place.header, |here, marks| {
                    here.begin_commit(place, &parts, &bytes, marks.then_some(version));
                });
                self.nodes[node].commit(place, &parts, &bytes, version, timestamp);
            }
            Action::Reply(Reply { channel, mut completion, data }) => {
                if let Some((at, bytes)) = data {
                    completion.data[..usize::from(bytes)].copy_from_slice(&here.bytes(at, bytes.into()));
                }
                self.reply(node, channel.client, &completion);
            }
            Action::Peer(action) => self.act_by_fabric(node, action),
            Action::Control(ControlAction::Propose { decision }) => {
                self.send_to_raft(node, NodeMessage::Decide(decision));
            }
            // The stub of the Raft group finds lost segments itself.
            Action::Control(ControlAction::ReportLost(..)) => {}
            Action::Control(
                ControlAction::ClaimName { .. } | ControlAction::ReleaseName { .. } | ControlAction::ConfirmName { .. },
            ) => unreachable!("no engine here was told to share its names"),
        }
    }

    fn act_by_fabric(&mut self, node: usize, action: PeerAction) {
        let here = &mut self.nodes[node];
        match action {
            PeerAction::RevokeWindow { at } => {
                self.transfers.windows.retain(|_, &mut (home, _, base)| (home, base) != (node, at))
            }
            PeerAction::Fetch(ddss_engine::Fetch { node: home, step, window, line, parts, target }) => {
                let ranges = here.engine.ranges(&parts).to_vec();
                let (header, bytes) = (Header::default(), Vec::new());
                let (record, records) = (None, Vec::new());
                let fetch =
                    Fetch { step, window, line, record, ranges, records, target, header, state_after: 0, bytes };
                self.begin_fetch(node, usize::from(home.0) - 1, fetch);
            }
            PeerAction::FetchRecord { node: home, step, window, place, parts, target } => {
                let ranges = here.engine.ranges(&parts).to_vec();
                let (header, bytes, record) = (Header::default(), Vec::new(), Some(place));
                let (line, records) = (0, Vec::new());
                let fetch =
                    Fetch { step, window, line, record, ranges, records, target, header, state_after: 0, bytes };
                self.begin_fetch(node, usize::from(home.0) - 1, fetch);
            }
            PeerAction::FetchRows { node: home, step, window, layout, rows, client, range, list } => {
                let bytes = (list.rows() * RowList::NUMBER_BYTES) as u32;
                let numbers = here.payload(client, &Payload::Arena(ArenaRange { bytes, ..range }));
                let numbers = numbers.as_chunks().0.iter().map(|&number| u64::from_le_bytes(number));
                let records: Vec<Range> = (numbers.filter(|&row| row < rows))
                    .map(|row| Range { offset: layout.record(row).header, bytes: list.record_bytes() })
                    .collect();
                assert_eq!(records.len(), list.rows(), "simulated clients name rows of the table");
                let target = FetchTarget::Arena(client, records_of(range));
                let (record, header, ranges, bytes) = (None, Header::default(), Vec::new(), Vec::new());
                let (line, state_after) = (0, 0);
                let fetch = Fetch { step, window, line, record, ranges, records, target, header, state_after, bytes };
                self.begin_fetch(node, usize::from(home.0) - 1, fetch);
            }
            PeerAction::Stage { node: home, at, client, from, message, table, .. } => {
                let bytes = here.payload(client, &Payload::Arena(from));
                let tail = table.map(|table| here.engine.buffer(table).to_vec()).unwrap_or_default();
                self.send(node, home, Some(Staged::Bytes(at, bytes)), &message, &tail);
            }
            PeerAction::SendStaged { node: peer, served_get: hand, at, from, bytes, message, table } => {
                let life = here.life;
                let tail = table.map(|table| here.engine.buffer(table).to_vec()).unwrap_or_default();
                if self.network.life(node, usize::from(peer.0) - 1).is_none() {
                    return self.nodes[node].engine.on_served_get_sent(hand);
                }
                self.send(node, peer, Some(Staged::Pool { at, from, bytes, hand, life }), &message, &tail);
            }
            PeerAction::Send { node: peer, message, tail } => {
                let bytes = here.tail(&tail);
                self.send(node, peer, None, &message, &bytes);
            }
            PeerAction::GrantWindow { node: peer, message, at, bytes } => {
                self.register_window(node, peer, &message, at, bytes)
            }
            PeerAction::Disconnect { node: peer } => {
                self.violation(format!("node {} cut {peer} for no reason", node + 1))
            }
        }
    }

    /// Looks through buckets of a map, and records what a sweep may free.
    fn find_garbage(
        &mut self,
        node: usize,
        id: SegmentId,
        table: (u64, TableLayout, u64),
        buckets: (u64, u64),
        bytes_max: usize,
    ) {
        let (now, here) = (self.now(node), &self.nodes[node]);
        let read = |at: u64, into: &mut [u8]| into.copy_from_slice(&here.bytes(at, into.len()));
        let search = GarbageSearch::find(table, buckets, bytes_max, now.wall_us / 1000, read);
        if let Some(GarbageSearch { end: bucket, state, garbage, .. }) = &search
            && garbage.is_found()
        {
            let (at, layout, _) = table;
            let row = layout.record(bucket + 1).of_segment(at).data + layout.bounds(bucket + 1).0;
            let key = |range: &Range| here.word(row + range.offset + range.bytes as u64);
            let keys: Vec<u64> = garbage.ranges.iter().map(key).collect();
            let bucket = id.to_bits() | (bucket + 1) << 59;
            self.report.entries_swept += keys.len() as u64;
            self.checks.maps.swept(bucket, (state >> 1) + 1, &keys);
        }
        self.nodes[node].engine.on_garbage_found(now, id, search.as_ref());
    }

    /// Gives a sweep the time of its next slice.
    pub(crate) fn sweep_slice(&mut self, node: usize, life: u64, segment: SegmentId) {
        if self.nodes[node].life == life {
            let now = self.now(node);
            self.nodes[node].engine.sweep_slice(now, segment);
            self.perform(node);
        }
    }

    /// Ends a reservation of memory for an undo log: mostly there is some.
    pub(crate) fn undo_reserved(&mut self, node: usize, life: u64, segment: SegmentId, timestamp: Timestamp) {
        if self.nodes[node].life != life {
            return;
        }
        let made = !self.random.one_in(40);
        self.nodes[node].undo_reserved += usize::from(made);
        let now = self.now(node);
        self.nodes[node].engine.on_undo_reserved(now, segment, timestamp, made);
        self.perform(node);
    }

    /// Writes a slice of a large commit, or fails it because its undo log gets no memory.
    pub(crate) fn commit_slice(&mut self, node: usize, life: u64) {
        if self.nodes[node].life != life {
            return;
        }
        let fails = self.random.one_in(40);
        let here = &mut self.nodes[node];
        let may_fail = here.commits.front().is_some_and(|commit| commit.old.is_empty() && !commit.has_undo);
        let failed = if may_fail && fails { here.commits.pop_front() } else { None };
        let ended = match failed {
            Some(commit) => Some((commit.segment, false)),
            None => here.step_commit(400).map(|segment| (segment, true)),
        };
        if let Some((segment, made)) = ended {
            let now = self.now(node);
            self.nodes[node].engine.on_large_committed(now, segment, made);
            self.perform(node);
        } else {
            // A gigabyte needs long: in the middle of the commit the segment is copied, or its home dies.
            let longest = if self.random.one_in(16) { 5000 } else { 30 };
            let pause = 1 + self.random.below(longest);
            self.network.at(self.now_us + pause, Event::CommitSlice { node, life });
        }
    }

    fn register_window(&mut self, node: usize, peer: NodeId, message: &Message, at: u64, bytes: u64) {
        let Message::Found { step, info, .. } = *message else { return };
        // A peer with a window over that memory keeps the window.
        let mine = (node, usize::from(peer.0) - 1, at);
        let known = self.transfers.windows.iter().find(|&(_, window)| *window == mine).map(|(&key, _)| key);
        let key = known.unwrap_or_else(|| {
            self.transfers.keys += 1;
            self.transfers.keys
        });
        self.transfers.windows.insert(key, mine);
        let window = RemoteWindow { key, base: at, bytes };
        self.send(node, peer, None, &Message::Found { step, info, window }, &[]);
    }

    fn begin_fetch(&mut self, node: usize, home: usize, fetch: Fetch) {
        let step = fetch.step;
        self.transfers.fetches.insert((node, home, step));
        // A fetch on a dead connection ends when its node notices the cut.
        if let Some(life) = self.network.life(node, home) {
            let time_us = self.arrival(node, home);
            let fetch = Box::new(fetch);
            self.network.at(time_us, Event::Read { from: node, to: home, life, fetch, piece: 0 });
        }
    }

    fn send(&mut self, from: usize, to: NodeId, staged: Option<Staged>, message: &Message, tail: &[u8]) {
        let to = usize::from(to.0) - 1;
        let Some(life) = self.network.life(from, to) else { return };
        let time_us = self.arrival(from, to);
        let bytes = message.encode(self.nodes[from].engine.clock(self.now(from)), tail).to_vec();
        self.network.at(time_us, Event::Deliver { from, to, life, staged, bytes });
    }

    fn arrival(&mut self, from: usize, to: usize) -> u64 {
        self.network.arrival(self.now_us, self.plan.hop_us, from, to, &mut self.random)
    }

    pub(crate) fn deliver(&mut self, from: usize, to: usize, life: u64, staged: Option<Staged>, bytes: &[u8]) {
        let alive = self.network.life(from, to) == Some(life);
        match staged {
            Some(Staged::Pool { at, from: place, bytes, hand, life }) if self.nodes[from].life == life => {
                let data = self.nodes[from].bytes(place, bytes as usize);
                self.nodes[from].engine.on_served_get_sent(hand);
                if alive {
                    self.place(from, to, at, &data);
                }
            }
            Some(Staged::Bytes(at, data)) if alive => self.place(from, to, at, &data),
            _ => {}
        }
        if alive {
            let Ok((message, clock, tail)) = Message::decode(bytes) else {
                return self.violation(format!("node {} wrote what node {} cannot read", from + 1, to + 1));
            };
            let now = self.now(to);
            self.nodes[to].engine.on_message(now, NodeId(from as u16 + 1), clock, &message, tail);
            self.perform(to);
        }
    }

    fn place(&mut self, from: usize, to: usize, at: u64, data: &[u8]) {
        let from = NodeId(from as u16 + 1);
        self.nodes[to].staging_of(from)[at as usize..][..data.len()].copy_from_slice(data);
    }

    /// Lets remote reads in flight read one or more pieces while a node is writing them.
    fn read_meanwhile(&mut self, node: usize, at: u64, begin: impl FnOnce(&mut Node, bool)) {
        #[cfg(feature = "planted")]
        let marks = self.plan.bug != Some(ddss_engine::Bug::UnmarkedCommit);
        #[cfg(not(feature = "planted"))]
        let marks = true;
        let mut begin = Some(begin);
        while self.plan.hop_us.is_none()
            && let Some((from, life, fetch, piece)) = self.network.take_read(node, at)
        {
            if let Some(begin) = begin.take() {
                begin(&mut self.nodes[node], marks);
            }
            self.report.half_seen += 1;
            self.read(from, node, life, fetch, piece);
            if self.random.one_in(4) {
                break;
            }
        }
    }

    /// Reads for node `from` at the adapter of `to`: the header, the bytes in pieces, then the state word again.
    pub(crate) fn read(&mut self, from: usize, to: usize, life: u64, mut fetch: Box<Fetch>, piece: usize) {
        if self.network.life(from, to) != Some(life) {
            return;
        }
        const PIECE: usize = 64;
        if self.transfers.windows.get(&fetch.window.key) != Some(&(to, from, fetch.window.base)) {
            return self.violation(format!("node {} read through a window that it had no longer: {fetch:?}", from + 1));
        }
        let home = &self.nodes[to];
        if !fetch.records.is_empty() {
            return self.read_record(from, to, life, fetch, piece);
        }
        let line = fetch.window.base + fetch.line;
        let record = fetch.record.map(|place| place.of_segment(fetch.window.base));
        let RecordPlace { header: base, data } = record.unwrap_or(RecordPlace::of_plain_segment(line));
        let wanted: u32 = fetch.ranges.iter().map(|range| range.bytes).sum();
        if piece == 0 {
            fetch.header = home.header(line);
            if record.is_some() {
                let (state, timestamp) = home.record(base);
                (fetch.header.state, fetch.header.timestamp) = (state, timestamp.0);
            }
        } else if fetch.bytes.len() < wanted as usize {
            let (at, left) = fetch.place_of(fetch.bytes.len() as u64);
            fetch.bytes.extend(home.bytes(data + at, PIECE.min(left)));
        } else {
            fetch.state_after = home.record(base).0;
            let time_us = self.arrival(to, from);
            self.network.at(time_us, Event::Fetched { from: to, to: from, life, fetch });
            return;
        }
        let longest = if self.random.one_in(4) { 60 } else { 2 };
        let pause = if self.plan.hop_us.is_some() { 0 } else { self.random.below(longest) };
        let mut time_us = self.now_us + pause;
        if !self.reads_overlap && fetch.is_between_reads() {
            // The reply travels back before the next read.
            time_us = time_us.max(self.arrival(to, from)) + self.plan.hop_us.unwrap_or(2);
        }
        self.network.occupy(from, to, time_us);
        self.network.at(time_us, Event::Read { from, to, life, fetch, piece: piece + 1 });
    }

    /// Reads one of several records, which the home's fabric takes in one go, or the header behind all of them.
    fn read_record(&mut self, from: usize, to: usize, life: u64, mut fetch: Box<Fetch>, piece: usize) {
        let (home, base) = (&self.nodes[to], fetch.window.base);
        let Some(&Range { offset, bytes }) = fetch.records.get(piece) else {
            fetch.header = home.header(base);
            let time_us = self.arrival(to, from);
            self.network.at(time_us, Event::Fetched { from: to, to: from, life, fetch });
            return;
        };
        fetch.bytes.extend(home.bytes(base + offset, bytes as usize));
        let time_us = self.now_us + self.random.below(60);
        self.network.occupy(from, to, time_us);
        self.network.at(time_us, Event::Read { from, to, life, fetch, piece: piece + 1 });
    }

    pub(crate) fn complete_read(&mut self, from: usize, to: usize, life: u64, fetch: &Fetch) {
        if self.network.life(from, to) != Some(life) || !self.transfers.fetches.remove(&(to, from, fetch.step)) {
            return;
        }
        match fetch.target {
            FetchTarget::Arena(client, ArenaRange { slot, .. }) => {
                let into = ArenaRange { slot, bytes: fetch.bytes.len() as u32 };
                self.nodes[to].write_arena(client, into, &fetch.bytes);
            }
            FetchTarget::Pool(at) => {
                self.nodes[to].write(at, &fetch.bytes);
            }
        }
        self.fetched(to, fetch.step, Ok((fetch.header, fetch.state_after)));
    }

    pub(crate) fn fetched(&mut self, node: usize, step: StepId, result: Result<(Header, u64), Failure>) {
        let now = self.now(node);
        self.nodes[node].engine.on_fetched(now, step, result);
        self.perform(node);
    }

    /// Allocates a permanent segment by a client of its home.
    pub(crate) fn allocate(&mut self, index: usize, node: usize) {
        let words = match index {
            0 => 1,
            // A large segment, whose resync takes a while.
            _ if index == self.plan.segments => 700,
            _ if self.table_index(index).is_some() => [1, 5, 40][self.random.below(3) as usize],
            _ => [1, 2, 5, 40, 700][self.random.below(5) as usize],
        };
        let text = Self::allocation(&self.spec_of(index, words), &format!("segment-{index}"));
        let channel = ChannelId { client: self.nodes[node].clients[0].id, index: 0 };
        let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
        let request =
            Request::new(RequestId(Self::FIRST_SETUP_REQUEST + index as u64), Operation::Allocate { spec_and_name });
        let now = self.now(node);
        self.nodes[node].engine.request(now, channel, &request, &text);
        self.perform(node);
    }
}

/// Returns the part of a list's arena range in which the records lie.
fn records_of(range: ArenaRange) -> ArenaRange {
    ArenaRange { slot: range.slot + 1, bytes: range.bytes - ARENA_SLOT_BYTES as u32 }
}
