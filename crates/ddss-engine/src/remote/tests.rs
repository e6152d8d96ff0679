//! Tests of the handler of calls at other nodes, without an engine around it.

use super::handler::Remote;
use crate::action::{Action, PeerAction, Reply};
use crate::config::{EngineConfig, Now};
use crate::ids::StepId;
use crate::requester::{LocalCaller, ReplyFields};
use crate::state::output::Output;
use crate::state::peers::{Peers, RemoteSegment};
use crate::state::pending::{Continuation, NameLookup, PendingOperations};
use crate::state::read_cache::ReadCache;
use crate::state::remote_locks::{RemoteLock, RemoteLocks};
use crate::state::replication::Replicas;
use crate::state::segments::Segments;
use ddss_core::{
    ArenaRange, AtomicOp, ChannelId, ClientId, Failure, Header, HybridClock, ListPage, ListQuery, LockRequest,
    LockToken, Message, Model, Name, NodeId, Operation, Outcome, Permissions, Placement, Principal, ReadOptions,
    RemoteWindow, RequestId, RowList, SegmentId, SegmentInfo, Shard, Spec, Storage, Version,
};
use std::collections::{BTreeMap, BTreeSet};

const NOW: Now = Now { steady_us: 1000, wall_us: 1000 };
const HOME: NodeId = NodeId(2);
const CLIENT: ClientId = ClientId { index: 1, generation: 1 };
const USER: Principal = Principal { uid: 7, gid: 7 };

struct Parts {
    operations: PendingOperations,
    lookups: BTreeMap<StepId, NameLookup>,
    remote_locks: RemoteLocks,
    remote_uploaders: BTreeSet<ClientId>,
    read_cache: ReadCache,
    replicas: Replicas,
    segments: Segments,
    peers: Peers,
    clock: HybridClock,
    output: Output,
}

impl Parts {
    /// Makes the parts of a node with one client and one connected peer.
    fn new() -> Self {
        let (node, shard, pool_bytes) = (NodeId(1), Shard::ONLY, 1 << 20);
        let config =
            EngineConfig { node, shard, pool_bytes, peers: vec![HOME], first_generation: 1, reads_overlap: true };
        let mut parts = Self {
            operations: PendingOperations::new(),
            lookups: BTreeMap::new(),
            remote_locks: RemoteLocks::default(),
            remote_uploaders: BTreeSet::new(),
            read_cache: ReadCache::default(),
            replicas: Replicas::default(),
            segments: Segments::new(&config),
            peers: Peers::default(),
            clock: HybridClock::default(),
            output: Output::new(),
        };
        parts.peers.connect(HOME);
        parts.output.attach(CLIENT, USER, 1 << 20);
        parts
    }

    fn remote(&mut self) -> Remote<'_> {
        Remote {
            node: NodeId(1),
            reads_overlap: true,
            operations: &mut self.operations,
            lookups: &mut self.lookups,
            remote_locks: &mut self.remote_locks,
            remote_uploaders: &mut self.remote_uploaders,
            read_cache: &mut self.read_cache,
            directory: None,
            replicas: &self.replicas,
            segments: &mut self.segments,
            peers: &mut self.peers,
            clock: &mut self.clock,
            output: &mut self.output,
        }
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.output.next_action()).collect()
    }

    /// Returns the outcomes of all replies.
    fn outcomes(&mut self) -> Vec<Outcome> {
        let reply =
            |action| if let Action::Reply(Reply { completion, .. }) = action { Some(completion.outcome) } else { None };
        self.actions().into_iter().filter_map(reply).collect()
    }

    fn only_step(&self) -> StepId {
        self.operations.find(|_| true).first().copied().expect("one operation is pending")
    }
}

fn caller() -> LocalCaller {
    let channel = ChannelId { client: CLIENT, index: 0 };
    LocalCaller { channel, request: RequestId(5), principal: USER, deadline_us: NOW.steady_us + 100, timeout_us: 100 }
}

fn segment() -> SegmentId {
    SegmentId::new(HOME, 3, 1)
}

