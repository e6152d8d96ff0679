//! The feature `serde`: values of the vocabulary go through JSON and come back equal.
#![cfg(feature = "serde")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{
    AtomicResult, ErrorKind, Model, NodeId, Placement, SegmentId, SegmentInfo, Spec, Stamp, Timestamp, Version,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

fn returns_from_json<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) -> String {
    let text = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
    text
}

#[test]
fn vocabulary_returns_from_json_as_it_was() {
    // If this broke, a program that stores a version or a specification would read another one.
    let stamp = Stamp { version: Version(7), timestamp: Timestamp(99) };
    assert_eq!(returns_from_json(stamp), r#"{"version":7,"timestamp":99}"#);
    returns_from_json(AtomicResult { before: u64::MAX, stamp });
    returns_from_json(SegmentId::new(NodeId(3), 4, 5));
    returns_from_json(ErrorKind::VersionMismatch);
    returns_from_json(Placement::Node(NodeId(2)));
    returns_from_json(Spec::new(64).model(Model::Delta(4)).placement(Placement::Hash));
    returns_from_json(Spec::new(100).row_len(64));
    let node = ddssd::EphemeralNode::start().unwrap();
    let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory())).unwrap();
    client.segment("listed").allocate(Spec::new(8)).unwrap();
    let listings: Vec<SegmentInfo> = client.list("").collect::<Result<_, _>>().unwrap();
    assert_eq!(listings.len(), 1);
    assert!(returns_from_json(listings[0].clone()).contains(r#""name":"listed""#));
}
