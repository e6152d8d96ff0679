//! Handling of replies: each is recorded and checked, and then the client chooses its next call.

use crate::cluster::network::Event;
use crate::cluster::node::mark_of;
use crate::cluster::simulator::Simulator;
use crate::load::calls::{Content, HeldLock, Kind, LEASE_US, PendingCall, SeenEntry, Target, Upload};
use crate::oracle::{BucketView, CriticalSection, EntryCall, Observation};
use ddss_core::{
    ChannelId, ClientId, Completion, EntryChangeKind, EntryState, Failure, ListPage, Listing, LockToken, Model,
    OpenedSegment, Operation, Outcome, Request, RowList, SegmentId, SlotWord, Timestamp, UploadId,
};

fn first_word(completion: &Completion) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| completion.data[i]))
}

impl Simulator {
    pub(crate) fn note(
        &mut self,
        node: usize,
        asked: &PendingCall,
        ended_us: u64,
        version: Option<u64>,
        mark: Option<u64>,
    ) {
        let Some(what) = asked.what() else { return };
        if asked.mark.is_some() || version.is_some() {
            let (segment, began_us) = (asked.target.key(), asked.began_us);
            self.checks.history.note(Observation { segment, node, began_us, ended_us, what, version, mark });
        }
    }

    /// Records a call with unknown outcome.
    pub(crate) fn record_unknown(&mut self, node: usize, asked: &PendingCall) {
        self.report.additions_unknown += u64::from(asked.adds() && asked.target.id == self.segments.targets[0].id);
        self.note(node, asked, u64::MAX, None, asked.mark);
        self.note_entry(asked, u64::MAX, None);
        if let Kind::Release(temp) = asked.kind {
            // The segment may still exist.
            self.forget_temp(temp);
        }
    }

    pub(crate) fn forget_temp(&mut self, temp: usize) {
        self.segments.temporary[temp] = None;
    }

    pub(crate) fn reply(&mut self, node: usize, client: ClientId, completion: &Completion) {
        if completion.request == Self::COLLECT_REQUEST {
            return;
        }
        if completion.request.0 >= Self::FIRST_SETUP_REQUEST {
            return self.began(completion);
        }
        self.trace(completion.encode().iter().fold(0, |sum, word| sum.rotate_left(7) ^ word));
        let now_us = self.now_us;
        if completion.parked {
            return self.collect_parked(node, client);
        }
        let Some(client) = self.nodes[node].client(client) else { return };
        let index = client.id.index as usize;
        if client.lingering.take_if(|request| *request == completion.request.0).is_some() {
            self.network.at(now_us + 1, Event::Ask { node, client: index });
            return;
        }
        let Some(asked) = client.asked.take_if(|asked| asked.request == completion.request.0) else {
            return self.violation(format!("node {}: a completion for no request: {completion:?}", node + 1));
        };
        let completion = &match completion.outcome {
            Outcome::Done if asked.asks_for_rows() => row_completion(&mut client.arena, &asked, completion),
            _ => *completion,
        };
        let mark = if asked.mark.is_some() {
            asked.mark
        } else if completion.inline {
            mark_of(&completion.data[..asked.range.bytes as usize])
        } else {
            mark_of(&client.arena[asked.range.offset() as usize..][..asked.range.bytes as usize])
        };
        let held = client.held;
        client.held = Self::next_held(held, &asked, completion, now_us);
        client.upload = Self::next_upload(client.upload, &asked, completion);
        let has_version =
            asked.what().is_some() || asked.adds() || matches!(asked.kind, Kind::GetBucket | Kind::Await(_));
        if completion.outcome == Outcome::Done && has_version {
            client.seen = Some((asked.target.key(), completion.version.0));
        }
        self.report.done += u64::from(completion.outcome == Outcome::Done);
        match completion.outcome {
            Outcome::Done => self.done(node, index, &asked, held, completion, mark),
            Outcome::Indeterminate(_) => self.record_unknown(node, &asked),
            Outcome::Failed(failure) => {
                if let (Failure::LockLost, Some(held)) = (failure, held) {
                    self.lock_lost(&held);
                }
                if failure == Failure::NoSpace && first_word(completion) > 0 {
                    self.note_refused_put(&asked, first_word(completion));
                }
                self.failed(index, &asked, failure);
            }
        }
        self.last = Some((asked, *completion, now_us));
        if self.plan.hop_us.is_none() {
            let mut pause = 1 + self.random.below(60);
            if self.random.one_in(12)
                && let Some(held) = self.nodes[node].clients[index].held.as_mut()
            {
                // The client holds the lock beyond its lease, and then unlocks a lock that it has lost.
                pause += u64::from(LEASE_US) / 2 + self.random.below(LEASE_US.into());
                held.over |= self.random.one_in(2);
            }
            self.network.at(now_us + pause, Event::Ask { node, client: index });
        }
    }

