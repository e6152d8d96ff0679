//! Meshes over a simulated network.

use super::{DownReason, Mesh, MeshConfig, MeshEvent, SendError};
use crate::member::{Incarnation, Member};
use ddss_auth::{Context, Initiator, Key};
use ddss_verbs::sim::{Sim, SimConfig, SimNet};
use ddss_verbs::{CloseReason, Event, Events, Fabric, SendMode, Work};
use std::net::SocketAddr;
use std::time::Duration;

const KEY: Key = [5; 32];
const CONTEXT: Context = Context { name: *b"mesh tests", release: 1 };
const STEP: Duration = Duration::from_micros(100);

/// One process of the tests.
struct Process {
    fabric: Sim,
    mesh: Mesh,
    address: SocketAddr,
    /// Connections that came and went, and messages with their senders.
    up: Vec<u16>,
    down: Vec<(u16, DownReason)>,
    messages: Vec<(u16, Vec<u8>)>,
    is_stopped: bool,
}

struct World {
    net: SimNet,
    processes: Vec<Process>,
}

fn incarnation(member: u16) -> Incarnation {
    Incarnation { member: Member(member), run: 100 + u32::from(member) }
}

impl World {
    /// Creates processes that do not know of each other yet.
    fn new(members: u16) -> Self {
        let net = SimNet::new(SimConfig::default());
        let processes = (0..members).map(|member| Self::process(&net, incarnation(member), members, KEY)).collect();
        Self { net, processes }
    }

    fn process(net: &SimNet, ours: Incarnation, members: u16, key: Key) -> Process {
        let mut fabric = net.node();
        let address = fabric.listen("10.0.0.1:0".parse().unwrap()).unwrap();
        let mesh = Mesh::new(MeshConfig { ours, members, key, context: CONTEXT });
        let (up, down, messages) = Default::default();
        Process { fabric, mesh, address, up, down, messages, is_stopped: false }
    }

    /// Tells each process of all others.
    fn introduce_all(&mut self) {
        for whom in 0..self.processes.len() {
            for to in 0..self.processes.len() {
                self.introduce(to, whom);
            }
        }
    }

    fn introduce(&mut self, to: usize, whom: usize) {
        let (address, now) = (self.processes[whom].address, self.net.now());
        let Process { fabric, mesh, down, .. } = &mut self.processes[to];
        if let Some(MeshEvent::Down(member, reason)) = mesh.learn(fabric, incarnation(whom as u16), address, now) {
            down.push((member.0, reason));
        }
    }

    fn run(&mut self, span: Duration) {
        let until = self.net.now() + span;
        let mut events = Events::new();
        while self.net.now() < until {
            self.net.advance(STEP);
            let now = self.net.now();
            for process in self.processes.iter_mut().filter(|process| !process.is_stopped) {
                process.fabric.poll(&mut events);
                for event in events.iter() {
                    match process.mesh.handle(&mut process.fabric, &event, now) {
                        Some(MeshEvent::Up(member)) => process.up.push(member.0),
                        Some(MeshEvent::Down(member, reason)) => process.down.push((member.0, reason)),
                        Some(MeshEvent::Message { from, bytes }) => process.messages.push((from.0, bytes.to_vec())),
                        None => {}
                    }
                }
                events.clear();
                process.mesh.tick(&mut process.fabric, now);
            }
        }
    }

