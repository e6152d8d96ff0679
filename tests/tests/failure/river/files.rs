//! Mirrored files between real processes: servers that are killed and restarted, damaged chunks, interrupted loading.
//!
//! The test reads. File servers are processes of their own: this program again, with the variable `CHILD` set.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
#![allow(clippy::print_stdout, reason = "a child tells its test that it serves")]

use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions};
use ddss_river::{Damage, FileServer, Files, FilesOptions, QueueError};
use ddss_testkit::{Daemon, PrivateMounts, Process, binary, pattern};

const CHILD: &str = "DDSS_TEST_FILES";
/// Deadline of everything that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Deadline of a call that must not succeed.
const SHORT: Duration = Duration::from_secs(2);
const CHUNK: usize = 256 << 10;

fn connect(folder: &Path) -> Client {
    Client::connect_with(ConnectOptions::new().directory(folder)).unwrap()
}

fn options() -> FilesOptions {
    FilesOptions::new().timeout(PATIENCE)
}

fn join(daemon: &Daemon) -> Files {
    Files::join(&connect(daemon.folder()), options()).unwrap()
}

/// Serves or loads, if this process is a child. Returns false in the test itself.
fn is_child() -> bool {
    let Ok(words) = std::env::var(CHILD) else { return false };
    let [job, daemon, directory] = words.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let client = connect(Path::new(daemon));
    match job {
        "serve" => {
            let server = FileServer::start(&client, Path::new(directory), options()).unwrap();
            println!("serves {}", server.number());
            std::thread::sleep(2 * PATIENCE);
        }
        "load" => {
            let mut files = Files::join(&client, options()).unwrap();
            // It ends in the middle.
            let mut begin = Cursor::new(pattern(1, 4 * CHUNK)).chain(Stalled);
            files.load("pages", &mut begin).unwrap();
        }
        other => panic!("{other}"),
    }
    true
}

/// A reader that gives nothing.
struct Stalled;

impl Read for Stalled {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        println!("stalls");
        std::thread::sleep(2 * PATIENCE);
        Ok(0)
    }
}

struct Server {
    process: Process,
    directory: PathBuf,
}

fn start(test: &str, daemon: &Daemon, job: &str, directory: &Path) -> Process {
    start_by(Command::new(std::env::current_exe().unwrap()), test, daemon, job, directory)
}

fn start_by(mut command: Command, test: &str, daemon: &Daemon, job: &str, directory: &Path) -> Process {
    command.args(["--exact", &format!("river::files::{test}"), "--nocapture"]);
    command.env(CHILD, format!("{job} {} {}", daemon.folder().display(), directory.display()));
    let name = format!("{job}-{}", directory.file_name().unwrap().to_string_lossy());
    Process::start(command, daemon.folder(), &name).unwrap()
}

fn serve(test: &str, daemon: &Daemon, name: &str) -> Server {
    let directory = daemon.folder().join(name);
    let mut process = start(test, daemon, "serve", &directory);
    number(&mut process);
    Server { process, directory }
}

/// Waits until a process serves. Returns the number of its server.
fn number(process: &mut Process) -> u64 {
    let found = |process: &Process| {
        let text = process.stdout();
        let line = text.split_inclusive('\n').find_map(|line| line.strip_suffix('\n')?.strip_prefix("serves "))?;
        Some(line.parse().unwrap())
    };
    process.wait_until(PATIENCE, |process| found(process).is_some()).unwrap();
    found(process).unwrap()
}

impl Server {
    /// Changes a byte of each of these chunks, in all parts.
    fn damage(&self, chunks: std::ops::Range<usize>) {
        for entry in fs::read_dir(&self.directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "part") {
                let mut bytes = fs::read(&path).unwrap();
                let end = bytes.len().min(chunks.end * CHUNK);
                (chunks.start * CHUNK..end).step_by(CHUNK).for_each(|at| bytes[at] ^= 1);
                fs::write(&path, bytes).unwrap();
            }
        }
    }
}

