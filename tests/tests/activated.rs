//! A daemon whose clients' socket was made before it, as systemd does it: who calls while there is no daemon waits for it.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, Spec};
use ddss_tests::{Process, TempNode, binary};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn listen(path: &Path, kind: SocketType) -> OwnedFd {
    let socket = net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    net::listen(&socket, 64).unwrap();
    socket
}

/// Starts the daemon in `folder` with that socket at descriptor 3, as `sd_listen_fds` has it.
fn spawn(folder: &TempNode, socket: &OwnedFd) -> Process {
    let mut command = Command::new("sh");
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    command.arg("-c").arg(script).arg(binary("ddssd").unwrap()).arg("--dir").arg(folder.path());
    Process::start_with(command, Stdio::from(socket.try_clone().unwrap()), folder.path(), "ddssd").unwrap()
}

fn connect(folder: &TempNode) -> Client {
    Client::builder().folder(folder.path()).timeout(PATIENCE).connect().expect("somebody listens")
}

// If this failed, an application that starts before its node, or calls while the node is upgraded, would get an error.
#[test]
fn who_calls_while_there_is_no_daemon_is_answered_by_the_next_one() {
    let folder = TempNode::new().unwrap();
    let socket = listen(&folder.join("ddssd.sock"), SocketType::SEQPACKET);
    std::thread::scope(|scope| {
        let early = scope.spawn(|| connect(&folder).allocate("early", Spec::new(64)).unwrap());
        let mut daemon = spawn(&folder, &socket);
        let segment = early.join().unwrap();
        segment.put(0, &[1; 8]).unwrap();
        assert!(daemon.stderr().contains("took the clients' socket from whoever started"), "{}", daemon.stderr());
        for (round, stops) in [true, false].into_iter().enumerate() {
            if stops {
                daemon.end().unwrap();
            } else {
                daemon.kill().unwrap();
            }
            assert!(folder.join("ddssd.sock").exists(), "the socket is not the daemon's to remove");
            let before = round as u64;
            let waits = scope.spawn({
                let segment = segment.clone();
                move || segment.fetch_add(8, 1)
            });
            let new = scope.spawn(|| connect(&folder).ping());
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waits.is_finished() && !new.is_finished(), "nobody was there to answer");
            daemon = spawn(&folder, &socket);
            assert_eq!(waits.join().unwrap().unwrap().before, before);
            new.join().unwrap().unwrap();
        }
    });
}

// If this failed, a unit with a wrong line would start a daemon that no client finds.
#[test]
fn a_socket_that_no_client_would_find_is_refused_with_a_reason() {
    let refused = |folder: &TempNode, socket: OwnedFd| {
        let mut daemon = spawn(folder, &socket);
        let status = daemon.wait(PATIENCE).unwrap().expect("it cannot serve");
        assert_eq!(status.code(), Some(4), "{}", daemon.stderr());
        daemon.stderr()
    };
    let folder = TempNode::new().unwrap();
    let told = refused(&folder, listen(&folder.join("elsewhere.sock"), SocketType::SEQPACKET));
    assert!(told.contains("elsewhere.sock, and clients look for it at"), "{told}");
    let folder = TempNode::new().unwrap();
    let told = refused(&folder, listen(&folder.join("ddssd.sock"), SocketType::STREAM));
    assert!(told.contains("ListenSequentialPacket="), "{told}");
}
