//! Execution of the engine's actions: copies in this node's memory, work for the fabric, replies to clients.

use super::actions::background::{BackgroundTask, BackgroundTasks};
use super::actions::control_events::ControlEvents;
use super::actions::copy_actions::CopyActions;
use super::actions::inflight_reads::InflightReads;
use super::actions::remote_get::RowsToRead;
use super::actions::segment_work::SegmentWork;
use super::actions::transfers::Transfers;
use super::client_arena::ClientArenas;
use super::clock::Clock;
use super::latency_estimate::LatencyEstimate;
use super::replies::Replies;
use crate::control::{ControlBridge, ControlEvent, ControlRequest};
use crate::peers::links::Links;
use crate::status::Recorder;
use crate::storage::area_access::AreaAudiences;
use crate::storage::large_undo::LargeCommit;
use crate::storage::memory::NodeMemory;
use crate::storage::registered_areas::RegisteredAreas;
use arrayvec::ArrayVec;
use ddss_core::{Audience, ChannelId, Completion, Failure, Storage};
use ddss_engine::{Action, ControlAction, CopyOut, Engine, Fetch, PeerAction, Reply, SegmentCommit};
use ddss_verbs::RegionId;
use std::time::{Duration, Instant};

/// State of the progress thread, apart from the clients' rings. What acts on it borrows the parts that it needs.
pub(crate) struct ActionExecutor {
    pub(super) engine: Engine,
    pub(super) links: Links,
    pub(super) memory: NodeMemory,
    pub(super) areas: RegisteredAreas,
    pub(super) arenas: ClientArenas,
    /// Long-running work on the memory.
    background_tasks: BackgroundTasks,
    pub(super) inflight_reads: InflightReads,
    scratch_region: RegionId,
    pub(super) replies: Replies,
    /// Average latency of calls.
    pub(super) latency: LatencyEstimate,
    /// Counters and histograms.
    pub(super) recorder: Recorder,
    pub(super) clock: Clock,
    /// Bridge to the control plane, if the node belongs to a cluster.
    bridge: Option<ControlBridge>,
    members_changed: bool,
}

impl ActionExecutor {
    /// Takes the parts that other threads prepared. `scratch_region` is the memory's scratch lines.
    pub(super) fn new(
        engine: Engine,
        links: Links,
        (memory, scratch_region): (NodeMemory, RegionId),
        audiences: AreaAudiences,
        recorder: Recorder,
        bridge: Option<ControlBridge>,
        replies_max: usize,
    ) -> Self {
        Self {
            engine,
            links,
            memory,
            areas: RegisteredAreas::new(audiences),
            arenas: ClientArenas::new(),
            background_tasks: BackgroundTasks::default(),
            inflight_reads: InflightReads::new(),
            scratch_region,
            replies: Replies::with_capacity(replies_max),
            latency: LatencyEstimate::default(),
            recorder,
            clock: Clock::start(),
            bridge,
            members_changed: false,
        }
    }