fn two_servers(test: &str) -> ([Daemon; 2], [Server; 2]) {
    let nodes = Daemon::pair().unwrap();
    let servers = [serve(test, &nodes[0], "a"), serve(test, &nodes[1], "b")];
    (nodes, servers)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read_all(files: &mut Files, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    files.read(name).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Differences of long contents are not for people.
fn assert_same(found: &[u8], expected: &[u8]) {
    let differs = found.iter().zip(expected).position(|(one, other)| one != other);
    assert!(found.len() == expected.len() && differs.is_none(), "{} bytes, difference at {differs:?}", found.len());
}

// If this failed, a reader would end with the disk or the node of one mirror, or mix up bytes.
#[test]
fn collection_is_read_byte_for_byte_while_a_server_is_killed() {
    if is_child() {
        return;
    }
    let test = "collection_is_read_byte_for_byte_while_a_server_is_killed";
    let (nodes, mut servers) = two_servers(test);
    let content = pattern(7, 70 * (1 << 20) + 12_345);
    let loaded = join(&nodes[0]).load("pages", &mut Cursor::new(&content)).unwrap();
    assert_eq!((loaded.parts, loaded.bytes, loaded.servers.len()), (2, content.len() as u64, 2));
    for victim in 0..2 {
        let mut files = join(&nodes[1 - victim]);
        let mut reader = files.read("pages").unwrap();
        let mut found = Vec::new();
        for chunk in 0.. {
            if chunk == 40 {
                servers[victim].process.kill().unwrap();
            }
            let Some(bytes) = reader.next_chunk().unwrap() else { break };
            found.extend(bytes);
        }
        assert_same(&found, &content);
        // A server that is started again has what it had.
        servers[victim] = serve(test, &nodes[victim], ["a", "b"][victim]);
    }
    assert_eq!(join(&nodes[0]).inspect("pages").unwrap(), loaded);
}

// If this failed, a damaged disk would give wrong bytes to a program, or an error without a place.
#[test]
fn damaged_chunks_come_from_the_other_mirror_and_lost_ones_are_named() {
    if is_child() {
        return;
    }
    let test = "damaged_chunks_come_from_the_other_mirror_and_lost_ones_are_named";
    let (nodes, servers) = two_servers(test);
    let mut files = join(&nodes[0]);
    let content = pattern(3, 20 * CHUNK + 1);
    files.load("pages", &mut Cursor::new(&content)).unwrap();
    files.load("empty", &mut Cursor::new(b"")).unwrap();
    assert_same(&read_all(&mut files, "pages"), &content);
    assert_same(&read_all(&mut files, "empty"), b"");
    assert_eq!(files.verify("pages").unwrap(), []);
    // One damaged chunk keeps none back that follow it, whichever mirror is asked first.
    for (chunk, server) in (0..4).flat_map(|chunk| servers.iter().map(move |server| (chunk, server))) {
        server.damage(chunk..chunk + 1);
        assert_same(&read_all(&mut files, "pages"), &content);
        server.damage(chunk..chunk + 1);
    }
    servers[0].damage(3..21);
    assert_same(&read_all(&mut files, "pages"), &content);
    servers[1].damage(17..21);
    let damages: Vec<_> = files.verify("pages").unwrap().iter().map(|damage| (damage.part, damage.chunk)).collect();
    assert!(damages == [(0, Some(3)), (0, Some(17))] || damages == [(0, Some(17)), (0, Some(3))], "{damages:?}");
    let listed: Vec<_> = Files::list(&connect(nodes[1].folder())).unwrap();
    assert_eq!(listed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["empty", "pages"]);
    let mut reader = files.read("pages").unwrap();
    let mut found = Vec::new();
    let error = loop {
        match reader.next_chunk() {
            Ok(bytes) => found.extend(bytes.expect("the end is lost")),
            Err(error) => break error,
        }
    };
    assert_same(&found, &content[..found.len()]);
    assert!(matches!(&error, QueueError::ChunkLost { part: 0, chunk: 17.., .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("of part 0 of collection pages is lost on file servers"), "{text}");
}

// If this failed, a deleted part would pass for intact until its server ends, and an absent server for a broken network.
#[test]
fn deleted_part_is_found_and_an_absent_mirror_is_named() {
    if is_child() {
        return;
    }
    let (nodes, mut servers) = two_servers("deleted_part_is_found_and_an_absent_mirror_is_named");
    let mut files = Files::join(&connect(nodes[0].folder()), options()).unwrap();
    let content = pattern(3, 5 * CHUNK);
    let loaded = files.load("pages", &mut Cursor::new(&content)).unwrap();
    assert_same(&read_all(&mut files, "pages"), &content);
    assert_eq!(files.verify("pages").unwrap(), []);
    let part = |server: &Server| {
        let mut paths = fs::read_dir(&server.directory).unwrap().map(|entry| entry.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|end| end == "part")).unwrap()
    };
    // The server has it open.
    let (path, aside) = (part(&servers[0]), nodes[0].folder().join("aside"));
    fs::rename(&path, &aside).unwrap();
    let damages = files.verify("pages").unwrap();
    assert!(matches!(damages[..], [Damage { part: 0, chunk: Some(0), .. }]), "{damages:?}");
    fs::copy(&aside, &path).unwrap();
    assert_eq!(files.verify("pages").unwrap(), []);

    servers[0].damage(2..3);
    servers[1].process.kill().unwrap();
    let damaged = damages[0].server;
    let absent = *loaded.servers.iter().find(|server| **server != damaged).unwrap();
    let mut few = Files::join(&connect(nodes[0].folder()), options().timeout(SHORT)).unwrap();
    let mut reader = few.read("pages").unwrap();
    let error = loop {
        match reader.next_chunk() {
            Ok(bytes) => drop(bytes.expect("the end is lost")),
            Err(error) => break error.to_string(),
        }
    };
    let expected = format!(
        "chunk 2 of part 0 of collection pages did not come within 2s: it is damaged or missing on file server \
         {damaged:016x}, file server {absent:016x} is not connected"
    );
    assert_eq!(error, expected);
}

// If this failed, a process would take the place of a living server, or believe that the catalogue survives a node.
#[test]
fn other_settings_than_those_of_the_servers_are_refused() {
    if is_child() {
        return;
    }
    let (nodes, _servers) = two_servers("other_settings_than_those_of_the_servers_are_refused");
    let refused = |options: FilesOptions| Files::join(&connect(nodes[0].folder()), options).unwrap_err().to_string();
    assert_eq!(
        refused(options().lease(Duration::from_secs(1))),
        "queue river/files has lease in ms 10000, and this process wants 1000: use the same in all processes"
    );
    let one_copy = refused(options().copies(2));
    assert!(one_copy.starts_with("river/files is stored on one node, and this process wants 2 copies"), "{one_copy}");
}

// If this failed, files that nobody reads would fill the disks, and a process could not load after four failures.
#[test]
fn failed_loading_leaves_no_parts() {
    if is_child() {
        return;
    }
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the source is broken"))
        }
    }
    let (nodes, servers) = two_servers("failed_loading_leaves_no_parts");
    let mut files = join(&nodes[0]);
    // The first one has a complete part.
    for chunks in [260, 1, 1, 1, 1, 1] {
        let error = files.load("pages", &mut Cursor::new(pattern(1, chunks * CHUNK)).chain(Broken)).unwrap_err();
        assert!(matches!(error, QueueError::System(_)), "{error}");
    }
    files.load("pages", &mut Cursor::new(b"bytes")).unwrap();
    let names = |server: &Server| {
        fs::read_dir(&server.directory).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    // The aborts came before the new part: a server takes messages in their order.
    servers.iter().for_each(|server| assert_eq!(names(server).len(), 3, "{:?}", names(server)));
    assert_same(&read_all(&mut files, "pages"), b"bytes");
    // A process that ends at the error, as a command does.
    for _ in 0..5 {
        let mut files = join(&nodes[0]);
        files.load("more", &mut Cursor::new(pattern(1, 260 * CHUNK)).chain(Broken)).unwrap_err();
        drop(files);
        until("the parts are dropped", || servers.iter().all(|server| names(server).len() == 3));
    }
}

// If this failed, one disk would be full while others are empty, and readers would gain nothing from further servers.
#[test]
fn parts_of_a_collection_lie_on_all_servers() {
    if is_child() {
        return;
    }
    let test = "parts_of_a_collection_lie_on_all_servers";
    let (nodes, _two) = two_servers(test);
    let _others = [serve(test, &nodes[0], "c"), serve(test, &nodes[1], "d")];
    let bytes = (128 << 20) + 1;
    let loaded = join(&nodes[0]).load("pages", &mut std::io::repeat(7).take(bytes)).unwrap();
    assert_eq!((loaded.parts, loaded.bytes, loaded.servers.len()), (3, bytes, 4));
    let mut files = join(&nodes[1]);
    let (mut reader, mut part, mut found) = (files.read("pages").unwrap(), vec![0; 1 << 20], 0);
    loop {
        match reader.read(&mut part).unwrap() {
            0 => break,
            count => {
                assert!(part[..count].iter().all(|byte| *byte == 7), "behind byte {found}");
                found += count as u64;
            }
        }
    }
    assert_eq!(found, bytes);
}

/// Gives a program a slow disk. Returns the file that makes its next sync slow, and is deleted then.
fn slow_disk(command: &mut Command, node: &Daemon) -> PathBuf {
    let (library, slow) = (node.folder().join("slow_disk.so"), node.folder().join("slow"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/failure/river/slow_disk.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler is there, as for the build");
    command.env("LD_PRELOAD", library).env("DDSS_TEST_SLOW_SYNC", &slow);
    slow
}

// If this failed, an operator would have to kill a server whose disk hangs, and could not start the next one before.
#[test]
fn server_whose_disk_hangs_ends_at_the_second_signal() {
    let node = Daemon::start(1).unwrap();
    let command = |words: &[&str]| {
        let mut command = Command::new(binary("ddss").unwrap());
        command.args(["river"]).args(words).env("DDSS_DIR", node.folder()).current_dir(node.folder());
        command
    };
    let mut serve = command(&["serve", "one"]);
    let slow = slow_disk(&mut serve, &node);
    let mut server = Process::start(serve, node.folder(), "one").unwrap();
    let mut other = Process::start(command(&["serve", "two"]), node.folder(), "two").unwrap();
    for server in [&mut server, &mut other] {
        server.wait_until(PATIENCE, |server| server.stdout().contains("serves")).unwrap();
    }
    fs::write(&slow, b"").unwrap();
    fs::write(node.folder().join("pages"), b"bytes").unwrap();
    let mut load = Process::start(command(&["load", "pages", "pages"]), node.folder(), "load").unwrap();
    load.wait_until(PATIENCE, |_| !slow.exists()).unwrap();
    let mut ended = None;
    while ended.is_none() {
        server.terminate().unwrap();
        ended = server.wait(Duration::from_millis(200)).unwrap();
    }
    assert_eq!(ended.unwrap().code(), Some(143), "{}", server.stderr());
}

// If this failed, a busy disk would cut a healthy server off from all its users, for as long as they live.
#[test]
fn server_whose_disk_is_slow_is_not_lost() {
    if is_child() {
        return;
    }
    let test = "server_whose_disk_is_slow_is_not_lost";
    let nodes = Daemon::pair().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let slow = slow_disk(&mut command, &nodes[0]);
    let mut process = start_by(command, test, &nodes[0], "serve", &nodes[0].folder().join("a"));
    number(&mut process);
    let mut other = serve(test, &nodes[1], "b");
    let (mut files, mut reader) = (join(&nodes[0]), join(&nodes[1]));
    // Both are connected before.
    files.load("small", &mut Cursor::new(b"bytes")).unwrap();
    assert_same(&read_all(&mut reader, "small"), b"bytes");
    fs::write(&slow, b"").unwrap();
    let content = pattern(3, 2 * CHUNK);
    files.load("pages", &mut Cursor::new(&content)).unwrap();
    assert!(!slow.exists(), "no sync was slow");
    other.process.kill().unwrap();
    assert_same(&read_all(&mut reader, "pages"), &content);
}

// If this failed, one hung disk would stop every reader of its parts, although the other mirror is healthy.
#[test]
fn server_whose_disk_hangs_is_passed_over() {
    if is_child() {
        return;
    }
    let test = "server_whose_disk_hangs_is_passed_over";
    let nodes = Daemon::pair().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let hung = slow_disk(&mut command, &nodes[0]).with_extension("reads");
    let mut process = start_by(command, test, &nodes[0], "serve", &nodes[0].folder().join("a"));
    number(&mut process);
    let mut other = serve(test, &nodes[1], "b");
    let (mut files, mut reader) = (join(&nodes[0]), join(&nodes[1]));
    let content = pattern(3, 20 * CHUNK);
    files.load("pages", &mut Cursor::new(&content)).unwrap();
    let unordered = |files: &mut Files| {
        let (mut reader, mut found) = (files.read_unordered("pages").unwrap(), vec![0; content.len()]);
        while let Some(chunk) = reader.next_chunk().unwrap() {
            found[usize::try_from(chunk.position).unwrap()..][..chunk.bytes.len()].copy_from_slice(&chunk.bytes);
        }
        found
    };
    assert_same(&unordered(&mut reader), &content);
    fs::write(&hung, b"").unwrap();
    assert_same(&read_all(&mut reader, "pages"), &content);
    assert_same(&unordered(&mut reader), &content);
    // It is asked again once it answers.
    fs::remove_file(&hung).unwrap();
    assert_same(&read_all(&mut reader, "pages"), &content);
    other.process.kill().unwrap();
    assert_same(&read_all(&mut reader, "pages"), &content);
}

// If this failed, half a collection would be taken for a whole one, or a lost server would stop its writers.
#[test]
fn interrupted_loading_leaves_no_collection() {
    if is_child() {
        return;
    }
    let test = "interrupted_loading_leaves_no_collection";
    let (nodes, mut servers) = two_servers(test);
    let mut files = join(&nodes[0]);
    let unknown = |files: &mut Files| files.read("pages").map(drop).unwrap_err().to_string();
    assert_eq!(unknown(&mut files), "there is no collection pages: load it");
    let mut loader = start(test, &nodes[1], "load", Path::new("loader"));
    loader.wait_until(PATIENCE, |loader| loader.stdout().contains("stalls")).unwrap();
    let incomplete = "collection pages is not complete: wait for its loader; if that was killed, release river/files/pages and \
                      load it again";
    assert_eq!(unknown(&mut files), incomplete);
    loader.kill().unwrap();
    let exists = files.load("pages", &mut Cursor::new(b"bytes")).unwrap_err().to_string();
    assert_eq!(exists, "collection pages exists: release river/files/pages before you load it again");
    connect(nodes[0].folder()).segment("river/files/pages").open().unwrap().release().unwrap();
    files.load("pages", &mut Cursor::new(b"bytes")).unwrap();
    assert_same(&read_all(&mut files, "pages"), b"bytes");
    let not_there = servers[0].directory.join("0123456789abcdef.new");
    fs::write(&not_there, b"half a part").unwrap();
    servers[0].process.kill().unwrap();
    servers[0] = serve(test, &nodes[0], "a");
    assert!(!not_there.exists(), "a server that starts drops what was not complete");

    // A server is killed while it gets a part.
    struct Killer<'s>(&'s mut Process, usize);
    impl Read for Killer<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.1 += 1;
            if self.1 == 20 {
                self.0.kill().unwrap();
            }
            Ok(if self.1 < 10_000 { into.len() } else { 0 })
        }
    }
    let error = files.load("more", &mut Killer(&mut servers[1].process, 0)).unwrap_err();
    assert!(matches!(error, QueueError::ServerLost { .. }), "{error}");
    drop(files);
    let mut files = Files::join(&connect(nodes[0].folder()), options().timeout(SHORT)).unwrap();
    let error = files.load("more", &mut Cursor::new(b"bytes")).unwrap_err().to_string();
    assert!(error.starts_with("two file servers did not come"), "{error}");
}

// If this failed, a full disk would leave half a collection, or stop its server for good.
#[test]
fn server_with_a_full_disk_is_named_and_goes_on_with_less() {
    if is_child() {
        return;
    }
    let test = "server_with_a_full_disk_is_named_and_goes_on_with_less";
    let Some(mounts) = PrivateMounts::new(test, &[("disk", "size=8m")]) else { return };
    let nodes = Daemon::pair().unwrap();
    let _other = serve(test, &nodes[1], "b");
    let prefix = mounts.command_prefix();
    let mut command = Command::new(&prefix[0]);
    command.args(&prefix[1..]).arg(std::env::current_exe().unwrap());
    let mut full = start_by(command, test, &nodes[0], "serve", &mounts.mount_path("disk"));
    let server = number(&mut full);
    let mut files = join(&nodes[0]);
    for _ in 0..2 {
        let error = files.load("large", &mut Cursor::new(pattern(1, 12 << 20))).unwrap_err();
        assert_eq!(error.to_string(), format!("file server {server:016x} is lost, or cannot write"));
    }
    // It has dropped what it had of them.
    let content = pattern(2, 6 << 20);
    files.load("small", &mut Cursor::new(&content)).unwrap();
    assert_same(&read_all(&mut files, "small"), &content);
    let names: Vec<_> = Files::list(&connect(nodes[1].folder())).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["small"]);
}

