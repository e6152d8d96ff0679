//! Tests of both ends in one process, and of a peer that breaks the protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use super::positions::Want;
use crate::limits::{LINK_BYTES, RING_BYTES};
use crate::stream::{Listener, Stream, Transport};
use crate::sys::{self, Descriptor, Link};
use crate::thread_lock::ThreadLock;

/// Returns both ends of a stream after so many round trips that both use their rings.
fn pair() -> (Stream, Stream) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut connector = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut acceptor, _) = listener.accept().unwrap();
    for round in 0..8u8 {
        let mut byte = [0];
        connector.write_all(&[round]).unwrap();
        acceptor.read_exact(&mut byte).unwrap();
        acceptor.write_all(&byte).unwrap();
        connector.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [round], "the change to the ring moved a byte");
    }
    assert_eq!((connector.transport(), acceptor.transport()), (Transport::SameNode, Transport::SameNode));
    (connector, acceptor)
}

fn link(stream: &Stream) -> Link {
    stream.endpoint().local().link().unwrap()
}

fn descriptor(stream: &Stream) -> Descriptor {
    Descriptor(std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(stream)))
}

#[test]
fn large_transfer_arrives_whole_and_in_order() {
    // If this broke, a wrapped ring would lose or repeat bytes.
    let (mut connector, mut acceptor) = pair();
    let sent: Vec<u8> = (0..1_000_003u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut received = vec![0; sent.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| sent.chunks(7919).for_each(|part| connector.write_all(part).unwrap()));
        acceptor.read_exact(&mut received).unwrap();
    });
    assert!(received == sent);
}

#[test]
fn peek_leaves_bytes_and_waitall_waits_for_all() {
    let (mut connector, acceptor) = pair();
    connector.write_all(b"abcd").unwrap();
    let mut room = [0; 8];
    let socket = descriptor(&acceptor);
    let peeked = sys::with_room(&mut room, |to| acceptor.endpoint().read(socket, to, libc::MSG_PEEK));
    assert_eq!((peeked, &room[..4]), (Ok(4), &b"abcd"[..]));
    std::thread::scope(|scope| {
        scope.spawn(|| (&connector).write_all(b"efgh").unwrap());
        let all = sys::with_room(&mut room, |to| acceptor.endpoint().read(socket, to, libc::MSG_WAITALL));
        assert_eq!((all, &room), (Ok(8), b"abcdefgh"));
    });
}