#[test]
fn lost_home_leaves_a_change_in_doubt_and_fails_a_harmless_wait() {
    // If this broke, a client would repeat a change that took effect, or wait for an answer that never comes.
    let change = Operation::Atomic { segment: segment(), offset: 0, change: AtomicOp::Add(1), token: None };
    let wait = Operation::Await { segment: segment(), offset: 0, above: Version(3) };
    let (in_doubt, failed) = (Outcome::Indeterminate(Failure::NodeDown), Outcome::Failed(Failure::NodeDown));
    for (operation, outcome) in [(change, in_doubt), (wait, failed)] {
        let mut parts = Parts::new();
        assert_eq!(parts.remote().call(NOW, &caller(), segment(), &operation, &[]), Ok(()));
        assert!(matches!(parts.actions()[..], [Action::Peer(PeerAction::Send { node: HOME, .. })]));
        let step = parts.only_step();
        parts.peers.disconnect(HOME);
        assert!(parts.remote().handle_peer_loss(step, HOME).is_none());
        assert_eq!((parts.outcomes(), parts.operations.count()), (vec![outcome], 0));
        assert_eq!(parts.remote().call(NOW, &caller(), segment(), &operation, &[]), Err(Failure::NodeDown));
        assert_eq!((parts.actions(), parts.operations.count()), (Vec::new(), 0), "a refused call leaves nothing");
    }
}

#[test]
fn page_of_a_node_that_went_away_says_so() {
    // If this broke, a watcher of names would take the names of a node that restarts for released.
    let mut parts = Parts::new();
    let (query, into) = (ListQuery::new("jobs/", "").unwrap(), ArenaRange { slot: 0, bytes: 0 });
    assert_eq!(parts.remote().request_page(&caller(), HOME, into, &query.encode()), Ok(()));
    parts.actions();
    let step = parts.only_step();
    parts.peers.disconnect(HOME);
    assert!(parts.remote().handle_peer_loss(step, HOME).is_none());
    let page = parts.actions().into_iter().find_map(|action| match action {
        Action::Reply(Reply { completion, .. }) => Some(ListPage::decode(&completion.data)),
        _ => None,
    });
    assert_eq!(page, Some(ListPage { node: HOME, bytes: 0, more: false, away: true }));
}

#[test]
fn home_that_ends_a_wait_with_an_old_version_is_disconnected() {
    // If this broke, a hostile home could make a watcher of a row act on a version that it has seen, or spin.
    for version in [0, 2, 3] {
        let mut parts = Parts::new();
        let wait = Operation::Await { segment: segment(), offset: 72, above: Version(3) };
        assert_eq!(parts.remote().call(NOW, &caller(), segment(), &wait, &[]), Ok(()));
        parts.actions();
        let step = parts.only_step();
        let old = ReplyFields { version: Version(version), ..ReplyFields::default() };
        assert!(parts.remote().handle_ended(NOW, HOME, step, Outcome::Done, old).is_none());
        assert_eq!(parts.actions(), [Action::Peer(PeerAction::Disconnect { node: HOME })], "version {version}");
        assert_eq!(parts.operations.count(), 1, "the wait ends with the connection");
        parts.peers.disconnect(HOME);
        assert!(parts.remote().handle_peer_loss(step, HOME).is_none());
        assert_eq!(parts.outcomes(), [Outcome::Failed(Failure::NodeDown)]);
    }
    let mut parts = Parts::new();
    let wait = Operation::Await { segment: segment(), offset: 72, above: Version(3) };
    assert_eq!(parts.remote().call(NOW, &caller(), segment(), &wait, &[]), Ok(()));
    parts.actions();
    let (step, next) = (parts.only_step(), ReplyFields { version: Version(4), ..ReplyFields::default() });
    assert!(parts.remote().handle_ended(NOW, HOME, step, Outcome::Done, next).is_none());
    assert_eq!(parts.outcomes(), [Outcome::Done]);
}

#[test]
fn grant_for_a_client_that_is_gone_is_given_back() {
    // If this broke, the lock of a dead client would hold until its lease ends.
    let mut parts = Parts::new();
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1000, row_offset: None };
    let lock = Operation::Lock { segment: segment(), lock_request };
    assert_eq!(parts.remote().call(NOW, &caller(), segment(), &lock, &[]), Ok(()));
    parts.actions();
    let step = parts.only_step();
    parts.output.detach(CLIENT);
    let granted = ReplyFields { word: 9, ..ReplyFields::default() };
    assert!(parts.remote().handle_ended(NOW, HOME, step, Outcome::Done, granted).is_none());
    let unlock = Operation::Unlock { segment: segment(), token: LockToken(9) };
    let [Action::Peer(PeerAction::Send { node: HOME, message: Message::Call { request, .. }, .. })] =
        parts.actions()[..]
    else {
        panic!("the home hears of it")
    };
    assert_eq!((request.id, request.operation), (RequestId(0), unlock));
    assert!(!parts.remote_locks.contains(CLIENT, segment(), LockToken(9)));
}

