//! Arguments out of range: the error names the argument, its value and its range, and no value is adjusted.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{
    Client, ConnectOptions, Error, ErrorKind, LockOptions, Mode, Model, NodeId, Permissions, Placement, PutOptions,
    Spec, Storage, Version, aio,
};
use std::time::Duration;

const MINUTES: Duration = Duration::from_secs(600);

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[track_caller]
fn names<T>(ended: Result<T, Error>, words: &[&str]) {
    let Err(error) = ended else { panic!("nothing was refused: {words:?}") };
    let said = error.to_string();
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} is not in: {said}");
    assert!(!error.is_indeterminate(), "{said}");
}

#[test]
fn allocate_names_spec_field_that_is_out_of_range() {
    // If this broke, a user would get another segment than requested, or guess which of seven fields was wrong.
    let node = ddssd::EphemeralNode::start().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(node.directory())).unwrap();
    let tasks = client.aio().unwrap();
    let large = 2 << 20;
    let cases: [(Spec, &[&str]); 10] = [
        (Spec::new(0), &["bytes is 0", "1 to 1099511627776"]),
        (Spec::new(1 << 41), &["bytes is 2199023255552", "1 to 1099511627776"]),
        (Spec::new(8).mode(Mode(0o1777)), &["mode is 1777", "0 to 777, octal"]),
        (Spec::new(8).history(1025), &["history is 1025", "0 to 1024"]),
        (Spec::new(8).model(Model::Delta(5000)), &["delta is 5000", "0 to 1024"]),
        (Spec::new(large).history(1), &["bytes is 2097152", "1 to 1048576", "older versions"]),
        (Spec::new(8).copies(3), &["copies is 3", "1 or 2"]),
        (Spec::new(8).copies(2).storage(Storage::File), &["copies is 2", "1 for a segment in a file"]),
        (Spec::new(8).placement(Placement::Node(NodeId(0))), &["placement is node 0"]),
        (Spec::new(65_537).model(Model::Temporal(9)), &["bytes is 65537", "1 to 65536", "temporal"]),
    ];
    for (index, (spec, words)) in cases.iter().enumerate() {
        let name = format!("refused-{index}");
        let refused = client.segment(&name).allocate(*spec);
        assert_eq!(refused.as_ref().unwrap_err().kind(), ErrorKind::BadArgument, "{words:?}");
        names(refused, words);
        names(block_on(tasks.segment(&name).allocate(*spec)), words);
    }
    let segment = client.segment("mine").allocate(Spec::new(64)).unwrap();
    let owner = segment.stat().unwrap().permissions;
    names(
        client.segment("yours").allocate(Spec::new(8).mode(Mode(0o7000)).owner(owner.uid, owner.gid)),
        &["mode is 7000"],
    );
    let refused = Permissions { mode: Mode(0o1644), ..owner };
    names(segment.set_permissions(refused), &["mode is 1644", "0 to 777, octal"]);
    let later = block_on(tasks.segment("mine").open()).unwrap();
    names(block_on(later.set_permissions(refused)), &["mode is 1644", "0 to 777, octal"]);
    assert_eq!(segment.stat().unwrap().permissions.mode, Mode(0o600));
}

#[test]
fn timeout_and_lease_out_of_range_are_named() {
    // If this broke, a call would have another timeout than requested, or a thread would panic over an unrepresentable
    // instant.
    let node = ddssd::EphemeralNode::start().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(node.directory())).unwrap();
    let tasks = client.aio().unwrap();
    let segment = client.segment("mine").allocate(Spec::new(64)).unwrap();
    let later = block_on(tasks.segment("mine").open()).unwrap();
    for timeout in [MINUTES + Duration::from_secs(1), Duration::MAX] {
        let words = ["timeout is", "at most 600s"];
        names(segment.with_timeout(timeout).put(0, b"bytes"), &words);
        names(segment.with_timeout(timeout).wait_newer_than(Version(9)), &words);
        names(block_on(later.with_timeout(timeout).put(0, b"bytes")), &words);
        names(segment.lock_with(LockOptions::new().timeout(timeout)), &words);
        names(block_on(later.lock_with(LockOptions::new().timeout(timeout))), &words);
    }
    for lease in [Duration::ZERO, MINUTES + Duration::from_secs(1), Duration::MAX] {
        let (options, words) = (LockOptions::new().lease(lease), ["lease is", "1µs to 600s"]);
        names(segment.lock_with(options), &words);
        names(block_on(later.lock_with(options)), &words);
    }
    // The maximum values are valid.
    segment.with_timeout(MINUTES).put(0, b"bytes").unwrap();
    segment.lock_with(LockOptions::new().lease(MINUTES).timeout(MINUTES)).unwrap().unlock().unwrap();
    block_on(later.with_timeout(MINUTES).put(0, b"bytes")).unwrap();
    block_on(async { later.lock_with(LockOptions::new().lease(MINUTES)).await?.unlock().await }).unwrap();
}