// If this failed, the loss of a second disk would lose what the first one has lost before.
#[test]
fn repair_writes_damaged_and_missing_mirrors_again() {
    if is_child() {
        return;
    }
    let test = "repair_writes_damaged_and_missing_mirrors_again";
    let (nodes, mut servers) = two_servers(test);
    let content = pattern(5, 9 * CHUNK + 3);
    let mut files = join(&nodes[0]);
    files.load("pages", &mut Cursor::new(&content)).unwrap();
    let repaired = |files: &mut Files| -> Vec<_> {
        files.repair("pages").unwrap().iter().map(|damage| (damage.part, damage.chunk)).collect()
    };
    assert_eq!(repaired(&mut files), []);
    servers[0].damage(2..5);
    assert_eq!(repaired(&mut files), [(0, Some(2))]);
    assert_eq!(files.verify("pages").unwrap(), []);
    // The same chunk at both: the collection stays as it was.
    servers.iter().for_each(|server| server.damage(4..5));
    let error = files.repair("pages").unwrap_err();
    assert!(matches!(&error, QueueError::ChunkLost { part: 0, chunk: 4, .. }), "{error}");
    servers.iter().for_each(|server| server.damage(4..5));
    assert_eq!(files.verify("pages").unwrap(), []);
    drop(files);

    // A server that does not come back, and one in its place.
    servers[1].process.kill().unwrap();
    let mut few = Files::join(&connect(nodes[0].folder()), options().timeout(SHORT)).unwrap();
    let error = few.repair("pages").unwrap_err().to_string();
    assert!(error.starts_with("two file servers did not come"), "{error}");
    let _third = serve(test, &nodes[1], "c");
    assert_eq!(repaired(&mut few), [(0, None)]);
    drop(few);
    servers[0].process.kill().unwrap();
    assert_same(&read_all(&mut join(&nodes[1]), "pages"), &content);
}
