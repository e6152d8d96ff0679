//! Life cycle over an RDMA adapter: sleep, killed and stopped peers, links that go down, and leaks. Skipped without an
//! adapter, as in `adapter.rs`.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{ALL, FabricFactory, Memory, Node, OwnedEvent, Pair, WAIT_MAX, addresses, pattern};
use ddss_verbs::rdma::{Rdma, RdmaConfig, RdmaError, adapters};
use ddss_verbs::{
    AtomicScope, CloseReason, Fabric, LocalRange, PeerId, PostErrorKind, RegionId, RemoteRange, Rights, SendMode,
    Window, Work, WorkError,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};

fn fabric(address: IpAddr, change: impl FnOnce(&mut RdmaConfig)) -> Rdma {
    let mut config = RdmaConfig::default();
    config.address = Some(address);
    change(&mut config);
    Rdma::new(config).unwrap()
}

fn is_iwarp() -> bool {
    adapters().unwrap().iter().any(|adapter| adapter.is_iwarp)
}

fn skipped(test: &str, why: &str) {
    drop(std::io::stderr().lock().write_all(format!("skipped: {test}: {why}\n").as_bytes()));
}

struct Two(IpAddr, IpAddr, usize, fn(&mut RdmaConfig));

impl FabricFactory for Two {
    type Fabric = Rdma;

    fn fabric(&mut self) -> Rdma {
        self.2 += 1;
        fabric(if self.2 == 1 { self.0 } else { self.1 }, self.3)
    }

    fn address(&mut self) -> SocketAddr {
        SocketAddr::new(self.1, 0)
    }
}

fn read(peer: PeerId, tag: u64, region: RegionId, bytes: u64, window: &Window) -> Work<'static> {
    let remote = RemoteRange { key: window.key, address: window.base };
    Work::Read { peer, tag, local: LocalRange { region, offset: 0, bytes }, remote }
}

#[test]
fn adapters_and_configuration_errors_are_reported() {
    // If this failed, an operator could not find out why a node does not use its adapter.
    let Some((a, _)) = addresses() else { return };
    let found = adapters().unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    for adapter in &found {
        let [port] = &adapter.ports[..] else { panic!("{adapter:?}") };
        assert!(port.is_active && port.is_ethernet && port.message_bytes_max >= 1 << 20, "{port:?}");
        assert!(matches!(port.mtu_bytes, 1024 | 2048 | 4096), "{port:?}");
        assert!(adapter.reads_inbound_max > 0 && adapter.reads_outbound_max > 0);
        if !adapter.is_iwarp {
            let gid = port.ipv4_gid().unwrap_or_else(|| panic!("{port:?}"));
            assert!(gid.address.to_ipv4_mapped().unwrap().octets().starts_with(&[10, 9, 0]));
        }
    }
    let device = fabric(a, |_| {}).device();
    let mut by_name = RdmaConfig::default();
    by_name.device = Some(device.clone());
    assert_eq!(Rdma::new(by_name.clone()).unwrap().device(), device);
    by_name.device = Some("mlx5_99".to_owned());
    let error = Rdma::new(by_name).unwrap_err();
    assert!(matches!(error, RdmaError::NoSuchDevice { .. }) && error.to_string().contains(&device), "{error}");
    let mut nowhere = RdmaConfig::default();
    nowhere.address = Some("192.0.2.1".parse().unwrap());
    let error = Rdma::new(nowhere).unwrap_err();
    assert!(matches!(error, RdmaError::NoSuchAddress { .. }), "{error}");
}

