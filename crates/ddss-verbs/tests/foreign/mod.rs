//! A program that shares no code with the fabric as its peer, in both directions, and the inventory of another crate
//! beside ours. `tests/vm/foreign` has the programs; without them, or without an adapter, the tests are skipped.

mod program;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use ddss_verbs::rdma::{Framing, Rdma, RdmaConfig, adapters};
use ddss_verbs::{
    AtomicScope, CloseReason, Fabric, LocalRange, PeerId, PostErrorKind, RemoteRange, Rights, SendMode, Window, Work,
    WorkError,
};

use crate::common::{ALL, Memory, Node, OwnedEvent, WAIT_MAX, addresses, pattern};
use program::{ForeignPeer, hex, output, path};

/// A fabric over one adapter, and the addresses of both.
struct Meeting {
    node: Node<Rdma>,
    ours: IpAddr,
    theirs: IpAddr,
    is_iwarp: bool,
    /// The kernel's Soft-RoCE has atomics, its Soft-iWARP has none.
    has_atomics: bool,
}

impl Meeting {
    fn new() -> Option<Self> {
        let (theirs, ours) = addresses()?;
        path("foreign_peer")?;
        let list = adapters().unwrap();
        let (is_iwarp, has_atomics) = (list.iter().all(|one| one.is_iwarp), list.iter().all(|one| one.has_atomics));
        let mut config = RdmaConfig::default();
        (config.address, config.framing) = (Some(ours), Framing::Plain);
        config.atomics = if has_atomics { AtomicScope::Adapter } else { AtomicScope::Thread };
        let node = Node::new(Rdma::new(config).unwrap());
        Some(Self { node, ours, theirs, is_iwarp, has_atomics })
    }

    fn wait<T>(&mut self, what: &str, mut wanted: impl FnMut(&mut Node<Rdma>) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = wanted(&mut self.node) {
                return found;
            }
            assert!(start.elapsed() < WAIT_MAX, "waited in vain for {what}; saw {:?}", self.node.seen);
            self.node.poll();
        }
    }

    fn done(&mut self, tag: u64) -> Result<u64, WorkError> {
        self.wait("a completion", |node| node.done(tag))
    }

    fn wait_connected(&mut self) {
        self.wait("the connection", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
    }

    /// Lets the foreign program connect to `address`, where the fabric listens.
    fn is_asked(&mut self, address: SocketAddr) -> (ForeignPeer, PeerId) {
        let mut peer = ForeignPeer::connect(self.theirs, address);
        let asked =
            self.wait("being asked", |node| node.take(|seen| matches!(seen, OwnedEvent::ConnectRequest { .. })));
        let OwnedEvent::ConnectRequest { peer: id, .. } = asked else { unreachable!() };
        self.node.fabric.accept(id, b"").unwrap();
        // Soft-iWARP misses bytes that come before it has accepted, so the peer gets its first command later.
        self.wait_connected();
        peer.wait_connected(&mut self.node);
        (peer, id)
    }

    /// Connects to the foreign program; returns its window, too.
    fn asks(&mut self) -> (ForeignPeer, PeerId, Window) {
        let (mut peer, port) = ForeignPeer::listen(self.theirs, &mut self.node);
        let id = self.node.fabric.connect(SocketAddr::new(self.theirs, port), b"").unwrap();
        self.wait_connected();
        let window = peer.wait_connected(&mut self.node);
        (peer, id, window)
    }

    /// Sends a message in each direction.
    fn exchange_messages(&mut self, peer: &mut ForeignPeer, id: PeerId) {
        let send = Work::Send { peer: id, tag: 1 << 60, message: b"from the fabric", mode: SendMode::default() };
        self.node.fabric.post(&[send]).unwrap();
        assert_eq!(peer.ask(&mut self.node, "receive"), format!("ok {}", hex(b"from the fabric")));
        assert_eq!(self.done(1 << 60), Ok(0));
        assert_eq!(peer.ask(&mut self.node, &format!("fill 0 {}", hex(b"from elsewhere"))), "ok");
        assert_eq!(peer.ask(&mut self.node, "send 0 14"), "ok");
        assert_eq!(self.wait("a message", Node::message), b"from elsewhere");
    }

    /// Waits until a connection is over because of what the foreign program did.
    fn wait_closed_by_violation(&mut self, id: PeerId, what: &str) {
        let reason = self.wait("the end of the connection", |node| node.closed(id));
        let is_lost = matches!(reason, CloseReason::Lost(_) | CloseReason::ClosedByPeer);
        let is_named = matches!(reason, CloseReason::ProtocolViolation(_));
        assert!(is_named || self.is_iwarp && is_lost, "{what}: {reason:?}");
    }
}

