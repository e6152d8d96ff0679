//! The commands `dsm ls` and `dsm rm`: names and checkpoints of spaces.

use crate::arguments::dsm::DsmRemoveOptions;
use crate::arguments::values::DaemonOptions;
use crate::connect::connect;
use crate::error::CommandError;
use crate::output::table::Table;
use ddss::{Client, Error, ErrorKind, SegmentInfo};
use ddss_dsm::SpaceInfo;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Names of spaces in the directory of segments begin so.
const PREFIX: &str = "dsm/";
/// Segments that name the last complete checkpoint of a space.
const CHECKPOINT: &str = "dsm-checkpoint/";
/// Segments with pages of checkpoints: `SPACE/RANK.SLOT` follows.
const PAGES: &str = "dsm-pages/";
/// Time in which the places of ranks that have ended are free.
const FREE_MAX: Duration = Duration::from_secs(2);
/// Time between two looks at the places.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A space with a name or a checkpoint.
struct Space {
    name: String,
    /// `None` if only a checkpoint is left of it.
    table: Option<SegmentInfo>,
    has_checkpoint: bool,
}

impl Space {
    /// Returns the spaces of all reachable nodes.
    fn all(client: &Client) -> Result<Vec<Self>, CommandError> {
        let mut checkpoints = BTreeSet::new();
        for found in client.list(CHECKPOINT) {
            checkpoints.insert(found?.name[CHECKPOINT.len()..].to_owned());
        }
        let mut all = Vec::new();
        for found in client.list(PREFIX) {
            let table = found?;
            let name = name_of(&table).to_owned();
            all.push(Self { has_checkpoint: checkpoints.remove(&name), name, table: Some(table) });
        }
        all.extend(checkpoints.into_iter().map(|name| Self { name, table: None, has_checkpoint: true }));
        Ok(all)
    }

    /// Returns the number of ranks that the space is for.
    fn ranks(&self) -> Option<u64> {
        let table = self.table.as_ref()?;
        SpaceInfo::ranks_of_table(table.len.checked_div(table.row_len.into())?)
    }

    fn live(&self) -> u16 {
        self.table.as_ref().map_or(0, |table| table.lock.holders)
    }

    fn home(&self) -> Option<u16> {
        self.table.as_ref().map(|table| table.home.0)
    }
}

fn name_of(table: &SegmentInfo) -> &str {
    table.name.strip_prefix(PREFIX).unwrap_or_default()
}

/// Returns the names of the spaces whose ranks live.
pub(super) fn living(client: &Client) -> Result<Vec<String>, CommandError> {
    Ok(Space::all(client)?.into_iter().filter(|space| space.live() > 0).map(|space| space.name).collect())
}

pub(super) fn list(place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    let found = Space::all(&connect(place)?)?;
    if json {
        let rows = found.iter().map(|space| {
            json!({ "space": space.name, "ranks": space.ranks(), "live": space.live(), "home": space.home(),
                "checkpoint": space.has_checkpoint })
        });
        println!("{}", Value::Array(rows.collect()));
        return Ok(());
    }
    let mut table = Table::new(&["SPACE", "RANKS", "LIVE", "HOME", "CHECKPOINT"]);
    table.align_right(&[1, 2, 3]);
    for space in &found {
        let or_none = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        table.row(vec![
            space.name.clone(),
            or_none(space.ranks()),
            space.live().to_string(),
            or_none(space.home().map(u64::from)),
            if space.has_checkpoint { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table.print_or("no space exists");
    Ok(())
}

pub(super) fn remove(options: &DsmRemoveOptions, json: bool) -> Result<(), CommandError> {
    let client = connect(&options.place)?;
    let found = Space::all(&client)?;
    for name in &options.spaces {
        let Some(space) = found.iter().find(|space| space.name == *name) else {
            return Err(CommandError::Refused(format!("no space {name}: `ddss dsm ls` lists them")));
        };
        if space.live() > 0 && !options.force {
            let live = space.live();
            return Err(CommandError::Refused(format!(
                "{live} ranks of {name} live: end them first, or repeat with --force"
            )));
        }
    }
    for name in &options.spaces {
        // The home of the directory may be down: then the checkpoints go all the same.
        let directory = release(&client, &format!("{PREFIX}{name}"));
        release_checkpoints(&client, name)?;
        directory?;
        if !json {
            println!("{name}: released");
        }
    }
    if json {
        println!("{}", json!({ "released": options.spaces }));
    }
    Ok(())
}

/// Releases a segment, unless it is gone.
fn release(client: &Client, name: &str) -> Result<(), Error> {
    match client.segment(name).open().and_then(|segment| segment.release()) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Releases the name of a space when its last rank is gone. Ranks that another command started under the same name keep it.
pub(super) fn release_name(client: &Client, space: &str) {
    let name = format!("{PREFIX}{space}");
    let end = Instant::now() + FREE_MAX;
    while Instant::now() < end {
        // No rank has joined, or no daemon answers any more: there is nothing to release, or nobody who could.
        let Ok(found) = client.list(&name).collect::<Result<Vec<SegmentInfo>, _>>() else { return };
        let Some(found) = found.iter().find(|found| name_of(found) == space) else { return };
        if found.lock.holders == 0 {
            let _ = client.segment(&name).open().and_then(|segment| segment.release());
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns true if a run of this name goes on from a checkpoint that can be found now.
pub(super) fn has_checkpoint(client: &Client, space: &str) -> bool {
    client.segment(&format!("{CHECKPOINT}{space}")).open().is_ok()
}

/// Releases the checkpoints of a space: the segment that names them first, behind which nothing is a checkpoint.
pub(super) fn release_checkpoints(client: &Client, space: &str) -> Result<(), Error> {
    let pages = format!("{PAGES}{space}/");
    let is_part = |name: &str| {
        let part = name.strip_prefix(&pages).and_then(|part| part.split_once('.'));
        part.is_some_and(|(rank, slot)| rank.parse::<u16>().is_ok() && slot.parse::<u8>().is_ok())
    };
    let found = client.list(&pages).collect::<Result<Vec<SegmentInfo>, _>>()?;
    release(client, &format!("{CHECKPOINT}{space}"))?;
    found.iter().filter(|found| is_part(&found.name)).try_for_each(|found| release(client, &found.name))
}
