//! Tests of `api/typed.rs`.

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
    let point = Shared::allocate(&client, "point", &Point { x: 1, y: 2 }).unwrap();
    assert_eq!(*point.get().unwrap(), Point { x: 1, y: 2 });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let point = Shared::<Point>::open(&node.client(), "point").unwrap();
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
    assert!(Shared::<Point>::new(point.segment().clone(), 1).is_err_and(|error| error.kind() == ErrorKind::OutOfRange));
}

#[test]
fn typed_slice_checks_bounds_and_offsets() {
    // If this broke, one value would be read or written in another's place.
    let node = TestNode::start();
    let client = node.client();
    let scores: SharedSlice<u32> = SharedSlice::allocate(&client, "scores", 100).unwrap();
    scores.put(99, &7).unwrap();
    scores.put_range(10, &[1, 2, 3]).unwrap();
    assert_eq!(scores.get_range(9..14).unwrap().value, [0, 1, 2, 3, 0]);
    assert_eq!(SharedSlice::<u32>::open(&client, "scores").unwrap().len(), 100);
    assert_eq!(*scores.get(99).unwrap(), 7);
    for error in [scores.get(100).map(drop), scores.put(usize::MAX, &1).map(drop), scores.get_range(99..101).map(drop)]
    {
        assert!(error.is_err_and(|error| error.kind() == ErrorKind::OutOfRange));
    }
    let raised = scores.update(11, |score| *score += 5).unwrap();
    assert_eq!((raised.value, scores.get_range(10..13).unwrap().value), (7, vec![1, 7, 3]));
    scores.put_if(12, raised.stamp.version, &4).unwrap();
    let stale = scores.put_if(12, raised.stamp.version, &5).unwrap_err();
    assert_eq!((stale.kind(), *scores.get(12).unwrap()), (ErrorKind::VersionMismatch, 4));
    assert!(scores.update(100, |_| ()).is_err_and(|error| error.kind() == ErrorKind::OutOfRange));
    let part = SharedSlice::<u32>::new(scores.segment().clone(), 4, 9).unwrap();
    assert!(part.get(9).is_err() && part.get(8).is_ok());
}

#[test]
fn async_views_read_values_of_blocking_views() {
    // If this broke, a value would depend on its reader.
    let node = TestNode::start();
    let (threads, tasks) = (node.client(), node.client().aio().unwrap());
    let count = Shared::allocate(&threads, "count", &7u64).unwrap();
    block_on(async {
        let same = aio::Shared::<u64>::open(&tasks, "count").await.unwrap();
        assert_eq!(same.update(|count| *count += 1).await.unwrap().value, 8);
        assert_eq!(*count.get().unwrap(), *same.get().await.unwrap());
        assert_eq!(same.put(&9).await.unwrap(), count.get().unwrap().stamp);
        let stale = same.put_if(Version(1), &0).await.unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::VersionMismatch);
        let own = aio::Shared::allocate(&tasks, "own", &5u32).await.unwrap();
        assert_eq!(*Shared::<u32>::open(&threads, "own").unwrap().get().unwrap(), *own.get().await.unwrap());
        let many = aio::SharedSlice::<u32>::allocate(&tasks, "many", 100).await.unwrap();
        many.put_range(98, &[1, 2]).await.unwrap();
        many.put(0, &3).await.unwrap();
        let found = aio::SharedSlice::<u32>::open(&tasks, "many").await.unwrap();
        assert_eq!((found.len(), found.get_range(97..100).await.unwrap().value), (100, vec![0, 1, 2]));
        assert_eq!(found.update(0, |score| *score += 1).await.unwrap().value, 4);
        assert_eq!(SharedSlice::<u32>::open(&threads, "many").unwrap().get_range(98..100).unwrap().value, [1, 2]);
        assert!(found.get(100).await.is_err_and(|error| error.kind() == ErrorKind::OutOfRange));
        assert!(
            aio::Shared::<u64>::new(found.segment().clone(), 393)
                .is_err_and(|error| error.kind() == ErrorKind::OutOfRange)
        );
    });
}
