//! Blocking calls of a client, against a service thread that answers each request immediately.
//!
//! Only the client's own instructions are counted: the counter is off while the channel waits, since the length of a
//! wait depends on the scheduler.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ddss::{Client, ConnectOptions, Model, NodeId, Segment, SegmentId, Spec, Strategy};
use ddss_core::{ChannelId, Completion, Entry, OpenedSegment, Operation, Outcome, Request};
use ddss_ipc::{Acceptor, AcceptorConfig, ClientEvent, IpcServer, TracedRequest, socket_name};

/// Functions at whose entry and exit callgrind switches its counter: the rounds, and the waits inside.
pub(super) const COUNTED: [&str; 2] =
    ["--toggle-collect=*client_calls::Caller::repeat*", "--toggle-collect=*RingTransport as *::wait"];

/// Size of the segment and of the larger get and put.
const BYTES: usize = 4096;

/// A call that is repeated.
#[derive(Clone, Copy)]
pub(super) enum ClientCall {
    Null,
    Get(usize),
    Put(usize),
}

/// A service thread, its client, and a segment.
pub(super) struct Caller {
    client: Client,
    segment: Segment,
    bytes: Vec<u8>,
    service: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    _folder: tempfile::TempDir,
    _acceptor: Acceptor,
}

impl Caller {
    pub(super) fn connect() -> Caller {
        let folder = tempfile::tempdir().expect("a folder for a socket is to be had");
        let server = IpcServer::open(NodeId(1)).expect("a server needs nothing");
        let (config, sink) = (AcceptorConfig::new(&server), server.inbox().sink());
        let acceptor = Acceptor::start(&folder.path().join(socket_name(0)), config, sink);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let service = std::thread::spawn(move || serve(server, &stopped));
        let options = ConnectOptions::new().directory(folder.path()).strategy(Strategy::Rcq);
        let client = Client::connect_with(options.timeout(Duration::from_secs(60)).local_reads(false));
        let client = client.expect("the acceptor takes it");
        let segment = client.segment("guard").allocate(Spec::new(BYTES as u64)).expect("the service answers");
        let _acceptor = acceptor.expect("a fresh folder takes it");
        Caller { client, segment, bytes: vec![0; BYTES], service: Some(service), stop, _folder: folder, _acceptor }
    }

    /// Makes that many calls. Never inlined: callgrind switches its counter here.
    #[inline(never)]
    pub(super) fn repeat(&mut self, call: ClientCall, rounds: u64) {
        for _ in 0..rounds {
            match black_box(call) {
                ClientCall::Null => self.client.ping().expect("the service answers"),
                ClientCall::Get(bytes) => {
                    self.segment.get_into(0, &mut self.bytes[..bytes]).expect("the service answers");
                }
                ClientCall::Put(bytes) => {
                    self.segment.put(0, &self.bytes[..bytes]).expect("the service answers");
                }
            }
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.service.take().into_iter().for_each(|service| service.join().expect("the service does not panic"));
    }
}

fn serve(mut server: IpcServer, stopped: &AtomicBool) {
    while !stopped.load(Ordering::Relaxed) {
        if let Some(ClientEvent::Attached(session)) = server.next_event() {
            server.add_client(session).expect("its memory is fine");
        }
        let served = server.serve(16, &mut |_: ChannelId, entry: &Entry, _: Option<TracedRequest>| answer(entry));
        server.flush();
        if served == 0 {
            std::thread::yield_now();
        }
    }
}

/// Answers as if the call had succeeded; no bytes move.
fn answer(entry: &Entry) -> Option<Entry> {
    let request = Request::decode(entry).expect("a client encodes its requests");
    let mut completion = Completion::bare(request.id, Outcome::Done);
    match request.operation {
        Operation::Allocate { .. } => {
            let segment = SegmentId::from_bits(1 << 48);
            let opened = OpenedSegment { segment, bytes: BYTES as u64, at: None, model: Model::Write, row_bytes: 0 };
            completion.data = opened.encode();
        }
        Operation::Get { inline, .. } => completion.inline = inline,
        _ => {}
    }
    Some(completion.encode())
}
