//! A client whose lanes are never empty, and one that calls now and then; the same of two users.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use ddss_core::{ClientId, Entry, LaneId, NodeId};
use ddss_ipc::{Arrival, AttachOptions, Attachment, Followed, Lane, Reception, ReceptionConfig, Station};

const LANES: usize = 64;
const BUDGET: usize = 256;
/// Rounds within which whoever calls has to be found, whether the service has seen him before or not.
const ROUNDS_MAX: usize = 64;

fn attach(path: &std::path::Path, lanes: usize) -> Attachment {
    let mut options = AttachOptions::default();
    (options.lanes, options.arena_bytes, options.timeout) = (lanes, 4096, Duration::from_secs(20));
    Attachment::connect(path, &options).unwrap()
}

/// Attaches as another user.
fn attach_as(uid: u32, path: &std::path::Path, lanes: usize) -> Attachment {
    std::thread::scope(|scope| {
        let attached = scope.spawn(|| {
            // Of this thread only, and it ends with this.
            let uid = rustix::process::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            attach(path, lanes)
        });
        attached.join().unwrap()
    })
}

fn fill(lanes: &mut [Lane]) {
    for lane in lanes {
        while lane.reap().is_some() {}
        while lane.submit([0; 8]).is_ok() {}
    }
}

/// Takes in whoever comes next.
fn adopt(station: &mut Station) {
    let begin = std::time::Instant::now();
    let arrival = loop {
        match station.arrival() {
            Some(Arrival::Attached(session)) => break session,
            Some(Arrival::Left(client)) => panic!("{client} left"),
            None => assert!(begin.elapsed() < Duration::from_secs(20), "nobody arrives"),
        }
    };
    station.adopt(arrival).unwrap();
}

/// One round of the service; how many requests of that client it took.
fn serve(station: &mut Station, client: ClientId) -> usize {
    let mut taken = 0;
    station.serve(BUDGET, &mut |lane: LaneId, entry: &Entry, _: Option<Followed>| {
        taken += usize::from(lane.client == client);
        Some(*entry)
    });
    station.flush();
    taken
}

// If this failed, one client that never stops would keep others from being served at all, and one with many lanes would
// keep the others waiting for as many times as long.
#[test]
fn whoever_calls_now_and_then_is_found_while_somebody_never_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut station = Station::open(NodeId(7)).unwrap();
    let reception = Reception::start(&path, ReceptionConfig::new(&station), station.inbox().sink()).unwrap();
    let (greedy, modest) = (attach(&path, LANES), attach(&path, 1));
    for _ in 0..2 {
        adopt(&mut station);
    }
    let mut many: Vec<Lane> = (0..LANES).map(|_| greedy.take_lane().unwrap()).collect();
    let mut one = modest.take_lane().unwrap();
    // All of the greedy one's lanes become hot.
    for _ in 0..1000 {
        fill(&mut many);
        serve(&mut station, greedy.client());
    }
    for call in 0..5 {
        one.submit([0, call, 0, 0, 0, 0, 0, 0]).unwrap();
        let found = (0..ROUNDS_MAX).position(|_| {
            fill(&mut many);
            serve(&mut station, modest.client()) > 0
        });
        let rounds = found.unwrap_or_else(|| panic!("call {call} is not found"));
        assert!(call == 0 || rounds <= 4, "call {call} waited for {rounds} rounds of {BUDGET} requests");
        assert!(one.reap().is_some());
    }
    // And after a silence in which its lane has gone cold.
    for _ in 0..10_000 {
        fill(&mut many);
        serve(&mut station, greedy.client());
    }
    one.submit([0; 8]).unwrap();
    let found = (0..ROUNDS_MAX).any(|_| {
        fill(&mut many);
        serve(&mut station, modest.client()) > 0
    });
    assert!(found, "a lane that was silent is not found");
    reception.stop();
}

// If this failed, a user who fills all the rings that he may have would make each call of another user wait for all of them.
#[test]
fn a_user_who_never_stops_takes_no_more_than_his_share() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: a_user_who_never_stops_takes_no_more_than_his_share: not root, nobody else to be");
    }
    /// What is taken of one user before another one's call: his share of a go around the lanes.
    const SHARE: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = folder.path().join("socket");
    let mut station = Station::open(NodeId(7)).unwrap();
    let mut config = ReceptionConfig::new(&station);
    config.socket_mode = 0o666;
    let reception = Reception::start(&path, config, station.inbox().sink()).unwrap();
    let (greedy, modest) = (attach_as(65534, &path, LANES), attach(&path, 1));
    for _ in 0..2 {
        adopt(&mut station);
    }
    let mut many: Vec<Lane> = (0..LANES).map(|_| greedy.take_lane().unwrap()).collect();
    let mut one = modest.take_lane().unwrap();
    for _ in 0..1000 {
        fill(&mut many);
        serve(&mut station, greedy.client());
    }
    one.submit([0; 8]).unwrap();
    assert!((0..ROUNDS_MAX).any(|_| serve(&mut station, modest.client()) > 0), "the first call is not found");
    let mut served = [0; LANES];
    for call in 0..1000 {
        fill(&mut many);
        one.submit([0; 8]).unwrap();
        let (mut before, mut is_found) = (0, false);
        station.serve(BUDGET, &mut |lane: LaneId, entry: &Entry, _: Option<Followed>| {
            is_found |= lane.client == modest.client();
            before += usize::from(!is_found);
            if lane.client == greedy.client() {
                served[usize::from(lane.index)] += 1;
            }
            Some(*entry)
        });
        station.flush();
        assert!(is_found && before <= SHARE, "call {call}: {before} before it");
        while one.reap().is_some() {}
    }
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    assert!(*least > 0 && most / least < 10, "his own lanes have their turns: {least} to {most}");
    reception.stop();
}
