//! Tests of `encoding/postcard.rs`.

use crate::testing::{TestNode, block_on};
use crate::*;
use std::collections::BTreeMap;

type Scores = BTreeMap<String, Vec<u32>>;

#[test]
fn value_of_any_length_is_read_whole_and_changed_by_two_clients() {
    // If this broke, a value would be cut off at the first read, or an update of another client would be lost.
    let node = TestNode::start();
    let segment = node.client().segment("scores").allocate(40_000).unwrap();
    let here: Cell<Postcard<Scores>> = segment.cell(0).unwrap();
    assert_eq!(here.get().unwrap_err().kind(), ErrorKind::WrongShape, "nothing was put");
    here.put(&Scores::new()).unwrap();
    assert_eq!(here.get().unwrap().value, Scores::new());
    let large: Scores = (0..300).map(|at| (format!("player {at}"), vec![at; 20])).collect();
    let stamp = here.put(&large).unwrap();
    let there = node.local_read_client().segment("scores").open().unwrap().cell::<Postcard<Scores>>(0).unwrap();
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
        let value = client.segment("scores").open().await.unwrap().cell::<Postcard<Scores>>(0).unwrap();
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
    let value: Cell<Postcard<String>> = client.segment("value").allocate(13).unwrap().cell(0).unwrap();
    value.put(&"four".to_owned()).unwrap();
    assert_eq!(of(value.put(&"too long".to_owned()).unwrap_err()), ErrorKind::BadArgument);
    assert_eq!(value.get().unwrap().value, "four");
    let other: Cell<Postcard<[u64; 7]>> = client.segment("value").open().unwrap().cell(0).unwrap();
    assert_eq!(of(other.get().unwrap_err()), ErrorKind::WrongShape);
    let short: Cell<Postcard<u8>> = client.segment("short").allocate(4).unwrap().cell(0).unwrap();
    assert_eq!(of(short.get().unwrap_err()), ErrorKind::WrongShape);
    assert_eq!(of(short.put(&7).unwrap_err()), ErrorKind::BadArgument);
    let raw = client.segment("raw").allocate(Spec::new(64)).unwrap();
    let text = raw.cell::<Postcard<String>>(0).unwrap();
    for content in [[0u8; 8], [0xff; 8], 100u64.to_le_bytes()] {
        raw.put(0, &content).unwrap();
        assert_eq!(of(text.get().unwrap_err()), ErrorKind::WrongShape, "{content:?}");
    }
}

#[test]
fn rows_and_entries_hold_values_of_any_length() {
    // If this broke, a value of a row would reach into the next one, or be read together with the rest of a longer one.
    let node = TestNode::start();
    let client = node.client();
    let users: Table<Postcard<Vec<u16>>> = client.table("users").allocate(Spec::new(3).row_len(6000)).unwrap();
    let (short, long) = (vec![1; 3], vec![300; 2900]);
    for values in [[&long, &short], [&short, &long]] {
        users.row(0).put(values[0]).unwrap();
        users.row(1).put(values[1]).unwrap();
        assert_eq!([0, 1].map(|row| users.row(row).get().unwrap().value), values.map(Clone::clone));
    }
    let seen = users.row(1).update(|values| values.truncate(2)).unwrap();
    assert_eq!((seen.value.clone(), seen.version()), (vec![300; 2], Version(3)));
    assert_eq!(users.row(1).update(|_| ()).unwrap(), seen, "nothing to put");
    assert_eq!(users.row(0).put(&vec![300; 2997]).unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(users.row(2).get().unwrap_err().kind(), ErrorKind::WrongShape);
    let spec = Spec::new(10).entry_len(8, 32);
    let names: Map<str, Postcard<Vec<String>>> = client.map("names").allocate(spec).unwrap();
    names.put("a", &vec!["b".to_owned(), "c".to_owned()]).unwrap();
    names.put("a", &vec!["d".to_owned()]).unwrap();
    assert_eq!(names.get("a").unwrap().unwrap().value, ["d"]);
    assert_eq!(names.put("a", &vec!["e".repeat(30)]).unwrap_err().kind(), ErrorKind::BadArgument);
}
