//! No allocation on the caller's thread: after warm-up a call allocates nothing.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::future::Future;
use std::time::Duration;

use ddss::{Client, ConnectOptions, Spec, Strategy};
use ddssd::{Config, Node};

/// Number of calls of each kind.
const CALLS: usize = 300;

#[test]
fn calls_allocate_nothing() {
    // If this failed, the tail of each call would be that of the allocator.
    let folder = std::env::temp_dir().join(format!("ddss-allocation-{}", std::process::id()));
    let mut config = Config::single(&folder);
    config.pool_bytes = 8 << 20;
    let service = Node::start(config).unwrap();
    for strategy in Strategy::ALL {
        let options = ConnectOptions::new().directory(&folder).strategy(strategy).timeout(Duration::from_secs(60));
        let client = Client::connect_with(options).unwrap();
        let segment = client.segment(&format!("words-{strategy}")).allocate(Spec::new(1 << 16)).unwrap();
        let mut room = vec![1; 1 << 16];
        let (mut one, mut other) = ([0; 8], [0; 5000]);
        let mut one_of_each = || {
            client.ping().unwrap();
            for bytes in [8, 4096, 1 << 16] {
                segment.put(0, &room[..bytes]).unwrap();
                segment.get_into(0, &mut room[..bytes]).unwrap();
            }
            segment.put_many(&[(0, &room[..8]), (100, &room[..5000])]).unwrap();
            segment.get_many_into(&mut [(0, &mut one), (100, &mut other)]).unwrap();
            segment.word(8).fetch_add(1).unwrap();
            segment.word(8).compare_and_swap(1, 2).unwrap();
        };
        (0..CALLS).for_each(|_| one_of_each());
        let counted = allocation_counter::measure(|| (0..CALLS).for_each(|_| one_of_each()));
        assert_eq!(counted.count_total, 0, "{strategy}: {counted:?}");
    }
    drop(service);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn tasks_allocate_nothing() {
    // If this failed, an asynchronous call would cost allocations that a blocking one does not.
    let node = ddssd::EphemeralNode::start().unwrap();
    for strategy in Strategy::ALL {
        let options =
            ConnectOptions::new().directory(node.directory()).strategy(strategy).timeout(Duration::from_secs(60));
        let client = Client::connect_with(options).unwrap().aio().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let segment = client.segment(&format!("tasks-{strategy}")).allocate(Spec::new(1 << 16)).await.unwrap();
            let mut room = vec![1; 1 << 16];
            let (mut one, mut other) = ([0; 8], [0; 5000]);
            let mut one_of_each = async || {
                client.ping().await.unwrap();
                for bytes in [8, 4096, 1 << 16] {
                    segment.put(0, &room[..bytes]).await.unwrap();
                    segment.get_into(0, &mut room[..bytes]).await.unwrap();
                }
                segment.put_many(&[(0, &room[..8]), (100, &room[..5000])]).await.unwrap();
                segment.get_many_into(&mut [(0, &mut one), (100, &mut other)]).await.unwrap();
                segment.word(8).fetch_add(1).await.unwrap();
                segment.word(8).compare_and_swap(1, 2).await.unwrap();
            };
            for _ in 0..CALLS {
                one_of_each().await;
            }
            // Measured around single polls: the counter covers this thread, whichever task it polls.
            let mut counted = 0;
            for _ in 0..CALLS {
                let mut turn = std::pin::pin!(one_of_each());
                std::future::poll_fn(|context| {
                    let mut poll = std::task::Poll::Pending;
                    let seen = allocation_counter::measure(|| poll = turn.as_mut().poll(context));
                    counted += seen.count_total;
                    poll
                })
                .await;
            }
            assert_eq!(counted, 0, "{strategy}");
        });
    }
}
