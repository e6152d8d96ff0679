//! Images that get a stream as standard descriptor: their bytes keep their place, and a killed pump never looks like an end.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ddss_testkit::{Random, preload_library};
use rustix::process::{Pid, Signal, kill_process};

use super::pump::kills::{BYTES, Found, SEED, byte_at, bytes_of, exchange};
use super::{DEADLINE, PORT, bypass, child, output_of, port_of, result};

/// Longest time from the first byte to the kill, in microseconds. A transfer takes some milliseconds.
const DELAY_US: u64 = 12_000;
/// Kills of each kind of image.
const KILLS: u64 = 12;

/// Images that a server starts in one connection.
const IMAGES: u32 = 20;

/// Part of a child: a server whose images write between its own writes. `is_forking`: by `fork` and `exec`, else by `posix_spawn`.
pub(super) fn write_around_images(mut stream: TcpStream, is_forking: bool) {
    for number in 0..IMAGES {
        write!(stream, "before {number} ").unwrap();
        let mut image = Command::new("echo");
        image.arg(format!("image {number}")).stdout(stream.as_fd().try_clone_to_owned().unwrap());
        if is_forking {
            image.uid(rustix::process::geteuid().as_raw());
        }
        assert!(image.status().unwrap().success());
    }
    println!("\nRESULT done");
}

/// Part of a child: the client of such a server.
pub(super) fn read_of_images(mut stream: TcpStream) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    println!("\nRESULT {}", text.replace('\n', " "));
}

// If this failed, the answers of a server that runs programs for its client (as CGI does) would be mixed, or cut.
#[test]
fn bytes_of_an_image_lie_between_those_of_its_server() {
    let expected: String = (0..IMAGES).map(|number| format!("before {number} image {number} ")).collect();
    for part in ["images_by_fork", "images_by_spawn"] {
        let said = super::pair(part, "read_of_images", true).map(|output| result(&output));
        assert_eq!(said, ["done".to_owned(), expected.clone()], "{part}");
    }
}

/// Part of a child: the far end, which writes and reads once the test says so.
pub(super) fn talk(stream: TcpStream) {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let is_silent = line.trim() == "silent";
    exchange(stream, if is_silent { seed_without_bytes() } else { seed }, seed).report();
}

fn seed_without_bytes() -> u64 {
    (0..).find(|seed| bytes_of(*seed) == 0).unwrap()
}

fn seed_with_bytes(start: u64) -> u64 {
    (start..).find(|seed| bytes_of(*seed) == BYTES).unwrap()
}

/// Describes this process's children and a process with its own: what they run, and the system call that they wait in.
fn relatives_of(acceptor: u32) -> String {
    let read = |process: &str, file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}"));
    let children = |process: u32| read(&process.to_string(), &format!("task/{process}/children")).unwrap_or_default();
    let mut found = format!("{acceptor} has children {:?}", children(acceptor));
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(status) = read(&name, "status") else { continue };
        let of =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned();
        let parent = of("PPid:");
        if [std::process::id(), acceptor].iter().any(|process| parent == process.to_string()) || parent == "1" {
            let waits = ["wchan", "syscall"].map(|file| read(&name, file).unwrap_or_default().trim().to_owned());
            found += &format!("\n{name} of {parent}: {} {} {waits:?}", of("Name:"), of("State:"));
        }
    }
    found
}