#[test]
fn connect_names_option_that_is_out_of_range() {
    // If this broke, a client would have fewer channels than its threads expect.
    let node = ddssd::EphemeralNode::start().unwrap();
    type Change = fn(ConnectOptions) -> ConnectOptions;
    let cases: [(Change, &[&str]); 6] = [
        (|options| options.channels(0), &["channels is 0", "1 to 61"]),
        (|options| options.channels(62), &["channels is 62", "1 to 61"]),
        (|options| options.arena_len(0), &["arena_len is 0", "1 to 268435456"]),
        (|options| options.arena_len((256 << 20) + 1), &["arena_len is 268435457", "1 to 268435456"]),
        (|options| options.timeout(MINUTES * 2), &["timeout is 1200s", "at most 600s"]),
        (|options| options.timeout(Duration::MAX), &["timeout is", "at most 600s"]),
    ];
    for (change, words) in cases {
        names(Client::connect_with(change(ConnectOptions::new().directory(node.directory()))), words);
    }
    Client::connect_with(ConnectOptions::new().directory(node.directory()).channels(61).timeout(MINUTES)).unwrap();
}

#[test]
fn inverted_range_is_out_of_range() {
    // If this broke, an arithmetic mistake would read nothing, and look like an empty segment.
    let node = ddssd::EphemeralNode::start().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(node.directory())).unwrap();
    let values = client.segment("values").allocate(64).unwrap();
    let later = aio::Segment::from(&values);
    #[expect(clippy::reversed_empty_ranges, reason = "it is what is tested")]
    let range = 5..3;
    assert_eq!(values.get(range.clone()).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(block_on(later.get(range)).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert!(values.get(3..3).unwrap().value.is_empty());
}

#[test]
fn refused_calls_name_the_true_reason_and_the_next_step() {
    // If this broke, a user would look for the cause in sizes, locks or releases that are right.
    let node = ddssd::EphemeralNode::start().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(node.directory())).unwrap();
    let (tasks, local) = (client.aio().unwrap(), ConnectOptions::new().directory(node.directory()).local_reads(false));
    let segment = client.segment("mine").allocate(Spec::new(64)).unwrap();
    let later = block_on(tasks.segment("mine").open()).unwrap();
    let many = ["number of ranges is 17", "1 to 16", "several calls"];
    names(segment.get_many(&vec![0..1; 17]), &many);
    names(block_on(later.get_many(&vec![0..1; 17])), &many);
    names(segment.put_many(&[(0, &b"a"[..]); 17]), &many);
    names(segment.put_many(&[]), &["number of ranges is 0", "1 to 16"]);
    names(client.segment("two").allocate(Spec::new(8).copies(2)), &["need a cluster", "one copy"]);
    // A refused conditional put names the version that is there, on the short and on the long way.
    let first = segment.put(0, b"first").unwrap().version;
    let second = segment.put(0, b"second").unwrap().version;
    let elsewhere = Client::connect_with(local).unwrap().segment("mine").open().unwrap();
    let held = segment.lock().unwrap();
    let refusals = [
        held.put_if(first, 0, b"late").unwrap_err(),
        held.put_with(&[(0, b"late"), (8, b"late")], PutOptions::new().if_version(first)).unwrap_err(),
    ];
    held.unlock().unwrap();
    let large = client.segment("large").allocate(Spec::new(2 << 20)).unwrap();
    let of_large = large.put_if(Version(7), 0, &vec![1; 2 << 20]).unwrap_err();
    assert_eq!((of_large.kind(), of_large.version()), (ErrorKind::VersionMismatch, Some(Version(0))));
    for error in refusals.into_iter().chain([
        segment.put_if(first, 0, b"late").unwrap_err(),
        elsewhere.put_if(first, 0, &[1; 40]).unwrap_err(),
        block_on(later.put_if(first, 0, b"late")).unwrap_err(),
    ]) {
        assert_eq!((error.kind(), error.version()), (ErrorKind::VersionMismatch, Some(second)), "{error}");
        assert!(error.to_string().contains("version v2"), "{error}");
    }
    names(segment.cell::<[u64; 2]>(56), &["bytes 56 to 72", "64 bytes"]);
    names(later.array::<u64>(65), &["bytes 65 to 65", "64 bytes"]);
    client.segment("rows").allocate(Spec::new(1).row_len(8)).unwrap();
    names(client.segment("rows").open().unwrap().wait_newer_than(Version(0)), &["a table", "Row::wait_newer_than"]);
}
