//! Blocking calls of a client, against a service thread that answers each request immediately.
//!
//! Only the client's own instructions are counted: the counter is off while the channel waits, since the length of a
//! wait depends on the scheduler.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ddss::{Cell, Client, ConnectOptions, Model, NodeId, Segment, SegmentId, Spec, Strategy, Table};
use ddss_core::{
    ChannelId, Completion, Entry, Header, OpenedSegment, Operation, Outcome, Request, TableLayout, start_of,
};
use ddss_ipc::{
    Acceptor, AcceptorConfig, AreaAccess, ClientEvent, IpcServer, SharedMemory, TracedRequest, socket_name,
};

/// Functions at whose entry and exit callgrind switches its counter: the rounds, and the waits inside.
pub(super) const COUNTED: [&str; 2] =
    ["--toggle-collect=*client_calls::Caller::repeat*", "--toggle-collect=*RingTransport as *::wait"];

/// Size of the segment and of the larger get and put.
const BYTES: usize = 4096;
/// The segment, its area, and the length of one row where it is a table.
const SEGMENT: SegmentId = SegmentId::from_bits(1 << 48);
const AREA: usize = 1;
const ROW_WORDS: usize = 8;
const ROW_BYTES: u32 = 8 * ROW_WORDS as u32;

/// A call that is repeated.
#[derive(Clone, Copy)]
pub(super) enum ClientCall {
    Null,
    Get(usize),
    Put(usize),
    /// A get of a word that reads the segment in place, without the service.
    LocalGet,
    /// The same, of a row of a table.
    LocalRowGet,
    /// A get of a typed value, of a segment.
    LocalCellGet,
    /// The same, of a row of a table.
    LocalRowValue,
}

impl ClientCall {
    /// Returns the segment as the service describes it.
    fn segment(self) -> OpenedSegment {
        let (at, row_bytes) = match self {
            ClientCall::LocalGet | ClientCall::LocalCellGet => (Some(start_of(AREA)), 0),
            ClientCall::LocalRowGet | ClientCall::LocalRowValue => (Some(start_of(AREA)), ROW_BYTES),
            ClientCall::Null | ClientCall::Get(_) | ClientCall::Put(_) => (None, 0),
        };
        OpenedSegment { segment: SEGMENT, bytes: BYTES as u64, at, model: Model::Write, row_bytes }
    }
}

/// Makes the area of a segment or table in which nothing was written yet.
fn area(opened: &OpenedSegment) -> SharedMemory {
    let table = TableLayout::new(opened.row_bytes).map_or(0, |layout| layout.pool_bytes(opened.bytes));
    let bytes = table.max(Header::DATA_OFFSET + opened.bytes).next_multiple_of(4096) as usize;
    let area = SharedMemory::create("ddss-guard", bytes).expect("a few pages are to be had");
    let id = opened.segment.to_bits();
    area.store(Header::SEGMENT_OFFSET as usize, id, Ordering::Release).expect("the area holds a header");
    area
}

/// A service thread, its client, and a segment.
pub(super) struct Caller {
    client: Client,
    segment: Segment,
    cell: Cell<u64>,
    table: Option<Table>,
    typed: Option<Table<[u64; ROW_WORDS]>>,
    bytes: Vec<u8>,
    service: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    _folder: tempfile::TempDir,
    _acceptor: Acceptor,
}

impl Caller {
    pub(super) fn connect(call: ClientCall) -> Caller {
        let folder = tempfile::tempdir().expect("a folder for a socket is to be had");
        let server = IpcServer::open(NodeId(1)).expect("a server needs nothing");
        let opened = call.segment();
        let (mut config, sink) = (AcceptorConfig::new(&server), server.inbox().sink());
        if opened.at.is_some() {
            let area = area(&opened);
            config.area_access = AreaAccess::new(move |_, _| area.descriptor().try_clone_to_owned().ok());
        }
        let acceptor = Acceptor::start(&folder.path().join(socket_name(0)), config, sink);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let service = std::thread::spawn(move || serve(server, &opened, &stopped));
        let options = ConnectOptions::new().directory(folder.path()).strategy(Strategy::Rcq);
        let client = Client::connect_with(options.timeout(Duration::from_secs(60)).local_reads(opened.at.is_some()));
        let client = client.expect("the acceptor takes it");
        let segment = client.segment("guard").allocate(Spec::new(BYTES as u64)).expect("the service answers");
        let cell = segment.cell(0).expect("a word fits");
        let table = (opened.row_bytes > 0).then(|| Table::try_from(segment.clone()).expect("it has rows"));
        let typed =
            table.as_ref().map(|table| Table::try_from(table.segment().clone()).expect("a row has eight words"));
        let _acceptor = acceptor.expect("a fresh folder takes it");
        let bytes = vec![0; BYTES];
        Caller { client, segment, cell, table, typed, bytes, service: Some(service), stop, _folder: folder, _acceptor }
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
                ClientCall::LocalGet => {
                    let mut word = [0; 8];
                    self.segment.get_into(0, &mut word).expect("it can be read in place");
                    black_box(word);
                }
                ClientCall::LocalRowGet => {
                    let (mut word, table) = ([0; 8], self.table.as_ref().expect("the service described a table"));
                    table.row(1).get_into(0, &mut word).expect("it can be read in place");
                    black_box(word);
                }
                ClientCall::LocalCellGet => {
                    black_box(self.cell.get().expect("it can be read in place").value);
                }
                ClientCall::LocalRowValue => {
                    let table = self.typed.as_ref().expect("the service described a table");
                    black_box(table.row(1).get().expect("it can be read in place").value);
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

fn serve(mut server: IpcServer, opened: &OpenedSegment, stopped: &AtomicBool) {
    while !stopped.load(Ordering::Relaxed) {
        if let Some(ClientEvent::Attached(session)) = server.next_event() {
            server.add_client(session).expect("its memory is fine");
        }
        let served =
            server.serve(16, &mut |_: ChannelId, entry: &Entry, _: Option<TracedRequest>| answer(entry, opened));
        server.flush();
        if served == 0 {
            std::thread::yield_now();
        }
    }
}

/// Answers as if the call had succeeded; no bytes move.
fn answer(entry: &Entry, opened: &OpenedSegment) -> Option<Entry> {
    let request = Request::decode(entry).expect("a client encodes its requests");
    let mut completion = Completion::bare(request.id, Outcome::Done);
    match request.operation {
        Operation::Allocate { .. } => completion.data = opened.encode(),
        Operation::Get { .. } if opened.at.is_some() => panic!("a get in place asked the service"),
        Operation::Get { inline, .. } => completion.inline = inline,
        _ => {}
    }
    Some(completion.encode())
}
