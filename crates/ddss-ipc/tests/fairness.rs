//! A client whose lanes are never empty, and one that calls now and then; the same of two users.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use ddss_core::{ChannelId, ClientId, Entry, NodeId};
use ddss_ipc::{
    Acceptor, AcceptorConfig, Arrival, AttachOptions, Attachment, Channel, IpcServer, RequestHandler, TracedRequest,
};

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

fn fill(lanes: &mut [Channel]) {
    for lane in lanes {
        while lane.reap().is_some() {}
        while lane.submit([0; 8]).is_ok() {}
    }
}

/// Takes in whoever comes next.
fn adopt(station: &mut IpcServer) {
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
fn serve(station: &mut IpcServer, client: ClientId) -> usize {
    let mut taken = 0;
    station.serve(BUDGET, &mut |lane: ChannelId, entry: &Entry, _: Option<TracedRequest>| {
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
    let mut station = IpcServer::open(NodeId(7)).unwrap();
    let reception = Acceptor::start(&path, AcceptorConfig::new(&station), station.inbox().sink()).unwrap();
    let (greedy, modest) = (attach(&path, LANES), attach(&path, 1));
    for _ in 0..2 {
        adopt(&mut station);
    }
    let mut many: Vec<Channel> = (0..LANES).map(|_| greedy.take_lane().unwrap()).collect();
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

/// A station and two users' clients, the first one with so many lanes.
struct Two {
    station: IpcServer,
    reception: Acceptor,
    greedy: Attachment,
    modest: Attachment,
    _folder: tempfile::TempDir,
}

impl Two {
    fn start(lanes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = folder.path().join("socket");
        let mut station = IpcServer::open(NodeId(7)).unwrap();
        let mut config = AcceptorConfig::new(&station);
        config.socket_mode = 0o666;
        let reception = Acceptor::start(&path, config, station.inbox().sink()).unwrap();
        let (greedy, modest) = (attach_as(65534, &path, lanes), attach(&path, 1));
        for _ in 0..2 {
            adopt(&mut station);
        }
        Self { station, reception, greedy, modest, _folder: folder }
    }
}

// If this failed, a user who fills all the rings that he may have would make each call of another user wait for all of them.
#[test]
fn a_user_who_never_stops_takes_no_more_than_his_share() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: a_user_who_never_stops_takes_no_more_than_his_share: not root, nobody else to be");
    }
    /// What is taken of one user before another one's call: his share of a go around the lanes.
    const SHARE: usize = 4;
    let Two { mut station, reception, greedy, modest, .. } = Two::start(LANES);
    let mut many: Vec<Channel> = (0..LANES).map(|_| greedy.take_lane().unwrap()).collect();
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
        station.serve(BUDGET, &mut |lane: ChannelId, entry: &Entry, _: Option<TracedRequest>| {
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

/// Answers at once, takes requests of one client for what the daemon works at for long, and notes whose they were.
struct Weigher {
    weighty: ClientId,
    served: Vec<ClientId>,
}

const WEIGHT: usize = 128;

impl RequestHandler for Weigher {
    fn weight(&self, request: &Entry) -> usize {
        if request[2] == 1 { WEIGHT } else { 1 }
    }

    fn answer(&mut self, lane: ChannelId, request: &Entry, _: Option<TracedRequest>) -> Option<Entry> {
        assert_eq!(request[2] == 1, lane.client == self.weighty);
        self.served.push(lane.client);
        Some(*request)
    }
}

// If this failed, a user who makes and releases segments all the time would stand before each call of another user; or would
// wait for ever.
#[test]
fn who_asks_for_much_meets_one_call_of_a_hundred_and_waits_for_nobody_who_is_silent() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: who_asks_for_much_meets_one_call_of_a_hundred: not root, nobody else to be");
    }
    let Two { mut station, reception, greedy, modest, .. } = Two::start(LANES);
    let mut weighty: Vec<Channel> = (0..LANES).map(|_| greedy.take_lane().unwrap()).collect();
    let mut one = modest.take_lane().unwrap();
    let mut weigher = Weigher { weighty: greedy.client(), served: Vec::new() };
    // Asks for much by these lanes, and once for little if somebody is to; how many of both were served.
    let mut round = |many: &mut [Channel], one: Option<&mut Channel>| {
        for lane in many {
            while lane.reap().is_some() {}
            let _ = lane.submit([0, 0, 1, 0, 0, 0, 0, 0]);
        }
        if let Some(one) = one {
            while one.reap().is_some() {}
            one.submit([0; 8]).unwrap();
        }
        weigher.served.clear();
        station.serve(BUDGET, &mut weigher);
        station.flush();
        [greedy.client(), modest.client()]
            .map(|client| weigher.served.iter().filter(|served| **served == client).count())
    };
    // Until all are hot.
    for _ in 0..100 * LANES {
        round(&mut weighty, Some(&mut one));
    }
    let (mut calls, mut met) = (0, 0);
    for _ in 0..100 * WEIGHT {
        let [worked, called] = round(&mut weighty, Some(&mut one));
        (calls, met) = (calls + called, met + worked);
    }
    assert_eq!(calls, 100 * WEIGHT, "each call is answered in its round");
    assert!((90..=110).contains(&met), "{met} requests for much in {calls} calls");
    let alone: usize = (0..1000).map(|_| round(&mut weighty, None)[0]).sum();
    assert!(alone >= 10, "{alone} in 1000 rounds in which nobody else called");
    // By lanes that have been silent for long.
    while round(&mut [], None)[0] > 0 {}
    for _ in 0..20_000 {
        round(&mut [], Some(&mut one));
    }
    let met: usize = (0..LANES).map(|lane| round(&mut weighty[lane..=lane], Some(&mut one))[0]).sum();
    assert!(met <= 2, "{met} requests for much in {LANES} calls");
    reception.stop();
}
