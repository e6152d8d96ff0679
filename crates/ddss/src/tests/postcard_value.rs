//! Tests of `api/postcard_value.rs`.

use crate::testing::{TestNode, block_on};
use crate::*;
use std::collections::BTreeMap;

type Scores = BTreeMap<String, Vec<u32>>;

#[test]
fn value_of_any_length_is_read_whole_and_changed_by_two_clients() {
    // If this broke, a value would be cut off at the first read, or an update of another client would be lost.
    let node = TestNode::start();
    let here = PostcardValue::<Scores>::allocate(&node.client(), "scores", 40_000, &Scores::new()).unwrap();
    assert_eq!(here.get().unwrap().value, Scores::new());
    let large: Scores = (0..300).map(|at| (format!("player {at}"), vec![at; 20])).collect();
    let stamp = here.put(&large).unwrap();
    let there = PostcardValue::<Scores>::open(&node.local_read_client(), "scores").unwrap();
    let found = there.get().unwrap();
    assert!(found.value == large && found.stamp == stamp);
    assert_eq!(there.put_if(Version(1), &large).unwrap_err().kind(), ErrorKind::VersionMismatch);
    std::thread::scope(|scope| {
        for value in [&here, &there] {
            scope.spawn(move || {
                for _ in 0..50 {
                    value.update(|scores| scores.entry("all".to_owned()).or_default().push(1)).unwrap();
                }
            });
        }
    });
    assert_eq!(here.get().unwrap()["all"].len(), 100);
    block_on(async {
        let client = node.client().aio().unwrap();
        let value = aio::PostcardValue::<Scores>::open(&client, "scores").await.unwrap();
        value.update(Scores::clear).await.unwrap();
        assert!(value.get().await.unwrap().is_empty());
    });
}

#[test]
fn wrong_content_and_values_that_do_not_fit_are_refused() {
    // If this broke, bytes of another program would be taken for a value, or a value would be cut off.
    let node = TestNode::start();
    let client = node.client();
    let of = |error: Error| error.kind();
    let refused = PostcardValue::allocate(&client, "short", 3, &"four".to_owned()).unwrap_err();
    assert_eq!(of(refused), ErrorKind::BadArgument);
    assert!(client.segment("short").open().is_err(), "nothing was allocated");
    let value = PostcardValue::allocate(&client, "value", 5, &"four".to_owned()).unwrap();
    assert_eq!(of(value.put(&"too long".to_owned()).unwrap_err()), ErrorKind::BadArgument);
    assert_eq!(value.get().unwrap().value, "four");
    let other = PostcardValue::<[u64; 7]>::open(&client, "value").unwrap();
    assert_eq!(of(other.get().unwrap_err()), ErrorKind::WrongShape);
    let plain = client.segment("plain").allocate(Spec::new(4)).unwrap();
    let none = PostcardValue::<u8>::open(&client, "plain").unwrap().get().unwrap_err();
    assert_eq!(of(none), ErrorKind::WrongShape);
    plain.release().unwrap();
    let raw = client.segment("raw").allocate(Spec::new(64)).unwrap();
    let text = PostcardValue::<String>::open(&client, "raw").unwrap();
    for content in [[0u8; 8], [0xff; 8], 100u64.to_le_bytes()] {
        raw.put(0, &content).unwrap();
        assert_eq!(of(text.get().unwrap_err()), ErrorKind::WrongShape, "{content:?}");
    }
}