    /// Offers a slot for the completion of a wait that is parked now.
    fn collect_parked(&mut self, node: usize, client: ClientId) {
        self.report.parked += 1;
        let (now, channel) = (self.now(node), ChannelId { client, index: 0 });
        let collect = Request::new(Self::COLLECT_REQUEST, Operation::Collect);
        self.nodes[node].engine.request(now, channel, &collect, &[]);
    }

    fn began(&mut self, completion: &Completion) {
        let opened = OpenedSegment::decode(&completion.data);
        assert_eq!(completion.outcome, Outcome::Done, "the run begins with its segments");
        let index = (completion.request.0 - Self::FIRST_SETUP_REQUEST) as usize;
        let spec = match opened.row_bytes {
            0 => self.spec_of(index, opened.bytes / 8),
            row_bytes => self.spec_of(index, u64::from(row_bytes) / 8),
        };
        if spec.copies > 1 {
            self.segments.replicated.insert(opened.segment);
        }
        let (model, history_len, replicated) = (spec.model, spec.history_len(), spec.copies > 1);
        let length = if opened.row_bytes > 0 { opened.row_bytes as usize } else { opened.bytes as usize };
        let (row, content) = match self.table_index(index) {
            Some(table) if table % 3 == 2 => (Some(0), Content::Bucket),
            Some(_) => (Some(0), Content::Counter),
            None if index == 0 => (None, Content::Counter),
            None => (None, Content::Values),
        };
        let target = Target { id: opened.segment, row, content, length, model, history_len, replicated };
        self.note_models(&target);
        if index == 0 {
            (self.checks.additions, self.report.additions_unknown) = Default::default();
        }
        match self.segments.targets.get_mut(index) {
            Some(place) => *place = target,
            None => self.segments.targets.push(target),
        }
    }

    /// Records the model of a segment, or of all rows of a table.
    fn note_models(&mut self, target: &Target) {
        for row in 0..if target.row.is_some() { Target::ROWS } else { 1 } {
            self.checks.history.model(Target { row: Some(row), ..*target }.key(), target.model);
        }
    }

    fn done(
        &mut self,
        node: usize,
        index: usize,
        asked: &PendingCall,
        held: Option<HeldLock>,
        completion: &Completion,
        mark: Option<u64>,
    ) {
        let (now_us, version, target) = (self.now_us, completion.version.0, asked.target);
        let place = (target.id.to_bits(), asked.row());
        if self.was_gone(asked) {
            self.violation(format!("done, though the segment was gone before: {asked:?}"));
        }
        self.check_allowed(index, asked);
        self.check_copies(asked, version);
        self.note(node, asked, now_us, Some(version), mark);
        self.note_stamps(node, asked, completion);
        self.report.row_calls += u64::from(target.row.is_some());
        self.report.older += u64::from(asked.what().is_some() && asked.mark.is_none() && version < asked.newest);
        let model = match asked.kind {
            Kind::GetAsking(requested_model) if requested_model == Model::Strict || requested_model == Model::Read => {
                requested_model
            }
            _ => target.model,
        };
        let by = (node, index);
        if asked.kind == Kind::GetBucket {
            self.note_bucket(node, index, asked, version);
        }
        match asked.kind {
            Kind::Get | Kind::GetMany | Kind::GetAsking(_) | Kind::GetBucket => {
                self.checks.sections.called(place, by, false, model, (asked.began_us, now_us));
            }
            Kind::Put | Kind::PutIf(_) | Kind::PutMany | Kind::CommitUpload(_) => {
                let is_large = matches!(asked.kind, Kind::CommitUpload(_));
                self.report.large_puts += u64::from(is_large);
                self.report.large_puts_with_copies += u64::from(is_large && target.replicated);
                self.checks.sections.called(place, by, true, model, (asked.began_us, now_us));
            }
            Kind::Add | Kind::AddHeld => {
                if asked.kind == Kind::Add {
                    self.checks.sections.called(place, by, true, Model::Strict, (asked.began_us, now_us));
                }
                self.report.sections += u64::from(asked.kind == Kind::AddHeld);
                self.added(&target, version, first_word(completion));
            }
            Kind::ChangeEntry(..) => {
                self.checks.sections.called(place, by, true, model, (asked.began_us, now_us));
                self.note_entry(asked, now_us, Some((version, EntryState::of_word(first_word(completion)))));
            }
            Kind::PutHeld => self.put_held(held, version),
            Kind::Lock { .. } => self.granted(target.id, asked.began_us, first_word(completion)),
            Kind::Unlock => {
                if let Some(HeldLock { shared, of_row, granted_us: began_us, .. }) = held {
                    let (ended_us, (segment, row)) = (asked.began_us, place);
                    self.report.row_sections += u64::from(of_row);
                    let row = row.filter(|_| of_row);
                    self.checks.sections.held(CriticalSection { segment, row, holder: by, shared, began_us, ended_us });
                }
            }
            Kind::Await(above) if version <= above => {
                self.violation(format!("told of version {version} where one above {above} was wanted"));
            }
            Kind::AwaitAnyRow(_) => self.note_row_change(node, index, asked, completion),
            Kind::GetGone => self.violation(format!("a segment that is gone was read: {asked:?}")),
            Kind::List(from) => self.listed(node, index, (from, asked.began_us), completion),
            Kind::Make(temp) | Kind::Open(temp) => self.opened(temp, asked, completion),
            Kind::Release(temp) => {
                self.report.released += 1;
                self.segments.lost.insert(target.id, now_us);
                self.segments.gone.push(target);
                if self.segments.temporary[temp].is_some_and(|temp| temp.id == target.id) {
                    self.forget_temp(temp);
                }
            }
            _ => {}
        }
    }