/// Returns the pump of the image that this process has started.
fn wait_for_pump(acceptor: u32, program: &Path, errors: &Path) -> Pid {
    let end = Instant::now() + DEADLINE;
    let exe = |process: &str| std::fs::read_link(format!("/proc/{process}/exe")).ok();
    loop {
        let children =
            std::fs::read_to_string(format!("/proc/{acceptor}/task/{acceptor}/children")).unwrap_or_default();
        let is_started =
            children.split_ascii_whitespace().any(|child| exe(child).is_some_and(|found| found != program));
        let names =
            std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut of_program = names.filter(|name| exe(name).as_deref() == Some(program)).flat_map(|name| name.parse());
        let pump = of_program.find(|process| *process != acceptor.cast_signed());
        if let (true, Some(pump)) = (is_started, pump) {
            return Pid::from_raw(pump).unwrap();
        }
        let has_failed = std::fs::metadata(errors).is_ok_and(|written| written.len() > 0);
        assert!(
            Instant::now() < end && !has_failed,
            "the image was not started: {:?}; {}",
            std::fs::read_to_string(errors),
            relatives_of(acceptor)
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Serves a connection by a program of the system, and kills its pump in the middle, or not. Returns what the far end found, and whether
/// the image succeeded.
fn round(programs: &bypass::Programs, command: &str, word: &str, seed: u64, is_killed: bool) -> (Found, bool) {
    let library = preload_library().unwrap();
    let mut accepting = Command::new(programs.dynamic());
    accepting.arg("inetd").args(command.split(' ')).env("LD_PRELOAD", &library).stdout(Stdio::piped());
    let errors = programs.folder.path().join("errors");
    let mut accepting = accepting.stderr(File::create(&errors).unwrap()).spawn().unwrap();
    let port = port_of(&mut accepting).to_string();
    let mut connecting = child("talk_to_image");
    connecting.env(PORT, port).env("LD_PRELOAD", &library).env(SEED, seed.to_string()).stdin(Stdio::piped());
    let mut connecting = connecting.spawn().unwrap();
    let pump = wait_for_pump(accepting.id(), &programs.dynamic(), &errors);
    writeln!(connecting.stdin.take().unwrap(), "{word}").unwrap();
    if is_killed {
        std::thread::sleep(Duration::from_micros(Random::new(seed).below(DELAY_US)));
        // It may have ended in order before.
        let _ = kill_process(pump, Signal::KILL);
    }
    let found = Found::parse(&result(&output_of(connecting)));
    (found, output_of(accepting).status.success())
}

// If this failed, a program of inetd, or its client, would take the death of a pump for the end of the bytes.
#[test]
fn killed_pump_of_an_image_never_looks_like_an_end() {
    let Some(programs) = bypass::programs("killed_pump_of_an_image_never_looks_like_an_end") else { return };
    let (file, mut cuts) = (programs.folder.path().join("file"), 0);
    let receives = format!("dd of={} status=none bs=64k", file.display());
    let sends = format!("cat {}", file.display());
    for number in 0..=KILLS {
        let seed = seed_with_bytes(1000 * number);
        let bytes: Vec<u8> = (0..BYTES).map(|position| byte_at(seed, position)).collect();
        // Without a kill all of them end in order: the first round of each.
        let is_killed = number > 0;
        let all = |found: &Found| found.last == "end" && found.wrote == "all";

        let (found, _) = round(&programs, "cat", "talk", seed, is_killed);
        let is_equal = found.last != "different" && (found.read == BYTES || !all(&found));
        assert!(is_equal && (is_killed || found.read == BYTES), "an echo is cut, seed {seed}: {found:?}");
        cuts += u64::from(found.read < BYTES);

        std::fs::write(&file, &bytes).unwrap();
        let (found, _) = round(&programs, &sends, "silent", seed, is_killed);
        let is_equal = found.last != "different" && (found.read == BYTES || found.last != "end");
        assert!(is_equal && (is_killed || found.read == BYTES), "an answer is cut, seed {seed}: {found:?}");
        cuts += u64::from(found.read < BYTES);

        std::fs::write(&file, "").unwrap();
        let (found, has_succeeded) = round(&programs, &receives, "talk", seed, is_killed);
        let received = std::fs::read(&file).unwrap();
        assert!(bytes.starts_with(&received), "other bytes, seed {seed}: {found:?}");
        let is_cut = received.len() < bytes.len();
        assert!(
            !is_cut || !has_succeeded && !all(&found),
            "{} bytes, {has_succeeded}, seed {seed}: {found:?}",
            received.len()
        );
        assert!(is_killed || !is_cut && has_succeeded && all(&found), "an end in order, seed {seed}: {found:?}");
        cuts += u64::from(is_cut);
    }
    assert!(cuts > 0, "no kill came in the middle");
}
