//! Tests of `api/cell.rs` and `api/array.rs`.

use crate::testing::{TestNode, block_on};
use crate::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
#[repr(C)]
struct Point {
    x: u64,
    y: u64,
}

#[test]
fn typed_value_round_trips_and_no_update_is_lost() {
    // If this broke, two services would see different values, or lose updates.
    let node = TestNode::start();
    let client = node.client();
    let segment = client.segment("point").allocate(16).unwrap();
    let point: Cell<Point> = segment.cell(0).unwrap();
    point.put(&Point { x: 1, y: 2 }).unwrap();
    assert_eq!(*point.get().unwrap(), Point { x: 1, y: 2 });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let point: Cell<Point> = node.client().segment("point").open().unwrap().cell(0).unwrap();
            scope.spawn(move || {
                for _ in 0..50 {
                    point.update(|point| point.x += 1).unwrap();
                }
            });
        }
    });
    assert_eq!(*point.get().unwrap(), Point { x: 201, y: 2 });
    let stale = point.put_if(Version(1), &Point { x: 0, y: 0 }).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::VersionMismatch);
    for offset in [1, u64::MAX] {
        assert_eq!(segment.cell::<Point>(offset).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
}

#[test]
fn update_that_changes_nothing_puts_nothing() {
    // If this broke, a program that only looks at a value would wake all watchers, and fail where it may not put.
    let node = TestNode::start();
    let point: Cell<Point> = node.client().segment("point").allocate(16).unwrap().cell(0).unwrap();
    let put = point.put(&Point { x: 1, y: 2 }).unwrap();
    let seen = point.update(|_| ()).unwrap();
    assert_eq!((seen.value, seen.stamp), (Point { x: 1, y: 2 }, put));
    assert_eq!(point.update(|point| point.x = 1).unwrap().stamp, put);
    assert_eq!(point.update(|point| point.x = 2).unwrap().version().0, put.version.0 + 1);
}

#[test]
fn no_update_is_lost_or_mixed_without_a_model() {
    // If this broke, an update under `Model::Null` would put parts of two values together.
    const UPDATES: u64 = 200;
    type Words = [u64; 8192];
    let node = TestNode::start();
    let spec = Spec::new(size_of::<Words>() as u64).model(Model::Null);
    let words: Cell<Words> = node.client().segment("words").allocate(spec).unwrap().cell(0).unwrap();
    std::thread::scope(|scope| {
        for client in [node.local_read_client(), node.local_read_client(), node.client()] {
            scope.spawn(move || {
                let words: Cell<Words> = client.segment("words").open().unwrap().cell(0).unwrap();
                for _ in 0..UPDATES {
                    words.update(|words| words.iter_mut().for_each(|word| *word += 1)).unwrap();
                }
            });
        }
    });
    assert_eq!(words.get().unwrap().value, [3 * UPDATES; 8192]);
}

#[test]
fn array_checks_bounds_and_offsets() {
    // If this broke, one value would be read or written in another's place.
    let node = TestNode::start();
    let segment = node.client().segment("scores").allocate(402).unwrap();
    let scores: Array<u32> = segment.array(0).unwrap();
    assert_eq!(scores.len(), 100, "two bytes are no value");
    scores.put(99, &7).unwrap();
    scores.put_slice(10, &[1, 2, 3]).unwrap();
    let mut found = [9; 5];
    scores.get_into(9, &mut found).unwrap();
    assert_eq!((found, *scores.get(99).unwrap()), ([0, 1, 2, 3, 0], 7));
    let beyond = scores.get_into(99, &mut [0; 2]).map(drop);
    for error in [scores.get(100).map(drop), scores.put(usize::MAX, &1).map(drop), beyond] {
        assert!(error.is_err_and(|error| error.kind() == ErrorKind::OutOfRange));
    }
    let last = segment.array::<u32>(396).unwrap();
    assert_eq!((last.len(), *last.get(0).unwrap()), (1, 7));
    assert!(last.get(1).is_err());
    let none = segment.array::<u32>(399).unwrap();
    assert!(none.len() == 0 && none.get(0).is_err() && none.put_slice(0, &[]).is_ok());
    assert_eq!(segment.array::<u32>(403).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn async_views_read_values_of_blocking_views() {
    // If this broke, a value would depend on its reader.
    let node = TestNode::start();
    let (threads, tasks) = (node.client(), node.client().aio().unwrap());
    let segment = threads.segment("count").allocate(400).unwrap();
    let (count, many): (Cell<u64>, Array<u32>) = (segment.cell(8).unwrap(), segment.array(16).unwrap());
    count.put(&7).unwrap();
    block_on(async {
        let found = tasks.segment("count").open().await.unwrap();
        let (same, all): (aio::Cell<u64>, aio::Array<u32>) = (found.cell(8).unwrap(), found.array(16).unwrap());
        assert_eq!(same.update(|count| *count += 1).await.unwrap().value, 8);
        assert_eq!(*count.get().unwrap(), *same.get().await.unwrap());
        assert_eq!(same.put(&9).await.unwrap(), count.get().unwrap().stamp);
        let stale = same.put_if(Version(1), &0).await.unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::VersionMismatch);
        all.put_slice(94, &[1, 2]).await.unwrap();
        all.put(0, &3).await.unwrap();
        let mut read = [0; 3];
        all.get_into(93, &mut read).await.unwrap();
        assert_eq!((all.len(), read, *many.get(0).unwrap(), *many.get(95).unwrap()), (96, [0, 1, 2], 3, 2));
        assert!(all.get(96).await.is_err_and(|error| error.kind() == ErrorKind::OutOfRange));
        assert!(found.cell::<u64>(393).is_err_and(|error| error.kind() == ErrorKind::OutOfRange));
    });
}

#[test]
fn typed_rows_fit_their_table() {
    // If this broke, a value would reach into the next row, or be cut off.
    let node = TestNode::start();
    let client = node.client();
    let points: Table<Point> = client.table("points").open_or_allocate(4).unwrap();
    assert_eq!((points.len(), points.row_len()), (4, 16));
    let put = points.row(1).put(&Point { x: 1, y: 2 }).unwrap();
    points.row(2).put(&Point { x: 3, y: 4 }).unwrap();
    let moved = points.row(1).update(|point| point.x = 5).unwrap();
    assert_eq!((moved.value, moved.version().0), (Point { x: 5, y: 2 }, put.version.0 + 1));
    assert!(points.row(1).put_if(put.version, &Point { x: 0, y: 0 }).unwrap_err().is_conflict());
    assert_eq!(*points.row(2).get().unwrap(), Point { x: 3, y: 4 });
    assert_eq!(points.row(4).get().unwrap_err().kind(), ErrorKind::OutOfRange);
    let held = points.row(1).lock().unwrap();
    held.update(|point| point.y = 6).unwrap();
    held.unlock().unwrap();
    let bytes: Table = client.table("points").open().unwrap();
    assert_eq!(bytes.row(1).get().unwrap()[..], *Point { x: 5, y: 6 }.as_bytes());
    let wider = client.table::<[u64; 3]>("points").open().unwrap_err();
    assert_eq!(wider.kind(), ErrorKind::WrongShape, "{wider}");
    let narrow = client.table::<Point>("narrow").allocate(Spec::new(4).row_len(8)).unwrap_err();
    assert_eq!(narrow.kind(), ErrorKind::BadArgument, "{narrow}");
    let names: Table<str> = client.table("names").allocate(Spec::new(2).row_len(8)).unwrap();
    names.row(0).put("longer").unwrap();
    names.row(0).put("short").unwrap();
    assert_eq!(names.row(0).get().unwrap().value, "short");
    block_on(async {
        let points: aio::Table<Point> = client.aio().unwrap().table("points").open().await.unwrap();
        assert_eq!(points.row(2).update(|point| point.x += 1).await.unwrap().value, Point { x: 4, y: 4 });
    });
}

#[test]
fn update_refuses_bytes_that_become_fewer() {
    // If this broke, the end of an old value would stay behind the new one, which the caller takes for stored.
    let node = TestNode::start();
    let client = node.client();
    let table: Table = client.table("rows").allocate(Spec::new(2).row_len(8)).unwrap();
    table.row(0).put(b"alice").unwrap();
    let shorter = table.row(0).update(|bytes| *bytes = b"bob".to_vec()).unwrap_err();
    assert_eq!(shorter.kind(), ErrorKind::BadArgument);
    assert_eq!(table.row(0).get().unwrap()[..], *b"alice\0\0\0");
    table.row(0).update(|bytes| bytes[..5].copy_from_slice(b"carol")).unwrap();
    assert_eq!(table.row(0).get().unwrap()[..], *b"carol\0\0\0");
    // Text says where it ends.
    let names: Table<str> = client.table("names").allocate(Spec::new(2).row_len(8)).unwrap();
    names.row(1).put("alice").unwrap();
    names.row(1).update(|name| *name = "bob".to_owned()).unwrap();
    assert_eq!(names.row(1).get().unwrap().value, "bob");
}
