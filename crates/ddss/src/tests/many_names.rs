//! Tests of batches of names.

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
    let (mut batch, mut tickets) = (Batch::new(), Vec::new());
    for name in &names {
        tickets.push(batch.allocate(name, 64).unwrap());
    }
    let named =
        [batch.allocate("", 64), batch.allocate("none", 0), batch.allocate("alice's", Spec::new(8).owner(7, 7))];
    let kinds = named.map(|refused| refused.unwrap_err().kind());
    assert_eq!(kinds, [ErrorKind::BadArgument; 3]);
    let mut replies = client.run(batch).unwrap();
    let made: Vec<_> = tickets.into_iter().map(|ticket| replies.take(ticket)).collect();
    let refused: Vec<_> = (0..).zip(&made).filter(|(_, made)| made.is_err()).map(|(index, _)| index).collect();
    assert_eq!(refused, [7]);
    assert_eq!(made[7].as_ref().unwrap_err().kind(), ErrorKind::AlreadyExists);
    for (name, segment) in names.iter().zip(&made).filter_map(|(name, made)| Some((name, made.as_ref().ok()?))) {
        assert_eq!(segment.name(), name);
        segment.put(0, name.as_bytes()).unwrap();
    }
    let (mut batch, mut tickets) = (Batch::new(), Vec::new());
    for name in names.iter().map(|name| &name[..]).chain(["nothing"]) {
        tickets.push(batch.open(name).unwrap());
    }
    let mut replies = block_on(async { client.aio().unwrap().run(batch).await }).unwrap();
    let mut found: Vec<_> = tickets.into_iter().map(|ticket| replies.take(ticket)).collect();
    assert_eq!(found.pop().unwrap().unwrap_err().kind(), ErrorKind::NotFound);
    for (index, (name, found)) in names.iter().zip(&found).enumerate().filter(|(index, _)| *index != 7) {
        let value = found.as_ref().unwrap().get(0..name.len() as u64).unwrap();
        assert_eq!(&value[..], name.as_bytes(), "{index}");
    }
    let mut batch = Batch::new();
    let ended: Vec<_> = made.iter().flatten().map(|segment| batch.release(segment).unwrap()).collect();
    let mut replies = client.run(batch).unwrap();
    assert!(ended.len() == 1499 && ended.into_iter().all(|ticket| replies.take(ticket).is_ok()));
    assert_eq!(client.list("many/").count(), 1);
    let mut batch = Batch::new();
    let late: Vec<_> = found.iter().flatten().map(|segment| batch.release(segment).unwrap()).collect();
    let mut replies = block_on(async { client.aio().unwrap().run(batch).await }).unwrap();
    assert_eq!(late.into_iter().filter_map(|ticket| replies.take(ticket).ok()).count(), 1, "one was left");
}

#[test]
fn batch_of_names_fails_as_a_whole_when_no_daemon_runs() {
    // If this broke, a program would take a name for allocated that nobody asked for.
    let node = TestNode::start();
    let client = node.short_timeout_client();
    drop(node);
    // The client knows from here on that there is no daemon. A call that finds it out by itself may have been carried out.
    client.ping().unwrap_err();
    let mut batch = Batch::new();
    let _tickets = [batch.allocate("a", 8).unwrap(), batch.allocate("b", 8).unwrap()];
    let error = client.run(batch).unwrap_err();
    assert!(!error.is_indeterminate(), "{error}");
}
