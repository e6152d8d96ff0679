//! Early reads cost one system call if their bytes come soon. A filter of the kernel holds the reader at that call, and the test writes
//! the bytes meanwhile: the scheduler decides nothing.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, mem, ptr, thread};

use ddss_stream::{Listener, Stream, Transport, TransportPolicy};
use ddss_testkit::skipped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const NAME: &str = "early_read_asks_tcp_only_before_a_sleep";
const WARM_TRIPS: usize = 200;
const READS: usize = 200;
const MESSAGE_BYTES: usize = 64;
const PATIENCE: Duration = Duration::from_secs(60);
/// System calls of a read that asks the socket: the first says whether the read may wait, the others ask TCP and the deadline.
const HELD: [libc::c_long; 4] = [libc::SYS_fcntl, libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_getsockopt];

fn connect() -> (Stream, Stream) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind_with(any, TransportPolicy::Auto).unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = thread::spawn(move || listener.accept().unwrap().0);
    let connected = Stream::connect_with(address, &TransportPolicy::Auto).unwrap();
    (connected, accepted.join().unwrap())
}

/// Makes both ends leave TCP.
fn warm(mut stream: Stream, mut echo: Stream) -> (Stream, Stream) {
    use std::io::{Read, Write};
    let echoing = thread::spawn(move || {
        let mut message = [0; MESSAGE_BYTES];
        for _ in 0..WARM_TRIPS {
            echo.read_exact(&mut message).unwrap();
            echo.write_all(&message).unwrap();
        }
        echo
    });
    let mut message = [7; MESSAGE_BYTES];
    for _ in 0..WARM_TRIPS {
        stream.write_all(&message).unwrap();
        stream.read_exact(&mut message).unwrap();
    }
    (stream, echoing.join().unwrap())
}

/// Lets the kernel stop the calling thread at each of the calls `HELD`, until whoever has the returned descriptor lets it go on.
fn hold_calls() -> io::Result<OwnedFd> {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut program = vec![instruction(load, 0, mem::offset_of!(libc::seccomp_data, nr) as u32)];
    let calls = HELD.len();
    program.extend((0..calls).map(|call| instruction(equal, (calls - call) as u8, HELD[call] as u32)));
    program.push(instruction(end, 0, libc::SECCOMP_RET_ALLOW));
    program.push(instruction(end, 0, libc::SECCOMP_RET_USER_NOTIF));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the kernel copies the program, which lives until the call returns.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            ptr::from_ref(&program),
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor for its caller.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

/// Waits until the reader is at a held call, and returns it. `None` if the reader made none for a while.
fn held_call(listener: &OwnedFd) -> Option<libc::seccomp_notif> {
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    poll(&mut polled, Some(&pause)).unwrap();
    if !polled[0].revents().contains(PollFlags::IN) {
        return None;
    }
    // SAFETY: zeros are a value of this structure of numbers, and the kernel asks for them.
    let mut call: libc::seccomp_notif = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes one structure of the request's size.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, ptr::from_mut(&mut call)) };
    (done == 0).then_some(call)
}

fn let_go(listener: &OwnedFd, id: u64) {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
    // SAFETY: the kernel reads one structure of the request's size.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, ptr::from_ref(&answer)) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// Writes one message for each read that has begun, while the kernel holds the reader, and returns the calls that the reader made.
fn serve(listener: &OwnedFd, begun: &AtomicUsize, reader: &JoinHandle<()>, echo: &mut Stream) -> Vec<libc::c_long> {
    use std::io::Write;
    let (mut calls, mut written, end) = (Vec::new(), 0, Instant::now() + PATIENCE);
    while !reader.is_finished() {
        assert!(Instant::now() < end, "the reader hangs after {calls:?}");
        let Some(call) = held_call(listener) else { continue };
        let number = libc::c_long::from(call.data.nr);
        // The library looks once whether its own descriptors are still there.
        if number != libc::SYS_fcntl || call.data.args[1] == libc::F_GETFL as u64 {
            calls.push(number);
        }
        if written < begun.load(Ordering::Acquire) {
            echo.write_all(&[9; MESSAGE_BYTES]).unwrap();
            written += 1;
        }
        let_go(listener, call.id);
    }
    calls
}

// If this failed, a round trip between two awake threads would take four times as long: each read would ask TCP, and the socket for its
// deadline, before it looked at the ring a second time.
#[test]
fn early_read_asks_tcp_only_before_a_sleep() {
    use std::io::Read;
    use std::sync::{Arc, mpsc};
    let (stream, echo) = connect();
    let (mut stream, mut echo) = warm(stream, echo);
    assert_eq!(stream.transport(), Transport::SameNode);
    let begun = Arc::new(AtomicUsize::new(0));
    let (announce, announced) = mpsc::channel();
    let reader = thread::spawn({
        let begun = Arc::clone(&begun);
        move || {
            let held = hold_calls();
            let is_held = held.is_ok();
            announce.send(held).unwrap();
            let mut message = [0; MESSAGE_BYTES];
            for _ in 0..if is_held { READS } else { 0 } {
                begun.fetch_add(1, Ordering::Release);
                stream.read_exact(&mut message).unwrap();
                assert_eq!(message, [9; MESSAGE_BYTES]);
            }
            mem::forget(stream);
        }
    });
    let listener = match announced.recv().unwrap() {
        Ok(listener) => listener,
        Err(why) => return skipped(NAME, &format!("the kernel holds no system call here ({why})")),
    };
    let calls = serve(&listener, &begun, &reader, &mut echo);
    reader.join().unwrap();
    assert_eq!(calls, vec![libc::SYS_fcntl; READS], "each read asks once whether it may wait, and nothing else");
}
