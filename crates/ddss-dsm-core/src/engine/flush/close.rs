//! Closes an interval: finds the changed bytes of each page and sends them to the homes.

use super::placement::{send_diffs, start_placement};
use crate::diff::{PackedRuns, Run, find_runs, pack};
use crate::engine::accesses::{Accesses, merge_ranges};
use crate::engine::action::Action;
use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::state::QueuedDiff;
use crate::log::encode_record;
use crate::message::Message;
use crate::model::{Access, ChangedPages, Ordering, PageId, PageRange, Rank, Stamps};
use std::collections::BTreeMap;
use std::ops::Range;

/// An interval while it is closed.
struct Closing {
    interval: u32,
    /// Pages with changed bytes.
    changed: Vec<PageId>,
    /// Pages whose runs were written one-sided, by home.
    written: BTreeMap<Rank, Vec<PageId>>,
    /// Copy of a page. The page may change during the diff; the copy does not.
    copy: Box<[u8]>,
    runs: Vec<Run>,
    /// Bytes that were sent to other homes.
    sent: u64,
    /// Changed bytes, if races are looked for.
    writes: Vec<Range<u64>>,
}

/// Closes the open interval. An interval without a changed byte stays open, unless it has reads that are looked at for races.
pub(crate) fn close_interval(ctx: &mut Context<'_>) {
    let copy = ctx.state.pages.twins.take_buffer(ctx.state.config.page_bytes);
    let interval = ctx.state.sync.intervals.open();
    let mut closing = Closing {
        interval,
        changed: Vec::new(),
        written: BTreeMap::new(),
        copy,
        runs: Vec::new(),
        sent: 0,
        writes: Vec::new(),
    };
    ctx.state.pages.placements.start_flush();
    #[cfg(feature = "planted")]
    let start = ctx.out.actions().len();
    for page in ctx.state.pages.twins.pages() {
        if take_diff(ctx, page, &mut closing) {
            send_page(ctx, page, &mut closing);
        }
    }
    if !closing.changed.is_empty() || ctx.state.has_reads() {
        record_accesses(ctx, &mut closing);
        publish(ctx, &closing);
        #[cfg(feature = "planted")]
        if planted!(ctx.state, StampBeforeDiff) {
            ctx.out.reorder_sends_first(start);
        }
    }
    ctx.state.pages.twins.give_buffer(closing.copy);
}

/// Records the accesses of an interval, if races are looked for.
fn record_accesses(ctx: &mut Context<'_>, closing: &mut Closing) {
    let (time, barriers) = (ctx.state.sync.intervals.time(), ctx.state.statistics.barriers);
    if let Some(log) = &mut ctx.state.accesses {
        let (mut reads, writes) = (std::mem::take(&mut log.reads), std::mem::take(&mut closing.writes));
        merge_ranges(&mut reads);
        log.closed.push(Accesses { interval: closing.interval, time, barriers, reads, writes });
    }
}

/// Finds the changed runs of a page. Afterwards the twin is what was sent. Returns false if nothing changed.
fn take_diff(ctx: &mut Context<'_>, page: PageId, closing: &mut Closing) -> bool {
    let is_idle = ctx.state.pages.twins.get_mut(page).is_some_and(|twin| twin.is_idle);
    let closes = is_idle && ctx.state.pages.table.access(page) == Access::Write;
    if closes {
        // Before the last diff: another thread may be writing.
        ctx.set_access(page, Access::Read);
    }
    ctx.memory.read_cache(page, &mut closing.copy);
    let stale = planted!(ctx.state, StaleTwin);
    let joined = planted!(ctx.state, JoinedRuns);
    let Some(twin) = ctx.state.pages.twins.get_mut(page) else { return false };
    find_runs(&twin.bytes, &closing.copy, &mut closing.runs);
    if joined {
        join_runs(&mut closing.runs);
    }
    let is_changed = !closing.runs.is_empty();
    twin.is_idle = !is_changed;
    if is_changed && !stale {
        twin.bytes.copy_from_slice(&closing.copy);
    }
    if closes {
        ctx.state.pages.twins.remove(page);
        ctx.state.statistics.idle_twins += 1;
    }
    is_changed
}

/// Joins runs with a short gap: a planted bug.
fn join_runs(runs: &mut Vec<Run>) {
    runs.dedup_by(|next, run| {
        let is_near = next.offset - run.end() <= 8;
        if is_near {
            run.bytes = next.end() - run.offset;
        }
        is_near
    });
}

