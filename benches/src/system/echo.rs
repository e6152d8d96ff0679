//! An echo server: the cost of the transport inside a node without an engine.
//!
//! Server and client are two threads here and not two processes, like the raw limit. Each has its own mapping of the
//! same memory, from the same handshake.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ddss::{NodeId, Strategy};
use ddss_core::{ChannelId, Entry};
use ddss_ipc::{
    Acceptor, AcceptorConfig, AttachOptions, Attachment, Channel, ClientEvent, IpcServer, TracedRequest, WaitClass,
    WaitOutcome,
};

use crate::harness::{Cores, Figure, RoundTrip, Service, Turn};

/// Polls of the server in one turn.
const LOOKS_PER_TURN: u32 = 256;
/// Maximum number of requests taken together.
const BATCH: usize = 256;
/// Time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A server that runs on the service's core.
pub struct Echo {
    service: Service,
    _reception: Acceptor,
    _folder: tempfile::TempDir,
    socket: PathBuf,
}

impl Echo {
    /// Starts the server, asleep.
    pub fn start(cores: Cores) -> Rc<Echo> {
        let folder = tempfile::tempdir().expect("a folder for a socket is to be had");
        let socket = folder.path().join("socket");
        let mut server = IpcServer::open(NodeId(1)).expect("a server needs nothing");
        let config = AcceptorConfig::new(&server);
        let reception = Acceptor::start(&socket, config, server.inbox().sink()).expect("a fresh folder takes it");
        let mut batch = Vec::with_capacity(BATCH);
        let yields = cores.is_shared();
        let service = Service::start(cores, move || {
            server.publish_load(Instant::now());
            for _ in 0..LOOKS_PER_TURN {
                poll_server(&mut server, &mut batch);
            }
            if yields {
                std::thread::yield_now();
            }
            Turn::Again
        });
        Rc::new(Echo { service, _reception: reception, _folder: folder, socket })
    }
}

fn poll_server(server: &mut IpcServer, batch: &mut Vec<(ChannelId, Entry)>) {
    while let Some(arrival) = server.next_event() {
        match arrival {
            ClientEvent::Attached(session) => drop(server.add_client(session).expect("its memory is fine")),
            ClientEvent::Detached(client) => drop(server.remove_client(client)),
        }
    }
    server.serve(BATCH, &mut |channel: ChannelId, entry: &Entry, _: Option<TracedRequest>| {
        batch.push((channel, *entry));
        None
    });
    for (channel, entry) in batch.drain(..) {
        server.reply(channel, &entry);
    }
    server.flush();
}

struct Question {
    echo: Rc<Echo>,
    channel: Channel,
    outstanding: usize,
    _attachment: Attachment,
}

/// Entries there and back, `outstanding` at a time.
pub fn echo(service: &Rc<Echo>, strategy: Strategy, outstanding: usize) -> Figure {
    let mut options = AttachOptions::default();
    options.strategy = strategy;
    options.channels = 1;
    let attachment = Attachment::connect(&service.socket, &options).expect("the reception answers by itself");
    let channel = attachment.take_channel().expect("a fresh attachment has a channel");
    let trip = Question { echo: Rc::clone(service), channel, outstanding, _attachment: attachment };
    Figure::new("ddss", "echo", 8, format!("shm/{strategy}/t1"), trip).outstanding(outstanding)
}

impl RoundTrip for Question {
    fn once(&mut self) {
        for word in 0..self.outstanding as u64 {
            self.channel.submit([word; 8]).expect("as many fit as are under way");
        }
        self.channel.ring_doorbell();
        let mut left = self.outstanding;
        loop {
            while self.channel.reap().is_some() {
                left -= 1;
            }
            if left == 0 {
                return;
            }
            let waited = self.channel.wait(WaitClass::Polling, Instant::now() + ANSWER_MAX);
            assert_eq!(waited, WaitOutcome::Ready, "no answer");
        }
    }

    fn operations(&self) -> u64 {
        self.outstanding as u64
    }

    fn wake(&mut self) {
        self.echo.service.wake();
    }

    fn rest(&mut self) {
        self.echo.service.rest();
    }
}
