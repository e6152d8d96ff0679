//! A station with clients in the same process.

use std::time::{Duration, Instant};

use super::*;
use crate::{Acceptor, AcceptorConfig, AttachOptions, Attachment, Channel, WaitClass, WaitOutcome};

/// A station and a client of it on one core, and what the client does there.
fn beside(
    unwanted: bool,
    client: impl FnOnce(Channel) + Send + 'static,
) -> (IpcServer, Acceptor, std::thread::JoinHandle<()>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut station = IpcServer::open(NodeId(7)).unwrap();
    let reception = Acceptor::start(&path, AcceptorConfig::new(&station), station.inbox().sink()).unwrap();
    let here = rustix::thread::sched_getaffinity(None).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set((0..rustix::thread::CpuSet::MAX_CPU).find(|&core| here.is_set(core)).unwrap());
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    station.tell_core();
    station.tell_core_unwanted(unwanted);
    let options = AttachOptions { strategy: Strategy::Rcq, lanes: 1, arena_bytes: 4096, ..AttachOptions::default() };
    let attachment = Attachment::connect(&path, &options).unwrap();
    let Some(Arrival::Attached(session)) = (0..).find_map(|_| station.arrival()) else { panic!("somebody left") };
    station.adopt(session).unwrap();
    // It inherits the one core.
    let client = std::thread::spawn(move || client(attachment.take_lane().unwrap()));
    (station, reception, client)
}

fn call(lane: &mut Channel) {
    lane.submit([0; 8]).unwrap();
    while lane.reap().is_none() {
        lane.wait(WaitClass::Polling, Instant::now() + Duration::from_secs(20));
    }
}

/// Takes a request, lets the client wait for a moment, and answers it; whether it waited beside the service.
fn answer_one(station: &mut IpcServer) -> bool {
    let mut requests = Vec::with_capacity(1);
    while station.poll(1, &mut requests) == 0 {
        std::thread::yield_now();
    }
    std::thread::yield_now();
    let waited = station.has_one_beside();
    let (lane, request) = requests[0];
    assert!(station.reply(lane, &request));
    while station.sweep.has_unflushed() {
        station.serve(1, &mut |_: ChannelId, _: &Entry, _: Option<TracedRequest>| None);
        station.flush();
    }
    assert!(!station.has_one_beside(), "what it waited for is out");
    waited
}

#[test]
fn a_client_on_the_services_core_yields_and_is_owed_it() {
    // If this broke, such a client would be woken out of a sleep in each call, or wait until its service has nothing to do.
    std::thread::spawn(|| {
        let (mut station, reception, client) = beside(true, |mut lane| (0..500).for_each(|_| call(&mut lane)));
        let mut owed = 0;
        for _ in 0..500 {
            let waited = answer_one(&mut station);
            let owes = station.take_owed_core();
            // A machine that is busy may let it sleep at times, or take the core away in between.
            owed += usize::from(waited && owes);
            assert!(!station.take_owed_core(), "once for each");
        }
        client.join().unwrap();
        assert!(owed > 0, "it slept in each of 500 calls");
        reception.stop();
    })
    .join()
    .unwrap();
}

#[test]
fn a_client_on_a_core_that_somebody_else_wants_sleeps() {
    // If this broke, two daemons on one core would be kept from each other by a client that always runs.
    std::thread::spawn(|| {
        let (mut station, reception, client) = beside(false, |mut lane| (0..100).for_each(|_| call(&mut lane)));
        for _ in 0..100 {
            assert!(!answer_one(&mut station) && !station.take_owed_core());
        }
        client.join().unwrap();
        reception.stop();
    })
    .join()
    .unwrap();
}

#[test]
fn a_client_whose_service_ends_while_it_yields_hears_of_it() {
    // If this broke, a client on its daemon's core would yield until its deadline when the daemon is killed.
    std::thread::spawn(|| {
        let (station, reception, client) = beside(true, |mut lane| {
            lane.submit([0; 8]).unwrap();
            let ended = (0..).map(|_| lane.wait(WaitClass::Polling, Instant::now() + Duration::from_secs(20)));
            assert_eq!(ended.into_iter().next(), Some(WaitOutcome::Gone));
        });
        while !station.sweep.has_requests() {
            std::thread::yield_now();
        }
        reception.stop();
        drop(station);
        client.join().unwrap();
    })
    .join()
    .unwrap();
}

#[test]
fn of_a_crowd_that_takes_turns_one_is_looked_at_in_each_sweep() {
    // If this broke, each call of the one whose turn it is would wait for a sweep over the lanes of the turns before.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut station = IpcServer::open(NodeId(7)).unwrap();
    let reception = Acceptor::start(&path, AcceptorConfig::new(&station), station.inbox().sink()).unwrap();
    let options = AttachOptions { lanes: 8, arena_bytes: 4096, ..AttachOptions::default() };
    let attachment = Attachment::connect(&path, &options).unwrap();
    let Some(Arrival::Attached(session)) = (0..).find_map(|_| station.arrival()) else { panic!("somebody left") };
    station.adopt(session).unwrap();
    let mut lanes: Vec<_> = (0..8).map(|_| attachment.take_lane().unwrap()).collect();
    let mut call = |lane: usize| {
        lanes[lane].submit([0; 8]).unwrap();
        // A fresh lane is found after some sweeps.
        while lanes[lane].reap().is_none() {
            station.serve(64, &mut |_: ChannelId, request: &Entry, _: Option<TracedRequest>| Some(*request));
        }
        station.sweep.hot()
    };
    let all = (0..8).map(&mut call).last().unwrap();
    assert!(all > 4, "they called just now, and {all} of them are hot");
    let calls = (1..=10_000).find(|_| call(0) == 1).expect("the others go cold");
    assert!(calls <= 256, "a turn is some 500 calls long, and one more lane was hot for {calls} of them");
    reception.stop();
}
