//! Fairness between a client whose channels are never empty and an occasional caller, of one user and of two.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use ddss_core::{ChannelId, ClientId, Entry, NodeId};
use ddss_ipc::{
    Acceptor, AcceptorConfig, AttachOptions, Attachment, Channel, ClientEvent, IpcServer, RequestHandler, TracedRequest,
};

const CHANNELS: usize = 64;
const BUDGET: usize = 256;
/// Rounds within which a caller has to be served, known to the service or not.
const ROUNDS_MAX: usize = 64;

fn attach(path: &std::path::Path, channels: usize) -> Attachment {
    let mut options = AttachOptions::default();
    (options.channels, options.arena_bytes, options.timeout) = (channels, 4096, Duration::from_secs(20));
    Attachment::connect(path, &options).unwrap()
}

/// Attaches as another user.
fn attach_as(uid: u32, path: &std::path::Path, channels: usize) -> Attachment {
    std::thread::scope(|scope| {
        let attached = scope.spawn(|| {
            // Sets the user of this thread only; it ends with the thread.
            let uid = rustix::process::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            attach(path, channels)
        });
        attached.join().unwrap()
    })
}

fn fill(channels: &mut [Channel]) {
    for channel in channels {
        while channel.reap().is_some() {}
        while channel.submit([0; 8]).is_ok() {}
    }
}

/// Adds the next client that attaches.
fn adopt(server: &mut IpcServer) {
    let begin = std::time::Instant::now();
    let next_event = loop {
        match server.next_event() {
            Some(ClientEvent::Attached(session)) => break session,
            Some(ClientEvent::Detached(client)) => panic!("{client} detached"),
            None => assert!(begin.elapsed() < Duration::from_secs(20), "no client attaches"),
        }
    };
    server.add_client(next_event).unwrap();
}

/// Runs one round of the service. Returns the number of requests taken from that client.
fn serve(server: &mut IpcServer, client: ClientId) -> usize {
    let mut taken = 0;
    server.serve(BUDGET, &mut |channel: ChannelId, entry: &Entry, _: Option<TracedRequest>| {
        taken += usize::from(channel.client == client);
        Some(*entry)
    });
    server.flush();
    taken
}

// If this failed, one client that never stops would keep others from being served, and one with many channels would
// delay the others by as much.
#[test]
fn occasional_caller_is_served_beside_busy_client() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut server = IpcServer::open(NodeId(7)).unwrap();
    let acceptor = Acceptor::start(&path, AcceptorConfig::new(&server), server.inbox().sink()).unwrap();
    let (greedy, modest) = (attach(&path, CHANNELS), attach(&path, 1));
    for _ in 0..2 {
        adopt(&mut server);
    }
    let mut many: Vec<Channel> = (0..CHANNELS).map(|_| greedy.take_channel().unwrap()).collect();
    let mut one = modest.take_channel().unwrap();
    // All channels of the greedy client become hot.
    for _ in 0..1000 {
        fill(&mut many);
        serve(&mut server, greedy.client());
    }
    for call in 0..5 {
        one.submit([0, call, 0, 0, 0, 0, 0, 0]).unwrap();
        let found = (0..ROUNDS_MAX).position(|_| {
            fill(&mut many);
            serve(&mut server, modest.client()) > 0
        });
        let rounds = found.unwrap_or_else(|| panic!("call {call} is not found"));
        assert!(call == 0 || rounds <= 4, "call {call} waited for {rounds} rounds of {BUDGET} requests");
        assert!(one.reap().is_some());
    }
    // Another call after an idle time in which its channel has become cold.
    for _ in 0..10_000 {
        fill(&mut many);
        serve(&mut server, greedy.client());
    }
    one.submit([0; 8]).unwrap();
    let found = (0..ROUNDS_MAX).any(|_| {
        fill(&mut many);
        serve(&mut server, modest.client()) > 0
    });
    assert!(found, "a channel that was silent is not found");
    acceptor.stop();
}

/// A server and two users' clients, the first one with many channels.
struct TwoUsers {
    server: IpcServer,
    acceptor: Acceptor,
    greedy: Attachment,
    modest: Attachment,
    _folder: tempfile::TempDir,
}

impl TwoUsers {
    fn start(channels: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = folder.path().join("socket");
        let mut server = IpcServer::open(NodeId(7)).unwrap();
        let mut config = AcceptorConfig::new(&server);
        config.socket_mode = 0o666;
        let acceptor = Acceptor::start(&path, config, server.inbox().sink()).unwrap();
        let (greedy, modest) = (attach_as(65534, &path, channels), attach(&path, 1));
        for _ in 0..2 {
            adopt(&mut server);
        }
        Self { server, acceptor, greedy, modest, _folder: folder }
    }
}

