//! Byzantine clients, each a process of another user. The daemon survives, all calls of a legitimate client succeed, no
//! data leaks, and the log gives the reason of each disconnection.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, Spec, Strategy};
use ddss_testkit::{SetOnDrop, VictimNode, pattern};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ATTACK: &str = env!("CARGO_BIN_EXE_attack");
const SECRET: u64 = 0x5ec2_e79b_d13f_a46d;
/// Time limit on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Calls of the legitimate client during each attack, and after it.
const CALLS: u64 = 50;

/// Returns the name of each attack, with the expected log text.
fn attacks() -> Vec<(String, String)> {
    let output = Command::new(ATTACK).arg("list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let mut parts = line.split('\t').map(str::to_owned);
        (parts.next().unwrap(), parts.nth(1).unwrap())
    };
    text.lines().map(line).collect()
}

/// Waits for the end of an attacker; a stopped one is resumed after the calls of the legitimate client.
fn see_out(child: &mut Child, calls: &AtomicU64) -> ExitStatus {
    let (begin, before) = (Instant::now(), calls.load(Ordering::Acquire));
    let pid = rustix::process::Pid::from_child(child);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if calls.load(Ordering::Acquire) >= before + CALLS {
            // A running process ignores SIGCONT.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            return child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Repeats a call until the end; each must succeed.
fn neighbour(folder: &Path, strategy: Strategy, calls: &AtomicU64, end: &AtomicBool) {
    let connect = || {
        Client::connect_with(
            ConnectOptions::new().directory(folder).strategy(strategy).local_reads(false).timeout(PATIENCE),
        )
    };
    let segment = connect().unwrap().segment(&format!("neighbour/{strategy}")).allocate(Spec::new(4096)).unwrap();
    for turn in 0.. {
        if end.load(Ordering::Acquire) {
            return;
        }
        let bytes = pattern(turn, 4096);
        let stamp = segment.put(0, &bytes).unwrap_or_else(|error| panic!("{strategy}, call {turn}: {error}"));
        let value = segment.get(..).unwrap_or_else(|error| panic!("{strategy}, call {turn}: {error}"));
        assert!(value[..] == bytes[..] && value.stamp == stamp, "{strategy}, call {turn}: another value");
        calls.fetch_add(1, Ordering::AcqRel);
        if turn % 16 == 0 {
            // A new client can attach as well.
            connect().and_then(|client| client.ping()).unwrap_or_else(|error| panic!("attaching: {error}"));
        }
    }
}

// If this failed, any user of a machine could stop its daemon, starve the others, or read their data.
#[test]
fn byzantine_clients_harm_only_themselves() {
    let mut victim = VictimNode::start(SECRET, Path::new(ATTACK), None).unwrap();
    let folder = victim.daemon.folder().to_owned();
    let (end, calls) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    let mut faults = Vec::new();
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&end);
        let neighbours = [Strategy::Auto, Strategy::Rmq].into_iter().zip(&calls);
        let neighbours: Vec<_> = neighbours
            .map(|(strategy, calls)| {
                let (folder, end) = (&folder, &end);
                scope.spawn(move || neighbour(folder, strategy, calls, end))
            })
            .collect();
        let keeps_working = || {
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
        for (name, logged) in attacks() {
            let begin = Instant::now();
            let log_before = victim.daemon.process().stderr().len();
            let mut attacker = victim.attack(&name, 0).unwrap();
            let status = see_out(&mut attacker, &calls[0]);
            let mut said = String::new();
            attacker.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            if !status.success() {
                faults.push(format!("{name}: {status}: {}", said.trim()));
            }
            if !keeps_working() {
                faults.push(format!("{name}: the neighbours stand still"));
                break;
            }
            let mut log = victim.daemon.process().stderr();
            // The log throttle may have suppressed the line: it permits one line of a kind each second.
            if !logged.is_empty() && !log[log_before..].contains(&logged) {
                std::thread::sleep(Duration::from_millis(1200));
                see_out(&mut victim.attack(&name, 0).unwrap(), &calls[0]);
                log = victim.daemon.process().stderr();
            }
            let log = log.get(log_before..).unwrap_or_default();
            if !logged.is_empty() && !log.contains(&logged) {
                faults.push(format!("{name}: the log says nothing of {logged:?}"));
            }
            if log.contains("panicked") {
                faults.push(format!("{name}: {log}"));
            }
            eprintln!("{name}: {:?}", begin.elapsed());
        }
        end.store(true, Ordering::Release);
        for neighbour in neighbours {
            if let Err(error) = neighbour.join() {
                let words = error.downcast_ref::<String>().cloned().unwrap_or_default();
                faults.push(format!("a neighbour: {words}"));
            }
        }
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // The data is unchanged, and the legitimate client still holds its lock.
    let value = victim.secret.get(..).unwrap();
    assert!(value.as_chunks::<8>().0.iter().all(|word| u64::from_le_bytes(*word) == SECRET));
    assert_eq!(value.version().0, 1, "somebody has written where he may not");
    victim.held.put(0, b"still mine").unwrap();
    assert!(attacks().len() >= 24);
}
