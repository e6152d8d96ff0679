//! Decides where a client's request is executed: here, or at another node.

use crate::action::RangeSet;
use crate::config::Now;
use crate::engine::Engine;
use crate::fault_injection::planted;
use crate::home::execute::decode_new;
use crate::home::inline_path::InlineCommit;
use crate::requester::{LocalCaller, Requester};
use crate::state::clients::Client;
use crate::state::output::RangeList;
use crate::state::peers::weight;
use crate::state::pending::Continuation;
use ddss_core::{
    Access, ArenaRange, ChannelId, Completion, Entry, Failure, InlinePut, ListPage, ListQuery, Listing, Name, NodeId,
    Operation, Outcome, Payload, Placement, PutConditions, ReadOptions, Request, RequestId, SegmentId, Spec, Version,
};

impl Engine {
    /// Commits a put if it is an inline put on the fast path.
    #[inline(always)]
    pub fn inline_put(&mut self, now: Now, channel: ChannelId, entry: &Entry) -> Option<InlineCommit> {
        let InlinePut { segment, offset, bytes, words } = InlinePut::of(entry)?;
        if !self.output.is_empty() || !self.is_home(segment) {
            return None;
        }
        let client = self.output.client(channel.client)?;
        let segment = self.segments.fast_path_segment(segment)?;
        segment.check_access(client.principal, Access::Write, offset, bytes.into()).ok()?;
        segment.check_names_version(&PutConditions::default()).ok()?;
        let (version, timestamp) = segment.next_stamp(&mut self.clock, now.wall_us);
        segment.advance((version, timestamp));
        let at = segment.at;
        self.output.counters.requests += 1;
        self.output.counters.commits += 1;
        Some(InlineCommit { at, offset, bytes, words, version, timestamp })
    }

    /// Handles a client's request. `text` is a copy of the operation's arena bytes that the engine reads, else empty:
    /// names, a specification, a list query, a table of ranges.
    pub fn request(&mut self, now: Now, channel: ChannelId, request: &Request, text: &[u8]) {
        let Some(client) = self.output.client(channel.client) else { return };
        self.output.counters.requests += 1;
        let deadline_us = now.steady_us.saturating_add(u64::from(request.timeout_us));
        let timeout_us = request.timeout_us;
        let caller = LocalCaller { channel, request: request.id, principal: client.principal, deadline_us, timeout_us };
        if request.parks {
            return self.request_parked(now, &client, caller, &request.operation);
        }
        if let Err(failure) = self.dispatch(now, &client, caller, &request.operation, text) {
            let failure = self.replicas.explain_failure(request.operation.segment(), failure);
            self.output.finish_call(&caller, Outcome::Failed(failure));
        }
    }

    /// Handles a wait that gives its place in the ring back if it has to wait, or the cancel of such a wait.
    #[cold]
    fn request_parked(&mut self, now: Now, client: &Client, caller: LocalCaller, operation: &Operation) {
        let LocalCaller { channel, request, .. } = caller;
        let place = ChannelId::parked(channel.client);
        if let Operation::Cancel { segment, request } = *operation {
            return self.cancel(now, &caller, (segment, place), request);
        }
        let begun =
            if operation.can_park() { self.output.parked.begin(channel, request) } else { Err(Failure::Malformed) };
        if let Err(failure) = begun {
            // The client learns the value of a limit that a setting decides.
            let most = Version(failure.limit().map_or(0, |_| self.output.parked.limit() as u64));
            let refused = Completion { version: most, ..Completion::bare(request, Outcome::Failed(failure)) };
            return self.output.reply(channel, refused, None);
        }
        let waiting = LocalCaller { channel: place, ..caller };
        if let Err(failure) = self.dispatch(now, client, waiting, operation, &[]) {
            let failure = self.replicas.explain_failure(operation.segment(), failure);
            self.output.finish_call(&waiting, Outcome::Failed(failure));
        }
        if self.output.parked.park() {
            let parked = Completion { parked: true, ..Completion::bare(request, Outcome::Done) };
            self.output.reply(channel, parked, None);
        }
    }

    /// Always inlined: a call with an operation costs a null request 8 % more instructions.
    #[inline(always)]
    pub(crate) fn dispatch(
        &mut self,
        now: Now,
        client: &Client,
        caller: LocalCaller,
        operation: &Operation,
        text: &[u8],
    ) -> Result<(), Failure> {
        let fits = |range: &ArenaRange| range.fits(client.arena_bytes).then_some(()).ok_or(Failure::OutOfRange);
        match *operation {
            Operation::Null => self.output.finish_call(&caller, Outcome::Done),
            Operation::Get { segment, into: range, .. }
            | Operation::Put { segment, from: Payload::Arena(range), .. }
            | Operation::GetMany { segment, list: range, .. }
            | Operation::PutMany { segment, list: range, .. }
            | Operation::UploadPart { segment, from: range, .. } => {
                fits(&range)?;
                self.execute(now, &caller, segment, operation, text)?;
            }
            Operation::Put { segment, .. }
            | Operation::CommitUpload { segment, .. }
            | Operation::DropUpload { segment, .. }
            | Operation::Atomic { segment, .. }
            | Operation::Lock { segment, .. }
            | Operation::Await { segment, .. }
            | Operation::Unlock { segment, .. }
            | Operation::Renew { segment, .. }
            | Operation::Permit { segment, .. }
            | Operation::Break { segment, .. }
            | Operation::Sweep { segment, .. }
            | Operation::Release { segment } => self.execute(now, &caller, segment, operation, text)?,
            Operation::Stat { segment, page } => {
                fits(&ArenaRange { bytes: Listing::PAGE_BYTES as u32, ..page })?;
                self.execute(now, &caller, segment, operation, text)?;
            }
            Operation::GetRows { segment, range, list, requested_model } => {
                fits(&range)?;
                let options = ReadOptions { requested_model, version: None };
                self.remote().get_rows(&caller, segment, (range, list), options)?;
            }
            Operation::Allocate { .. } => self.allocate(now, caller, text)?,
            Operation::Open { .. } => self.open(now, caller, text)?,
            Operation::List { node, text: range } => {
                fits(&ArenaRange { bytes: Listing::PAGE_BYTES as u32, ..range })?;
                self.list_from(now, &caller, (node, range), text)?;
            }
            Operation::Cancel { segment, request } => self.cancel(now, &caller, (segment, caller.channel), request),
            Operation::Collect => {
                if let Some(completion) = self.output.parked.collect(caller.channel, caller.request) {
                    self.output.reply(caller.channel, completion, None);
                }
            }
        }
        Ok(())
    }

