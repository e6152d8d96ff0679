//! The command `dsm top`: what the ranks of spaces do.

use super::spaces::living;
use crate::arguments::dsm::DsmTopOptions;
use crate::connect::connect;
use crate::error::CommandError;
use crate::output::table::{Table, format_bytes};
use ddss_dsm::{HotPages, PageInfo, RankInfo, SpaceInfo};
use serde_json::{Value, json};

pub(super) fn show(options: &DsmTopOptions, json: bool) -> Result<(), CommandError> {
    let client = connect(&options.place)?;
    let names = options.space.clone().map_or_else(|| living(&client), |name| Ok(vec![name]))?;
    let mut spaces = Vec::new();
    for name in names {
        let pages = if options.pages { HotPages::read(&client, &name)? } else { None };
        match SpaceInfo::read(&client, &name)? {
            Some(space) => spaces.push((name, space, pages)),
            // It has ended since it was listed.
            None if options.space.is_none() => {}
            None => return Err(CommandError::Refused(format!("no space {name}: `ddss dsm ls` lists them"))),
        }
    }
    if json {
        println!("{}", Value::Array(spaces.iter().map(as_json).collect()));
        return Ok(());
    }
    if spaces.is_empty() {
        Table::new(&["RANK"]).print_or("no rank of a space lives");
    }
    for (at, (name, space, pages)) in spaces.iter().enumerate() {
        if at > 0 {
            println!();
        }
        println!("{name}: {} of {} ranks live", space.living.len(), space.ranks);
        show_ranks(&space.living);
        if let Some(pages) = pages {
            show_pages(pages);
        }
    }
    Ok(())
}

fn show_ranks(ranks: &[RankInfo]) {
    let mut table = Table::new(&[
        "RANK", "PROCESS", "PAGES", "FETCHES", "RETRIES", "DIFFS", "CHANGED", "INVALID", "MESSAGES", "HANDLER",
        "LOCKS", "BARRIERS",
    ]);
    table.align_right(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    table.set_optional(&[1, 4, 8]);
    for RankInfo { rank, process, statistics: counts, .. } in ranks {
        let of = |count: u64| count.to_string();
        table.row(vec![
            rank.to_string(),
            process.to_string(),
            of(counts.pages),
            of(counts.fetches),
            of(counts.retries),
            of(counts.diffs),
            format_bytes(counts.diff_bytes),
            of(counts.invalidations),
            of(counts.handled),
            format!("{:.1} ms", counts.handler_ns as f64 / 1e6),
            of(counts.locks),
            of(counts.barriers),
        ]);
    }
    table.print_or("no rank lives");
}

fn show_pages(pages: &HotPages) {
    println!("\npages that a rank fetched most often");
    let mut table = Table::new(&["RANK", "FETCHES", "PAGE", "REGION", "ELEMENTS"]);
    table.align_right(&[0, 1, 2]);
    for (rank, page) in &pages.fetched {
        let [region, elements] = place(page);
        table.row(vec![rank.to_string(), page.count.to_string(), page.page.to_string(), region, elements]);
    }
    table.print_or("no page was fetched");
    println!("\npages that several ranks wrote between two barriers");
    let mut table = Table::new(&["TIMES", "RANKS", "PAGE", "REGION", "ELEMENTS"]);
    table.align_right(&[0, 2]);
    for page in &pages.shared {
        let [region, elements] = place(page);
        let ranks: Vec<_> = page.writers.iter().map(u16::to_string).collect();
        table.row(vec![page.count.to_string(), ranks.join(" "), page.page.to_string(), region, elements]);
    }
    table.print_or("no page was");
}

/// Returns the region and the elements of a page.
fn place(page: &PageInfo) -> [String; 2] {
    page.place.as_ref().map_or_else(
        || ["-".to_owned(), "-".to_owned()],
        |(region, elements)| [region.clone(), format!("{}..{}", elements.start, elements.end)],
    )
}

fn as_json((name, space, pages): &(String, SpaceInfo, Option<HotPages>)) -> Value {
    let ranks = space.living.iter().map(|RankInfo { rank, process, address, statistics: counts, .. }| {
        json!({ "rank": rank, "process": process, "address": address.to_string(), "pages": counts.pages,
            "fetches": counts.fetches, "retries": counts.retries, "diffs": counts.diffs,
            "changed_bytes": counts.diff_bytes, "invalidations": counts.invalidations, "messages": counts.handled,
            "handler_us": counts.handler_ns / 1000, "locks": counts.locks, "barriers": counts.barriers })
    });
    let page = |page: &PageInfo| {
        let (region, elements) = page.place.clone().unzip();
        let elements = elements.map(|elements| [elements.start, elements.end]);
        json!({ "page": page.page, "count": page.count, "writers": page.writers, "region": region, "elements": elements })
    };
    let fetched = |(rank, fetched): &(u16, PageInfo)| {
        let mut found = page(fetched);
        found["rank"] = json!(rank);
        found
    };
    let fetched = pages.as_ref().map(|pages| pages.fetched.iter().map(fetched).collect::<Vec<_>>());
    let shared = pages.as_ref().map(|pages| pages.shared.iter().map(page).collect::<Vec<_>>());
    json!({ "space": name, "ranks": space.ranks, "living": ranks.collect::<Vec<_>>(), "fetched": fetched, "shared": shared })
}
