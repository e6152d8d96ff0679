//! Results of actions: the daemon reports what became of those that have one.

use crate::action::GarbageSearch;
use crate::config::Now;
use crate::engine::Engine;
use crate::ids::{ClaimId, ServedGetId, StepId};
use ddss_core::{BucketSearch, Failure, Header, Message, NodeId, SegmentId, Timestamp};

impl Engine {
    /// Completes the creation of a segment: its memory is there, or cannot be had.
    pub fn on_formatted(&mut self, now: Now, at: SegmentId, made: bool) {
        let mut home = self.home();
        home.lifecycle().formatted(now, at, made);
        home.follow_up();
    }

    /// Completes a move.
    pub fn on_moved(&mut self, now: Now, at: SegmentId, made: bool) {
        let mut home = self.home();
        home.moved(now, at, made);
        home.follow_up();
    }

    /// Completes a large commit; without memory for its undo log nothing has happened.
    pub fn on_large_committed(&mut self, now: Now, segment: SegmentId, made: bool) {
        let mut home = self.home();
        home.large_committed(now, segment, made);
        home.follow_up();
    }

    /// Handles the end of a reservation of memory for the undo log: from now on it is held, or there is no memory.
    pub fn on_undo_reserved(&mut self, now: Now, segment: SegmentId, timestamp: Timestamp, made: bool) {
        self.home().replicate(|replication| replication.undo_reserved(now, segment, timestamp, made));
    }

    /// Returns memory to the allocator after [`Action::ZeroFill`](super::Action::ZeroFill). Returns the pages of its first
    /// and last byte that no segment uses any more; they are to be cleared as a whole before the next call of the engine.
    pub fn on_cleared(&mut self, at: u64, bytes: u64) -> impl Iterator<Item = u64> + use<> {
        self.segments.cleared(at, bytes)
    }

    /// Completes an atomic with the word that [`Action::ReadWord`](super::Action::ReadWord) asked for.
    pub fn on_word_read(&mut self, word: u64) {
        self.home().operate(|operations| operations.word_read(word));
    }

    /// Records the timestamp that [`Action::ReadTimestamp`](super::Action::ReadTimestamp) asked for.
    pub fn on_timestamp_read(&mut self, now: Now, timestamp: Timestamp) {
        // A client that changes it moves this node's clock no further than a peer could.
        self.clock.hear(timestamp, now.wall_us);
    }

    /// Completes an operation on a record with what [`Action::ReadRecord`](super::Action::ReadRecord) found: the record's
    /// state word and timestamp, and the word that was asked for, or 0.
    pub fn on_record_read(&mut self, state: u64, timestamp: Timestamp, word: u64) {
        self.home().operate(|operations| operations.record_read(state, timestamp, word));
    }

    /// Completes the change of an entry with what [`Action::FindEntry`](super::Action::FindEntry) found: the record's
    /// state word and timestamp, and the result of the search; `None` if its source begins with no word of an entry. The
    /// expiry of an entry is compared with `now`.
    pub fn on_entry_found(&mut self, now: Now, state: u64, timestamp: Timestamp, found: Option<BucketSearch>) {
        self.home().operate(|operations| operations.entry_found(now, state, timestamp, found));
    }

    /// Continues a sweep after other work, as [`Action::ContinueSweep`](super::Action::ContinueSweep) asks for.
    pub fn sweep_slice(&mut self, now: Now, segment: SegmentId) {
        self.home().operate(|operations| operations.sweep_slice(now, segment));
    }

    /// Completes a slice of a sweep with what [`Action::FindGarbage`](super::Action::FindGarbage) found; `None` if the table
    /// is no map.
    pub fn on_garbage_found(&mut self, now: Now, segment: SegmentId, search: Option<&GarbageSearch>) {
        self.home().operate(|operations| operations.garbage_found(now, segment, search));
    }

    /// Handles the result of a claim.
    pub fn on_claimed(&mut self, now: Now, claim: ClaimId, result: Result<(), Failure>) {
        self.home().lifecycle().claimed(now, claim, result);
    }

    /// Handles the return of a name: done, or queued until the cluster is reachable. With an error the name stays taken
    /// until then.
    pub fn on_disclaimed(&mut self, claim: ClaimId, result: Result<(), Failure>) {
        self.home().lifecycle().disclaimed(claim, result);
    }

    /// Handles the cluster's answer about the home of a name.
    pub fn on_confirmed(&mut self, step: StepId, result: Result<Option<NodeId>, Failure>) {
        self.remote().confirmed(step, result);
    }

    /// Frees bytes that the fabric has taken, or never will.
    pub fn on_served_get_sent(&mut self, served_get: ServedGetId) {
        self.outgoing_bytes().sent(served_get);
    }

    /// Handles bytes that could not be sent: the requester is told that there was no room.
    pub fn on_served_get_failed(&mut self, node: NodeId, served_get: ServedGetId, message: &Message) {
        self.outgoing_bytes().failed(node, served_get, message);
    }

    /// Handles the end of a fetch: the header before the bytes and the state word after them, or a failure.
    pub fn on_fetched(&mut self, now: Now, step: StepId, result: Result<(Header, u64), Failure>) {
        self.remote().fetched(now, step, result);
    }

    /// Handles the end of a write into staging memory. If it failed, the put behind it may still have happened: a
    /// connection can end after both had arrived.
    pub fn on_staged(&mut self, step: StepId, result: Result<(), Failure>) {
        self.remote().staged(step, result);
    }

    /// Ends an operation whose message was refused before it went out: it did nothing.
    pub fn on_refused(&mut self, step: StepId, failure: Failure) {
        self.remote().refused(step, failure);
    }
}