#[test]
fn foreign_peer_reads_writes_and_changes_words_of_fabric() {
    // If this failed, only our own program could use our windows.
    let Some(mut meeting) = Meeting::new() else { return };
    let address = meeting.node.fabric.listen(SocketAddr::new(meeting.ours, 0)).unwrap();
    let (mut peer, id) = meeting.is_asked(address);
    let memory = Memory::new(8192);
    memory.set(0, &pattern(5, 8192));
    let region = meeting.node.register(&memory);
    let Window { key, base, .. } = meeting.node.fabric.expose(id, region, 4096, 1024, ALL).unwrap();

    // On iWARP the side that has connected is the first to send.
    let node = &mut meeting.node;
    assert_eq!(peer.ask(node, &format!("read {key} {base} 0 1024")), "ok");
    assert_eq!(peer.ask(node, "show 0 1024"), format!("ok {}", hex(&pattern(5, 8192)[4096..5120])));
    assert_eq!(peer.ask(node, &format!("fill 1000 {}", hex(&pattern(6, 512)))), "ok");
    assert_eq!(peer.ask(node, &format!("write {key} {} 1000 512", base + 512)), "ok");
    // On iWARP a write may be done before it arrives, but a read after it finds it.
    assert_eq!(peer.ask(node, &format!("read {key} {base} 0 8")), "ok");
    let mut expected = pattern(5, 8192);
    expected[4608..5120].copy_from_slice(&pattern(6, 512));
    assert!(memory.get(0, 8192) == expected, "other bytes than the written ones");

    memory.set(4096, &7_u64.to_ne_bytes());
    if meeting.has_atomics {
        assert_eq!(peer.ask(node, &format!("swap {key} {base} 7 9")), "ok 7");
        assert_eq!(peer.ask(node, &format!("swap {key} {base} 7 11")), "ok 9", "another word than expected");
        assert_eq!(peer.ask(node, &format!("add {key} {base} 5")), "ok 9");
        assert_eq!(memory.word(4096), 14);
    } else {
        assert!(peer.ask(node, &format!("add {key} {base} 5")).starts_with("refused"), "its adapter has no atomics");
        assert_eq!(memory.word(4096), 7);
    }
    meeting.exchange_messages(&mut peer, id);
}