#[test]
fn adapter_executes_atomics_when_configured() {
    // If this failed, a lock whose words the adapters update would be held twice.
    let Some((a, b)) = addresses() else { return };
    if is_iwarp() {
        let mut config = RdmaConfig::default();
        (config.address, config.atomics) = (Some(a), AtomicScope::Adapter);
        let error = Rdma::new(config).unwrap_err();
        assert!(matches!(error, RdmaError::NoAtomics(_)), "{error}");
        return;
    }
    let mut pair = Pair::new(Two(a, b, 0, |config| config.atomics = AtomicScope::Adapter));
    assert_eq!(pair.b.fabric.capabilities().atomics, AtomicScope::Adapter);
    let (there, here) = pair.connect();
    let theirs = Memory::new(4096);
    let (_, window) = pair.expose(&theirs, here, Rights::ATOMIC);
    let word = RemoteRange { key: window.key, address: window.base + 16 };
    for tag in 0..300 {
        pair.a.fabric.post(&[Work::FetchAdd { peer: there, tag, remote: word, add: 3 }]).unwrap();
    }
    for tag in 0..300 {
        // The home's thread does not poll: its adapter answers.
        let start = Instant::now();
        while !pair.a.seen.iter().any(|seen| matches!(seen, OwnedEvent::Done { tag: other, .. } if *other == tag)) {
            assert!(start.elapsed() < WAIT_MAX, "no answer to {tag}");
            pair.a.poll();
        }
        assert_eq!(pair.a.done(tag), Some(Ok(tag * 3)));
    }
    let swap = |tag, compare| Work::CompareSwap { peer: there, tag, remote: word, compare, swap: 7 };
    pair.a.fabric.post(&[swap(1, 899), swap(2, 900), swap(3, 900)]).unwrap();
    assert_eq!([1, 2, 3].map(|tag| pair.a_done(tag)), [Ok(900), Ok(900), Ok(7)]);
    assert_eq!(theirs.word(16), 7);
}

/// Sleeps until the fabric has work, as a progress thread does.
fn sleep(node: &mut Node<Rdma>) {
    if node.fabric.arm() {
        let descriptor = node.fabric.descriptor();
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        let woken = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(woken, 1, "nothing woke a sleeper in 20 s");
        node.fabric.disarm();
    }
    node.poll();
}

#[test]
fn sleeping_thread_is_woken() {
    // If this failed, an idle daemon would answer late or never.
    let Some((a, b)) = addresses() else { return };
    let mut pair = Pair::new(Two(a, b, 0, |_| {}));
    let (there, here) = pair.connect();
    let echo = std::thread::spawn(move || {
        let mut b = pair.b;
        let mut rounds = 0;
        while rounds < 50 {
            sleep(&mut b);
            while let Some(message) = b.message() {
                let work = Work::Send { peer: here, tag: rounds, message: &message, mode: SendMode::default() };
                b.fabric.post(&[work]).unwrap();
                b.poll();
                rounds += 1;
            }
        }
        b
    });
    let mut a = pair.a;
    for round in 0..50_u64 {
        if round % 10 == 0 {
            // Long enough for the other side to fall asleep.
            std::thread::sleep(Duration::from_millis(30));
        }
        let message = round.to_le_bytes();
        a.fabric.post(&[Work::Send { peer: there, tag: round, message: &message, mode: SendMode::default() }]).unwrap();
        a.poll();
        loop {
            if let Some(answer) = a.message() {
                break assert_eq!(answer, message);
            }
            sleep(&mut a);
        }
    }
    // A close wakes the other side, too.
    let mut b = echo.join().unwrap();
    a.fabric.close(there);
    let start = Instant::now();
    while a.closed(there).is_none() {
        assert!(start.elapsed() < WAIT_MAX);
        a.poll();
    }
    while b.closed(here).is_none() {
        assert!(start.elapsed() < WAIT_MAX);
        sleep(&mut b);
    }
}

/// Another process with a window; it prints its address.
struct Home {
    process: Child,
    address: SocketAddr,
}