    /// Records the timestamp of the version that a call returned.
    fn note_stamps(&mut self, node: usize, asked: &PendingCall, completion: &Completion) {
        let is_stamped = match asked.kind {
            // A table has no version of its own; a row has.
            Kind::Lock { of_row, .. } => of_row || asked.target.row.is_none(),
            Kind::Add | Kind::AddHeld | Kind::Await(_) | Kind::ChangeEntry(..) | Kind::GetBucket => true,
            _ => asked.what().is_some(),
        };
        if !is_stamped {
            return;
        }
        let (history, version, timestamp) = (asked.target.key(), completion.version.0, completion.timestamp.0);
        self.checks.stamps.told(history, version, timestamp);
        if asked.mark.is_some() {
            self.checks.stamps.made(history, version, timestamp, asked.heard);
        }
        self.nodes[node].heard = self.nodes[node].heard.max(timestamp);
    }

    /// Returns true if the segment was certainly gone at the time of the request.
    fn was_gone(&self, asked: &PendingCall) -> bool {
        let named = !matches!(asked.kind, Kind::List(_) | Kind::Make(_) | Kind::Open(_));
        // An isolated home does not know yet that its replica has taken over.
        let named = named && !(asked.kind == Kind::Stat && asked.target.replicated);
        // A part has no effect: an old home keeps it, and refuses to commit it.
        let named = named && !(asked.kind == Kind::UploadPart && asked.target.replicated);
        // A cached copy may be as old as the model allows.
        let old_us = if let Model::Temporal(micros) = asked.target.model { micros.into() } else { 0 };
        named && self.segments.lost.get(&asked.target.id).is_some_and(|&lost_us| lost_us + old_us < asked.began_us)
    }

    /// Checks that a token is greater than all tokens granted before its request.
    fn granted(&mut self, id: SegmentId, began_us: u64, token: u64) {
        let now_us = self.now_us;
        let given = self.checks.tokens.entry(id).or_default();
        let before = given.partition_point(|&(ended_us, _)| ended_us < began_us);
        let greatest = before.checked_sub(1).map_or(0, |last| given[last].1);
        let newest = given.last().map_or(0, |&(_, newest)| newest);
        given.push((now_us, newest.max(token)));
        if token <= greatest {
            self.violation(format!("token {token} was given after {greatest} for {id}"));
        }
    }

    fn put_held(&mut self, held: Option<HeldLock>, version: u64) {
        let Some(held) = held else { return };
        self.report.sections += 1;
        let alone = !matches!(held.target.model, Model::Null | Model::Read);
        if alone && held.version.is_some_and(|seen| version != seen + 1) {
            self.violation(format!("version {version} was put under a lock that saw {:?}", held.version));
        }
    }

