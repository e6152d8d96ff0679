//! Results and errors of both clients, which share each method's body: the channels differ.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use ddss::{Batch, Client, ConnectOptions, GetOptions, LockOptions, Mode, Permissions, Spec, Version, aio};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn show<T: Debug>(results: &mut Vec<String>, result: Result<T, ddss::Error>) {
    // An address or a handle's internals differ; a text or an error does not.
    results.push(result.map_or_else(|error| format!("{error}: {error:?}"), |_| "done".to_owned()));
}

/// Defines the same calls for both clients.
macro_rules! script {
    ($name:ident, $client:ty, $get:ident) => {
        fn $name(client: &$client) -> Vec<String> {
            let mut all = Vec::new();
            let results = &mut all;
            let spec = Spec::new(100_000);
            let segment = $get!(client.segment("table").allocate(spec)).unwrap();
            show(results, $get!(client.ping()));
            show(results, $get!(client.segment("table").allocate(spec)));
            show(results, $get!(client.segment("").allocate(spec)));
            show(results, $get!(client.segment("mode").allocate(spec.mode(Mode(0o7777)))));
            show(results, $get!(client.segment("nothing").open()));
            for bytes in [0, 1, 8, 32, 33, 4096, 100_000] {
                let value = vec![bytes as u8; bytes];
                let put = $get!(segment.put(0, &value)).unwrap();
                let got = $get!(segment.get(0..bytes as u64)).unwrap();
                assert_eq!((&got[..], got.stamp), (&value[..], put), "{bytes} bytes");
            }
            show(results, $get!(segment.put(99_999, b"12")));
            show(results, $get!(segment.get(5..100_001)));
            show(results, $get!(segment.get_with(0..8, GetOptions::new().at_version(Version(1)))));
            show(results, $get!(segment.get_with(0..8, GetOptions::new().at_version(Version(999)))));
            show(results, $get!(segment.put_if(Version(0), 0, b"stale")));
            show(results, $get!(segment.put_many(&[])));
            show(results, $get!(segment.get_many(&[0..8, 99_999..100_001])));
            show(results, $get!(segment.word(4).fetch_add(1)));
            show(results, $get!(segment.word(100_000).compare_and_swap(1, 2)));
            show(results, $get!(segment.set_permissions(Permissions { uid: 0, gid: 0, mode: Mode(0o1000) })));
            show(results, $get!(segment.lock_with(LockOptions::new().lease(Duration::ZERO))));
            show(results, $get!(segment.with_timeout(Duration::from_secs(601)).get(0..8)));
            let hasty = segment.with_timeout(Duration::from_millis(20));
            show(results, $get!(hasty.wait_newer_than(Version(999))));
            let held = $get!(segment.lock()).unwrap();
            show(results, $get!(hasty.lock()));
            show(results, $get!(segment.lock_with(LockOptions::new().timeout(Duration::ZERO))));
            show(results, $get!(segment.put(0, b"own lock")));
            show(results, $get!(held.put_if(Version(0), 0, b"stale")));
            assert_eq!($get!(segment.break_lock()).unwrap(), 1);
            show(results, $get!(held.put(0, b"late")));
            show(results, $get!(held.unlock()));
            let mut batch = Batch::new();
            show(results, batch.get(&segment, 0..100_001).map(drop));
            let (got, put) = (batch.get(&segment, 0..8).unwrap(), batch.put(&segment, 8, &[7; 5000]).unwrap());
            let mut replies = $get!(client.run(batch)).unwrap();
            show(results, replies.take(got));
            show(results, replies.take(put));
            $get!(segment.clone().release()).unwrap();
            show(results, $get!(segment.stat()));
            results.push(format!("{:?}", $get!(segment.watch().next()).is_none()));
            let mut batch = Batch::new();
            let (got, put) = (batch.get(&segment, 0..8).unwrap(), batch.put(&segment, 8, &[7; 5000]).unwrap());
            let mut replies = $get!(client.run(batch)).unwrap();
            show(results, replies.take(got));
            show(results, replies.take(put));
            show(results, $get!(segment.release()));
            all
        }
    };
}

macro_rules! blocking {
    ($call:expr) => {
        $call
    };
}

macro_rules! awaited {
    ($call:expr) => {
        block_on($call)
    };
}

script!(blocking_results, Client, blocking);
script!(async_results, aio::Client, awaited);

#[test]
fn both_clients_return_the_same_results_and_errors() {
    // If this broke, a service that moves its calls into tasks would have to handle other errors.
    let node = ddssd::EphemeralNode::start().unwrap();
    for local_reads in [false, true] {
        let options = || {
            ConnectOptions::new().directory(node.directory()).timeout(Duration::from_secs(60)).local_reads(local_reads)
        };
        let (blocking, tasks) =
            (Client::connect_with(options()).unwrap(), Client::connect_with(options()).unwrap().aio().unwrap());
        let (one, other) = (blocking_results(&blocking), async_results(&tasks));
        assert_eq!(one, other);
        assert!(one.iter().filter(|result| *result != "done").count() >= 24, "{one:#?}");
    }
}
