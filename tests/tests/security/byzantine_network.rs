//! Unauthenticated peers and byzantine members, each a process. The node survives and keeps its peer, all calls of
//! client and peer succeed, no data leaks, and the attacker leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, Segment, Spec};
use ddss_testkit::{SetOnDrop, VictimMember, pattern, retry};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ATTACK: &str = env!("CARGO_BIN_EXE_attack");
const SECRET: u64 = 0x5ec2_e79b_d13f_a46d;
/// Ratio of waiting for a processor to computing from which the machine has starved a process. Five threads on two cores wait less.
const STARVED: u64 = 3;
/// Starved attacks after which the test gives up.
const STARVATIONS_MAX: usize = 4;
/// Time limit on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Calls of each legitimate client after an attack.
const CALLS: u64 = 20;
/// Permitted growth after an attacker is gone. The peer may be about to reconnect, for each shard.
const DESCRIPTORS_MORE: usize = 8;
const MEMORY_MORE_KIB: u64 = 48 << 10;

/// Names of the attacks of one kind of attacker.
fn attacks(who: &str) -> Vec<String> {
    let output = Command::new(ATTACK).args(["list", "--network"]).output().unwrap();
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
    Client::connect_with(ConnectOptions::new().directory(folder).local_reads(false).timeout(Duration::from_secs(20)))
        .unwrap()
}

