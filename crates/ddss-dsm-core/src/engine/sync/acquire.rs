//! Acquires: gathers the notices that this rank lacks, closes its interval, and invalidates pages.

use crate::engine::action::{Action, Area, LocalPlace};
use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::flush::{close_interval, has_room};
use crate::engine::state::{Acquire, Step};
use crate::engine::tag::Tag;
use crate::log::read_record;
use crate::model::{Access, ChangedPages, PageId, PageRange, PageSet, Rank};
use std::collections::BTreeSet;

/// Pages that other ranks changed: with the interval whose stamp a copy needs, or any page.
#[derive(Default)]
struct Changes {
    exact: Vec<(Rank, u32, PageRange)>,
    /// True if some interval may have changed any page. Its writes are placed.
    is_coarse: bool,
}

/// Works on an acquire. Returns it if it has to wait.
pub(super) fn process(ctx: &mut Context<'_>, mut acquire: Box<Acquire>) -> Option<Box<Acquire>> {
    if acquire.reads.is_none() {
        post_reads(ctx, &mut acquire);
    }
    if acquire.reads != Some(0) {
        return Some(acquire);
    }
    acquire.asked.0.iter().for_each(|rank| ctx.state.pages.placements.prove(rank, acquire.asked.1));
    if !has_room(ctx) {
        return Some(acquire);
    }
    let changes = collect(ctx, &acquire);
    apply(ctx, &changes);
    ctx.state.sync.intervals.join(&acquire.time);
    None
}

/// Counts a log read of the acquire at the front.
pub(crate) fn on_log_read(ctx: &mut Context<'_>) {
    if let Some(Step::Acquire(acquire)) = ctx.state.sync.queue.steps.front_mut()
        && let Some(reads) = &mut acquire.reads
    {
        *reads = reads.saturating_sub(1);
    }
}

/// Returns each rank of which this rank lacks intervals: the last one that it knows, and the last one that it has to know.
fn missing(ctx: &Context<'_>, acquire: &Acquire) -> Vec<(Rank, u32, u32)> {
    let known = ctx.state.sync.intervals.time();
    let behind = |rank: &Rank| acquire.time.get(*rank) > known.get(*rank);
    ctx.state.config.peers().filter(behind).map(|rank| (rank, known.get(rank), acquire.time.get(rank))).collect()
}

/// Returns true if the granter sent the notices of all intervals behind `known` up to `last`.
fn came_along(acquire: &Acquire, rank: Rank, known: u32, last: u32) -> bool {
    let Some((_, notices)) = acquire.granter.as_ref().filter(|(granter, _)| *granter == rank) else { return false };
    notices.iter().map(|notice| notice.interval).filter(|interval| *interval > known).eq(known + 1..=last)
}

/// Posts reads of the logs with notices that did not come along, in one batch.
fn post_reads(ctx: &mut Context<'_>, acquire: &mut Acquire) {
    acquire.reads = Some(0);
    acquire.asked.1 = ctx.state.pages.placements.last_flush();
    if planted!(ctx.state, OnlyGranterNotices) {
        return;
    }
    for (from, known, last) in missing(ctx, acquire) {
        if came_along(acquire, from, known, last) {
            continue;
        }
        // Incomplete notices of the granter are not believed.
        acquire.granter.take_if(|(granter, _)| *granter == from);
        for (offset, bytes) in ctx.state.config.log.stretches(known, last) {
            let into = LocalPlace::Log { rank: from, offset };
            ctx.out.push(Action::Read { from, tag: Tag::Log, area: Area::Log, offset, bytes, into });
            acquire.reads = acquire.reads.map(|reads| reads + 1);
            acquire.asked.0.insert(from);
        }
    }
}

/// Collects the notices of all missing intervals.
fn collect(ctx: &mut Context<'_>, acquire: &Acquire) -> Changes {
    let mut changes = Changes::default();
    for (rank, known, last) in missing(ctx, acquire) {
        let first = changes.exact.len();
        match &acquire.granter {
            Some((granter, notices)) if *granter == rank => {
                for notice in notices.iter().filter(|notice| notice.interval > known) {
                    add(ctx, &mut changes, rank, notice.interval, &notice.pages);
                }
            }
            _ if planted!(ctx.state, OnlyGranterNotices) => {}
            _ => collect_from_log(ctx, &mut changes, rank, known, last),
        }
        keep_last(&mut changes.exact, first);
    }
    changes
}

