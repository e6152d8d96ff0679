//! Inspection of the segments of a daemon that does not run.

use crate::{Config, Node, OfflineNode};
use ddss_core::NodeId;

#[test]
fn stopped_daemons_segments_are_read_without_change() {
    // If this broke, an operator could not see a dead daemon's memory, or would change it by looking.
    let folder = std::env::temp_dir().join(format!("ddssd-offline-{}", std::process::id()));
    let mut config = Config::single(&folder);
    (config.discard, config.pool_bytes) = (false, 1 << 20);
    let memory = config.memory_folder.clone();
    Node::start(config).unwrap().stop().unwrap();
    let empty = OfflineNode::read_memory(&memory).unwrap();
    assert_eq!((empty.node, empty.segments.len()), (NodeId(1), 0));
    std::fs::remove_dir_all(&folder).unwrap();
    let told = OfflineNode::read_memory(&memory).unwrap_err().to_string();
    assert!(told.contains("no segments of a daemon in"), "{told}");
}