    fn listed(&mut self, node: usize, index: usize, (from, began_us): (u16, u64), completion: &Completion) {
        let page = ListPage::decode(&completion.data);
        let mut left = &self.nodes[node].clients[index].arena[..page.bytes.into()];
        let (mut found, mut last) = (Vec::new(), String::new());
        while !left.is_empty() {
            let Ok(listing) = Listing::take_from(&mut left) else {
                return self.violation("a page cannot be read".to_owned());
            };
            if listing.name.as_str() <= last.as_str() || listing.home != page.node {
                return self.violation(format!("a page is out of order: {listing:?} behind {last}"));
            }
            last = listing.name.as_str().to_owned();
            found.push(listing.info.segment);
        }
        let complete = page.node.0 >= from && !page.more && page.bytes > 0;
        let stays = |target: &&Target| target.id.home() == page.node && !self.segments.replicated.contains(&target.id);
        let here = self.segments.targets.iter().filter(stays);
        let missing: Vec<SegmentId> = here.map(|target| target.id).filter(|id| !found.contains(id)).collect();
        let is_missed = |&id: &SegmentId| !self.is_gone(id) && !self.may_be_hidden(index, began_us, id);
        if complete && missing.iter().any(is_missed) {
            self.violation(format!("a list left {missing:?} out"));
        }
    }

    fn opened(&mut self, temp: usize, asked: &PendingCall, completion: &Completion) {
        let OpenedSegment { segment: id, bytes, row_bytes, .. } = OpenedSegment::decode(&completion.data);
        if self.segments.lost.get(&id).is_some_and(|&lost_us| lost_us < asked.began_us) {
            return self.violation(format!("{id} was opened after it was gone"));
        }
        if !self.segments.header_locations.contains_key(&id) {
            return self.violation(format!("{id} was opened, which nobody made"));
        }
        let spec = Self::temp_spec(bytes / 8);
        let (model, history_len) = (spec.model, spec.history_len());
        if !self.is_gone(id) {
            let (length, row, content) = match row_bytes {
                0 => (bytes as usize, None, Content::Values),
                row_bytes => (row_bytes as usize, Some(0), Content::Counter),
            };
            let target = Target { id, row, content, length, model, history_len, replicated: false };
            self.note_models(&target);
            self.segments.temporary[temp] = Some(target);
        }
    }

    fn failed(&mut self, index: usize, asked: &PendingCall, failure: Failure) {
        let target = asked.target;
        let named = !matches!(asked.kind, Kind::List(_) | Kind::Make(_) | Kind::Open(_));
        let oldest = self.segments.oldest.get(&target.id).copied().unwrap_or(0);
        let kept_from = self.newest(&target).saturating_sub(target.history_len.into()).max(oldest);
        let wrong = match (failure, asked.kind) {
            (Failure::NotFound, _) => named && !self.is_gone(target.id),
            // Versions within the history exist, and committed versions are not in the future.
            (Failure::VersionGone, Kind::GetAt(version)) => version >= kept_from && !self.is_gone(target.id),
            (Failure::VersionMismatch, Kind::GetAt(version)) => version <= asked.newest && !self.is_gone(target.id),
            (Failure::VersionMismatch, _) => false,
            (
                Failure::TimedOut
                | Failure::NodeDown
                | Failure::Busy(_)
                | Failure::InProgress
                | Failure::LockLost
                | Failure::Contended
                | Failure::NoSpace
                | Failure::UploadsFull
                // The grant of the lock came after the deadline of the client.
                | Failure::OwnLock,
                _,
            ) => false,
            (Failure::AlreadyExists, Kind::Make(_)) => false,
            // At home, with copies, locked, or not known yet: the client library then asks for each row.
            (Failure::Unsupported, Kind::GetBucket) => !asked.asks_for_rows(),
            // The home restarted, or dropped the parts of a node that it had lost.
            (Failure::UploadGone, Kind::UploadPart | Kind::CommitUpload(_)) => false,
            (Failure::PermissionDenied, _) => {
                self.report.refused += 1;
                !self.may_be_refused(index, asked)
            }
            _ => true,
        };
        if wrong {
            self.violation(format!("{failure:?} is no answer to {asked:?} (newest {})", self.newest(&target)));
        }
        if let (Failure::NotFound, Kind::Release(temp)) = (failure, asked.kind) {
            self.forget_temp(temp);
        }
    }

    /// Checks that a lock was not lost before its lease ended, unless its holder's node lost the connection to the home.
    fn lock_lost(&mut self, held: &HeldLock) {
        let lasts_until_us = held.renewed_us.unwrap_or(held.asked_us) + u64::from(LEASE_US);
        if self.now_us < lasts_until_us && self.faults.last_us + 50_000 < held.asked_us && !self.is_gone(held.target.id)
        {
            self.violation(format!("a lock was lost at {}, before its lease ran out: {held:?}", self.now_us));
        }
    }

