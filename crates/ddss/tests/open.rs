//! Names that several processes open or allocate at the same time.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use ddss::{Client, ConnectOptions, ErrorKind, Mode, Model, Spec};

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn open_or_allocate_makes_one_segment_for_all_callers() {
    // If this broke, two services that start together would fail, or would not find each other.
    let node = ddssd::EphemeralNode::start().unwrap();
    let connect = || {
        Client::connect_with(ConnectOptions::new().directory(node.directory()).timeout(Duration::from_secs(60)))
            .unwrap()
    };
    for round in 0..20 {
        let name = format!("table/{round}");
        let made = std::thread::scope(|scope| {
            let blocking = || connect().segment(&name).open_or_allocate(Spec::new(64)).unwrap().id();
            let task =
                || block_on(connect().aio().unwrap().segment(&name).open_or_allocate(Spec::new(64))).unwrap().id();
            let threads = [scope.spawn(blocking), scope.spawn(blocking), scope.spawn(task), scope.spawn(task)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(made.iter().all(|id| *id == made[0]), "{made:?}");
    }
    // If another segment has the name, the error names both.
    let table = Spec::new(8).row_len(8);
    for (other, named) in [(Spec::new(4096), "4096 bytes"), (table, "8 rows of 8 bytes")] {
        let error = connect().segment("table/0").open_or_allocate(other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongShape);
        assert!(error.to_string().contains(named) && error.to_string().contains("64 bytes"), "{error}");
    }
    let weak = Spec::new(64).model(Model::Read);
    let error = block_on(connect().aio().unwrap().segment("table/0").open_or_allocate(weak)).unwrap_err();
    assert!(error.to_string().contains("Read") && error.to_string().contains("Strict"), "{error}");
    assert!(connect().segment("table/0").open_or_allocate(Spec::new(64).mode(Mode(0o7777))).is_err());
}

#[test]
fn names_of_tables_refuse_plain_segments() {
    // If this broke, a program would find out at its first row that it has no table.
    let node = ddssd::EphemeralNode::start().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(node.directory())).unwrap();
    let tasks = client.aio().unwrap();
    client.segment("plain").allocate(64).unwrap();
    let table = Spec::new(8).row_len(8);
    for error in [
        client.table::<[u8]>("plain").open().unwrap_err(),
        client.table::<[u8]>("plain").wait().unwrap_err(),
        client.table::<[u8]>("plain").open_or_allocate(table).unwrap_err(),
        block_on(tasks.table::<[u8]>("plain").open()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongShape, "{error}");
    }
    for error in [
        client.table::<[u8]>("rows").allocate(64).unwrap_err(),
        client.table::<[u8]>("rows").open_or_allocate(64).unwrap_err(),
        block_on(tasks.table::<[u8]>("rows").allocate(64)).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    }
    // Nothing was allocated before the refusal.
    assert_eq!(client.segment("rows").open().unwrap_err().kind(), ErrorKind::NotFound);
    let made = client.table::<[u8]>("rows").open_or_allocate(table).unwrap();
    let found = block_on(tasks.table::<[u8]>("rows").open_or_allocate(table)).unwrap();
    assert_eq!((made.segment().id(), made.len()), (found.segment().id(), found.len()));
}

#[test]
fn wait_for_returns_when_segment_is_allocated_or_deadline_passes() {
    // If this broke, a service that starts before its allocator would fail, or wait forever.
    let node = ddssd::EphemeralNode::start().unwrap();
    let connect =
        |timeout| Client::connect_with(ConnectOptions::new().directory(node.directory()).timeout(timeout)).unwrap();
    let patient = connect(Duration::from_secs(60));
    std::thread::scope(|scope| {
        let blocking = scope.spawn(|| patient.segment("late").wait().unwrap().id());
        let task = scope.spawn(|| block_on(patient.aio().unwrap().segment("late").wait()).unwrap().id());
        std::thread::sleep(Duration::from_millis(20));
        let made = connect(Duration::from_secs(60)).segment("late").allocate(Spec::new(8)).unwrap().id();
        assert_eq!([blocking.join().unwrap(), task.join().unwrap()], [made, made]);
    });
    let hasty = connect(Duration::from_millis(30));
    let errors = [
        hasty.segment("never").wait().unwrap_err(),
        block_on(hasty.aio().unwrap().segment("never").wait()).unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.is_indeterminate()), (ErrorKind::TimedOut, false));
        assert!(error.kind() == ErrorKind::TimedOut && error.is_retryable());
    }
}
