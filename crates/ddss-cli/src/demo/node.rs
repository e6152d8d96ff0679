//! Node process of the demonstration: runs a `ddssd` node until its standard input ends.

use super::arguments::DemoNodeOptions;
use super::child::{next_command, reply};
use super::cluster::KEY_FILE;
use crate::error::CommandError;
use ddss::NodeId;
use ddssd::{ClusterKey, Config, CoreChoice, Node};
use serde_json::json;

pub(crate) fn run(options: &DemoNodeOptions) -> Result<(), CommandError> {
    let mut config = Config::single(&options.folder);
    config.node = NodeId(options.node);
    config.listen = options.listen;
    config.peers = vec![options.peer];
    config.key = Some(ClusterKey::read(&options.folder.with_file_name(KEY_FILE))?);
    config.core = core_for(options.node);
    config.pool_bytes = 16 << 20;
    // A restarted daemon recovers its segments.
    config.discard = false;
    let service = Node::start(config)?;
    reply(
        &json!({ "done": "started", "address": service.address().map(|address| address.to_string()), "core": service.core() }),
    )?;
    while next_command()?.is_some() {}
    Ok(service.stop()?)
}

/// Chooses the core of a node, so that the progress threads are spread evenly.
fn core_for(node: u16) -> CoreChoice {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 1 { CoreChoice::Core(cores - 1 - (usize::from(node) - 1) % cores) } else { CoreChoice::Unpinned }
}
