//! Cluster-wide names in one engine: events in, actions out.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_core::limits::OPERATIONS_MAX;
use ddss_core::{
    ArenaRange, ChannelId, ClientId, Completion, Failure, Limit, Message, Name, NodeId, OpenedSegment, Operation,
    Outcome, Placement, Principal, Request, RequestId, SegmentId, Shard, Spec, Timestamp,
};
use ddss_engine::{Action, ClaimId, ControlAction, Engine, EngineConfig, NameState, Now, PeerAction, Reply, StepId};

const CLIENT: ClientId = ClientId { index: 0, generation: 1 };
/// A client of another user.
const OTHER: ClientId = ClientId { index: 1, generation: 1 };
const LANE: ChannelId = ChannelId { client: CLIENT, index: 0 };
const PRINCIPAL: Principal = Principal { uid: 1, gid: 1 };
const NOW: Now = Now { steady_us: 1, wall_us: 1 };

struct Node {
    engine: Engine,
    request: u64,
}

impl Node {
    fn new() -> Self {
        let config = EngineConfig {
            node: NodeId(1),
            shard: Shard::ONLY,
            pool_bytes: 1 << 20,
            peers: Vec::new(),
            first_generation: 0,
            reads_overlap: true,
        };
        let mut engine = Engine::new(&config);
        engine.enable_cluster_names();
        engine.attach(CLIENT, PRINCIPAL, 1 << 20);
        Self { engine, request: 0 }
    }

    fn ask(&mut self, operation: Operation, text: &[u8]) -> Vec<Action> {
        self.request += 1;
        self.engine.request(NOW, LANE, &Request::new(RequestId(self.request), operation), text);
        self.actions()
    }

    fn allocate(&mut self, name: &str, home: u16) -> Vec<Action> {
        let placement = if home == 0 { Placement::Local } else { Placement::Node(NodeId(home)) };
        let spec = Spec { placement, ..Spec::new(64) };
        let text = [&spec.encode()[..], name.as_bytes()].concat();
        self.ask(Operation::Allocate { spec_and_name: range(text.len()) }, &text)
    }

    fn open(&mut self, name: &str) -> Vec<Action> {
        self.ask(Operation::Open { name: range(name.len()) }, name.as_bytes())
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.engine.next_action()).collect()
    }

    /// Creates a segment of that name.
    fn make(&mut self, name: &str) -> Vec<Action> {
        let claim = claim_in(&self.allocate(name, 0));
        self.engine.on_claimed(NOW, claim, Ok(()));
        let actions = self.actions();
        let [Action::Format { record, .. }] = actions[..] else { panic!("{actions:?}") };
        self.engine.on_formatted(NOW, record.segment, true);
        self.actions()
    }
}

