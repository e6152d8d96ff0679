//! A space as its directory describes it, without a place in it.

use crate::error::SpaceError;
use crate::report::{FETCHED, PageList, ROWS, RankLoad, SHARED, decode_pages};
use crate::space::{REGIONS_MAX, Record};
use ddss::Client;
use ddss_dsm_core::{HotPage, Rank, Statistics};
use ddss_group::GroupInfo;
use std::net::SocketAddr;
use std::ops::Range;
use zerocopy::FromBytes;

/// A space and its living ranks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SpaceInfo {
    /// Ranks that the space is for.
    pub ranks: u16,
    /// Ranks that live.
    pub living: Vec<RankInfo>,
}

/// A living rank, and its counts half a second ago.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RankInfo {
    /// Number.
    pub rank: u16,
    /// Process id on its node.
    pub process: u32,
    /// Address at which the others reach it.
    pub address: SocketAddr,
    /// Fetches, retries, diffs, changed bytes, invalidations, messages and time of the handler, locks, barriers and pages. All
    /// other counts are 0.
    pub statistics: Statistics,
}

/// Pages that cost the ranks of a space most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HotPages {
    /// Pages that single ranks have fetched most often.
    pub fetched: Vec<(u16, PageInfo)>,
    /// Pages that several ranks have written between two barriers most often: false sharing, unless they use the same elements.
    pub shared: Vec<PageInfo>,
}

/// A page, and how often something has happened to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PageInfo {
    /// Number of the page in its space.
    pub page: u32,
    /// Fetches, or pairs of barriers.
    pub count: u32,
    /// Ranks that have written it together with others.
    pub writers: Vec<u16>,
    /// Region and elements. `None` for pages of the space itself.
    pub place: Option<(String, Range<u64>)>,
}

impl SpaceInfo {
    /// Reads the ranks of a space. `None` if there is none of this name.
    ///
    /// # Errors
    /// The directory has another format, or the error of a call.
    pub fn read(client: &Client, space: &str) -> Result<Option<Self>, SpaceError> {
        let Some(group) = find(client, space)? else { return Ok(None) };
        let living = group.members.iter().map(|member| RankInfo {
            rank: member.whom.member.0,
            process: member.process,
            address: member.address,
            statistics: RankLoad::decode(&member.note).0,
        });
        Ok(Some(Self { ranks: group.places, living: living.collect() }))
    }

    /// Returns how many ranks a space is for whose table has so many rows. `None` if it is of another release.
    #[must_use]
    pub fn ranks_of_table(rows: u64) -> Option<u64> {
        ddss_group::members_of(rows, ROWS)
    }
}

impl HotPages {
    /// Pages of each kind at most.
    const PAGES_MAX: usize = 24;

    /// Reads the pages that the living ranks of a space have named. `None` if there is none of this name.
    ///
    /// # Errors
    /// The directory has another format, or the error of a call.
    pub fn read(client: &Client, space: &str) -> Result<Option<Self>, SpaceError> {
        let Some(group) = find(client, space)? else { return Ok(None) };
        let regions = regions(&group)?;
        let pages_of = |list: PageList, rank: u16| -> Result<Vec<HotPage>, SpaceError> {
            let row = group.row(list.row_of(rank)).map_err(SpaceError::Join)?;
            Ok(row.map_or_else(Vec::new, |row| decode_pages(&row)))
        };
        let (mut fetched, mut shared): (Vec<_>, Vec<PageInfo>) = (Vec::new(), Vec::new());
        for rank in group.members.iter().map(|member| member.whom.member.0) {
            fetched.extend(pages_of(FETCHED, rank)?.iter().map(|hot| (rank, PageInfo::new(hot, &regions))));
            for page in pages_of(SHARED, rank)?.iter().map(|hot| PageInfo::new(hot, &regions)) {
                // Each rank counts the writers of which it has notices.
                match shared.iter_mut().find(|known| known.page == page.page) {
                    Some(known) if known.count >= page.count => {}
                    Some(known) => *known = page,
                    None => shared.push(page),
                }
            }
        }
        fetched.sort_by_key(|(rank, page)| (std::cmp::Reverse(page.count), *rank, page.page));
        shared.sort_by_key(|page| (std::cmp::Reverse(page.count), page.page));
        fetched.truncate(Self::PAGES_MAX);
        shared.truncate(Self::PAGES_MAX);
        Ok(Some(Self { fetched, shared }))
    }
}

impl PageInfo {
    fn new(hot: &HotPage, regions: &[Record]) -> Self {
        let place = |record: &Record| record.elements_in(hot.page).map(|elements| (record.name(), elements));
        Self {
            page: hot.page.0,
            count: hot.count,
            writers: hot.writers.iter().map(Rank::index).map(|rank| rank as u16).collect(),
            place: regions.iter().find_map(place),
        }
    }
}

fn find(client: &Client, space: &str) -> Result<Option<GroupInfo>, SpaceError> {
    ddss_group::inspect(client, &format!("dsm/{space}")).map_err(SpaceError::Join)
}

/// Reads the records of regions that the ranks have published.
fn regions(group: &GroupInfo) -> Result<Vec<Record>, SpaceError> {
    let mut regions = Vec::new();
    for number in 0..REGIONS_MAX as u16 {
        let Some(row) = group.row(number).map_err(SpaceError::Join)? else { break };
        regions.extend(Record::read_from_bytes(&row).ok());
    }
    Ok(regions)
}