    /// Executes an operation here, or asks the home of its segment to do so.
    #[inline(never)]
    fn execute(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        segment: SegmentId,
        operation: &Operation,
        text: &[u8],
    ) -> Result<(), Failure> {
        if !self.is_home(segment) {
            return self.remote().call(now, caller, segment, operation, text);
        }
        let ended = match *operation {
            Operation::Put { offset, ref from, ref conditions, .. } => {
                self.fast_path().put_fast(now, caller, segment, (offset, from), conditions)
            }
            _ => None,
        };
        ended.unwrap_or_else(|| self.home().execute(now, &caller.at_home(text), operation))
    }

    /// Chooses the home of a new segment, and creates the segment there.
    #[inline(never)]
    fn allocate(&mut self, now: Now, caller: LocalCaller, text: &[u8]) -> Result<(), Failure> {
        let (spec, name) = decode_new(text)?;
        let placement = Placement::Node(self.place(spec.placement, &name));
        let spec = Spec { placement, ..spec };
        if placement == Placement::Node(self.node) && self.directory.is_some() {
            let (requester, timeout_us) = (caller.requester(), caller.timeout_us);
            return self.home().lifecycle().create_named(now, requester, caller.principal, name, spec, timeout_us);
        }
        self.look_up(now, caller, name, Continuation::Allocate(spec))
    }

    /// Opens a segment of that name: here, else where it is.
    #[inline(never)]
    fn open(&mut self, now: Now, caller: LocalCaller, text: &[u8]) -> Result<(), Failure> {
        let name = Name::from_bytes(text)?;
        if self.segments.by_name(&name).is_some() {
            return self.home().open(&caller.at_home(text), &name);
        }
        self.look_up(now, caller, name, Continuation::Open)
    }

    /// Looks up a name, and creates the segment here if that is what follows.
    #[inline(never)]
    fn look_up(&mut self, now: Now, caller: LocalCaller, name: Name, then: Continuation) -> Result<(), Failure> {
        let new = self.remote().look_up(caller, name, then)?;
        self.create(now, new);
        Ok(())
    }

    /// Lists for a client, from the first connected node with at least that id.
    #[inline(never)]
    fn list_from(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        (from, into): (NodeId, ArenaRange),
        text: &[u8],
    ) -> Result<(), Failure> {
        ListQuery::decode(text)?;
        let up = self.peers.iter().filter(|&(_, up)| up).map(|(node, _)| node);
        let next = up.chain([self.node]).filter(|&node| node >= from).min();
        match next {
            None => self.output.complete_page(caller.channel, caller.request, ListPage::default()),
            Some(node) if node == self.node => self.home().list(now, &caller.at_home(text), into)?,
            Some(node) => self.remote().request_page(caller, node, into, text)?,
        }
        Ok(())
    }

    /// Ends a waiting request of one of the caller's channels.
    #[inline(never)]
    pub(crate) fn cancel(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        (segment, channel): (SegmentId, ChannelId),
        request: RequestId,
    ) {
        let waiting = Requester::Client(channel, request);
        if !self.is_home(segment) || !self.home().operate(|operations| operations.cancel_at_home(now, segment, waiting))
        {
            self.remote().cancel(channel, request);
        }
        // This comes after the end of the cancelled request: the last reply of a round is this request's own.
        self.output.finish_call(caller, Outcome::Done);
    }

    /// Returns the byte ranges of a range set.
    pub fn ranges(&self, parts: &RangeSet) -> RangeList {
        let mut ranges = self.output.ranges_of(parts);
        if planted!(self.segments, FirstRangeOnly) {
            ranges.truncate(1);
        }
        ranges
    }

    /// Chooses the home of a new segment.
    fn place(&mut self, placement: Placement, name: &Name) -> NodeId {
        match placement {
            Placement::Local => self.node,
            Placement::Node(node) => node,
            Placement::RoundRobin => {
                let up = self.peers.iter().filter(|&(_, up)| up).map(|(node, _)| node);
                let mut nodes: Vec<NodeId> = up.chain([self.node]).collect();
                nodes.sort_unstable();
                self.placed += 1;
                nodes[(self.placed - 1) as usize % nodes.len()]
            }
            Placement::Hash => {
                let nodes = self.peers.iter().map(|(node, _)| node).chain([self.node]);
                nodes.max_by_key(|&node| (weight(node, name), node)).unwrap_or(self.node)
            }
        }
    }
}