    /// Returns the large put that a client continues after a completion.
    fn next_upload(upload: Option<Upload>, asked: &PendingCall, completion: &Completion) -> Option<Upload> {
        match asked.kind {
            Kind::UploadPart if completion.outcome == Outcome::Done => upload.map(|upload| Upload {
                id: UploadId(first_word(completion) as u32),
                done: upload.done + asked.range.bytes as usize,
                ..upload
            }),
            Kind::UploadPart | Kind::CommitUpload(_) => None,
            _ => upload,
        }
    }

    /// Returns the lock that a client holds after a completion.
    fn next_held(
        held: Option<HeldLock>,
        asked: &PendingCall,
        completion: &Completion,
        now_us: u64,
    ) -> Option<HeldLock> {
        if completion.outcome != Outcome::Done {
            return None;
        }
        match asked.kind {
            Kind::Lock { shared, of_row } => {
                let (token, granted_us) = (LockToken(first_word(completion)), now_us);
                let (target, asked_us) = (asked.target, asked.began_us);
                Some(HeldLock {
                    target,
                    token,
                    shared,
                    of_row,
                    asked_us,
                    granted_us,
                    renewed_us: None,
                    version: None,
                    over: false,
                })
            }
            Kind::GetHeld => held.map(|held| HeldLock { version: Some(completion.version.0), ..held }),
            Kind::Renew => held.map(|held| HeldLock { renewed_us: Some(asked.began_us), ..held }),
            Kind::PutHeld | Kind::AddHeld => held.map(|held| HeldLock { over: true, ..held }),
            Kind::Unlock => None,
            _ => held,
        }
        .filter(|held| now_us < held.granted_us + u64::from(LEASE_US) * 100)
    }

    /// Records the value that an addition found: each value is found once.
    fn added(&mut self, counter: &Target, version: u64, found: u64) {
        if counter.id == self.segments.targets[0].id && !self.checks.additions.insert(found) {
            self.violation(format!("two additions found the same number {found}"));
        }
        // Each change of the counter in a table is one addition.
        if counter.row.is_some() && version != found + 1 {
            self.violation(format!("version {version} of {counter:?} was made of {found}"));
        }
    }

    /// Records a change of an entry.
    fn note_entry(&mut self, asked: &PendingCall, ended_us: u64, result: Option<(u64, EntryState)>) {
        let Kind::ChangeEntry(kind, key) = asked.kind else { return };
        let PendingCall { target, content, began_us, .. } = *asked;
        let expected = (kind == EntryChangeKind::Replace).then(|| asked.expected.map(|entry| entry.content));
        let expected = expected.flatten();
        self.report.entry_changes += u64::from(result.is_some_and(|(_, state)| state != EntryState::Elsewhere));
        let bucket = target.key();
        self.checks.maps.changed(EntryCall { bucket, key, content, expected, kind, began_us, ended_us, result });
    }

    /// Records the entries that a client has read.
    fn note_bucket(&mut self, node: usize, index: usize, asked: &PendingCall, version: u64) {
        let bytes = &self.nodes[node].clients[index].arena[asked.range.offset() as usize..];
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let layout = Target::bucket_layout();
        let used = (0..layout.slots).filter(|&slot| word(layout.head_at(slot)) != 0);
        let entries = used.map(|slot| {
            let (key, head) = (word(layout.head_at(slot) + SlotWord::BYTES), word(layout.head_at(slot)));
            (key, (word(layout.value_at(slot)), SlotWord::of(head).map_or(0, SlotWord::expiry_ms)))
        });
        let (entries, bucket): (Vec<_>, _) = (entries.collect(), asked.target.key());
        if let Some(&(key, content)) = entries.get(asked.request as usize % entries.len().max(1)) {
            self.nodes[node].clients[index].entry = Some(SeenEntry { target: asked.target, key, content });
        }
        self.checks.maps.viewed(BucketView {
            bucket,
            began_us: asked.began_us,
            ended_us: self.now_us,
            version,
            entries,
        });
    }
}

/// Moves a row from behind the words of its record to where a get returns it. The completion gets its version and timestamp.
fn row_completion(arena: &mut [u8], asked: &PendingCall, completion: &Completion) -> Completion {
    let (record, at) = (asked.row_list().record_at(0), asked.range.offset() as usize);
    let [state, timestamp] = [0, 8].map(|word| {
        let bytes = arena[record + word..].first_chunk().expect("a record has two words");
        u64::from_le_bytes(*bytes)
    });
    arena.copy_within(record + 16..record + 16 + asked.target.length, at);
    let version = RowList::version_of([state, timestamp]).expect("a read of a record takes no half of a put");
    Completion { version, timestamp: Timestamp(timestamp), ..*completion }
}