    fn send(&mut self, from: usize, to: u16, message: &[u8]) -> Result<(), SendError> {
        let Process { fabric, mesh, .. } = &mut self.processes[from];
        mesh.send(fabric, Member(to), &[message])
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn members_connect_and_exchange_messages_in_order() {
    // If this broke, no space of shared pages and no flow would form.
    let mut world = World::new(3);
    assert_eq!(world.send(0, 1, b"early"), Err(SendError::NotConnected(Member(1))));
    world.introduce_all();
    world.run(seconds(1));
    for (index, process) in world.processes.iter_mut().enumerate() {
        process.up.sort_unstable();
        let others: Vec<u16> = (0..3).filter(|other| usize::from(*other) != index).collect();
        assert_eq!(process.up, others, "each of the others once");
    }
    for number in 0..50_u8 {
        world.send(0, 2, &[number]).unwrap();
        world.send(2, 0, &[number, number]).unwrap();
    }
    world.run(seconds(1));
    let expected: Vec<(u16, Vec<u8>)> = (0..50).map(|number| (0, vec![number])).collect();
    assert_eq!(world.processes[2].messages, expected);
    assert_eq!(world.processes[0].messages.len(), 50);
    let max = Mesh::message_bytes_max(&world.processes[0].fabric);
    world.send(0, 1, &vec![7; max]).unwrap();
    assert_eq!(world.send(0, 1, &vec![7; max + 1]), Err(SendError::TooLong { bytes: max + 1, max }));
    world.run(seconds(1));
    assert_eq!(world.processes[1].messages, [(0, vec![7; max])]);
    assert!(world.processes.iter().all(|process| process.down.is_empty()));
}

#[test]
fn members_that_learn_of_each_other_at_different_times_connect() {
    // If this broke, a process that reads the directory late would be missing for ever.
    let mut world = World::new(2);
    world.introduce(1, 0);
    world.run(seconds(3));
    assert!(world.processes[1].up.is_empty(), "member 0 does not know member 1 yet");
    world.introduce(0, 1);
    world.run(seconds(1));
    assert_eq!((&world.processes[0].up[..], &world.processes[1].up[..]), (&[1][..], &[0][..]));
}

#[test]
fn silent_member_is_noticed_and_living_one_is_not() {
    // If this broke, a stopped process would hold the others for ever, or idle members would be taken for dead.
    let mut world = World::new(3);
    world.introduce_all();
    world.run(seconds(1));
    world.processes[2].is_stopped = true;
    world.run(seconds(5));
    let now = world.net.now();
    let silence = |index: usize, of: u16| world.processes[index].mesh.silence(Member(of), now).unwrap();
    assert!(silence(0, 1) < seconds(1) && silence(1, 0) < seconds(1));
    assert!(silence(0, 2) >= seconds(4) && silence(1, 2) >= seconds(4));
    assert_eq!(world.send(0, 2, b"x"), Ok(()), "the fabric has room");
}

#[test]
fn member_that_leaves_and_member_that_dies_are_told_apart() {
    // If this broke, an orderly end would break the space of the others, or a death would pass for one.
    let mut world = World::new(3);
    world.introduce_all();
    world.run(seconds(1));
    let Process { fabric, mesh, .. } = &mut world.processes[1];
    for other in [0, 2] {
        mesh.leave(fabric, Member(other));
    }
    world.run(seconds(1));
    world.net.kill(&world.processes[2].fabric);
    world.processes[2].is_stopped = true;
    world.run(seconds(1));
    let down = &world.processes[0].down;
    assert_eq!(down[0], (1, DownReason::Left));
    assert!(matches!(down[1], (2, DownReason::Closed(CloseReason::Lost(_) | CloseReason::ClosedByPeer))), "{down:?}");
    assert_eq!(down.len(), 2, "each end is said once");
    assert_eq!(world.processes[0].mesh.silence(Member(2), world.net.now()), None);
    world.run(seconds(3));
    assert_eq!(world.processes[0].up.len(), 2, "nobody connects again");
}

#[test]
fn new_process_in_a_members_place_replaces_the_old_one() {
    // If this broke, messages of a dead process could be taken for those of its successor.
    let mut world = World::new(2);
    world.introduce_all();
    world.run(seconds(1));
    let ours = Incarnation { member: Member(1), run: 999 };
    let mut successor = World::process(&world.net, ours, 2, KEY);
    let (address, now) = (successor.address, world.net.now());
    let Process { fabric, mesh, .. } = &mut world.processes[0];
    assert_eq!(mesh.learn(fabric, ours, address, now), Some(MeshEvent::Down(Member(1), DownReason::Replaced)));
    assert_eq!(mesh.learn(fabric, ours, address, now), None, "known by now");
    let first = world.processes[0].address;
    successor.mesh.learn(&mut successor.fabric, incarnation(0), first, now);
    world.processes[1].is_stopped = true;
    world.processes.push(successor);
    world.run(seconds(1));
    assert_eq!(world.processes[0].up, [1, 1]);
    assert_eq!(world.processes[2].up, [0]);
}

#[test]
fn processes_without_the_key_and_replayed_hellos_get_no_connection() {
    // If this broke, anyone who reaches the port could write into the memory of a space.
    let mut world = World::new(2);
    world.introduce(0, 1);
    let (first, now) = (world.processes[0].address, world.net.now());
    // Another key, in the name of member 1.
    let mut stranger = World::process(&world.net, incarnation(1), 2, [6; 32]);
    stranger.mesh.learn(&mut stranger.fabric, incarnation(0), first, now);
    world.processes.push(stranger);
    world.run(seconds(2));
    assert!(world.processes[0].up.is_empty() && world.processes[2].up.is_empty());
    world.processes.pop();

    // A recorded hello: it is answered, but its sender cannot seal a message.
    let (_, hello) = Initiator::begin(&KEY, &CONTEXT, &incarnation(1).encode()).unwrap();
    let mut recorder = world.net.node();
    let mut events = Events::new();
    for _ in 0..6 {
        let peer = recorder.connect(first, &hello).unwrap();
        for _ in 0..20 {
            world.run(STEP);
            recorder.poll(&mut events);
        }
        let work = Work::Send { peer, tag: 1, message: &[0; 40], mode: SendMode::default() };
        let _ = recorder.post(&[work]);
    }
    for _ in 0..20 {
        world.run(STEP);
        recorder.poll(&mut events);
    }
    let closed = events.iter().filter(|event| matches!(event, Event::Closed { .. })).count();
    assert!(closed >= 2, "those beyond the places for candidates, and those that sent rubbish: {closed}");
    assert!(world.processes[0].up.is_empty());
    // The true member 1 connects in spite of them.
    world.introduce(1, 0);
    world.run(seconds(1));
    assert_eq!(world.processes[0].up, [1]);
}

#[test]
fn what_waits_for_a_member_is_bounded_and_comes_in_order() {
    // If this broke, a member that reads nothing would fill the memory of the others.
    let mut world = World::new(2);
    world.introduce_all();
    world.run(seconds(1));
    world.processes[1].is_stopped = true;
    let max = Mesh::message_bytes_max(&world.processes[0].fabric);
    let mut sent = 0_u32;
    let refused = loop {
        let mut message = vec![0; max];
        message[..4].copy_from_slice(&sent.to_le_bytes());
        match world.send(0, 1, &message) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 100_000, "there is a bound");
    };
    assert_eq!(refused, SendError::Full(Member(1)));
    world.processes[1].is_stopped = false;
    world.run(seconds(3));
    let numbers: Vec<u32> = world.processes[1]
        .messages
        .iter()
        .map(|(_, bytes)| u32::from_le_bytes(bytes[..4].try_into().unwrap()))
        .collect();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
    assert_eq!(world.send(0, 1, b"again"), Ok(()));
}

#[test]
fn members_connect_through_the_filter_of_a_real_fabric() {
    // If this broke, meshes would work in simulations only.
    let start = std::time::Instant::now();
    let mut processes: Vec<_> = (0..2)
        .map(|member| {
            let mut fabric = ddss_verbs::Iwarp::new(ddss_verbs::IwarpConfig::default()).unwrap();
            let address = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let mesh = Mesh::new(MeshConfig { ours: incarnation(member), members: 2, key: KEY, context: CONTEXT });
            fabric.set_admission_filter(Box::new(mesh.verifier())).unwrap();
            (fabric, mesh, address, Vec::new())
        })
        .collect();
    let addresses = [processes[0].2, processes[1].2];
    for (whom, (fabric, mesh, ..)) in processes.iter_mut().enumerate() {
        let other = 1 - whom;
        mesh.learn(fabric, incarnation(other as u16), addresses[other], start.elapsed());
    }
    let mut events = Events::new();
    while processes.iter().any(|(.., seen)| seen.is_empty()) {
        assert!(start.elapsed() < seconds(30), "{:?} {:?}", processes[0].3, processes[1].3);
        for (fabric, mesh, _, seen) in &mut processes {
            fabric.poll(&mut events);
            for event in events.iter() {
                let happened = mesh.handle(fabric, &event, start.elapsed());
                seen.extend(happened.map(|happened| format!("{happened:?}")));
            }
            events.clear();
            mesh.tick(fabric, start.elapsed());
        }
    }
    let [first, second] = [&processes[0].3, &processes[1].3];
    assert_eq!((&first[..], &second[..]), (&["Up(Member(1))".to_owned()][..], &["Up(Member(0))".to_owned()][..]));
}