/// Sends the runs of a page to its home.
fn send_page(ctx: &mut Context<'_>, page: PageId, closing: &mut Closing) {
    let home = ctx.state.pages.table.home(page).expect("a page that was written has been fetched from its home");
    let config = ctx.state.config;
    closing.changed.push(page);
    ctx.state.pages.add_writer(page, config.rank, ctx.state.statistics.barriers);
    let statistics = &mut ctx.state.statistics;
    statistics.diffs += 1;
    statistics.runs += closing.runs.len() as u64;
    let bytes = closing.runs.iter().map(|run| u64::from(run.bytes)).sum::<u64>();
    statistics.diff_bytes += bytes;
    closing.sent += if home == config.rank { 0 } else { bytes };
    if ctx.state.accesses.is_some() {
        let base = page.offset(config.page_bytes);
        let range = |run: &Run| base + u64::from(run.offset)..base + u64::from(run.end());
        closing.writes.extend(closing.runs.iter().map(range));
    }
    let may_write = may_write(ctx, page, home);
    if home == config.rank {
        for run in &closing.runs {
            ctx.memory.write_home(page, run.offset, &closing.copy[run.offset as usize..run.end() as usize]);
        }
        ctx.memory.write_stamp(page, home, closing.interval);
    } else if config.protocol.writes_one_sided() && closing.runs.len() <= config.tuning.runs_max && may_write {
        write_runs(ctx, page, home, closing);
    } else {
        queue_messages(ctx, page, home, closing);
    }
}

/// Returns true if runs of a page can be written one-sided. No earlier bytes of the page may be in flight: writes could be
/// placed before an earlier write, and before the home has handled an earlier message. A message comes behind both.
fn may_write(ctx: &Context<'_>, page: PageId, home: Rank) -> bool {
    let pages = &ctx.state.pages;
    let may_overtake_write = planted!(ctx.state, OverlappingWrites);
    let may_overtake_message = planted!(ctx.state, DirectBehindPacked);
    let is_behind_write = !pages.placements.is_placed(home, pages.table.written(page));
    (!is_behind_write || may_overtake_write) && (!pages.table.has_unacknowledged(page) || may_overtake_message)
}

/// Writes runs into the home frame.
fn write_runs(ctx: &mut Context<'_>, page: PageId, home: Rank, closing: &mut Closing) {
    let base = page.offset(ctx.state.config.page_bytes);
    for run in &closing.runs {
        let bytes = ctx.out.add_payload(&closing.copy[run.offset as usize..run.end() as usize]);
        ctx.out.push(Action::Write { to: home, offset: base + u64::from(run.offset), bytes });
    }
    let flush = ctx.state.pages.placements.add_write(home);
    ctx.state.pages.table.set_written(page, flush);
    closing.written.entry(home).or_default().push(page);
    if (ctx.state.config.ordering, ctx.state.config.stamps) == (Ordering::Stamped, Stamps::PerPage) {
        let pages = vec![PageRange::one(page)];
        ctx.send(home, &Message::Stamp { interval: closing.interval, pages });
    }
}

/// Packs runs into messages, the last of which has the stamp.
fn queue_messages(ctx: &mut Context<'_>, page: PageId, home: Rank, closing: &mut Closing) {
    let capacity = ctx.state.codec.diff_capacity();
    let (mut rest, mut cut) = (closing.runs.as_slice(), 0);
    while !rest.is_empty() {
        let mut runs = Vec::new();
        pack(&mut rest, &mut cut, &closing.copy, capacity, &mut runs);
        let runs = PackedRuns::check(&runs, ctx.state.config.page_bytes).expect("runs of a page lie in the page");
        let interval = if rest.is_empty() { closing.interval } else { 0 };
        let sequence = ctx.state.pages.diffs.next_sequence();
        let mut message = Vec::new();
        ctx.state.codec.encode(&Message::Diff { page, interval, sequence, runs }, &mut message);
        ctx.state.pages.diffs.push(page, QueuedDiff { to: home, sequence, message });
        ctx.state.pages.table.add_unacknowledged(page);
    }
    ctx.state.statistics.packed += 1;
}

/// Sends stamps, starts the wait for placement where one is needed, and writes the record.
fn publish(ctx: &mut Context<'_>, closing: &Closing) {
    let config = ctx.state.config;
    send_diffs(ctx);
    if (config.ordering, config.stamps) == (Ordering::Stamped, Stamps::PerHome) {
        send_stamps(ctx, closing);
    }
    let ranges = PageRange::of_sorted(closing.changed.iter().copied());
    let is_coarse = ranges.len() > config.log.ranges_max();
    // Readers of a coarse record cannot know for which pages they would have to await a stamp.
    let waits_for_coarse = is_coarse && !planted!(ctx.state, CoarseUnplaced);
    if config.ordering == Ordering::Placed || !config.protocol.writes_one_sided() || waits_for_coarse {
        start_placement(ctx, closing.interval);
    }
    let pages = if is_coarse { ChangedPages::Coarse } else { ChangedPages::Exact(ranges) };
    let mut record = Vec::new();
    encode_record(closing.interval, &pages, &mut record);
    ctx.memory.write_log(config.log.offset(closing.interval), &record);
    ctx.state.sync.intervals.close(pages, closing.sent);
    ctx.state.statistics.intervals += 1;
    ctx.state.statistics.coarse += u64::from(is_coarse);
}

/// Sends each home a stamp for all its pages.
fn send_stamps(ctx: &mut Context<'_>, closing: &Closing) {
    let ranges_max = ctx.state.codec.stamp_ranges();
    for (home, pages) in &closing.written {
        for ranges in PageRange::of_sorted(pages.iter().copied()).chunks(ranges_max) {
            ctx.send(*home, &Message::Stamp { interval: closing.interval, pages: ranges.to_vec() });
        }
    }
}
