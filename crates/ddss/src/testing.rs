//! Shared test helpers: a node in this process, and a minimal executor.

use crate::{Client, ConnectOptions};
use ddssd::{Config, Node};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// A node that stops when dropped.
pub(crate) struct TestNode {
    service: Option<Node>,
    folder: PathBuf,
}

impl TestNode {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| ())
    }

    /// Starts a node with a changed configuration.
    pub(crate) fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ddss-test-{}-{number}", std::process::id()));
        let mut node = Self { service: None, folder };
        node.restart_with(change);
        node
    }

    /// Ends the node, and starts the next one in its directory.
    pub(crate) fn restart_with(&mut self, change: impl FnOnce(&mut Config)) {
        drop(self.service.take());
        let mut config = Config::single(&self.folder);
        config.pool_bytes = 8 << 20;
        change(&mut config);
        self.service = Some(Node::start(config).unwrap());
    }

    /// Returns the number of gets that the node has served, once there are that many, and their bytes.
    pub(crate) fn gets(&self, at_least: u64) -> (u64, u64) {
        let began = std::time::Instant::now();
        loop {
            // The daemon counts a request after its answer.
            let gets = ddss_ipc::read_status(&self.folder).unwrap().operation(ddss_core::status::Kind::Get);
            if gets.ended() >= at_least {
                return (gets.ended(), gets.bytes);
            }
            assert!(began.elapsed().as_secs() < 60, "{gets:?}, and not {at_least} gets");
        }
    }

    /// Returns the number of puts that the node has completed.
    pub(crate) fn puts(&self) -> u64 {
        ddss_ipc::read_status(&self.folder).unwrap().operation(ddss_core::status::Kind::Put).ended()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect_with(self.options().local_reads(false)).unwrap()
    }

    /// Returns options of a patient client: a machine that runs other tests may be slow, and no deadline matters.
    pub(crate) fn options(&self) -> ConnectOptions {
        ConnectOptions::new().directory(&self.folder).timeout(std::time::Duration::from_secs(60))
    }

    /// Connects a client with local reads enabled.
    pub(crate) fn local_read_client(&self) -> Client {
        Client::connect_with(self.options()).unwrap()
    }

    /// Connects a client with a single channel and a short timeout.
    pub(crate) fn one_channel_client(&self) -> Client {
        let soon = std::time::Duration::from_millis(400);
        Client::connect_with(ConnectOptions::new().directory(&self.folder).channels(1).timeout(soon).local_reads(false))
            .unwrap()
    }

    /// Connects a client with a short timeout.
    pub(crate) fn short_timeout_client(&self) -> Client {
        let soon = std::time::Duration::from_millis(400);
        Client::connect_with(ConnectOptions::new().directory(&self.folder).timeout(soon).local_reads(false)).unwrap()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        drop(self.service.take());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Polls a future once, with a waker that does nothing.
pub(crate) fn poll_once<F: Future + ?Sized>(future: &mut Pin<impl std::ops::DerefMut<Target = F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs all futures at the same time.
pub(crate) async fn join_all<F: Future>(futures: Vec<F>) {
    let mut futures: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    std::future::poll_fn(move |context| {
        for slot in &mut futures {
            if let Some(future) = slot
                && future.as_mut().poll(context).is_ready()
            {
                *slot = None;
            }
        }
        if futures.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
