//! Tests of a server with clients in the same process.

use std::time::{Duration, Instant};

use super::*;
use crate::trace_sampling::TracedRequest;
use crate::{Acceptor, AcceptorConfig, AttachOptions, Attachment, Channel, WaitClass, WaitOutcome};

/// Starts a server and a client on one core; `client` runs in the client's thread.
fn start_on_one_core(
    client: impl FnOnce(Channel) + Send + 'static,
) -> (IpcServer, Acceptor, std::thread::JoinHandle<()>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut server = IpcServer::open(NodeId(7)).unwrap();
    let acceptor = Acceptor::start(&path, AcceptorConfig::new(&server), server.inbox().sink()).unwrap();
    let here = rustix::thread::sched_getaffinity(None).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set((0..rustix::thread::CpuSet::MAX_CPU).find(|&core| here.is_set(core)).unwrap());
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    server.publish_load(Instant::now());
    let options = AttachOptions { strategy: Strategy::Rcq, channels: 1, arena_bytes: 4096, ..AttachOptions::default() };
    let attachment = Attachment::connect(&path, &options).unwrap();
    let Some(ClientEvent::Attached(session)) = (0..).find_map(|_| server.next_event()) else {
        panic!("unexpected end of a client")
    };
    server.add_client(session).unwrap();
    // The thread inherits the one core.
    let client = std::thread::spawn(move || client(attachment.take_channel().unwrap()));
    (server, acceptor, client)
}

#[test]
fn client_on_service_core_detects_end_of_service() {
    // If this failed, a client on its daemon's core would wait until its deadline when the daemon is killed.
    std::thread::spawn(|| {
        let (server, acceptor, client) = start_on_one_core(|mut channel| {
            channel.submit([0; 8]).unwrap();
            let ended = (0..).map(|_| channel.wait(WaitClass::Polling, Instant::now() + Duration::from_secs(20)));
            assert_eq!(ended.into_iter().next(), Some(WaitOutcome::Gone));
        });
        while !server.scheduler.has_requests() {
            std::thread::yield_now();
        }
        acceptor.stop();
        drop(server);
        client.join().unwrap();
    })
    .join()
    .unwrap();
}

/// A server whose client has 8 channels, all in one thread.
struct ServedChannels {
    server: IpcServer,
    acceptor: Acceptor,
    channels: Vec<Channel>,
    _attachment: Attachment,
    _folder: tempfile::TempDir,
}

impl ServedChannels {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut server = IpcServer::open(NodeId(7)).unwrap();
        let acceptor = Acceptor::start(&path, AcceptorConfig::new(&server), server.inbox().sink()).unwrap();
        let options = AttachOptions { channels: 8, arena_bytes: 4096, ..AttachOptions::default() };
        let attachment = Attachment::connect(&path, &options).unwrap();
        let Some(ClientEvent::Attached(session)) = (0..).find_map(|_| server.next_event()) else {
            panic!("unexpected end of a client")
        };
        server.add_client(session).unwrap();
        let channels = (0..8).map(|_| attachment.take_channel().unwrap()).collect();
        Self { server, acceptor, channels, _attachment: attachment, _folder: folder }
    }

    fn call(&mut self, channel: usize) {
        self.channels[channel].submit([0; 8]).unwrap();
        // A fresh channel is found after some sweeps.
        while self.channels[channel].reap().is_none() {
            self.server.serve(64, &mut |_: ChannelId, request: &Entry, _: Option<TracedRequest>| Some(*request));
        }
    }
}

#[test]
fn only_the_active_channel_stays_hot() {
    // If this failed, each call of the running client would wait for polls of the clients that ran before.
    let mut served = ServedChannels::start();
    (0..8).for_each(|channel| served.call(channel));
    let all = served.server.scheduler.hot_count();
    assert!(all > 4, "{all} channels are hot right after their calls");
    let calls = (1..=10_000).find(|_| {
        served.call(0);
        served.server.scheduler.hot_count() == 1
    });
    let calls = calls.expect("the other channels become cold");
    assert!(calls <= 256, "a turn is some 500 calls long, and one more channel was hot for {calls} of them");
    served.acceptor.stop();
}

#[test]
fn page_tells_clients_whether_callers_outnumber_cores() {
    // If this failed, one of many callers would wait for the slices of all others, or a single one would give up its core.
    let mut served = ServedChannels::start();
    served.server.cores = 4;
    let mut now = Instant::now();
    served.server.publish_load(now);
    for (callers, is_crowded) in [(3, false), (4, true), (8, true), (1, false)] {
        (0..callers).for_each(|channel| (0..100).for_each(|_| served.call(channel)));
        now += Duration::from_secs(1);
        served.server.publish_load(now);
        assert_eq!(served.server.service_page.is_crowded(), is_crowded, "{callers} callers on 4 cores");
    }
    served.acceptor.stop();
}
