//! Tests of `api/batches/many_names.rs`.

use crate::ErrorKind;
use crate::testing::{TestNode, block_on};
use crate::*;

#[test]
fn many_names_are_made_found_and_freed_each_by_itself() {
    // If this broke, one refused name would take thousands of others with it, or a handle would be another name's.
    let node = TestNode::start_with(|config| config.progress_threads = 2);
    let client = node.client();
    client.segment("many/7").allocate(Spec::new(8)).unwrap();
    let names: Vec<String> = (0..1500).map(|number| format!("many/{number}")).collect();
    let mut wanted: Vec<_> = names.iter().map(|name| (&name[..], Spec::new(64))).collect();
    wanted[9] = ("", Spec::new(64));
    wanted[11].1 = Spec::new(0);
    let made = client.allocate_many(&wanted);
    let refused: Vec<_> = (0..).zip(&made).filter(|(_, made)| made.is_err()).map(|(index, _)| index).collect();
    assert_eq!(refused, [7, 9, 11]);
    assert_eq!(made[7].as_ref().unwrap_err().kind(), ErrorKind::AlreadyExists);
    for (name, segment) in names.iter().zip(&made).filter_map(|(name, made)| Some((name, made.as_ref().ok()?))) {
        assert_eq!(segment.name(), name);
        segment.put(0, name.as_bytes()).unwrap();
    }
    let known: Vec<&str> = names.iter().map(|name| &name[..]).collect();
    let found = block_on(async { client.aio().unwrap().open_many(&known).await });
    for (index, (name, found)) in names.iter().zip(&found).enumerate() {
        match found {
            Ok(segment) if index != 7 => {
                let value = block_on(segment.get(0..name.len() as u64)).unwrap();
                assert_eq!(&value[..], name.as_bytes());
            }
            Ok(_) => {}
            Err(error) => assert_eq!((index == 9 || index == 11, error.kind()), (true, ErrorKind::NotFound)),
        }
    }
    let ended = client.release_many(made.into_iter().flatten().collect());
    assert!(ended.len() == 1497 && ended.iter().all(Result::is_ok));
    assert_eq!(client.list("many/").unwrap().count(), 1);
    let late = block_on(async { client.aio().unwrap().release_many(found.into_iter().flatten().collect()).await });
    assert_eq!(late.iter().filter(|ended| ended.is_ok()).count(), 1, "one was left");
}

#[test]
fn each_of_many_names_has_an_error_when_no_daemon_runs() {
    // If this broke, a program would take a name for allocated that nobody asked for.
    let node = TestNode::start();
    let client = node.short_timeout_client();
    drop(node);
    // The client knows from here on that there is no daemon. A call that finds it out by itself may have been carried out.
    client.ping().unwrap_err();
    let ended = client.allocate_many(&[("a", Spec::new(8)), ("b", Spec::new(8))]);
    assert!(ended.len() == 2 && ended.iter().all(Result::is_err), "{ended:?}");
    assert!(ended.iter().flat_map(|ended| ended.as_ref().err()).all(|error| !error.is_indeterminate()), "{ended:?}");
}