#[test]
fn foreign_peer_cannot_leave_its_window() {
    // If this failed, a program that follows no rule of ours could read or change memory that it was not given.
    let Some(mut meeting) = Meeting::new() else { return };
    let address = meeting.node.fabric.listen(SocketAddr::new(meeting.ours, 0)).unwrap();
    let cases = [
        "a wrong key",
        "a read past the end",
        "a read before the start",
        "a write past the end",
        "a write without the right",
        "a key of an earlier connection",
        "a key that was withdrawn",
        "a read without the right",
        "an atomic without the right",
        "an atomic past the end",
    ];
    let mut earlier = 0;
    for case in cases {
        // Soft-iWARP lets a peer read a window that it may only write.
        let left_out = case == "a read without the right" && meeting.is_iwarp;
        if left_out || case.starts_with("an atomic") && !meeting.has_atomics {
            continue;
        }
        let (mut peer, id) = meeting.is_asked(address);
        let memory = Memory::new(8192);
        memory.set(0, &[9; 8192]);
        let region = meeting.node.register(&memory);
        let node = &mut meeting.node;
        let Window { key, base, .. } = node.fabric.expose(id, region, 4096, 1024, Rights::READ).unwrap();
        let writable = node.fabric.expose(id, region, 0, 512, Rights::WRITE.union(Rights::ATOMIC)).unwrap();
        assert_eq!(peer.ask(node, &format!("read {key} {base} 8 8")), "ok");
        let command = match case {
            "a wrong key" => format!("read {} {base} 0 8", key ^ 1),
            "a read past the end" => format!("read {key} {} 0 8", base + 1017),
            "a read before the start" => format!("read {key} {} 0 8", base - 8),
            "a write past the end" => format!("write {} {} 0 8", writable.key, writable.base + 505),
            "a write without the right" => format!("write {key} {base} 0 8"),
            "a key of an earlier connection" => format!("read {earlier} {base} 0 8"),
            "a read without the right" => format!("read {} {} 0 8", writable.key, writable.base),
            "an atomic without the right" => format!("add {key} {base} 1"),
            "an atomic past the end" => format!("add {} {} 1", writable.key, writable.base + 512),
            _ => {
                node.fabric.withdraw(id, key);
                format!("read {key} {base} 0 8")
            }
        };
        let result = peer.ask(node, &command);
        // On iWARP a write is done when it has left, and its refusal follows.
        let is_unanswered = meeting.is_iwarp && command.starts_with("write");
        assert!(result.starts_with("failed") || is_unanswered && result == "ok", "{case}: {result}");
        let late = peer.ask(node, &format!("read {} {} 0 8", writable.key, writable.base));
        assert!(!late.starts_with("ok"), "the connection goes on after {case}");
        assert_eq!(peer.ask(node, "show 0 8"), format!("ok {}", hex(&[0; 8])), "{case}");
        meeting.wait_closed_by_violation(id, case);
        assert!(memory.get(0, 8192) == [9; 8192], "{case} has changed memory");
        meeting.node.fabric.deregister(region);
        earlier = key;
    }
}

#[test]
fn fabric_reads_writes_and_changes_words_of_foreign_peer() {
    // If this failed, only our own program could be the home of bytes that the fabric reads.
    let Some(mut meeting) = Meeting::new() else { return };
    let (mut peer, id, window) = meeting.asks();
    let memory = Memory::new(4096);
    memory.set(0, &pattern(7, 4096));
    let region = meeting.node.register(&memory);
    let local = |offset, bytes| LocalRange { region, offset, bytes };
    let remote = |offset| RemoteRange { key: window.key, address: window.base + offset };

    meeting.node.fabric.post(&[Work::Write { peer: id, tag: 1, local: local(0, 1024), remote: remote(0) }]).unwrap();
    assert_eq!(meeting.done(1), Ok(0));
    meeting.node.fabric.post(&[Work::Read { peer: id, tag: 2, local: local(2048, 1024), remote: remote(0) }]).unwrap();
    assert_eq!(meeting.done(2), Ok(0));
    assert!(memory.get(2048, 1024) == pattern(7, 1024), "other bytes than the written ones");
    assert_eq!(peer.ask(&mut meeting.node, "show 0 1024"), format!("ok {}", hex(&pattern(7, 1024))));

    let word = format!("fill 2048 {}", hex(&7_u64.to_ne_bytes()));
    assert_eq!(peer.ask(&mut meeting.node, &word), "ok");
    let swap = |compare, swap| Work::CompareSwap { peer: id, tag: 3, remote: remote(2048), compare, swap };
    let add = Work::FetchAdd { peer: id, tag: 3, remote: remote(2048), add: 5 };
    if meeting.has_atomics {
        for (work, before) in [(swap(7, 9), 7), (swap(7, 11), 9), (add, 9)] {
            meeting.node.fabric.post(&[work]).unwrap();
            assert_eq!(meeting.done(3), Ok(before), "{work:?}");
        }
        let after = format!("ok {}", hex(&14_u64.to_ne_bytes()));
        assert_eq!(peer.ask(&mut meeting.node, "show 2048 8"), after);
    } else {
        assert_eq!(meeting.node.fabric.post(&[add]).unwrap_err().kind, PostErrorKind::Unsupported);
    }
    meeting.exchange_messages(&mut peer, id);
}

