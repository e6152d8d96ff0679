//! Read cache: copies of remote Temporal segments for this node's readers.
//!
//! A cached copy is the whole segment, read into this node's own pool. It never comes from a client's arena, where a
//! client could forge the data of others. Its age counts from the start of its reads, so it shows every put that had
//! ended by then. Puts bypass the cache and go to the home; a put by a client of this node invalidates the copy.

use crate::action::{Action, CopyOut, FetchTarget, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::ids::StepId;
use crate::remote::handler::Remote;
use crate::requester::LocalCaller;
use crate::state::pending::{Pending, PendingReads, Transfer, WaitState};
use crate::state::read_cache::CachedSegment;
use ddss_core::limits::CACHED_BYTES_MAX;
use ddss_core::{ChannelId, Completion, Failure, Outcome, RequestId, SegmentInfo, Timestamp, Version};

impl Remote<'_> {
    /// Answers from the cache, or starts to fill it; `false` if the get has to go to the home.
    pub(crate) fn get_cached(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        transfer: &Transfer,
        info: &SegmentInfo,
        copy_us: u32,
    ) -> Result<bool, Failure> {
        let segment = transfer.segment;
        if copy_us == 0
            || info.layout().is_some()
            || info.bytes > CACHED_BYTES_MAX
            || !matches!(info.model, ddss_core::Model::Temporal(_))
        {
            return Ok(false);
        }
        let copy = match self.read_cache.get(segment) {
            Some(copy) if copy.is_filling => return Ok(false),
            Some(copy)
                if planted!(self.segments, EternalCopy)
                    || now.steady_us < copy.read_start_us.saturating_add(copy_us.into()) =>
            {
                let copy = *copy;
                self.output.counters.cache_hits += 1;
                self.answer_from(&copy, caller.channel, caller.request, transfer);
                self.output.free_table(&transfer.parts);
                return Ok(true);
            }
            Some(copy) => *copy,
            None => match self.reserve_cached_copy(info.bytes) {
                Some(copy) => copy,
                None => return Ok(false),
            },
        };
        let fetching = PendingReads { transfer: *transfer, tears: 0, history_version: None, refresh: true, list: None };
        let step = self.begin(caller, WaitState::Fetch(fetching))?;
        let is_filling =
            CachedSegment { read_start_us: now.steady_us, is_filling: true, is_invalidated: false, ..copy };
        self.read_cache.begin_fill(segment, is_filling);
        self.fetch(step, &fetching, FetchTarget::Pool(copy.at)).inspect_err(|_| {
            self.operations.remove(step);
            self.drop_cache_fill(segment);
        })?;
        Ok(true)
    }

    fn answer_from(&mut self, copy: &CachedSegment, channel: ChannelId, request: RequestId, transfer: &Transfer) {
        let done = Completion::bare(request, Outcome::Done);
        let mut done = Completion { version: copy.version, timestamp: copy.timestamp, ..done };
        let data = match transfer.parts {
            RangeSet::One { offset, bytes } if transfer.inline => {
                done.inline = true;
                Some((copy.at + offset, bytes as u8))
            }
            parts => {
                self.output.push(Action::CopyOut(CopyOut {
                    at: copy.at,
                    parts,
                    client: channel.client,
                    into: transfer.range,
                }));
                None
            }
        };
        self.output.reply(channel, done, data);
    }

    /// Completes the fill of a cached copy.
    pub(crate) fn cache_filled(
        &mut self,
        step: StepId,
        pending: &Pending,
        transfer: &Transfer,
        stamp: (Version, Timestamp),
    ) {
        let Some(copy) = self.read_cache.end_fill(transfer.segment, stamp) else { return };
        self.answer_from(&copy, pending.channel, pending.request, transfer);
        self.end_pending(step);
        if copy.is_invalidated {
            self.evict_cached(transfer.segment);
        }
    }
}