/// Keeps only the last of the changes from `first` on that names each page. The changes are those of one rank, which
/// may name all pages in each interval; a copy needs only the last stamp.
fn keep_last(changes: &mut Vec<(Rank, u32, PageRange)>, first: usize) {
    let (mut seen, all) = (PageSet::default(), changes.split_off(first));
    for (rank, interval, range) in all.into_iter().rev() {
        changes.extend(seen.insert(range).into_iter().map(|range| (rank, interval, range)));
    }
}

/// Collects notices from the image of a log. A record that was overwritten stands for any page.
fn collect_from_log(ctx: &mut Context<'_>, changes: &mut Changes, rank: Rank, known: u32, last: u32) {
    let shape = ctx.state.config.log;
    let mut slot = vec![0; shape.record_bytes as usize];
    let first = known.max(last.saturating_sub(shape.slots));
    if first > known {
        ctx.state.statistics.overwritten += u64::from(first - known);
        changes.is_coarse = true;
    }
    for interval in first + 1..=last {
        ctx.memory.read_log(rank, shape.offset(interval), &mut slot);
        match read_record(&slot, interval, ctx.state.config.pages) {
            Some(pages) => add(ctx, changes, rank, interval, &pages),
            None => {
                ctx.state.statistics.overwritten += 1;
                changes.is_coarse = true;
            }
        }
    }
}

fn add(ctx: &mut Context<'_>, changes: &mut Changes, rank: Rank, interval: u32, pages: &ChangedPages) {
    ctx.state.statistics.notices += 1;
    match pages {
        ChangedPages::Coarse => changes.is_coarse = true,
        ChangedPages::Exact(ranges) => {
            let skipped = usize::from(planted!(ctx.state, LostNotice));
            changes.exact.extend(ranges.iter().skip(skipped).map(|range| (rank, interval, *range)));
        }
    }
}

/// Closes the open interval, then invalidates the pages.
fn apply(ctx: &mut Context<'_>, changes: &Changes) {
    let outdated = mapped_pages(ctx, changes);
    if planted!(ctx.state, InvalidatedBeforeClose) {
        outdated.iter().for_each(|page| ctx.state.pages.twins.remove(*page));
    }
    let late = planted!(ctx.state, DiffBeforeUnmap);
    let unmap = |ctx: &mut Context<'_>| outdated.iter().for_each(|page| ctx.set_access(*page, Access::None));
    // Before the last diff: another thread of this rank may be writing.
    if !late {
        unmap(ctx);
    }
    close_interval(ctx);
    if late {
        unmap(ctx);
    }
    outdated.iter().for_each(|page| ctx.state.pages.twins.remove(*page));
    ctx.state.statistics.invalidations += outdated.len() as u64;
    for (rank, interval, range) in &changes.exact {
        for page in range.iter() {
            ctx.state.pages.table.need(page, *rank, *interval);
            ctx.state.pages.add_writer(page, *rank, ctx.state.statistics.barriers);
            mark_in_flight(ctx, page);
        }
    }
    if changes.is_coarse {
        ctx.state.pages.fetches.mark_all_outdated();
    }
}

/// Returns the mapped pages that the changes name.
fn mapped_pages(ctx: &Context<'_>, changes: &Changes) -> BTreeSet<PageId> {
    if changes.is_coarse {
        return ctx.state.pages.table.mapped().collect();
    }
    let pages = changes.exact.iter().flat_map(|(_, _, range)| range.iter());
    pages.filter(|page| ctx.state.pages.table.access(*page) > Access::None).collect()
}

fn mark_in_flight(ctx: &mut Context<'_>, page: PageId) {
    if let Some(slot) = ctx.state.pages.table.slot(page) {
        ctx.state.pages.fetches.entry(slot).is_outdated = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, one grant could cost a step for each page in each of its intervals, or would lose a stamp.
    #[test]
    fn each_page_of_a_rank_is_worked_on_once() {
        let range = |first, pages| PageRange { first: PageId(first), pages };
        let other = (Rank::ZERO, 9, range(0, 100));
        let rank = Rank::new(1).unwrap();
        let mut changes = vec![other];
        changes.extend((1..=50).map(|interval| (rank, interval, range(0, 100))));
        changes.push((rank, 51, range(10, 5)));
        keep_last(&mut changes, 1);
        let parts = [(rank, 51, range(10, 5)), (rank, 50, range(0, 10)), (rank, 50, range(15, 85))];
        assert_eq!(changes, [&[other][..], &parts].concat());
    }
}