#[test]
fn client_that_holds_a_table_at_another_home_does_not_sweep_it() {
    // If this broke, the sweep would wait for its own caller, until its deadline.
    let mut parts = Parts::new();
    let sweep = Operation::Sweep { segment: segment(), first: 0, buckets: 9 };
    let lock = RemoteLock {
        segment: segment(),
        row_offset: None,
        home: HOME,
        token: LockToken(9),
        client: CLIENT,
        until_us: NOW.steady_us + 1000,
    };
    parts.remote_locks.add(lock);
    assert_eq!(parts.remote().call(NOW, &caller(), segment(), &sweep, &[]), Err(Failure::OwnLock));
    assert_eq!((parts.actions(), parts.operations.count()), (Vec::new(), 0), "a refused call leaves nothing");
    // The lock of another client, or of a row.
    parts.remote_locks.add(RemoteLock { client: ClientId { index: 2, generation: 1 }, ..lock });
    parts.remote_locks.add(RemoteLock { row_offset: Some(64), token: LockToken(10), ..lock });
    assert_eq!(parts.remote().call(NOW, &caller(), segment(), &sweep, &[]), Ok(()));
    assert!(matches!(parts.actions()[..], [Action::Peer(PeerAction::Send { node: HOME, .. })]));
}

#[test]
fn name_that_no_peer_has_leads_to_one_new_segment_here() {
    // If this broke, an allocation would hang after the last answer, or two segments would get one name.
    let mut parts = Parts::new();
    let name = Name::new("fresh").expect("it is short");
    let spec = Spec { placement: Placement::Node(NodeId(1)), ..Spec::new(64) };
    let asked = parts.remote().look_up(caller(), name, Continuation::Allocate(spec));
    assert!(asked.expect("a peer is asked").is_none());
    let step = parts.only_step();
    let missing = Outcome::Failed(Failure::NotFound);
    let new = parts.remote().handle_ended(NOW, HOME, step, missing, ReplyFields::default());
    assert_eq!(new.map(|new| (new.name, new.spec, new.principal)), Some((name, spec, USER)));
    let again = parts.remote().handle_ended(NOW, HOME, step, missing, ReplyFields::default());
    assert!(again.is_none(), "a late answer creates nothing");
    assert_eq!((parts.operations.count(), parts.output.counters.stale), (0, 1));
}

#[test]
fn home_that_confirms_a_lookup_without_a_description_is_disconnected() {
    // If this broke, a client would get a segment that no home described.
    let mut parts = Parts::new();
    let name = Name::new("described").expect("it is short");
    assert!(parts.remote().look_up(caller(), name, Continuation::Open).expect("a peer is asked").is_none());
    parts.actions();
    let step = parts.only_step();
    assert!(parts.remote().handle_ended(NOW, HOME, step, Outcome::Done, ReplyFields::default()).is_none());
    assert_eq!(parts.actions(), [Action::Peer(PeerAction::Disconnect { node: HOME })]);
}

/// Makes the parts of a node that knows a table at home on its peer.
fn parts_with_table(model: Model, copies: u8) -> Parts {
    let mut parts = Parts::new();
    let permissions = Permissions { owner: USER, mode: 0o600 };
    let (bytes, history_len, storage, row_bytes) = (8000, 0, Storage::Memory, 80);
    let info = SegmentInfo { segment: segment(), bytes, model, permissions, history_len, copies, storage, row_bytes };
    let window = RemoteWindow { key: 4, base: 1 << 20, bytes: info.pool_bytes() };
    let peer = parts.peers.reachable(HOME).expect("it is connected");
    peer.remotes.insert(segment(), RemoteSegment { info, window, reads: 0, leaving: false });
    parts
}

