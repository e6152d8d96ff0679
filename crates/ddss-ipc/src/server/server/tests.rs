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
    server.publish_core();
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

#[test]
fn only_the_active_channel_stays_hot() {
    // If this failed, each call of the running client would wait for polls of the clients that ran before.
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
    let mut channels: Vec<_> = (0..8).map(|_| attachment.take_channel().unwrap()).collect();
    let mut call = |channel: usize| {
        channels[channel].submit([0; 8]).unwrap();
        // A fresh channel is found after some sweeps.
        while channels[channel].reap().is_none() {
            server.serve(64, &mut |_: ChannelId, request: &Entry, _: Option<TracedRequest>| Some(*request));
        }
        server.scheduler.hot_count()
    };
    let all = (0..8).map(&mut call).last().unwrap();
    assert!(all > 4, "{all} channels are hot right after their calls");
    let calls = (1..=10_000).find(|_| call(0) == 1).expect("the other channels become cold");
    assert!(calls <= 256, "a turn is some 500 calls long, and one more channel was hot for {calls} of them");
    acceptor.stop();
}