#[test]
fn foreign_peer_refuses_work_outside_its_window() {
    // If this failed, a refusal of another program would look like success, or would never come.
    let Some(mut meeting) = Meeting::new() else { return };
    for case in 0..4 {
        if case == 3 && !meeting.has_atomics {
            continue;
        }
        let (mut peer, id, window) = meeting.asks();
        let memory = Memory::new(4096);
        memory.set(0, &[9; 4096]);
        let local = LocalRange { region: meeting.node.register(&memory), offset: 0, bytes: 8 };
        let (at, past) = (
            RemoteRange { key: window.key, address: window.base },
            RemoteRange { key: window.key, address: window.base + window.bytes - 7 },
        );
        let work = match case {
            0 => Work::Read { peer: id, tag: 1, local, remote: RemoteRange { key: window.key ^ 1, ..at } },
            1 => Work::Read { peer: id, tag: 1, local, remote: past },
            2 => Work::Write { peer: id, tag: 1, local, remote: past },
            _ => Work::FetchAdd {
                peer: id,
                tag: 1,
                remote: RemoteRange { address: window.base + window.bytes, ..at },
                add: 1,
            },
        };
        meeting.node.fabric.post(&[work]).unwrap();
        let outcome = meeting.done(1);
        let is_unanswered = meeting.is_iwarp
            && (outcome == Err(WorkError::Indeterminate) || matches!(work, Work::Write { .. }) && outcome == Ok(0));
        assert!(is_unanswered || matches!(outcome, Err(WorkError::Refused(_))), "{work:?}: {outcome:?}");
        let reason = meeting.wait("the end of the connection", |node| node.closed(id));
        let is_lost = matches!(reason, CloseReason::Lost(_) | CloseReason::ClosedByPeer);
        assert!(matches!(reason, CloseReason::Terminated(_)) || meeting.is_iwarp && is_lost, "{work:?}: {reason:?}");
        assert!(memory.get(0, 4096) == [9; 4096], "{work:?}");
        let end = peer.ask(&mut meeting.node, &format!("show {} 8", window.bytes - 8));
        assert_eq!(end, format!("ok {}", hex(&[0; 8])), "{work:?}");
    }
}

#[test]
fn ibverbs_lists_what_fabric_and_doctor_list() {
    // If this failed, the fabric would select by an address that the adapter has not, or miss an adapter.
    if addresses().is_none() || path("foreign_devices").is_none() || path("ddss").is_none() {
        return;
    }
    let listing = output("foreign_devices", &[]);
    let theirs: BTreeSet<&str> = listing.lines().collect();
    let mut ours = BTreeSet::new();
    for adapter in adapters().unwrap() {
        ours.insert(format!("device {}", adapter.name));
        for (port, gid) in adapter.ports.iter().flat_map(|port| port.gids.iter().map(move |gid| (port, gid))) {
            let begin = format!("gid {} {} {} {}", adapter.name, port.number, gid.index, gid.address);
            // The kernel calls version 1 of RoCE and everything that is not RoCE by one name.
            let kinds: &[u32] = if gid.kind == "RoCE v2" { &[2] } else { &[0, 1] };
            let found = kinds.iter().map(|kind| format!("{begin} {kind}")).find(|line| theirs.contains(&line[..]));
            ours.insert(found.unwrap_or(begin));
        }
    }
    assert!(ours.len() >= 4, "two devices with an address each: {ours:?}");
    assert_eq!(ours.iter().map(String::as_str).collect::<BTreeSet<_>>(), theirs);
    let doctor = output("ddss", &["doctor", "--json"]);
    for adapter in adapters().unwrap() {
        // The kernel names no interface for an address of iWARP.
        let interface = &adapter.ports[0].gids[0].interface;
        let interface = if interface.is_empty() { String::new() } else { format!(", {interface}") };
        let finding = format!("\"{}: Ethernet, up{interface}: used by a node", adapter.name);
        assert!(doctor.contains(&finding), "{finding} is missing in {doctor}");
    }
}
