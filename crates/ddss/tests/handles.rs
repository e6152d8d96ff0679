//! Handles in services: cloned, sent to other threads, shared, and awaited in tasks that move.
#![allow(clippy::unwrap_used, reason = "a test may")]

use ddss::{Array, Cell, Client, ConnectOptions, GetOptions, Segment, Spec, Version, aio};
use std::future::Future;
use std::mem::size_of;
use std::task::{Context, Waker};

fn is_a_handle<T: Clone + Send + Sync + 'static>() -> usize {
    size_of::<T>()
}

fn may_move<T: Send>(future: T) -> T {
    future
}

#[test]
fn handles_are_cloned_shared_and_awaited_by_tasks_that_move() {
    // If this broke, a service could not keep a segment in its state, or not await a call in a task of a runtime with
    // several threads.
    let sizes = [
        is_a_handle::<Client>(),
        is_a_handle::<Segment>(),
        is_a_handle::<aio::Client>(),
        is_a_handle::<aio::Segment>(),
        is_a_handle::<Cell<u64>>(),
        is_a_handle::<Array<u64>>(),
        is_a_handle::<aio::Cell<u64>>(),
    ];
    assert!(sizes.iter().all(|&size| size <= 128), "a handle is small: {sizes:?}");
    let node = ddssd::EphemeralNode::start().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(node.directory())).unwrap().aio().unwrap();
    let executor = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let segment = executor().block_on(may_move(client.segment("moved").allocate(Spec::new(64)))).unwrap();
    let threads: Vec<_> = (0..8u8)
        .map(|task| {
            let (segment, client) = (segment.clone(), client.clone());
            let mut moving = Box::pin(may_move(async move {
                for _ in 0..50 {
                    segment.put(0, &[task; 8]).await.unwrap();
                    let got = segment.get(0..8).await.unwrap();
                    assert!(got.iter().all(|&byte| byte == got[0]));
                    client.ping().await.unwrap();
                }
            }));
            // Begun here, awaited there.
            let _ = moving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            std::thread::spawn(move || executor().block_on(moving))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // Not concurrent with puts of the same client, which would fail with *own lock*.
    executor().block_on(may_move(async { segment.lock().await.unwrap().unlock().await.unwrap() }));
    let newest = executor().block_on(may_move(segment.get_with(.., GetOptions::new().newer_than(Version(0))))).unwrap();
    assert_eq!(newest.version(), Version(400));
}