    #[inline]
    fn copy_actions(&mut self) -> CopyActions<'_> {
        let Self { engine, memory, arenas, links, .. } = self;
        CopyActions { engine, memory, arenas, links }
    }

    #[inline]
    fn transfers(&mut self) -> Transfers<'_> {
        let Self { engine, links, memory, areas, arenas, inflight_reads, scratch_region, recorder, clock, .. } = self;
        let (scratch_region, now) = (*scratch_region, clock.now());
        Transfers { engine, links, memory, areas, arenas, inflight_reads, scratch_region, recorder, now }
    }

    fn segment_work(&mut self) -> SegmentWork<'_> {
        let Self { engine, memory, areas, links, background_tasks: tasks, recorder, clock, .. } = self;
        SegmentWork { engine, memory, areas, links, tasks, recorder, now: clock.now() }
    }

    fn control_events(&mut self) -> ControlEvents<'_> {
        let Self { engine, links, clock, recorder, members_changed, .. } = self;
        ControlEvents { engine, links, clock, recorder, members_changed }
    }

    /// Opens an area, registers it with the fabric, and grants its audience access.
    pub(super) fn publish_area(&mut self, area: usize, audience: Audience, storage: Storage) -> Result<(), String> {
        self.areas.publish(&mut self.memory, self.links.fabric_mut(), area, audience, storage)
    }

    /// Opens an area and registers it with the fabric.
    pub(super) fn register_area(&mut self, area: usize, storage: Storage) -> Result<(), String> {
        self.areas.register(&mut self.memory, self.links.fabric_mut(), area, storage)
    }

    /// Reads the clocks, and persists a floor so that no later run reuses their timestamps.
    pub(crate) fn read_time(&mut self) {
        self.clock.update();
        self.recorder.set_time(self.clock.now().wall_us);
        self.persist_clock_floor();
    }

    /// Reads the clocks before a request, if the engine needs the exact time. A lease of this home may have expired,
    /// or a cached copy may be stale, while this thread was stopped. Only replicas and read caches cost this clock
    /// read.
    #[inline]
    pub(crate) fn refresh_time(&mut self) {
        if self.engine.needs_time() {
            self.read_time();
        }
    }

    pub(crate) fn persist_clock_floor(&mut self) {
        self.memory.registry.raise_floor(self.clock.now().wall_us, self.engine.last_timestamp());
    }

    /// Sends a request to the control plane. Returns false if there is no control plane any more.
    fn send_control(&self, request: ControlRequest) -> bool {
        self.bridge.as_ref().is_some_and(|bridge| bridge.send_request(request))
    }

    /// Executes all actions that the engine has decided.
    pub(crate) fn execute_actions(&mut self) {
        while let Some(action) = self.engine.next_action() {
            self.execute(action);
        }
    }

    /// Executes one action.
    #[inline]
    pub(crate) fn execute(&mut self, action: Action) {
        match action {
            Action::Format { record, header, bytes } => self.segment_work().format(&record, &header, bytes),
            Action::RewriteRecord { record } => self.memory.rewrite(&record),
            Action::Move { record, from, bytes } => self.segment_work().relocate(&record, from, bytes),
            Action::DeleteRecord { segment } => {
                self.memory.remove(segment);
                self.recorder.record_release(segment);
            }
            Action::EraseHeader { at } => self.memory.erase(at),
            Action::ZeroFill { at, bytes } => self.segment_work().clear(at, bytes),
            Action::CopyOut(CopyOut { at, parts, client, into }) => {
                self.copy_actions().copy_out(at, &parts, client, into)
            }
            Action::Commit(SegmentCommit { at, parts, source, version, timestamp }) => {
                self.copy_actions().commit(at, &parts, source, (version, timestamp));
            }
            Action::CommitLarge { segment, at, offset, bytes, from, version, timestamp, has_undo } => {
                let (bytes, timestamp) = (u64::from(bytes), timestamp.0);
                let commit = LargeCommit { at, offset, bytes, from, version, timestamp };
                self.background_tasks.commit(segment, commit, has_undo);
            }
            Action::ReserveUndo { segment, at, bytes, timestamp } => {
                self.background_tasks.reserve_undo(segment, at, bytes.into(), timestamp);
            }
            Action::ReleaseUndo => self.background_tasks.release_undo(),
            Action::ContinueSweep { segment } => self.background_tasks.add(BackgroundTask::Sweep { segment }),
            Action::FindGarbage { segment, at, layout, rows, first, end, bytes_max } => {
                // The clock of this round may be older than an entry.
                self.read_time();
                let now = self.clock.now();
                let search = self.copy_actions().find_garbage((at, layout, rows), (first, end), bytes_max, now);
                self.engine.on_garbage_found(now, segment, search.as_ref());
            }
            Action::CopyAside { source, bytes, to } => self.copy_actions().copy_to_pool(source, bytes, to),
            Action::Fill { at, source, parts } => self.copy_actions().fill_replica(at, source, &parts),
            Action::WriteVersion { at, version, timestamp } => self.memory.set_version(at, version, timestamp),
            Action::SaveVersion { at, to, header } => self.memory.store_version(at, to, &header),
            Action::Snapshot { at, parts, to } => self.copy_actions().snapshot(at, &parts, to),
            Action::Unstage { node, at, client, into } => self.copy_actions().copy_from_staging(node, at, client, into),
            Action::WriteOut { buffer, client, into } => self.copy_actions().copy_from_buffer(buffer, client, into),
            Action::ReadWord { at } => {
                let word = self.memory.load_word(at);
                self.engine.on_word_read(word);
            }
            Action::SetLockHolder { at, holder } => self.memory.set_lock_holder(at, holder),
            Action::ReadRecord { place, word } => {
                let (state, timestamp) = self.memory.record_header(place.header);
                let word = word.map_or(0, |offset| self.memory.load_word(place.data + offset));
                self.engine.on_record_read(state, timestamp, word);
            }
            Action::FindEntry { place, offset, description, change, source } => {
                let (state, timestamp) = self.memory.record_header(place.header);
                let found = self.copy_actions().find_entry((description, place.data + offset), change, &source);
                if found.is_some_and(|found| found.entry.is_some_and(|(_, word)| word.expiry_ms() > 0)) {
                    // The clock of this round may be older than the call.
                    self.read_time();
                }
                self.engine.on_entry_found(self.clock.now(), state, timestamp, found);
            }
            Action::CommitRecord { place, parts, source, version, timestamp } => {
                self.copy_actions().commit_at(place, &parts, source, (version, timestamp));
            }
            Action::ReadTimestamp { client, range, list } => {
                let timestamp = self.transfers().greatest_timestamp(client, range, list);
                self.engine.on_timestamp_read(self.clock.now(), timestamp);
            }
            Action::Peer(action) => self.execute_by_fabric(action),
            Action::Control(action) => self.ask_control(action),
            Action::Reply(Reply { channel, completion, data }) => self.reply(channel, &completion, data),
        }
    }

    fn execute_by_fabric(&mut self, action: PeerAction) {
        match action {
            PeerAction::SendStaged { node, served_get, at, from, bytes, message, table } => {
                self.transfers().send_served_get(node, served_get, at, (from, bytes), &message, table);
            }
            PeerAction::FetchRecord { node, step, window, place, parts, target } => {
                self.transfers().post_record_get(node, step, window, place, &parts, target);
            }
            PeerAction::FetchRows { node, step, window, layout, rows, client, range, list } => {
                let rows = RowsToRead { layout, rows, client, range, list };
                self.transfers().post_rows_get(node, step, window, &rows);
            }
            PeerAction::Fetch(Fetch { node, step, window, line, parts, target }) => {
                self.transfers().post_remote_get(node, step, window, line, &parts, target);
            }
            PeerAction::Stage { node, step, at, client, from, message, table } => {
                self.transfers().send_staged_put(node, step, at, client, from, &message, table);
            }
            PeerAction::Send { node, message, tail } => self.transfers().send(node, &message, tail),
            PeerAction::GrantWindow { node, message, at, bytes } => {
                self.transfers().send_window(node, message, at, bytes)
            }
            PeerAction::RevokeWindow { at } => self.links.withdraw(at),
            PeerAction::Disconnect { node } => self.links.close_for_violation(node),
        }
    }

    /// Asks the control plane. Without one a decision is lost, which the engine repeats, and no cluster expects a lost segment.
    fn ask_control(&mut self, action: ControlAction) {
        match action {
            ControlAction::Propose { decision } => {
                // Without a control plane the decision is lost; the engine repeats it.
                let _ = self.send_control(ControlRequest::Decide(decision));
            }
            ControlAction::ReportLost(assignment) => {
                // Without a control plane there is no cluster that expects it.
                let _ = self.send_control(ControlRequest::Lost(assignment));
            }
            ControlAction::ClaimName { claim, name, within_us } => {
                let within = Duration::from_micros(within_us.into());
                if !self.send_control(ControlRequest::Claim { claim, name, within }) {
                    self.engine.on_claimed(self.clock.now(), claim, Err(Failure::NodeDown));
                }
            }
            ControlAction::ReleaseName { claim, name } => {
                if !self.send_control(ControlRequest::Disclaim { claim, name }) {
                    self.engine.on_disclaimed(claim, Err(Failure::NodeDown));
                }
            }
            ControlAction::ConfirmName { step, name, within_us } => {
                let within = Duration::from_micros(within_us.into());
                if !self.send_control(ControlRequest::Confirm { step, name, within }) {
                    self.engine.on_confirmed(step, Err(Failure::NodeDown));
                }
            }
        }
    }

    /// Handles the events of the control plane, and returns their number.
    pub(crate) fn poll_control(&mut self) -> usize {
        let Some(bridge) = self.bridge.as_ref().filter(|bridge| bridge.is_signaled()) else { return 0 };
        bridge.clear_signal();
        let events: ArrayVec<ControlEvent, { ControlBridge::BATCH }> =
            std::iter::from_fn(|| bridge.next_event()).take(ControlBridge::BATCH).collect();
        if events.is_full() {
            bridge.signal_again();
        }
        let count = events.len();
        for event in events {
            self.control_events().handle(event);
            self.execute_actions();
        }
        count.max(1)
    }

    /// Begins the background work that is due at a time.
    pub(super) fn tick_background(&mut self, now: Instant) {
        self.background_tasks.tick(now);
    }

    /// Does one slice of background work, if it is due after a round that did `work` other work. Returns 0 if none
    /// waits.
    pub(super) fn run_background(&mut self, work: usize) -> usize {
        let waits = !self.background_tasks.is_empty();
        if self.background_tasks.is_due(work) && self.segment_work().step() {
            self.execute_actions();
        }
        waits.into()
    }

    /// Stores a reply until the round's replies become visible.
    #[inline]
    pub(super) fn reply(&mut self, channel: ChannelId, completion: &Completion, data: Option<(u64, u8)>) {
        let entry = self.memory.encode_completion(completion, data);
        self.replies.push(channel, entry);
    }

    /// Returns true, once, if the list of members has changed: a peer may be due for a connection.
    pub(super) fn take_members_changed(&mut self) -> bool {
        std::mem::take(&mut self.members_changed)
    }

    pub(super) fn bridge(&self) -> Option<&ControlBridge> {
        self.bridge.as_ref()
    }
}
