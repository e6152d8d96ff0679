//! Socket activation by systemd: the clients' socket exists before the daemon, and a call without a daemon waits for
//! it.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Batch, Client, ConnectOptions, Error, ErrorKind, LockOptions, Spec, Target};
use ddss_testkit::{Process, TempNode, binary, block_on};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::task::Poll;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// Makes a batch of two puts.
fn two_puts(segment: impl Target + Copy, byte: u8) -> Result<Batch, Error> {
    let mut batch = Batch::new();
    batch.put(segment, 0, &[byte; 8])?;
    batch.put(segment, 8, &[byte; 50])?;
    Ok(batch)
}

fn listen(path: &Path, kind: SocketType) -> OwnedFd {
    let socket = net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    net::listen(&socket, 64).unwrap();
    socket
}

/// Starts the daemon in `folder` with that socket at descriptor 3, as `sd_listen_fds` has it.
fn spawn(folder: &TempNode, socket: &OwnedFd, words: &[&str]) -> Process {
    let mut command = Command::new("sh");
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    command.arg("-c").arg(script).arg(binary("ddssd").unwrap()).arg("--dir").arg(folder.path()).args(words);
    Process::start_with(command, Stdio::from(socket.try_clone().unwrap()), folder.path(), "ddssd").unwrap()
}

fn connect(folder: &TempNode) -> Client {
    Client::connect_with(ConnectOptions::new().directory(folder.path()).timeout(PATIENCE)).expect("somebody listens")
}

// If this failed, an application that starts before its node, or calls during an upgrade, would get an error.
#[test]
fn call_without_daemon_is_served_by_the_next_daemon() {
    // Builds the daemon before the call that waits for it.
    binary("ddssd").unwrap();
    let folder = TempNode::new().unwrap();
    let socket = listen(&folder.join("ddssd.sock"), SocketType::SEQPACKET);
    std::thread::scope(|scope| {
        let early = scope.spawn(|| connect(&folder).segment("early").allocate(Spec::new(64)).unwrap());
        let mut daemon = spawn(&folder, &socket, &[]);
        let segment = early.join().unwrap();
        segment.put(0, &[1; 8]).unwrap();
        assert!(daemon.stderr().contains("inherited the clients' socket"), "{}", daemon.stderr());
        for (round, stops) in [true, false].into_iter().enumerate() {
            if stops {
                daemon.end().unwrap();
            } else {
                daemon.kill().unwrap();
            }
            assert!(folder.join("ddssd.sock").exists(), "the socket is not the daemon's to remove");
            // A call in flight at a kill may have taken effect; this test is about a call that begins later.
            let soon = segment.with_timeout(Duration::from_millis(200));
            assert!(soon.stat().is_err(), "nobody is there to answer");
            let before = round as u64;
            let waits = scope.spawn({
                let segment = segment.clone();
                move || segment.word(8).fetch_add(1)
            });
            let new = scope.spawn(|| connect(&folder).ping());
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waits.is_finished() && !new.is_finished(), "nobody was there to answer");
            daemon = spawn(&folder, &socket, &[]);
            assert_eq!(waits.join().unwrap().unwrap().before, before);
            new.join().unwrap().unwrap();
        }
    });
}

// If this failed, an upgrade would fail unstarted calls of tasks and batches, or execute some twice.
#[test]
fn refused_tasks_and_batches_are_served_by_the_next_daemon() {
    binary("ddssd").unwrap();
    let folder = TempNode::new().unwrap();
    let socket = listen(&folder.join("ddssd.sock"), SocketType::SEQPACKET);
    let mut daemon = spawn(&folder, &socket, &["--drain-ms", "15000"]);
    let client = connect(&folder);
    let tasks = connect(&folder).aio().unwrap();
    let names = ["held", "by-task", "by-tasks", "by-batch", "dropped"];
    let [held, by_task, by_tasks, by_batch, dropped] =
        names.map(|name| client.segment(name).allocate(Spec::new(64)).unwrap());
    let [task, many, given_up] =
        ["by-task", "by-tasks", "dropped"].map(|name| block_on(tasks.segment(name).open()).unwrap());
    let locked = held.lock_with(LockOptions::new().lease(30 * PATIENCE)).unwrap();
    let in_line = connect(&folder).segment("held").open().unwrap();
    let hurried =
        Client::connect_with(ConnectOptions::new().directory(folder.path()).timeout(Duration::from_millis(200)))
            .unwrap();
    std::thread::scope(|scope| {
        let in_line = scope.spawn(move || in_line.word(0).fetch_add(1));
        while held.stat().unwrap().lock.waiting == 0 {
            std::thread::yield_now();
        }
        // The daemon cannot end while a call waits for the lock.
        daemon.terminate().unwrap();
        // On a busy machine a hurried call may end before it is refused.
        let end = Instant::now() + PATIENCE;
        while !hurried.ping().is_err_and(|error| error.kind() == ErrorKind::NodeDown) {
            assert!(Instant::now() < end, "no call is refused");
        }
        let one = scope.spawn(|| block_on(task.word(0).fetch_add(1)));
        let many = scope.spawn(|| block_on(tasks.run(two_puts(&many, 2)?)));
        let batch = scope.spawn(|| client.run(two_puts(&by_batch, 3)?));
        let given_up = scope.spawn(|| {
            let mut put = Box::pin(given_up.put(0, &[4; 8]));
            block_on(poll_fn(|context| Poll::Ready(put.as_mut().poll(context).is_ready())));
            std::thread::sleep(Duration::from_millis(100));
            block_on(poll_fn(|context| Poll::Ready(put.as_mut().poll(context).is_ready())))
        });
        assert!(!given_up.join().unwrap(), "nobody was there to answer, and now nobody asks any more");
        std::thread::sleep(Duration::from_millis(100));
        assert!(!one.is_finished() && !many.is_finished() && !batch.is_finished(), "nobody was there to answer");
        locked.unlock().unwrap();
        in_line.join().unwrap().unwrap();
        assert!(daemon.wait(PATIENCE).unwrap().is_some_and(|status| status.success()), "{}", daemon.stderr());
        daemon = spawn(&folder, &socket, &[]);
        assert_eq!(one.join().unwrap().unwrap().before, 0);
        for answers in [many.join().unwrap().unwrap(), batch.join().unwrap().unwrap()] {
            answers.ok().unwrap();
        }
    });
    for (segment, version) in [(by_task, 1), (by_tasks, 2), (by_batch, 2), (dropped, 0)] {
        assert_eq!(segment.get(..).unwrap().version().0, version, "{}: each call once", segment.name());
    }
}

// If this failed, a unit with a wrong path would start a daemon that no client finds.
#[test]
fn inherited_socket_at_wrong_path_is_refused() {
    let refused = |folder: &TempNode, socket: OwnedFd| {
        let mut daemon = spawn(folder, &socket, &[]);
        let status = daemon.wait(PATIENCE).unwrap().expect("it cannot serve");
        assert_eq!(status.code(), Some(4), "{}", daemon.stderr());
        daemon.stderr()
    };
    let folder = TempNode::new().unwrap();
    let told = refused(&folder, listen(&folder.join("elsewhere.sock"), SocketType::SEQPACKET));
    assert!(told.contains("elsewhere.sock, but clients connect to"), "{told}");
    let folder = TempNode::new().unwrap();
    let told = refused(&folder, listen(&folder.join("ddssd.sock"), SocketType::STREAM));
    assert!(told.contains("ListenSequentialPacket="), "{told}");
}