/// Asks for so many bytes of three rows.
fn get_rows(parts: &mut Parts, row_bytes: usize, model: Option<Model>) -> Result<(), Failure> {
    let list = RowList::new(3, row_bytes).expect("three rows");
    let range = ArenaRange { slot: 0, bytes: list.bytes() as u32 };
    let options = ReadOptions { requested_model: model, version: None };
    parts.remote().get_rows(&caller(), segment(), (range, list), options)
}

#[test]
fn rows_are_proved_by_the_header_that_is_read_behind_them() {
    // If this broke, a client would take rows of another segment for its own, or those of a holder that is not finished.
    let (ours, other) = (segment().to_bits(), SegmentId::new(HOME, 4, 1).to_bits());
    let (done, one_by_one) = (Outcome::Done, Outcome::Failed(Failure::Unsupported));
    let cases = [
        (Model::Write, ours, 0, done),
        (Model::Write, ours, 9, done),
        (Model::Write, other, 0, one_by_one),
        (Model::Strict, ours, 0, done),
        (Model::Strict, ours, 9, one_by_one),
    ];
    for (model, segment, locked, outcome) in cases {
        let mut parts = parts_with_table(model, 1);
        assert_eq!(get_rows(&mut parts, 80, None), Ok(()));
        let asked = parts.actions();
        assert!(
            matches!(asked[..], [Action::Peer(PeerAction::FetchRows { node: HOME, rows: 100, client: CLIENT, .. })]),
            "{asked:?}"
        );
        let step = parts.only_step();
        // Of the header only identity and lock were read.
        let header = Header { state: 7, timestamp: 0, segment, bytes: 0, locked };
        parts.remote().fetched(NOW, step, Ok((header, 0)));
        assert_eq!(parts.outcomes(), [outcome], "{model:?} {locked}");
        assert_eq!(parts.operations.count(), 0);
        let remote = parts.peers.reachable(HOME).and_then(|peer| peer.remotes.get(&self::segment()));
        assert_eq!(remote.map(|remote| remote.reads), Some(0), "the home may withdraw the window");
    }
}

#[test]
fn rows_that_need_more_than_one_read_are_refused_without_a_trace() {
    // If this broke, a get of many rows would ignore locks and replicas, or read beyond a row.
    let unsupported = Err(Failure::Unsupported);
    let own_lock = |parts: &mut Parts| {
        let (row_offset, until_us) = (Some(80), NOW.steady_us + 9);
        let lock =
            RemoteLock { segment: segment(), home: HOME, row_offset, token: LockToken(3), client: CLIENT, until_us };
        parts.remote_locks.add(lock);
    };
    let nothing = |_: &mut Parts| ();
    let loses_peer = |parts: &mut Parts| assert!(parts.peers.disconnect(HOME));
    let prepared: [fn(&mut Parts); 4] = [nothing, own_lock, loses_peer, forget];
    let [nothing, own_lock, loses_peer, forget] = prepared;
    let cases = [
        (Model::Write, 2, 80, None, nothing, unsupported),
        (Model::Read, 1, 80, None, nothing, unsupported),
        (Model::Write, 1, 80, Some(Model::Read), nothing, unsupported),
        (Model::Write, 1, 88, None, nothing, Err(Failure::OutOfRange)),
        (Model::Strict, 1, 80, None, own_lock, unsupported),
        (Model::Write, 1, 80, None, loses_peer, Err(Failure::NodeDown)),
        (Model::Write, 1, 80, None, forget, unsupported),
    ];
    for (model, copies, row_bytes, asked, prepare, refused) in cases {
        let mut parts = parts_with_table(model, copies);
        prepare(&mut parts);
        assert_eq!(get_rows(&mut parts, row_bytes, asked), refused, "{model:?} {copies} {row_bytes} {asked:?}");
        assert_eq!((parts.actions(), parts.operations.count()), (Vec::new(), 0));
    }
    // What a row's own holder must not read in this way, a get that minds no lock may.
    let mut parts = parts_with_table(Model::Write, 1);
    own_lock(&mut parts);
    assert_eq!(get_rows(&mut parts, 80, None), Ok(()));
}

/// Forgets all segments of the peer.
fn forget(parts: &mut Parts) {
    parts.peers.reachable(HOME).expect("it is connected").remotes.clear();
}
