//! Attacks at the door: the socket, the handshake, what is shown to those who only want to look.

use crate::liar::{
    Found, Liar, RCQ, Target, good_hello, hear, hello, is_refusal, knock, must_not, say, shows_secret, wrong,
};
use ddss_core::Operation;
use ddss_ipc::LAYOUT_VERSION;
use rustix::fs::{Mode, OFlags};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) fn hello_of_garbage(target: &Target) -> Found {
    let good = good_hello();
    let mut frames = vec![vec![0xff; 64], vec![1], vec![0; 65_536], good[..63].to_vec(), [good, good].concat()];
    frames.push(hello(LAYOUT_VERSION, 9, 1, 4096).to_vec());
    for frame in frames {
        let socket = knock(target)?;
        say(&socket, &frame);
        let (answer, passed) = hear(&socket);
        must_not("nonsense was let in", !is_refusal(&answer) || !passed.is_empty())?;
        must_not("nonsense is listened to", !hear(&socket).0.is_empty())?;
    }
    Ok(())
}

pub(crate) fn hello_split_by_the_byte(target: &Target) -> Found {
    let socket = knock(target)?;
    for byte in good_hello() {
        if !say(&socket, &[byte]) {
            break;
        }
    }
    // What it said after the first byte was never read, which the kernel tells it before it hears the answer.
    let answer = std::iter::repeat_with(|| hear(&socket).0).take(3).find(|answer| !answer.is_empty());
    must_not("a piece of a hello was let in", answer.is_some_and(|answer| !is_refusal(&answer)))
}

pub(crate) fn wrong_layout_version(target: &Target) -> Found {
    for version in [0, LAYOUT_VERSION + 1, u32::MAX] {
        let socket = knock(target)?;
        say(&socket, &hello(version, RCQ, 1, 4096));
        must_not("another version was let in", !is_refusal(&hear(&socket).0))?;
    }
    Ok(())
}

pub(crate) fn hello_of_absurd_size(target: &Target) -> Found {
    for (lanes, bytes) in [(0, 4096), (65, 4096), (u32::MAX, u64::MAX), (1, 0), (1, 1 << 62), (64, (256 << 20) + 1)] {
        let socket = knock(target)?;
        say(&socket, &hello(LAYOUT_VERSION, RCQ, lanes, bytes));
        must_not(&format!("{lanes} lanes, {bytes} bytes"), !is_refusal(&hear(&socket).0))?;
    }
    Ok(())
}

pub(crate) fn silent_guests(target: &Target) -> Found {
    let guests: Vec<_> = (0..200).map(|_| knock(target)).collect::<Result<_, _>>()?;
    // It is let in itself all the same.
    Liar::attach(target)?.ask(Operation::Null)?;
    std::thread::sleep(Duration::from_millis(1500));
    for socket in guests {
        must_not("silence was answered", !hear(&socket).0.is_empty())?;
    }
    Ok(())
}

pub(crate) fn connects_without_end(target: &Target) -> Found {
    for turn in 0..3000 {
        let Ok(socket) = knock(target) else { continue };
        if turn % 3 == 0 {
            say(&socket, &good_hello());
        }
    }
    Ok(())
}

pub(crate) fn attaches_without_end(target: &Target) -> Found {
    for _ in 0..20 {
        let clients: Vec<_> = (0..16).filter_map(|_| Liar::attach(target).ok()).collect();
        must_not("nobody is let in", clients.is_empty())?;
    }
    Ok(())
}

pub(crate) fn second_hello(target: &Target) -> Found {
    let mut liar = Liar::attach(target)?;
    for _ in 0..20 {
        say(&liar.socket, &good_hello());
    }
    // One client more would be one memory more for one socket.
    liar.ask(Operation::Null)?;
    liar.look_around()
}

pub(crate) fn packets_that_nobody_reads(target: &Target) -> Found {
    let mut liar = Liar::attach(target)?;
    let mut said = 0;
    while said < 100_000 && say(&liar.socket, &[7; 4096]) {
        said += 1;
    }
    must_not("there is no end to what it may leave in the socket", said == 100_000)?;
    liar.ask(Operation::Null).map(drop)
}

pub(crate) fn half_closed_socket(target: &Target) -> Found {
    let liar = Liar::attach(target)?;
    rustix::net::shutdown(&liar.socket, rustix::net::Shutdown::Write).map_err(wrong("shutdown"))?;
    liar.until_cut_off()
}

pub(crate) fn looks_at_every_area(target: &Target) -> Found {
    for area in (0..260).chain([u32::MAX, u32::MAX - 1, 1 << 16]) {
        let Ok(memory) = ddss_ipc::map_area(&target.socket, area, Duration::from_secs(5)) else { continue };
        must_not("an area can be written", memory.store(0, 1, Ordering::Relaxed).is_ok())?;
        let written = rustix::io::pwrite(memory.descriptor(), &[7], 0);
        must_not("an area can be written by its descriptor", written.is_ok())?;
        let again = format!("/proc/self/fd/{}", memory.descriptor().as_raw_fd());
        must_not("an area can be opened again to be written", reopens(Path::new(&again)))?;
        must_not("an area can be shrunk", rustix::fs::ftruncate(memory.descriptor(), 0).is_ok())?;
        // A sample: areas are large and mostly holes.
        let mut bytes = vec![0; memory.len().min(4 << 20)];
        memory.read(0, &mut bytes).map_err(wrong("an area"))?;
        must_not(&format!("area {area} shows somebody else's bytes"), shows_secret(&bytes))?;
    }
    Ok(())
}

fn reopens(path: &Path) -> bool {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

pub(crate) fn walks_through_the_folder(target: &Target) -> Found {
    if rustix::process::geteuid().is_root() {
        // Root may, and is the daemon's own user.
        return Ok(());
    }
    let folder = target.socket.parent().ok_or("a socket lies in a folder")?;
    must_not("the folder can be listed", std::fs::read_dir(folder).is_ok())?;
    for name in
        ["memory", "memory/area-1", "memory/register", "memory/undo", "state", "state/cluster.key", "ddssd.lock"]
    {
        let path = folder.join(name);
        must_not(&format!("{name} can be read"), std::fs::read(&path).is_ok())?;
        must_not(&format!("{name} can be listed"), std::fs::read_dir(&path).is_ok())?;
        must_not(&format!("{name} can be written"), reopens(&path))?;
    }
    must_not("a file can be left there", std::fs::write(folder.join("mine"), "x").is_ok())?;
    must_not("the socket can be removed", std::fs::remove_file(&target.socket).is_ok())?;
    must_not("the operator's socket is open", UnixStream::connect(folder.join("ddssd.admin")).is_ok())
}
