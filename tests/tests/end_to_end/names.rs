//! Watches of names across nodes, of which one is killed, and limits of segments that survive a restart.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Batch, Client, ConnectOptions, ErrorKind, Limit, NodeId, Placement, SegmentEvent, Spec, Watch};
use ddss_testkit::{Daemon, DaemonOptions, retry};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).expect("the daemon serves")
}

/// Returns the text of the next event; errors of a node that is away are skipped.
fn next(names: &mut Watch<SegmentEvent>) -> String {
    let event = names.find_map(Result::ok).expect("it is endless");
    match event {
        SegmentEvent::Created(listing) => format!("+{} on {}", listing.name, listing.home.0),
        SegmentEvent::Released(name) => format!("-{name}"),
        other => panic!("an unknown event: {other:?}"),
    }
}

// If this failed, a watcher would miss the work of another node, or drop its work while that node restarts.
#[test]
fn watch_follows_names_of_a_node_that_is_killed_and_returns() {
    let (first, second) = (DaemonOptions::new(1).unwrap(), DaemonOptions::new(2).unwrap());
    let first = first.peer(&second);
    let second = second.peer(&first);
    let [mut first, second] = [first.start().unwrap(), second.start().unwrap()];
    let spec = |node| Spec::new(64).placement(Placement::Node(NodeId(node)));
    let near = client(&second);
    let a = retry(|| near.segment("job/a").allocate(spec(1)));
    let mut names = near.watch("job/").unwrap();
    assert_eq!(next(&mut names), "+job/a on 1");
    // Allocated by the other node itself, and by this one.
    client(&first).segment("job/b").allocate(spec(1)).unwrap();
    assert_eq!(next(&mut names), "+job/b on 1");
    near.segment("job/c").allocate(spec(2)).unwrap();
    assert_eq!(next(&mut names), "+job/c on 2");
    first.kill().unwrap();
    assert!(!matches!(names.next_within(Duration::from_millis(500)), Ok(Some(_))), "its names stay while it is away");
    first.restart().unwrap();
    retry(|| client(&first).segment("job/d").allocate(spec(1)));
    assert_eq!(next(&mut names), "+job/d on 1");
    retry(|| a.clone().release());
    assert_eq!(next(&mut names), "-job/a");
}

// If this failed, an operator could not tell which limit a client has met, or a restart would lose segments beyond it.
#[test]
fn limit_of_segments_is_named_and_a_lower_one_keeps_what_exists() {
    let daemon = DaemonOptions::new(1).unwrap().argument("--segments").argument("40");
    let mut daemon = daemon.start().unwrap();
    let node = client(&daemon);
    let names: Vec<String> = (0..41).map(|number| format!("small/{number}")).collect();
    let mut batch = Batch::new();
    let tickets: Vec<_> = names.iter().map(|name| batch.allocate(name, 64).unwrap()).collect();
    let mut replies = node.run(batch).unwrap();
    let mut made: Vec<_> = tickets.into_iter().map(|ticket| replies.take(ticket)).collect();
    let error = made.pop().unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.limit().map(|reached| (reached.limit, reached.value))),
        (ErrorKind::LimitReached, Some((Limit::Segments, Some(40))))
    );
    assert!(error.to_string().contains("--segments") && error.to_string().contains("40"), "{error}");
    let made: Vec<_> = made.into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(node.segment("small/3").allocate(Spec::new(64)).unwrap_err().kind(), ErrorKind::AlreadyExists);
    made[39].put(0, b"kept").unwrap();
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    let node = client(&daemon);
    assert_eq!(node.list("small/").count(), 40);
    let last = node.segment("small/39").open().unwrap();
    assert_eq!(&last.get(0..4).unwrap()[..], b"kept");
    assert_eq!(node.segment("more").allocate(Spec::new(64)).unwrap_err().limit().unwrap().limit, Limit::Segments);
    last.release().unwrap();
    node.segment("more").allocate(Spec::new(64)).unwrap();
}