#[test]
fn nonblocking_writer_fills_the_ring_and_is_told() {
    let (connector, mut acceptor) = pair();
    connector.set_nonblocking(true).unwrap();
    let mut written = 0;
    let failed = loop {
        match (&connector).write(&[5; 1000]) {
            Ok(bytes) => written += bytes,
            Err(error) => break error.kind(),
        }
    };
    assert_eq!((failed, written), (ErrorKind::WouldBlock, RING_BYTES));
    assert_eq!(connector.endpoint().ready().bits & libc::EPOLLOUT as u32, 0);
    acceptor.read_exact(&mut vec![0; RING_BYTES]).unwrap();
    assert_ne!(connector.endpoint().ready().bits & libc::EPOLLOUT as u32, 0);
    assert_eq!((&connector).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn receive_timeout_of_the_socket_is_kept() {
    let (connector, _acceptor) = pair();
    let timeout = Some(Duration::from_millis(5));
    rustix::net::sockopt::set_socket_timeout(&connector, rustix::net::sockopt::Timeout::Recv, timeout).unwrap();
    assert_eq!((&connector).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn end_comes_after_the_ring_and_write_to_closed_peer_fails() {
    let (mut connector, acceptor) = pair();
    (&acceptor).write_all(b"last").unwrap();
    drop(acceptor);
    let mut rest = Vec::new();
    connector.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"last");
    // TCP accepts the first write too: only its answer tells that the peer is gone.
    connector.write_all(b"x").unwrap();
    assert_eq!(connector.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn half_closed_end_still_reads() {
    let (mut connector, mut acceptor) = pair();
    connector.shutdown(Shutdown::Write).unwrap();
    assert_eq!(connector.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(acceptor.read(&mut [0]).unwrap(), 0);
    acceptor.write_all(b"answer").unwrap();
    let mut room = [0; 6];
    connector.read_exact(&mut room).unwrap();
    assert_eq!(&room, b"answer");
}

#[test]
fn peer_that_stays_on_tcp_after_the_offer_is_not_gone() {
    // If this broke, answers would vanish, or a full TCP buffer would look like space.
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut connector = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut acceptor, _) = listener.accept().unwrap();
    for piece in 0..3u8 {
        connector.write_all(&[piece]).unwrap();
        acceptor.read_exact(&mut [0]).unwrap();
    }
    assert!(acceptor.endpoint().is_shared() && connector.endpoint().stay_on_tcp(crate::Reason::NoResources));
    acceptor.set_nonblocking(true).unwrap();
    acceptor.endpoint().silence();
    let mut written = 0;
    let failed = loop {
        match acceptor.write(&[5; 10_000]) {
            Ok(bytes) => written += bytes,
            Err(error) => break error.kind(),
        }
    };
    assert_eq!((failed, acceptor.endpoint().ready().bits), (ErrorKind::WouldBlock, 0));
    assert_eq!(acceptor.write(&[5]).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(acceptor);
    let mut found = Vec::new();
    connector.read_to_end(&mut found).unwrap();
    assert_eq!(found.len(), written);
}

#[test]
fn process_that_is_counted_during_a_decision_is_not_lost() {
    // If this broke, the close of a child would end the stream of its parent.
    const ROUNDS: usize = 300;
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    for round in 0..ROUNDS {
        let mut connector = Stream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut acceptor, _) = listener.accept().unwrap();
        for piece in 0..2u8 {
            connector.write_all(&[piece]).unwrap();
            acceptor.read_exact(&mut [0]).unwrap();
        }
        connector.write_all(&[2]).unwrap();
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                (0..round * 20).for_each(|_| std::hint::spin_loop());
                acceptor.endpoint().count_process();
            });
            start.wait();
            // The third call decides.
            (&acceptor).read_exact(&mut [0]).unwrap();
        });
        let endpoint = acceptor.endpoint();
        let count = if endpoint.is_shared() { &link(&acceptor).own().processes } else { &endpoint.shared().processes };
        assert_eq!(count.load(Ordering::Relaxed), 2);
        endpoint.uncount_process();
        endpoint.uncount_process();
        assert_eq!(count.load(Ordering::Relaxed), 1, "a failed fork takes no more back than it counted");
    }
}

fn has_bell_rung(stream: &Stream) -> bool {
    let bell = Descriptor(stream.endpoint().bells()[1]);
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(&bell, PollFlags::IN)], Some(&now)).unwrap() == 1
}

#[test]
fn ring_that_another_waiter_takes_still_tells_a_set_of_space() {
    // If this broke, a set that waits for space would sleep for ever beside another set, or beside a thread in `poll`.
    for waiter in ["set", "poll", "read"] {
        let (connector, mut acceptor) = pair();
        let endpoint = connector.endpoint();
        connector.set_nonblocking(true).unwrap();
        while (&connector).write(&[5; 1000]).is_ok() {}
        endpoint.register();
        endpoint.rest(true);
        acceptor.read_exact(&mut vec![0; RING_BYTES]).unwrap();
        assert!(!has_bell_rung(&connector));
        match waiter {
            "set" => {
                endpoint.register();
                assert_eq!(endpoint.take_rings(), None);
            }
            "poll" => {
                endpoint.silence();
            }
            _ => {
                let soon = Some(std::time::Instant::now() + Duration::from_millis(5));
                let _ = endpoint.rest_until(descriptor(&connector), Want::Data, soon);
            }
        }
        assert!(has_bell_rung(&connector), "{waiter}");
        // A thread leaves the ring to the set, and the set passes it no further.
        endpoint.silence();
        assert!(has_bell_rung(&connector) && endpoint.owes_set(), "{waiter}");
        assert_eq!(endpoint.take_rings(), None);
        endpoint.silence();
        assert!(!has_bell_rung(&connector) && !endpoint.owes_set(), "{waiter}");
    }
}

#[test]
fn threads_that_wait_for_bytes_do_not_wake_each_other_for_space() {
    // If this broke, two threads in `poll` on one idle stream would spin.
    let (mut connector, acceptor) = pair();
    let endpoint = acceptor.endpoint();
    endpoint.ring_own();
    let blocked = [(true, false), (true, false)].map(|(bytes, space)| endpoint.block(bytes, space));
    blocked.iter().for_each(crate::Blocked::silence);
    assert!(!has_bell_rung(&acceptor));
    connector.write_all(b"x").unwrap();
    blocked[0].silence();
    assert!(has_bell_rung(&acceptor), "the other one waits for this byte");
    drop(blocked);
    let count = |want: Want| link(&acceptor).own().blocked[want as usize].load(Ordering::Relaxed);
    assert_eq!([Want::Data, Want::Space].map(count), [0, 0]);
}

