//! Attacks on the handshake: the socket, the hello, and the areas that read-only observers get.

use crate::byzantine_client::{
    AttackResult, ByzantineClient, RCQ, Target, contains_secret, context, expect_failure, hello, is_refusal,
    open_socket, receive_packet, send_packet, valid_hello,
};
use ddss_core::Operation;
use ddss_ipc::LAYOUT_VERSION;
use rustix::fs::{Mode, OFlags};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) fn sends_garbage_hello(target: &Target) -> AttackResult {
    let good = valid_hello();
    let mut frames = vec![vec![0xff; 64], vec![1], vec![0; 65_536], good[..63].to_vec(), [good, good].concat()];
    frames.push(hello(LAYOUT_VERSION, 9, 1, 4096).to_vec());
    for frame in frames {
        let socket = open_socket(target)?;
        send_packet(&socket, &frame);
        let (answer, passed) = receive_packet(&socket);
        expect_failure("nonsense was let in", !is_refusal(&answer) || !passed.is_empty())?;
        expect_failure("nonsense is listened to", !receive_packet(&socket).0.is_empty())?;
    }
    Ok(())
}

pub(crate) fn sends_hello_byte_by_byte(target: &Target) -> AttackResult {
    let socket = open_socket(target)?;
    for byte in valid_hello() {
        if !send_packet(&socket, &[byte]) {
            break;
        }
    }
    // The daemon never read the bytes after the first one. The kernel reports that before the client reads the reply.
    let answer = std::iter::repeat_with(|| receive_packet(&socket).0).take(3).find(|answer| !answer.is_empty());
    expect_failure("a piece of a hello was let in", answer.is_some_and(|answer| !is_refusal(&answer)))
}

pub(crate) fn sends_wrong_layout_version(target: &Target) -> AttackResult {
    for version in [0, LAYOUT_VERSION + 1, u32::MAX] {
        let socket = open_socket(target)?;
        send_packet(&socket, &hello(version, RCQ, 1, 4096));
        expect_failure("another version was let in", !is_refusal(&receive_packet(&socket).0))?;
    }
    Ok(())
}

pub(crate) fn requests_absurd_areas(target: &Target) -> AttackResult {
    for (channels, bytes) in [(0, 4096), (65, 4096), (u32::MAX, u64::MAX), (1, 0), (1, 1 << 62), (64, (256 << 20) + 1)]
    {
        let socket = open_socket(target)?;
        send_packet(&socket, &hello(LAYOUT_VERSION, RCQ, channels, bytes));
        expect_failure(&format!("{channels} lanes, {bytes} bytes"), !is_refusal(&receive_packet(&socket).0))?;
    }
    Ok(())
}

pub(crate) fn connects_silently(target: &Target) -> AttackResult {
    let guests: Vec<_> = (0..200).map(|_| open_socket(target)).collect::<Result<_, _>>()?;
    // The attacker itself can still attach.
    ByzantineClient::attach(target)?.ask(Operation::Null)?;
    std::thread::sleep(Duration::from_millis(1500));
    for socket in guests {
        expect_failure("silence was answered", !receive_packet(&socket).0.is_empty())?;
    }
    Ok(())
}

pub(crate) fn connects_without_end(target: &Target) -> AttackResult {
    for turn in 0..3000 {
        let Ok(socket) = open_socket(target) else { continue };
        if turn % 3 == 0 {
            send_packet(&socket, &valid_hello());
        }
    }
    Ok(())
}

pub(crate) fn attaches_without_end(target: &Target) -> AttackResult {
    for _ in 0..20 {
        let clients: Vec<_> = (0..16).filter_map(|_| ByzantineClient::attach(target).ok()).collect();
        expect_failure("no client is admitted", clients.is_empty())?;
    }
    Ok(())
}

pub(crate) fn sends_second_hello(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for _ in 0..20 {
        send_packet(&liar.socket, &valid_hello());
    }
    // A second client on one socket would cost a second shared memory.
    liar.ask(Operation::Null)?;
    liar.look_around()
}

pub(crate) fn never_reads_replies(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let mut said = 0;
    while said < 100_000 && send_packet(&liar.socket, &[7; 4096]) {
        said += 1;
    }
    expect_failure("there is no end to what it may leave in the socket", said == 100_000)?;
    liar.ask(Operation::Null).map(drop)
}

pub(crate) fn half_closes_socket(target: &Target) -> AttackResult {
    let liar = ByzantineClient::attach(target)?;
    rustix::net::shutdown(&liar.socket, rustix::net::Shutdown::Write).map_err(context("shutdown"))?;
    liar.until_cut_off()
}

pub(crate) fn maps_every_area(target: &Target) -> AttackResult {
    for area in (0..260).chain([u32::MAX, u32::MAX - 1, 1 << 16]) {
        let mapped = ddss_ipc::SharedMemory::map_area(&target.socket, area, Duration::from_secs(5));
        let Ok(Some(memory)) = mapped else { continue };
        expect_failure("an area can be written", memory.store(0, 1, Ordering::Relaxed).is_ok())?;
        let written = rustix::io::pwrite(memory.descriptor(), &[7], 0);
        expect_failure("an area can be written by its descriptor", written.is_ok())?;
        let again = format!("/proc/self/fd/{}", memory.descriptor().as_raw_fd());
        expect_failure("an area can be opened again to be written", reopens(Path::new(&again)))?;
        expect_failure("an area can be shrunk", rustix::fs::ftruncate(memory.descriptor(), 0).is_ok())?;
        // A sample: areas are large and mostly holes.
        let mut bytes = vec![0; memory.len().min(4 << 20)];
        memory.read(0, &mut bytes).map_err(context("an area"))?;
        expect_failure(&format!("area {area} shows foreign bytes"), contains_secret(&bytes))?;
    }
    Ok(())
}

fn reopens(path: &Path) -> bool {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

pub(crate) fn opens_files_in_directory(target: &Target) -> AttackResult {
    if rustix::process::geteuid().is_root() {
        // Root may open every file, and may be the daemon's own user.
        return Ok(());
    }
    let folder = target.socket.parent().ok_or("a socket lies in a folder")?;
    expect_failure("the folder can be listed", std::fs::read_dir(folder).is_ok())?;
    for name in
        ["memory", "memory/area-1", "memory/register", "memory/undo", "state", "state/cluster.key", "ddssd.lock"]
    {
        let path = folder.join(name);
        expect_failure(&format!("{name} can be read"), std::fs::read(&path).is_ok())?;
        expect_failure(&format!("{name} can be listed"), std::fs::read_dir(&path).is_ok())?;
        expect_failure(&format!("{name} can be written"), reopens(&path))?;
    }
    expect_failure("a file can be left there", std::fs::write(folder.join("mine"), "x").is_ok())?;
    expect_failure("the socket can be removed", std::fs::remove_file(&target.socket).is_ok())?;
    expect_failure("the operator's socket is open", UnixStream::connect(folder.join("ddssd.admin")).is_ok())
}