impl Home {
    fn start(at: IpAddr) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "home", "--nocapture", "--test-threads=1"])
            .env("DDSS_RDMA_HOME", at.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.map(Result::unwrap).find(|line| line.contains("listens on ")).unwrap();
        let address = line.split("listens on ").nth(1).unwrap().trim().parse().unwrap();
        Self { process, address }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Body of the process that [`Home`] runs, no test of its own. It sends its window as hello and serves until it is
/// killed.
#[test]
fn home() {
    let Ok(at) = std::env::var("DDSS_RDMA_HOME") else { return };
    let mut node = Node::new(fabric(at.parse().unwrap(), |_| {}));
    let memory = Memory::new(2 << 20);
    memory.set(0, &pattern(6, 2 << 20));
    let region = node.register(&memory);
    let address = node.fabric.listen(SocketAddr::new(at.parse().unwrap(), 0)).unwrap();
    #[allow(clippy::print_stdout, reason = "another process reads it")]
    {
        println!("listens on {address}");
    }
    loop {
        node.poll();
        while let Some(seen) = node.seen.pop() {
            if let OwnedEvent::ConnectRequest { peer, .. } = seen {
                let window = node.fabric.expose(peer, region, 0, memory.bytes, ALL).unwrap();
                let words = [u64::from(window.key), window.base, window.bytes];
                let hello: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                node.fabric.accept(peer, &hello).unwrap();
            }
        }
        std::thread::yield_now();
    }
}

/// Connects a node to such a process.
fn connect_to_home(at: IpAddr, home: &Home) -> (Node<Rdma>, PeerId, Window) {
    let mut node = Node::new(fabric(at, |config| config.stall_timeout = Duration::from_secs(3)));
    let peer = node.fabric.connect(home.address, b"hi").unwrap();
    let start = Instant::now();
    loop {
        node.poll();
        assert!(start.elapsed() < WAIT_MAX, "not connected; saw {:?}", node.seen);
        if let Some(OwnedEvent::Connected { hello, .. }) =
            node.take(|seen| matches!(seen, OwnedEvent::Connected { .. }))
        {
            let word = |at: usize| u64::from_le_bytes(hello[at * 8..][..8].try_into().unwrap());
            return (node, peer, Window { key: word(0) as u32, base: word(1), bytes: word(2) });
        }
    }
}

fn done(node: &mut Node<Rdma>, tag: u64) -> Result<u64, WorkError> {
    let start = Instant::now();
    loop {
        if let Some(outcome) = node.done(tag) {
            return outcome;
        }
        assert!(start.elapsed() < WAIT_MAX, "operation {tag} did not end");
        node.poll();
    }
}

#[test]
fn stopped_home_is_still_readable() {
    // If this failed, a stopped or starved process would keep every other node from its data.
    let Some((a, b)) = addresses() else { return };
    let home = Home::start(b);
    let (mut node, peer, window) = connect_to_home(a, &home);
    let mine = Memory::new(1 << 16);
    let region = node.register(&mine);
    home.signal(rustix::process::Signal::STOP);
    for tag in 0..100 {
        node.fabric.post(&[read(peer, tag, region, 1 << 16, &window)]).unwrap();
        assert_eq!(done(&mut node, tag), Ok(0));
    }
    assert!(mine.get(0, 1 << 16) == pattern(6, 1 << 16));
    home.signal(rustix::process::Signal::CONT);
}

#[test]
fn killed_peer_completes_operations_in_time() {
    // If this failed, callers would wait forever for a dead node.
    let Some((a, b)) = addresses() else { return };
    let mut home = Home::start(b);
    let (mut node, peer, window) = connect_to_home(a, &home);
    /// Stall timeout of `connect_to_home`, the time of an end, and a margin for an emulated machine.
    const ALL_ENDED: Duration = Duration::from_secs(3 + 1 + 4);
    let mine = Memory::new(1 << 20);
    let region = node.register(&mine);
    let reads: Vec<_> = (0..64).map(|tag| read(peer, tag, region, 1 << 20, &window)).collect();
    node.fabric.post(&reads).unwrap();
    node.poll();
    home.process.kill().unwrap();
    let killed = Instant::now();
    home.process.wait().unwrap();
    let outcomes: Vec<_> = (0..64).map(|tag| done(&mut node, tag)).collect();
    assert!(killed.elapsed() < ALL_ENDED, "they ended {:?} after the kill", killed.elapsed());
    assert!(outcomes.iter().any(Result::is_err), "64 MiB were read before the kill");
    for outcome in outcomes.into_iter().filter_map(Result::err) {
        assert!(matches!(outcome, WorkError::Indeterminate | WorkError::NotExecuted), "{outcome:?}");
    }
    let start = Instant::now();
    let reason = loop {
        if let Some(reason) = node.closed(peer) {
            break reason;
        }
        assert!(start.elapsed() < WAIT_MAX);
        node.poll();
    };
    assert!(!matches!(reason, CloseReason::Local | CloseReason::Terminated(_)), "{reason:?}");
    assert!(node.seen.is_empty(), "each ends once: {:?}", node.seen);
}

/// Returns the kernel's resources of all adapters, by kind, and the number of descriptors.
fn kernel_resources() -> (Vec<String>, usize) {
    let output = Command::new("rdma").args(["resource", "show"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (text.lines().map(|line| line.split_once(": ").unwrap().1.trim().to_owned()).collect(), fds)
}

#[test]
fn closed_connect_request_is_not_accepted() {
    // If this failed, a node that answers too late would retain half a connection, or receive its end never or twice.
    let Some((a, b)) = addresses() else { return };
    let mut pair = Pair::new(Two(a, b, 0, |_| {}));
    let there = pair.a.fabric.connect(pair.address, b"from a").unwrap();
    let asked = pair.wait("being asked", |pair| pair.b.take(|seen| matches!(seen, OwnedEvent::ConnectRequest { .. })));
    let OwnedEvent::ConnectRequest { peer: here, .. } = asked else { unreachable!() };
    pair.a.fabric.close(there);
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    while pair.a.closed(there).is_none() {
        assert!(start.elapsed() < WAIT_MAX);
        let began = Instant::now();
        pair.a.poll();
        longest = longest.max(began.elapsed());
    }
    println!("longest poll after giving up: {longest:?}");
    if is_iwarp() {
        // Soft-iWARP notifies the other side after ten seconds.
        return;
    }
    // The end of `a` is on its way in the meantime.
    std::thread::sleep(Duration::from_millis(100));
    // The manager knows the end by now and reports "invalid argument".
    let _ = pair.b.fabric.accept(here, b"from b");
    pair.wait("b to be closed", |pair| pair.b.closed(here));
    assert!(pair.b.seen.is_empty(), "it ends once: {:?}", pair.b.seen);
    assert_eq!((pair.a.fabric.connection_count(), pair.b.fabric.connection_count()), (0, 0));
}

#[test]
fn connections_leak_no_resources() {
    // If this failed, a cluster with changing nodes would run out of queues, keys or descriptors.
    let Some((a, b)) = addresses() else { return };
    let cycles = std::env::var("DDSS_RDMA_CYCLES").map_or(20, |text| text.parse().unwrap());
    // A machine that pauses for some seconds is no peer that gave up.
    let mut pair = Pair::new(Two(a, b, 0, |config| config.handshake_timeout = WAIT_MAX));
    let (mine, theirs) = (Memory::new(4096), Memory::new(4096));
    theirs.set(0, b"8 bytes!");
    let region = pair.a.register(&mine);
    let owner = pair.b.register(&theirs);
    let mut before = None;
    for cycle in 0..cycles {
        if cycle == 2 {
            before = Some(kernel_resources());
        }
        if cycle > 0 && cycle % 1000 == 0 {
            drop(std::io::stderr().lock().write_all(format!("{cycle} cycles\n").as_bytes()));
        }
        let (there, here) = pair.connect();
        let window = pair.b.fabric.expose(here, owner, 0, 4096, ALL).unwrap();
        mine.set(0, &[0; 8]);
        pair.a.fabric.post(&[read(there, 1, region, 8, &window)]).unwrap();
        assert_eq!(pair.a_done(1), Ok(0));
        assert_eq!(mine.get(0, 8), b"8 bytes!");
        let closer = if cycle % 2 == 0 { &mut pair.a.fabric } else { &mut pair.b.fabric };
        closer.close(if cycle % 2 == 0 { there } else { here });
        pair.wait("a to be closed", |pair| pair.a.closed(there));
        pair.wait("b to be closed", |pair| pair.b.closed(here));
        assert!(pair.a.seen.is_empty() && pair.b.seen.is_empty());
    }
    assert_eq!((pair.a.fabric.connection_count(), pair.b.fabric.connection_count()), (0, 0));
    // The connection manager retains an id for a moment.
    let start = Instant::now();
    while Some(kernel_resources()) != before {
        assert!(start.elapsed() < WAIT_MAX, "{:?} and not {before:?} after {cycles} cycles", kernel_resources());
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(std::io::stderr().lock().write_all(format!("cycles without a leak: {cycles}\n").as_bytes()));
}

#[test]
fn fabric_dropped_with_work_in_flight_leaks_nothing() {
    // If this failed, a daemon that ends with work in flight would panic, or leave memory locked.
    let Some((a, b)) = addresses() else { return };
    // The libraries retain what they opened once.
    drop(Pair::new(Two(a, b, 0, |_| {})));
    let before = kernel_resources();
    {
        let mut pair = Pair::new(Two(a, b, 0, |_| {}));
        let (there, here) = pair.connect();
        let (mine, theirs) = (Memory::new(1 << 20), Memory::new(1 << 20));
        let (_, window) = pair.expose(&theirs, here, ALL);
        let region = pair.a.register(&mine);
        let reads: Vec<_> = (0..64).map(|tag| read(there, tag, region, 1 << 20, &window)).collect();
        pair.a.fabric.post(&reads).unwrap();
        pair.a.poll();
    }
    let start = Instant::now();
    while kernel_resources() != before {
        assert!(start.elapsed() < WAIT_MAX, "{:?} and not {before:?}", kernel_resources());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn lock_limit_is_named_in_the_error() {
    // If this failed, the first get after an installation would fail without a hint at the limit.
    let Some((a, b)) = addresses() else { return };
    if !is_iwarp() {
        return skipped("lock_limit_is_named_in_the_error", "root may lock what it likes, save for Soft-iWARP");
    }
    let mut pair = Pair::new(Two(a, b, 0, |_| {}));
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(4 << 20), Memory::new(4 << 20));
    let (local_region, remote_region) = (pair.a.register(&mine), pair.b.register(&theirs));
    let window = pair.b.fabric.expose(here, remote_region, 0, 8, ALL).unwrap();
    setrlimit(Resource::Memlock, Rlimit { current: Some(1 << 20), maximum: None }).unwrap();
    let refused = pair.a.fabric.post(&[read(there, 1, local_region, 8, &window)]).unwrap_err();
    let unopened = pair.b.fabric.expose(here, remote_region, 0, 4 << 20, ALL).unwrap_err();
    setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).unwrap();
    assert_eq!(refused.kind, PostErrorKind::NotLocked);
    let why = std::error::Error::source(&unopened).unwrap().to_string();
    assert!(why.contains("ulimit -l") && why.contains("LimitMEMLOCK"), "{why}");
    pair.a.fabric.post(&[read(there, 2, local_region, 8, &window)]).unwrap();
    assert_eq!(pair.a_done(2), Ok(0));
}

fn link(state: &str) {
    assert!(Command::new("/bin/ip").args(["link", "set", "west", state]).status().unwrap().success());
}

#[test]
fn link_down_closes_connections() {
    // If this failed, a pulled cable would cause silence.
    let Some((a, b)) = addresses() else { return };
    let mut pair = Pair::new(Two(a, b, 0, |config| config.stall_timeout = Duration::from_secs(3)));
    let (there, here) = pair.connect();
    let theirs = Memory::new(4096);
    let (_, window) = pair.expose(&theirs, here, ALL);
    let mine = Memory::new(4096);
    let region = pair.a.register(&mine);
    link("down");
    // The end may be known before anything is posted.
    let posted = pair.a.fabric.post(&[read(there, 1, region, 8, &window)]).is_ok();
    if posted {
        assert_eq!(pair.a_done(1), Err(WorkError::Indeterminate));
    }
    let reasons = [
        pair.wait("b to be closed", |pair| pair.b.closed(here)),
        pair.wait("a to be closed", |pair| pair.a.closed(there)),
    ];
    let down = CloseReason::Lost(std::io::ErrorKind::NetworkDown);
    if is_iwarp() {
        // Soft-iWARP resets the connections of the end with the failed link before it reports the reason, and tells
        // the other end nothing.
        assert!(matches!(reasons[0], CloseReason::Lost(_)), "{reasons:?}");
    } else {
        assert!(reasons.iter().all(|reason| *reason == down), "{reasons:?}");
    }
    link("up");
    drop(pair);
    // The address goes with the link's routes only if it is reassigned; with the link up, everything works again.
    let start = Instant::now();
    while !adapters().unwrap().iter().all(|adapter| adapter.ports[0].is_active) {
        assert!(start.elapsed() < WAIT_MAX, "the link stays down");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the kilobytes of shared memory in huge pages of this process.
fn huge_kilobytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let field = |line: &str| -> Option<u64> {
        line.strip_prefix("ShmemPmdMapped:")?.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    text.lines().filter_map(field).sum()
}

#[test]
fn huge_pages_are_used_if_available() {
    // If this failed, a large segment would be registered page by page on a machine with huge pages.
    let Some((a, b)) = addresses() else { return };
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    if !["[advise]", "[within_size]", "[always]"].iter().any(|given| setting.contains(given)) {
        return skipped("huge_pages_are_used_if_available", "shmem_enabled gives none");
    }
    let mut pair = Pair::new(Two(a, b, 0, |_| {}));
    let (there, here) = pair.connect();
    let (mine, theirs) = (Memory::new(8 << 20), Memory::new(8 << 20));
    let before = huge_kilobytes();
    let (_, window) = pair.expose(&theirs, here, ALL);
    let region = pair.a.register(&mine);
    theirs.set(0, &pattern(3, 1 << 20));
    pair.a.fabric.post(&[read(there, 1, region, 1 << 20, &window)]).unwrap();
    assert_eq!(pair.a_done(1), Ok(0));
    assert!(mine.get(0, 1 << 20) == pattern(3, 1 << 20));
    assert!(huge_kilobytes() >= before + 8 * 1024, "{} kB and {before} before", huge_kilobytes());
}

#[test]
fn device_removal_closes_connections() {
    // If this failed, an adapter that is unplugged, or whose driver is unloaded, would leave its users waiting.
    let Some((a, b)) = addresses() else { return };
    if !is_iwarp() {
        return skipped(
            "device_removal_closes_connections",
            "Soft-RoCE keeps working for its users and reports nothing",
        );
    }
    let mut pair = Pair::new(Two(a, b, 0, |_| {}));
    let (there, here) = pair.connect();
    let theirs = Memory::new(4096);
    let (_, window) = pair.expose(&theirs, here, ALL);
    let mine = Memory::new(4096);
    let region = pair.a.register(&mine);
    pair.a.fabric.post(&[read(there, 1, region, 8, &window)]).unwrap();
    assert_eq!(pair.a_done(1), Ok(0));
    let device = pair.a.fabric.device();
    // The command waits until the device is unused, and rdma-core keeps it open as long as this process lives.
    #[allow(clippy::zombie_processes, reason = "this process ends before it")]
    let _remover = Command::new("rdma").args(["link", "delete", &device]).spawn().unwrap();
    let reason = pair.wait("a to be closed", |pair| pair.a.closed(there));
    assert!(matches!(reason, CloseReason::Lost(_)), "{reason:?}");
    assert!(pair.a.fabric.post(&[read(there, 2, region, 8, &window)]).is_err());
}
