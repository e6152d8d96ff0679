//! Strangers on the network and members of the cluster that keep to no rule, each a process: the node lives, its client's and
//! its peer's calls all succeed, it keeps its peer, nobody sees what is not his, and nothing is left of the attacker.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, Segment, Spec};
use ddss_testkit::{Surrounded, pattern, retry};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const HOSTILE: &str = env!("CARGO_BIN_EXE_hostile");
const SECRET: u64 = 0x5ec2_e79b_d13f_a46d;
/// Long enough for anything that is going to happen on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Calls that each neighbour makes after an attack.
const CALLS: u64 = 20;
/// What a node may have more than before when an attacker is gone. Its peer may be about to connect again, to each plane.
const DESCRIPTORS_MORE: usize = 8;
const MEMORY_MORE_KIB: u64 = 48 << 10;

/// Names of the attacks, by who makes them.
fn attacks(who: &str) -> Vec<String> {
    let output = Command::new(HOSTILE).args(["list", "--network"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    lines.filter(|parts| parts[2] == who).map(|parts| parts[0].to_owned()).collect()
}

fn see_out(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            return child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn client(folder: &Path) -> Client {
    Client::builder().folder(folder).local_reads(false).timeout(Duration::from_secs(20)).connect().unwrap()
}

/// One call after the other until the end; each has to succeed.
fn neighbour(who: &str, segment: &Segment, calls: &AtomicU64, end: &AtomicBool) {
    for turn in 0.. {
        if end.load(Ordering::Acquire) {
            return;
        }
        let bytes = pattern(turn, 4096);
        let stamp = segment.put(0, &bytes).unwrap_or_else(|error| panic!("{who}, call {turn}: {error}"));
        let value = segment.get(..).unwrap_or_else(|error| panic!("{who}, call {turn}: {error}"));
        assert!(value[..] == bytes[..] && value.stamp() == stamp, "{who}, call {turn}: another value");
        calls.fetch_add(1, Ordering::AcqRel);
        // The machine has few cores, and the attacker is to have its turn.
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// What a process has: open descriptors, and memory of its own in KiB.
fn belongings(pid: u32) -> (usize, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next()?.parse().ok());
    (std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(), memory.unwrap())
}

/// Attacks once with each, and says what went wrong.
fn besiege(surrounded: &mut Surrounded, names: &[String]) -> Vec<String> {
    let mine = client(surrounded.daemons[0].folder());
    let local = mine.allocate("neighbour/local", Spec::new(4096)).unwrap();
    let peer = client(surrounded.daemons[1].folder());
    retry(|| mine.allocate("neighbour/far", Spec::new(4096)));
    let far = retry(|| peer.open("neighbour/far"));
    let pid = surrounded.daemons[0].pid();
    let (end, calls) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    let mut faults = Vec::new();
    std::thread::scope(|scope| {
        let neighbours = [("the client", &local), ("the peer's client", &far)].into_iter().zip(&calls);
        let neighbours: Vec<_> =
            neighbours.map(|((who, segment), calls)| scope.spawn(|| neighbour(who, segment, calls, &end))).collect();
        let has_working_hint = || {
            let before = calls.each_ref().map(|calls| calls.load(Ordering::Acquire));
            let begin = Instant::now();
            while calls.iter().zip(before).any(|(calls, before)| calls.load(Ordering::Acquire) < before + CALLS) {
                if begin.elapsed() > PATIENCE || neighbours.iter().any(|neighbour| neighbour.is_finished()) {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            true
        };
        assert!(has_working_hint(), "the neighbours do not begin");
        let (descriptors, memory) = belongings(pid);
        for name in names {
            let begin = Instant::now();
            let log_before = surrounded.daemons[0].process().stderr().len();
            let mut attacker = surrounded.attack(name, 0).unwrap();
            let status = see_out(&mut attacker);
            let mut said = String::new();
            attacker.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            if !status.success() {
                faults.push(format!("{name}: {status}: {}", said.trim()));
            }
            if !has_working_hint() {
                faults.push(format!("{name}: the neighbours stand still"));
                break;
            }
            // What it had open is closed, when every deadline for it has passed.
            while belongings(pid).0 > descriptors + DESCRIPTORS_MORE {
                if begin.elapsed() > PATIENCE {
                    faults.push(format!("{name}: {} descriptors instead of {descriptors}", belongings(pid).0));
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let now = belongings(pid).1;
            if now > memory + MEMORY_MORE_KIB {
                faults.push(format!("{name}: {now} KiB instead of {memory}"));
            }
            let log = surrounded.daemons[0].process().stderr();
            let log = log.get(log_before..).unwrap_or_default();
            if let Some(line) = log.lines().find(|line| line.contains("panicked") || loses_peer(line)) {
                faults.push(format!("{name}: {line}"));
            }
            if log.contains('\x1b') {
                faults.push(format!("{name}: it paints in the log"));
            }
        }
        end.store(true, Ordering::Release);
        for neighbour in neighbours {
            if let Err(error) = neighbour.join() {
                let words = error.downcast_ref::<String>().cloned().unwrap_or_default();
                faults.push(format!("a neighbour: {words}"));
            }
        }
    });
    // What was there is there, and the lock is still the good client's.
    let value = surrounded.secret.get(..).unwrap();
    assert!(value.as_chunks::<8>().0.iter().all(|word| u64::from_le_bytes(*word) == SECRET));
    assert_eq!(value.version().0, 1, "somebody has written where he may not");
    surrounded.held.put(0, b"still mine").unwrap();
    faults
}

/// The attacked node had its honest peer, and has it no more.
fn loses_peer(line: &str) -> bool {
    line.contains("disconnected") && line.contains("node=2 ")
}

/// The strangers at the ports of the control plane and of metrics, or those at the port for data: each have a node of their own,
/// since many of them do nothing but wait.
fn strangers(at_control: bool) -> Vec<String> {
    let all = attacks("stranger");
    assert!(all.len() >= 24, "{} attacks", all.len());
    all.into_iter().filter(|name| name.starts_with("control::") == at_control).collect()
}

// If this failed, anybody who reaches a node's port for data could stop it, take its peers from it, or read what it keeps.
#[test]
fn whoever_has_no_key_harms_nobody_at_the_port_for_data() {
    let mut surrounded = Surrounded::start(SECRET, Path::new(HOSTILE), None).unwrap();
    let faults = besiege(&mut surrounded, &strangers(false));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// If this failed, anybody who reaches its port for control could do the same, or stop the cluster from deciding anything.
#[test]
fn whoever_has_no_key_harms_nobody_at_the_port_for_control() {
    let mut surrounded = Surrounded::start(SECRET, Path::new(HOSTILE), None).unwrap();
    let faults = besiege(&mut surrounded, &strangers(true));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// If this failed, one node that is taken over could stop the others, or read memory that nobody opened to it.
#[test]
fn a_member_that_keeps_to_no_rule_harms_nobody_but_itself() {
    let mut surrounded = Surrounded::start(SECRET, Path::new(HOSTILE), None).unwrap();
    let names = attacks("member");
    assert!(names.len() >= 24, "{} attacks", names.len());
    let faults = besiege(&mut surrounded, &names);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Attackers that end with the test.
struct Crowds(Vec<Child>);

impl Drop for Crowds {
    fn drop(&mut self) {
        for crowd in &mut self.0 {
            // One that has ended by itself is waited for all the same.
            let _ = crowd.kill();
            let _ = crowd.wait();
        }
    }
}

// If this failed, somebody who holds a few sockets open could keep a node that was restarted out of its cluster.
#[test]
fn a_node_comes_in_while_strangers_crowd_the_doors() {
    let mut surrounded = Surrounded::start(SECRET, Path::new(HOSTILE), None).unwrap();
    let mine = client(surrounded.daemons[0].folder());
    let far = mine.allocate("far", Spec::new(64)).unwrap();
    let names = ["doors::keeps_every_place", "control::silent_crowd", "control::said_again_by_a_silent_crowd"];
    // Both doors: either node may call the other one.
    let both = |name| [0, 1].map(|daemon| surrounded.attack_on(daemon, name, 600).unwrap());
    let mut crowds = Crowds(names.into_iter().flat_map(both).collect());
    std::thread::sleep(Duration::from_secs(1));
    // One that calls by itself, as node 3, and is served.
    for turn in 0..5 {
        let mut member = surrounded.attack("lies::uses_somebody_elses_lock", 0).unwrap();
        assert!(see_out(&mut member).success(), "turn {turn}: a member does not get in");
    }
    // And the honest peer, whichever side calls.
    surrounded.daemons[1].kill().unwrap();
    surrounded.daemons[1].start_again().unwrap();
    let peer = client(surrounded.daemons[1].folder());
    let here = retry(|| peer.open("far"));
    retry(|| here.put(0, b"from node 2"));
    assert_eq!(&far.get(..).unwrap()[..11], b"from node 2");
    // And a name is decided by both.
    retry(|| peer.allocate("new/2", Spec::new(64)));
    let crowds = names.iter().flat_map(|name| [(name, 0), (name, 1)]).zip(&mut crowds.0);
    let gone: Vec<_> = crowds.filter_map(|(whom, crowd)| Some((whom, crowd.try_wait().unwrap()?))).collect();
    assert!(gone.is_empty(), "some strangers have gone home: {gone:?}");
}
