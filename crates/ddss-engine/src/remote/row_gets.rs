//! Gets of several rows of a remote table by one request: one read for each row, which is whole because the home's fabric
//! takes it from memory in one go, and one of the segment's header behind them.
//!
//! The header then shows that the memory belonged to the segment all the time, and that no holder of a lock can have changed
//! a row and not be finished. Whatever needs more than this is unsupported: the client asks for each row by itself.

use crate::action::{Action, PeerAction, RangeSet};
use crate::ids::StepId;
use crate::remote::handler::Remote;
use crate::requester::LocalCaller;
use crate::state::pending::{Pending, PendingReads, Transfer, WaitState};
use ddss_core::{Access, ArenaRange, Completion, Failure, LockDependency, Outcome, ReadOptions, RowList, SegmentId};

impl Remote<'_> {
    /// Reads rows of a remote table. On error nothing was done.
    #[inline(never)]
    pub(crate) fn get_rows(
        &mut self,
        caller: &LocalCaller,
        segment: SegmentId,
        (range, list): (ArenaRange, RowList),
        options: ReadOptions,
    ) -> Result<(), Failure> {
        let home = self.reachable_home(segment).map_err(|failure| match failure {
            // This node is the home, or knows no other.
            Failure::NotFound => Failure::Unsupported,
            failure => failure,
        })?;
        let client = caller.channel.client;
        let info = self.known_segment(segment).filter(|info| info.copies == 1).ok_or(Failure::Unsupported)?;
        let layout = info.layout().ok_or(Failure::Unsupported)?;
        info.permissions.allow(caller.principal, Access::Read)?;
        if !list.fits(layout) {
            return Err(Failure::OutOfRange);
        }
        match info.model.get_rules(options.requested_model).lock_dependency {
            LockDependency::None => {}
            // The holder of a row asks the home, which knows the locked rows.
            LockDependency::Exclusive if self.remote_locks.token_for(client, segment, u64::MAX).is_none() => {}
            LockDependency::Exclusive | LockDependency::Any => return Err(Failure::Unsupported),
        }
        let parts = RangeSet::One { offset: 0, bytes: range.bytes };
        let transfer = Transfer { segment, parts, range, inline: false, options };
        let fetching = PendingReads { transfer, tears: 0, history_version: None, refresh: false, list: Some(list) };
        let step = self.begin(caller, WaitState::Fetch(fetching))?;
        let peer = self.peers.reachable(home);
        let Some(remote) = peer.and_then(|peer| peer.remotes.get_mut(&segment)) else {
            self.operations.remove(step);
            return Err(Failure::Unsupported);
        };
        remote.reads += 1;
        let (window, rows) = (remote.window, layout.rows(info.bytes));
        self.output.push(Action::Peer(PeerAction::FetchRows {
            node: home,
            step,
            window,
            layout,
            rows,
            client,
            range,
            list,
        }));
        Ok(())
    }

    /// Ends a get of rows. `is_proved` is true if the header behind the rows proves them.
    pub(crate) fn rows_fetched(
        &mut self,
        step: StepId,
        pending: &Pending,
        (range, list): (ArenaRange, RowList),
        is_proved: bool,
    ) {
        self.end_pending(step);
        if !is_proved {
            return self.output.finish(pending, Outcome::Failed(Failure::Unsupported));
        }
        // Later timestamps of this node must be greater.
        self.output.push(Action::ReadTimestamp { client: pending.channel.client, range, list });
        self.output.reply(pending.channel, Completion::bare(pending.request, Outcome::Done), None);
    }
}