#[test]
fn cursor_out_of_range_resets_the_stream() {
    // If this broke, a peer could make the library read or write outside the ring.
    for (broken_tail, broken_head) in [(Some(u64::MAX), None), (None, Some(u64::MAX / 2))] {
        let (mut connector, acceptor) = pair();
        let directions = &link(&acceptor).header().directions;
        if let Some(tail) = broken_tail {
            let _ = directions[0].publish(tail);
            assert_eq!(connector.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        if let Some(head) = broken_head {
            let _ = directions[1].consume(head, false);
            assert_eq!(connector.write(&[0; 9]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    }
}

#[test]
fn memory_of_a_stream_cannot_be_resized() {
    // If this broke, a peer could end the program with SIGBUS.
    let (link, own, memory) = Link::create().unwrap();
    link.unmap();
    assert_eq!([own, memory].map(|memory| rustix::fs::ftruncate(memory, 0)), [Err(Errno::PERM); 2]);
    let unsealed = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, LINK_BYTES as u64).unwrap();
    assert_eq!(Link::attach(&unsealed).map(drop), Err(Errno::INVAL));
}

#[test]
fn short_connection_stays_on_tcp_and_leaves_nothing() {
    // If this broke, each connection would cost memory, or leave descriptors behind.
    let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    for _ in 0..100 {
        let mut connector = Stream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut acceptor, _) = listener.accept().unwrap();
        connector.write_all(b"x").unwrap();
        acceptor.read_exact(&mut [0]).unwrap();
        assert_eq!(acceptor.transport(), Transport::Tcp);
        assert!(acceptor.endpoint().local().link().is_none());
        assert_eq!(acceptor.endpoint().shared().calls.load(Ordering::Relaxed), 1);
    }
    // Other tests of this program open descriptors at the same time: far fewer than a leak of a hundred.
    let after = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(after < before + 90, "{before} descriptors before, {after} after");
}

#[test]
fn bytes_past_the_library_reset_the_stream() {
    // If this broke, bytes of a call that the library does not see would vanish, or hang their reader.
    let (mut connector, acceptor) = pair();
    (&acceptor).write_all(b"whole").unwrap();
    assert_eq!(sys::kernel_send(descriptor(&acceptor).0, b"past"), 4);
    let mut room = [0; 5];
    connector.read_exact(&mut room).unwrap();
    assert_eq!(&room, b"whole");
    assert_eq!(connector.read(&mut room).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(connector.reason(), crate::Reason::Bypassed);
    assert!(connector.write(b"x").is_err());
}

#[test]
fn bytes_that_another_thread_reads_are_no_bypass() {
    // If this broke, a thread in `poll` would reset a stream whose bytes by TCP another thread has just taken.
    let (mut connector, mut acceptor) = pair();
    acceptor.write_all(b"x").unwrap();
    connector.read_exact(&mut [0]).unwrap();
    assert!(connector.endpoint().is_off_tcp());
    assert_eq!(sys::kernel_send(descriptor(&acceptor).0, b"late"), 4);
    let socket = descriptor(&connector);
    rustix::event::poll(&mut [PollFd::new(&socket, PollFlags::IN)], None).unwrap();
    let lock = ThreadLock::take(&link(&connector).own().reader.lock).unwrap();
    connector.endpoint().check_bypass(descriptor(&connector));
    assert_eq!(connector.reason(), crate::Reason::SharedMemory);
    drop(lock);
    connector.endpoint().check_bypass(descriptor(&connector));
    assert_eq!(connector.reason(), crate::Reason::Bypassed);
}

#[test]
fn peer_in_a_wrong_phase_is_no_space() {
    // If this broke, a peer could make a blocked write spin for ever, whatever its timeout.
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut connector = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut acceptor, _) = listener.accept().unwrap();
    for piece in 0..3u8 {
        connector.write_all(&[piece]).unwrap();
        acceptor.read_exact(&mut [0]).unwrap();
    }
    acceptor.write_all(&[0]).unwrap();
    connector.read_exact(&mut [0]).unwrap();
    assert!(connector.endpoint().is_shared() && !acceptor.endpoint().writes_to_tcp());
    link(&acceptor).outgoing().follow(8);
    acceptor.set_nonblocking(true).unwrap();
    while acceptor.write(&[5; 10_000]).is_ok() {}
    assert_eq!(acceptor.endpoint().ready().bits, 0);
}

/// Makes the next bytes of an end go by TCP, behind a full ring.
fn leave_full_ring(end: &mut Stream) {
    end.set_nonblocking(true).unwrap();
    while end.write(&[5; 1000]).is_ok() {}
    end.set_nonblocking(false).unwrap();
    assert!(end.endpoint().leave_full_ring(link(end)) && end.endpoint().writes_to_tcp());
}

#[test]
fn process_killed_while_it_sends_or_receives_moves_no_byte() {
    // If this broke, a process that shares the end with a killed one would wait for ever, or would read bytes in a wrong order.
    let (connector, mut acceptor) = pair();
    let timeout = Some(Duration::from_secs(20));
    rustix::net::sockopt::set_socket_timeout(&connector, rustix::net::sockopt::Timeout::Recv, timeout).unwrap();
    let expect = |expected: &[u8]| {
        let mut found = vec![0; expected.len()];
        (&connector).read_exact(&mut found).unwrap();
        assert!(found == expected, "{expected:?}");
    };
    leave_full_ring(&mut acceptor);
    acceptor.write_all(b"xlostkept").unwrap();
    expect(&[5; RING_BYTES]);
    expect(b"x");
    link(&connector).own().reader.is_receiving.store(1, Ordering::Relaxed);
    assert_eq!(sys::kernel_receive(descriptor(&connector).0, &mut [0; 4]), 4);
    acceptor.write_all(b"ring").unwrap();
    assert!(!acceptor.endpoint().writes_to_tcp());
    expect(b"keptring");

    leave_full_ring(&mut acceptor);
    link(&acceptor).own().writer.is_sending.store(1, Ordering::Relaxed);
    assert_eq!(sys::kernel_send(descriptor(&acceptor).0, b"sent"), 4);
    acceptor.write_all(b"more").unwrap();
    expect(&[5; RING_BYTES]);
    expect(b"s");
    acceptor.write_all(b"last").unwrap();
    expect(b"entmorelast");
}

#[test]
fn process_killed_before_it_frees_a_ring_leaves_it_free() {
    // If this broke, the writer would find its ring full for ever, and would wait before each of its writes.
    let (connector, mut acceptor) = pair();
    leave_full_ring(&mut acceptor);
    acceptor.write_all(b"tcp").unwrap();
    link(&connector).own().reader.head.fetch_add(RING_BYTES as u64, Ordering::Relaxed);
    let mut room = [0; 3];
    (&connector).read_exact(&mut room).unwrap();
    assert_eq!(&room, b"tcp");
    assert_eq!(acceptor.endpoint().space(link(&acceptor)).unwrap().bytes, RING_BYTES);
}

/// Returns the bytes of the common memory that this process has mapped and touched.
fn resident_bytes(stream: &Stream) -> usize {
    let start = format!("{:x}-", std::ptr::from_ref(link(stream).header()) as usize);
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
    let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn idle_rings_return_their_memory_and_carry_bytes_again() {
    // If this broke, each connection would keep half a megabyte for ever, or an idle stream would lose bytes.
    let (mut connector, mut acceptor) = pair();
    for round in 0..3 {
        for part in 0..4u8 {
            let bytes = vec![part + round; RING_BYTES / 2];
            let mut read = vec![0; bytes.len()];
            connector.write_all(&bytes).unwrap();
            acceptor.read_exact(&mut read).unwrap();
            acceptor.write_all(&read).unwrap();
            read.fill(0);
            connector.read_exact(&mut read).unwrap();
            assert!(read == bytes);
        }
        // Sleeps without an event make the library look; the second one finds the rings idle.
        let timeout = Some(Duration::from_millis(250));
        rustix::net::sockopt::set_socket_timeout(&connector, rustix::net::sockopt::Timeout::Recv, timeout).unwrap();
        let mut looks = 0;
        while resident_bytes(&connector) > LINK_BYTES / 8 {
            looks += 1;
            assert!(looks < 40, "{} bytes are left", resident_bytes(&connector));
            assert_eq!((&connector).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        rustix::net::sockopt::set_socket_timeout(&connector, rustix::net::sockopt::Timeout::Recv, None).unwrap();
    }
}

#[test]
fn ring_with_unread_bytes_keeps_them() {
    // If this broke, a slow reader would get zeros.
    let (mut connector, mut acceptor) = pair();
    let bytes = vec![9; RING_BYTES - 5];
    acceptor.write_all(&bytes).unwrap();
    for _ in 0..4 {
        crate::after_idle_sleep();
    }
    let mut read = vec![0; bytes.len()];
    connector.read_exact(&mut read).unwrap();
    assert!(read == bytes);
}
