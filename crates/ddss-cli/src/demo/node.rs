//! A node of the demonstration: what `ddssd` runs, in a process that ends with its standard input.

use super::arguments::DemoNodeOptions;
use super::child::{tell, told};
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
    // A daemon that is killed comes back to what it had.
    config.discard = false;
    let service = Node::start(config)?;
    tell(
        &json!({ "done": "started", "address": service.address().map(|address| address.to_string()), "core": service.core() }),
    )?;
    while told()?.is_some() {}
    Ok(service.stop()?)
}

/// The progress threads share the machine's cores as evenly as there are cores.
fn core_for(node: u16) -> CoreChoice {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 1 { CoreChoice::Core(cores - 1 - (usize::from(node) - 1) % cores) } else { CoreChoice::Unpinned }
}