fn range(bytes: usize) -> ArenaRange {
    ArenaRange { slot: 0, bytes: bytes as u32 }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn claim_in(actions: &[Action]) -> ClaimId {
    let [Action::Control(ControlAction::ClaimName { claim, .. })] = actions[..] else { panic!("{actions:?}") };
    claim
}

fn step_in(actions: &[Action]) -> StepId {
    let [Action::Control(ControlAction::ConfirmName { step, .. })] = actions[..] else { panic!("{actions:?}") };
    step
}

fn end_in(actions: &[Action]) -> Outcome {
    let [Action::Reply(Reply { completion: Completion { outcome, .. }, .. })] = actions[..] else {
        panic!("{actions:?}")
    };
    outcome
}

#[test]
fn segment_is_created_after_name_claim() {
    // If this broke, two nodes could create one name, or reserve memory for a name of another node.
    let mut node = Node::new();
    let claim = claim_in(&node.allocate("a", 0));
    // During the claim the name is taken here, and the cluster is not asked twice.
    assert_eq!(end_in(&node.allocate("a", 1)), Outcome::Failed(Failure::AlreadyExists));
    node.engine.on_claimed(NOW, claim, Err(Failure::AlreadyExists));
    assert_eq!(end_in(&node.actions()), Outcome::Failed(Failure::AlreadyExists));
    // A late answer to an old claim has no effect.
    node.engine.on_claimed(NOW, claim, Ok(()));
    assert_eq!(node.actions(), []);
    assert_eq!(end_in(&node.make("a")), Outcome::Done);
    assert_eq!(node.engine.names(), [(name("a"), NameState::Owned)]);
    assert_eq!(end_in(&node.open("a")), Outcome::Done, "what is here needs no question");
}

#[test]
fn name_is_returned_when_creation_fails_or_segment_is_released() {
    // If this broke, failures would use up names, or names would be free for others before their creator.
    let mut node = Node::new();
    let claim = claim_in(&node.allocate("a", 0));
    node.engine.on_claimed(NOW, claim, Ok(()));
    let actions = node.actions();
    let [Action::Format { record, .. }] = actions[..] else { panic!("{actions:?}") };
    node.engine.on_formatted(NOW, record.segment, false);
    let actions = node.actions();
    let given_back =
        actions.iter().filter(|action| matches!(action, Action::Control(ControlAction::ReleaseName { .. }))).count();
    let told = actions.iter().filter(|action| matches!(action, Action::Reply(_))).count();
    assert_eq!((given_back, told), (1, 1), "{actions:?}");
    for action in actions {
        if let Action::Control(ControlAction::ReleaseName { claim, .. }) = action {
            node.engine.on_disclaimed(claim, Ok(()));
        }
    }
    assert_eq!(node.actions(), []);
    assert_eq!(end_in(&node.make("b")), Outcome::Done);
    let opened = node.open("b");
    let [Action::Reply(Reply { completion, .. })] = opened[..] else { panic!("{opened:?}") };
    let segment = OpenedSegment::decode(&completion.data).segment;
    let actions = node.ask(Operation::Release { segment }, b"");
    assert!(!actions.iter().any(|action| matches!(action, Action::Reply(_))), "{actions:?}");
    let claim = actions.iter().find_map(|action| match action {
        Action::Control(ControlAction::ReleaseName { claim, .. }) => Some(*claim),
        _ => None,
    });
    node.engine.on_disclaimed(claim.unwrap(), Ok(()));
    assert_eq!(end_in(&node.actions()), Outcome::Done);
}

#[test]
fn release_without_majority_fails_or_is_indeterminate() {
    // If this broke, a release would be reported as done while its name stays taken, or never be answered.
    let mut node = Node::new();
    assert_eq!(end_in(&node.make("a")), Outcome::Done);
    let opened = node.open("a");
    let [Action::Reply(Reply { completion, .. })] = opened[..] else { panic!("{opened:?}") };
    let segment = OpenedSegment::decode(&completion.data).segment;
    node.engine.set_majority(false);
    let refused = Outcome::Failed(Failure::NoMajority);
    assert_eq!(end_in(&node.ask(Operation::Release { segment }, b"")), refused);
    assert_eq!(end_in(&node.open("a")), Outcome::Done, "nothing was done");
    node.engine.set_majority(true);
    let actions = node.ask(Operation::Release { segment }, b"");
    let claim = actions.iter().find_map(|action| match action {
        Action::Control(ControlAction::ReleaseName { claim, .. }) => Some(*claim),
        _ => None,
    });
    // The majority was lost in between.
    node.engine.on_disclaimed(claim.unwrap(), Err(Failure::NoMajority));
    assert_eq!(end_in(&node.actions()), Outcome::Indeterminate(Failure::NoMajority));
}

/// Returns the step of a lookup that was sent to the second node.
fn lookup_in(actions: &[Action]) -> u64 {
    let [Action::Peer(PeerAction::Send { node: NodeId(2), message: Message::Call { request, .. }, .. })] = actions
    else {
        panic!("{actions:?}")
    };
    assert!(matches!(request.operation, Operation::Open { .. }), "{request:?}");
    request.id.0
}

#[test]
fn known_name_asks_home_and_unknown_name_asks_cluster_once() {
    // If this broke, every open would cost a message to the cluster, or an existing name would be "not found".
    let mut node = Node::new();
    let step = step_in(&node.open("x"));
    node.engine.on_confirmed(step, Ok(None));
    assert_eq!(end_in(&node.actions()), Outcome::Failed(Failure::NotFound));
    node.engine.peer_known(NodeId(2));
    node.engine.set_home(name("x"), Some(NodeId(2)));
    assert_eq!(end_in(&node.open("x")), Outcome::Failed(Failure::NodeDown));
    node.engine.on_peer_up(NOW, NodeId(2), Timestamp::default());
    let actions = node.open("x");
    let step = lookup_in(&actions);
    // The home no longer has it: the copy of the directory is old, so the cluster is asked exactly once.
    let gone = |step| Message::Ended {
        step,
        outcome: Outcome::Failed(Failure::NotFound),
        version: Default::default(),
        timestamp: Default::default(),
        word: 0,
    };
    node.engine.on_message(NOW, NodeId(2), Timestamp::default(), &gone(step), &[]);
    let confirm = step_in(&node.actions());
    node.engine.on_confirmed(confirm, Ok(Some(NodeId(2))));
    let actions = node.actions();
    let step = lookup_in(&actions);
    node.engine.on_message(NOW, NodeId(2), Timestamp::default(), &gone(step), &[]);
    assert_eq!(end_in(&node.actions()), Outcome::Failed(Failure::NotFound));
    // A removed node is the home of no name.
    node.engine.peer_gone(NOW, NodeId(2));
    node.engine.set_homes([]);
    let step = step_in(&node.open("x"));
    node.engine.on_confirmed(step, Err(Failure::NodeDown));
    assert_eq!(end_in(&node.actions()), Outcome::Failed(Failure::NodeDown));
}

#[test]
fn remote_segment_is_created_by_its_home() {
    // If this broke, the requester would claim a name for a segment of another node.
    let mut node = Node::new();
    node.engine.peer_known(NodeId(2));
    node.engine.on_peer_up(NOW, NodeId(2), Timestamp::default());
    let actions = node.allocate("far", 2);
    let [Action::Peer(PeerAction::Send { node: NodeId(2), message: Message::Call { request, .. }, .. })] = actions[..]
    else {
        panic!("{actions:?}")
    };
    assert!(matches!(request.operation, Operation::Allocate { .. }), "{request:?}");
    let text = [&Spec::new(64).encode()[..], b"near"].concat();
    let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
    let allocate = Message::call(5, PRINCIPAL, 100, Operation::Allocate { spec_and_name });
    node.engine.on_message(NOW, NodeId(2), Timestamp::default(), &allocate, &text);
    // The claim ends before the deadline of the node that asks.
    let actions = node.actions();
    assert!(matches!(actions[..], [Action::Control(ControlAction::ClaimName { within_us: 75, .. })]), "{actions:?}");
    let claim = claim_in(&actions);
    node.engine.on_claimed(NOW, claim, Err(Failure::TimedOut));
    let actions = node.actions();
    let [Action::Peer(PeerAction::Send { message: Message::Ended { step: 5, outcome, .. }, .. })] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(outcome, Outcome::Failed(Failure::TimedOut));
}

/// Creates a segment; returns its id.
fn made(node: &mut Node, name: &str) -> SegmentId {
    assert_eq!(end_in(&node.make(name)), Outcome::Done);
    let opened = node.open(name);
    let [Action::Reply(Reply { completion, .. })] = opened[..] else { panic!("{opened:?}") };
    OpenedSegment::decode(&completion.data).segment
}

/// Begins as many claims as may be in progress.
fn fill_claims(node: &mut Node) {
    let full = Outcome::Failed(Failure::Busy(Limit::Claims));
    let is_full = |actions: &[Action]| matches!(actions, [Action::Reply(_)]) && end_in(actions) == full;
    let filled = (0..=OPERATIONS_MAX).find(|number| is_full(&node.allocate(&format!("filling/{number}"), 0)));
    assert!(filled.is_some(), "claims are bounded");
}

#[test]
fn release_beside_as_many_claims_as_may_be_does_nothing() {
    // If this broke, a release would be done while the cluster still holds the name.
    let mut node = Node::new();
    let segment = made(&mut node, "a");
    fill_claims(&mut node);
    let refused = Outcome::Failed(Failure::Busy(Limit::Claims));
    assert_eq!(end_in(&node.ask(Operation::Release { segment }, b"")), refused);
    assert_eq!(end_in(&node.open("a")), Outcome::Done, "nothing was done");
}

#[test]
fn name_is_returned_beside_as_many_claims_as_may_be() {
    // If this broke, a segment that could not be created would occupy its name until the next start of the daemon.
    let mut node = Node::new();
    let claim = claim_in(&node.allocate("a", 0));
    node.engine.on_claimed(NOW, claim, Ok(()));
    let actions = node.actions();
    let [Action::Format { record, .. }] = actions[..] else { panic!("{actions:?}") };
    fill_claims(&mut node);
    node.engine.on_formatted(NOW, record.segment, false);
    let actions = node.actions();
    assert!(
        actions.iter().any(|action| matches!(action, Action::Control(ControlAction::ReleaseName { .. }))),
        "{actions:?}"
    );
}

#[test]
fn refused_release_leaves_no_claim() {
    // If this broke, refused releases would use up the claims, or keep names from being given again.
    let mut node = Node::new();
    let segment = made(&mut node, "a");
    node.engine.attach(OTHER, Principal { uid: 2, gid: 2 }, 1 << 20);
    let other = ChannelId { client: OTHER, index: 0 };
    for request in 0..=OPERATIONS_MAX as u64 {
        node.engine.request(NOW, other, &Request::new(RequestId(request), Operation::Release { segment }), &[]);
        assert_eq!(end_in(&node.actions()), Outcome::Failed(Failure::PermissionDenied));
    }
}
