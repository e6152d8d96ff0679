//! A client in a process without free file descriptors. The limit holds for a whole process, so this file has one test.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, ErrorKind, aio};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn tasks_run_after_a_time_without_free_descriptors() {
    // If this broke, a moment without descriptors would end all asynchronous calls of a service until its restart.
    let node = ddssd::EphemeralNode::start().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(node.directory())).unwrap();
    let segment = client.segment("counters").allocate(64).unwrap();
    let block_on = |ended| tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(ended);
    let usual = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..usual }).unwrap();
    let refused = client.aio().map(drop).unwrap_err();
    setrlimit(Resource::Nofile, usual).unwrap();
    assert_eq!(refused.kind(), ErrorKind::System, "{refused}");
    let written = block_on(aio::Segment::from(&segment).put(0, b"written")).unwrap();
    assert_eq!(written.version.0, 1);
}