/// Repeats a call until the end; each must succeed.
fn neighbour(who: &str, segment: &Segment, calls: &AtomicU64, end: &AtomicBool) {
    for turn in 0.. {
        if end.load(Ordering::Acquire) {
            return;
        }
        let bytes = pattern(turn, 4096);
        let stamp = segment.put(0, &bytes).unwrap_or_else(|error| panic!("{who}, call {turn}: {error}"));
        let value = segment.get(..).unwrap_or_else(|error| panic!("{who}, call {turn}: {error}"));
        assert!(value[..] == bytes[..] && value.stamp == stamp, "{who}, call {turn}: another value");
        calls.fetch_add(1, Ordering::AcqRel);
        // The machine has few cores, and the attacker needs one as well.
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Resources of a process: open descriptors, and private memory in KiB.
fn belongings(pid: u32) -> (usize, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next()?.parse().ok());
    (std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(), memory.unwrap())
}

/// Nanoseconds that the threads of a process computed, and that they waited for a processor. Zeros if the kernel does not count.
fn processor_times(pid: u32) -> [u64; 2] {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    texts.fold([0, 0], |sums, text| {
        let mut times = text.split_whitespace().flat_map(str::parse::<u64>);
        sums.map(|sum| sum + times.next().unwrap_or(0))
    })
}

/// Runs each attack once against a new member, and returns the failures. An attack that fails while other programs use
/// the processors is repeated, because the cluster may have declared the node dead.
#[allow(clippy::print_stderr, reason = "a person who reads the gate's output wants to know how busy the machine was")]
fn faults_of(names: &[String]) -> Vec<String> {
    let (mut names, mut last) = (names, Vec::new());
    for _ in 0..STARVATIONS_MAX {
        let mut victim = VictimMember::start(SECRET, Path::new(ATTACK), None).unwrap();
        match attack_victim(&mut victim, names) {
            Ok(faults) => return faults,
            Err((starved_at, faults)) => (names, last) = (&names[starved_at..], faults),
        }
        eprintln!("{}: the node waited for a processor nearly all the time: once more", names[0]);
    }
    last.insert(0, "other programs had the processors, again and again".to_owned());
    last
}

/// Runs an attack. Returns the attacker's complaint.
fn fault_of_attacker(victim: &VictimMember, name: &str) -> Option<String> {
    let mut attacker = victim.attack(name, 0).unwrap();
    let status = see_out(&mut attacker);
    let mut said = String::new();
    attacker.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (!status.success()).then(|| format!("{name}: {status}: {}", said.trim()))
}

/// Returns what an attack must not leave in the log of the node.
fn log_faults(log: &str) -> impl Iterator<Item = &str> {
    let lost = log.lines().find(|line| line.contains("panicked") || loses_peer(line));
    lost.into_iter().chain(log.contains('\x1b').then_some("it paints in the log"))
}

/// Returns true once each of the neighbours has made more calls.
fn go_on(calls: &[AtomicU64; 2], has_ended: impl Fn() -> bool) -> bool {
    let before = calls.each_ref().map(|calls| calls.load(Ordering::Acquire));
    let begin = Instant::now();
    while calls.iter().zip(before).any(|(calls, before)| calls.load(Ordering::Acquire) < before + CALLS) {
        if begin.elapsed() > PATIENCE || has_ended() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Runs each attack once, and returns the failures; or the place of an attack that failed while the node had no processor, with
/// what failed.
fn attack_victim(victim: &mut VictimMember, names: &[String]) -> Result<Vec<String>, (usize, Vec<String>)> {
    let mine = client(victim.daemons[0].folder());
    let local = mine.segment("neighbour/local").allocate(Spec::new(4096)).unwrap();
    let peer = client(victim.daemons[1].folder());
    retry(|| mine.segment("neighbour/far").allocate(Spec::new(4096)));
    let far = retry(|| peer.segment("neighbour/far").open());
    let pid = victim.daemons[0].pid();
    let (end, calls) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    let (mut faults, mut starved_at) = (Vec::new(), None);
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&end);
        let neighbours = [("the client", &local), ("the peer's client", &far)].into_iter().zip(&calls);
        let neighbours: Vec<_> =
            neighbours.map(|((who, segment), calls)| scope.spawn(|| neighbour(who, segment, calls, &end))).collect();
        let keeps_working = || go_on(&calls, || neighbours.iter().any(|neighbour| neighbour.is_finished()));
        assert!(keeps_working(), "the neighbours do not begin");
        let (descriptors, memory) = belongings(pid);
        for (index, name) in names.iter().enumerate() {
            let begin = Instant::now();
            let (faults_before, times_before) = (faults.len(), processor_times(pid));
            let log_before = victim.daemons[0].process().stderr().len();
            faults.extend(fault_of_attacker(victim, name));
            let is_working = keeps_working();
            if !is_working {
                let logs = victim.daemons.iter_mut().map(|daemon| daemon.process().stderr());
                let ends: Vec<String> = logs.map(|log| log[log.len().saturating_sub(3000)..].to_owned()).collect();
                faults.push(format!("{name}: the neighbours stand still; {}", ends.join("\n-- the peer:\n")));
            }
            // Its connections are closed when every deadline for them has passed.
            while is_working && belongings(pid).0 > descriptors + DESCRIPTORS_MORE {
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
            let log = victim.daemons[0].process().stderr();
            faults
                .extend(log_faults(log.get(log_before..).unwrap_or_default()).map(|fault| format!("{name}: {fault}")));
            let [ran, waited] = [0, 1].map(|kind| processor_times(pid)[kind].saturating_sub(times_before[kind]));
            if faults.len() > faults_before && waited > STARVED * ran {
                starved_at = Some(index);
            }
            if starved_at.is_some() || !is_working {
                break;
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
    if let Some(index) = starved_at {
        return Err((index, faults));
    }
    // The data is unchanged, and the legitimate client still holds its lock.
    let value = victim.secret.get(..).unwrap();
    assert!(value.as_chunks::<8>().0.iter().all(|word| u64::from_le_bytes(*word) == SECRET));
    assert_eq!(value.version().0, 1, "somebody has written where he may not");
    victim.held.put(0, b"still mine").unwrap();
    Ok(faults)
}

/// Returns true if the log line says that the attacked node lost its legitimate peer.
fn loses_peer(line: &str) -> bool {
    line.contains("disconnected") && line.contains("node=2 ")
}

/// Unauthenticated attacks on the control and metrics ports, or on the data port. Each group has a node of its own,
/// since many of them only wait.
fn unauthenticated_attacks(at_control: bool) -> Vec<String> {
    let all = attacks("unauthenticated");
    assert!(all.len() >= 24, "{} attacks", all.len());
    all.into_iter().filter(|name| name.starts_with("control_port::") == at_control).collect()
}

// If this failed, any host that reaches the data port could stop a node, disconnect its peers, or read its data.
#[test]
fn unauthenticated_peers_do_no_harm_at_the_data_port() {
    let faults = faults_of(&unauthenticated_attacks(false));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// If this failed, any host that reaches the control port could do the same, or stop the cluster's decisions.
#[test]
fn unauthenticated_peers_do_no_harm_at_the_control_port() {
    let faults = faults_of(&unauthenticated_attacks(true));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// If this failed, one compromised node could stop the others, or read memory without permission.
#[test]
fn byzantine_member_harms_only_itself() {
    let names = attacks("member");
    assert!(names.len() >= 24, "{} attacks", names.len());
    let faults = faults_of(&names);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Attackers that are killed when this value is dropped.
struct Crowds(Vec<Child>);

impl Drop for Crowds {
    fn drop(&mut self) {
        for crowd in &mut self.0 {
            // An attacker that has already ended must still be reaped.
            let _ = crowd.kill();
            let _ = crowd.wait();
        }
    }
}

// If this failed, a host with a few open sockets could keep a restarted node out of its cluster.
#[test]
fn node_joins_while_unauthenticated_peers_flood_the_ports() {
    let mut victim = VictimMember::start(SECRET, Path::new(ATTACK), None).unwrap();
    let mine = client(victim.daemons[0].folder());
    let far = mine.segment("far").allocate(Spec::new(64)).unwrap();
    let names = [
        "unauthenticated::holds_every_connection_slot",
        "control_port::opens_silent_connections",
        "control_port::replays_on_silent_connections",
    ];
    // The attackers flood both nodes, because either node may initiate the connection.
    let both = |name| [0, 1].map(|daemon| victim.attack_on(daemon, name, 600).unwrap());
    let mut crowds = Crowds(names.into_iter().flat_map(both).collect());
    std::thread::sleep(Duration::from_secs(1));
    // Node 3 connects and is served.
    for turn in 0..5 {
        let mut member = victim.attack("member_requests::uses_foreign_lock", 0).unwrap();
        assert!(see_out(&mut member).success(), "turn {turn}: a member does not get in");
    }
    // The honest peer reconnects, whichever side connects.
    victim.daemons[1].kill().unwrap();
    victim.daemons[1].restart().unwrap();
    let peer = client(victim.daemons[1].folder());
    let here = retry(|| peer.segment("far").open());
    retry(|| here.put(0, b"from node 2"));
    assert_eq!(&far.get(..).unwrap()[..11], b"from node 2");
    // Both nodes together can decide a name.
    retry(|| peer.segment("new/2").allocate(Spec::new(64)));
    let crowds = names.iter().flat_map(|name| [(name, 0), (name, 1)]).zip(&mut crowds.0);
    let gone: Vec<_> = crowds.filter_map(|(whom, crowd)| Some((whom, crowd.try_wait().unwrap()?))).collect();
    assert!(gone.is_empty(), "some strangers have gone home: {gone:?}");
}
