//! Search for segments by a pattern.

use super::cluster;
use crate::arguments::DaemonOptions;
use crate::connect::connect;
use crate::error::CommandError;
use crate::glob::Glob;
use crate::output::terminal_text::print_warning;
use ddss::SegmentInfo;

/// Returns all segments that match a pattern, in order of home and name.
pub(crate) fn find_segments(place: &DaemonOptions, pattern: Option<&str>) -> Result<Vec<SegmentInfo>, CommandError> {
    let glob = Glob::new(pattern.unwrap_or("*"));
    let client = connect(place)?;
    let mut found = Vec::new();
    for listing in client.list(glob.prefix()) {
        let listing = listing?;
        if glob.matches(listing.name.as_str()) {
            found.push(listing);
        }
    }
    // The daemon lists them shard by shard.
    found.sort_by(|one, other| (one.home, one.name.as_str()).cmp(&(other.home, other.name.as_str())));
    Ok(found)
}

/// Warns of dead nodes, whose segments are missing in a list, as far as this user may know them.
pub(crate) fn warn_missing_nodes(place: &DaemonOptions) {
    let Ok(seen) = cluster::fetch(place) else { return };
    let dead: Vec<String> = seen.nodes.iter().filter(|node| !node.alive).map(|node| node.node.to_string()).collect();
    match &dead[..] {
        [] => {}
        [one] => print_warning(&format!("node {one} is unreachable: its segments are not shown")),
        many => print_warning(&format!("nodes {} are unreachable: their segments are not shown", many.join(", "))),
    }
}