// If this failed, a user who fills all its rings would make each call of another user wait for all of them.
#[test]
fn busy_user_gets_no_more_than_its_share() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: busy_user_gets_no_more_than_its_share: not root, so no other user is available");
    }
    /// Requests taken of one user before another one's call: its share of a round over the channels.
    const SHARE: usize = 4;
    let TwoUsers { mut server, acceptor, greedy, modest, .. } = TwoUsers::start(CHANNELS);
    let mut many: Vec<Channel> = (0..CHANNELS).map(|_| greedy.take_channel().unwrap()).collect();
    let mut one = modest.take_channel().unwrap();
    for _ in 0..1000 {
        fill(&mut many);
        serve(&mut server, greedy.client());
    }
    one.submit([0; 8]).unwrap();
    assert!((0..ROUNDS_MAX).any(|_| serve(&mut server, modest.client()) > 0), "the first call is not found");
    let mut served = [0; CHANNELS];
    for call in 0..1000 {
        fill(&mut many);
        one.submit([0; 8]).unwrap();
        let (mut before, mut is_found) = (0, false);
        server.serve(BUDGET, &mut |channel: ChannelId, entry: &Entry, _: Option<TracedRequest>| {
            is_found |= channel.client == modest.client();
            before += usize::from(!is_found);
            if channel.client == greedy.client() {
                served[usize::from(channel.index)] += 1;
            }
            Some(*entry)
        });
        server.flush();
        assert!(is_found && before <= SHARE, "call {call}: {before} before it");
        while one.reap().is_some() {}
    }
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    assert!(*least > 0 && most / least < 10, "the user's own channels take turns: {least} to {most}");
    acceptor.stop();
}

/// Answers immediately, weighs the requests of one client as heavy, and records the clients.
struct WeighingHandler {
    heavy: ClientId,
    served: Vec<ClientId>,
}

const WEIGHT: usize = 128;

impl RequestHandler for WeighingHandler {
    fn weight(&self, request: &Entry) -> usize {
        if request[2] == 1 { WEIGHT } else { 1 }
    }

    fn handle(&mut self, channel: ChannelId, request: &Entry, _: Option<TracedRequest>) -> Option<Entry> {
        assert_eq!(request[2] == 1, channel.client == self.heavy);
        self.served.push(channel.client);
        Some(*request)
    }
}

// If this failed, a user who allocates and releases segments all the time would delay each call of another user, or
// would starve.
#[test]
fn heavy_requests_are_weighed_against_active_users_only() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!(
            "skipped: heavy_requests_are_weighed_against_active_users_only: not root, so no other user is available"
        );
    }
    let TwoUsers { mut server, acceptor, greedy, modest, .. } = TwoUsers::start(CHANNELS);
    let mut heavy: Vec<Channel> = (0..CHANNELS).map(|_| greedy.take_channel().unwrap()).collect();
    let mut one = modest.take_channel().unwrap();
    let mut handler = WeighingHandler { heavy: greedy.client(), served: Vec::new() };
    // Submits heavy requests on these channels, and one light request if given. Returns the counts served of both.
    let mut round = |many: &mut [Channel], one: Option<&mut Channel>| {
        for channel in many {
            while channel.reap().is_some() {}
            let _ = channel.submit([0, 0, 1, 0, 0, 0, 0, 0]);
        }
        if let Some(one) = one {
            while one.reap().is_some() {}
            one.submit([0; 8]).unwrap();
        }
        handler.served.clear();
        server.serve(BUDGET, &mut handler);
        server.flush();
        [greedy.client(), modest.client()]
            .map(|client| handler.served.iter().filter(|served| **served == client).count())
    };
    // Until all are hot.
    for _ in 0..100 * CHANNELS {
        round(&mut heavy, Some(&mut one));
    }
    let (mut calls, mut met) = (0, 0);
    for _ in 0..100 * WEIGHT {
        let [worked, called] = round(&mut heavy, Some(&mut one));
        (calls, met) = (calls + called, met + worked);
    }
    assert_eq!(calls, 100 * WEIGHT, "each call is answered in its round");
    assert!((90..=110).contains(&met), "{met} heavy requests in {calls} calls");
    let alone: usize = (0..1000).map(|_| round(&mut heavy, None)[0]).sum();
    assert!(alone >= 10, "{alone} in 1000 rounds without calls of another user");
    // On channels that have been idle for long.
    while round(&mut [], None)[0] > 0 {}
    for _ in 0..20_000 {
        round(&mut [], Some(&mut one));
    }
    let met: usize = (0..CHANNELS).map(|channel| round(&mut heavy[channel..=channel], Some(&mut one))[0]).sum();
    assert!(met <= 2, "{met} heavy requests in {CHANNELS} calls");
    acceptor.stop();
}
