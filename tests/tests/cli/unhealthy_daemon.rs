//! Commands at an unhealthy daemon: stopped, dead, of another user, or with a corrupt status page. Each ends with a
//! message.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use ddss::{Client, ConnectOptions, Spec};
use ddss_testkit::{
    CommandOutput, Daemon, DaemonOptions, Process, TEST_KEY, TempNode, binary, copy_program, retry, skipped,
};

/// Time limit of a command. Commands take less than a tenth of it.
const PATIENCE: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65534;

/// All commands that call a daemon.
const ASKING: &[&str] = &[
    "ping",
    "ls",
    "stat x",
    "get x",
    "put x bytes",
    "hexdump x",
    "watch x --count 1",
    "history x",
    "export x exported",
    "import x imported",
    "chmod 600 x",
    "locks",
    "locks x --break --yes",
    "release x",
    "allocate y 8",
    "status",
    "nodes",
    "clients",
    "counters",
    "top --once --interval-ms 100",
    "trace x",
    "doctor",
    "cluster status",
    "cluster lead 2",
    "cluster leave",
];

/// Runs the command as that user; returns an error if it does not end in time.
fn ended(program: &Path, folder: &Path, scratch: &TempNode, words: &str, user: Option<u32>) -> CommandOutput {
    let mut command = Command::new(program);
    command.args(words.split(' ')).env("DDSS_DIR", folder).current_dir(scratch.path());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    static RUN: AtomicU32 = AtomicU32::new(0);
    let name = format!("said-{}", RUN.fetch_add(1, Ordering::Relaxed));
    let mut process = Process::start(command, scratch.path(), &name).unwrap();
    let status = process.wait(PATIENCE).unwrap();
    let said = CommandOutput {
        code: status.and_then(|status| status.code()).unwrap_or(-1),
        out: process.stdout(),
        err: process.stderr(),
    };
    assert!(status.is_some(), "`ddss {words}` does not end: {said:?}");
    assert!(!said.err.contains("panicked"), "{words}: {said:?}");
    assert!(said.code == 0 || said.err.trim().len() > 10, "{words} ends without a word: {said:?}");
    said
}

fn scratch() -> TempNode {
    let scratch = TempNode::new().unwrap();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o777)).unwrap();
    fs::write(scratch.join("imported"), "bytes").unwrap();
    scratch
}

/// A node with one segment.
fn node() -> Daemon {
    let daemon = DaemonOptions::new(1).unwrap().clustered().start().unwrap();
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()))
        .unwrap()
        .segment("x")
        .allocate(Spec::new(64))
        .unwrap();
    daemon
}

// If this failed, a command would hang silently when an operator needs it most.
#[test]
fn commands_end_in_time_when_daemon_is_stopped_or_dead() {
    let (mut daemon, scratch, program) = (node(), scratch(), binary("ddss").unwrap());
    daemon.pause().unwrap();
    // At the same time: each of them waits for its own deadline.
    thread::scope(|scope| {
        let (program, folder, scratch) = (&program, daemon.folder(), &scratch);
        for words in ASKING {
            scope.spawn(move || {
                let said = ended(program, folder, scratch, words, None);
                // Reading the status page needs no daemon.
                let alone = ["clients", "counters", "top"].iter().any(|word| words.starts_with(word));
                assert!(said.code != 0 || alone, "{words}: {said:?}");
            });
        }
    });
    daemon.resume().unwrap();
    daemon.kill().unwrap();
    for words in ASKING {
        let said = ended(&program, daemon.folder(), &scratch, words, None);
        let shown = ["ls", "stat x", "status", "clients", "counters", "top", "trace"];
        let is_shown = shown.iter().any(|word| words.starts_with(word));
        assert!(is_shown || said.code != 0, "{words}: {said:?}");
        assert!(!words.starts_with("put") || said.code == 4, "{words}: {said:?}");
    }
}

/// Result of a put that waits for a lock at its home when the home stops or dies. The segment is whole when its home
/// returns.
fn put_in_trouble(is_killed: bool, asked: usize) -> (Option<i32>, String) {
    let (mut nodes, scratch) = (Daemon::pair().unwrap(), scratch());
    let home = Client::connect_with(ConnectOptions::new().directory(nodes[0].folder())).unwrap();
    let segment = home.segment("x").allocate(Spec::new(64)).unwrap();
    let before = segment.put(0, b"before").unwrap().version;
    // The other node reaches it when the two have met.
    let asker = Client::connect_with(ConnectOptions::new().directory(nodes[asked].folder())).unwrap();
    retry(|| asker.segment("x").open());
    let held = segment.lock().unwrap();
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["put", "x", "after"]).env("DDSS_DIR", nodes[asked].folder());
    let mut put = Process::start(command, scratch.path(), "put").unwrap();
    // On a slow machine it may have given up before it was seen.
    let _ = put.wait_until(PATIENCE, |_| segment.stat().is_ok_and(|info| info.lock.waiting == 1));
    if is_killed {
        nodes[0].kill().unwrap()
    } else {
        nodes[0].pause().unwrap()
    }
    let code = put.wait(PATIENCE).unwrap().and_then(|status| status.code());
    assert!(put.stdout().is_empty(), "{}", put.stdout());
    drop(held);
    if is_killed {
        nodes[0].restart().unwrap()
    } else {
        nodes[0].resume().unwrap()
    }
    let value = retry(|| segment.get(0..6));
    let is_whole = (&value[..], value.version()) == (b"before", before)
        || (&value[..], value.version().0) == (b"aftere", before.0 + 1);
    assert!(is_whole, "{:?} {}", &value[..], value.version());
    (code, put.stderr())
}

// If this failed, a script would take an indeterminate put for a failed one, and add twice or lose it.
#[test]
fn indeterminate_put_is_distinguished_from_failed_put() {
    for (is_killed, asked) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        // A put that timed out before the failure certainly did nothing, and reports that.
        let mut ends = (0..5).map(|_| put_in_trouble(is_killed, asked));
        let (code, why) = ends.find(|(code, _)| *code != Some(1)).unwrap();
        let is_told = why.starts_with("ddss: outcome unknown, the call may have taken effect: ")
            && why.contains("`ddss stat NAME`");
        assert!(code == Some(3) && is_told, "home {is_killed} {asked}: {code:?} {why}");
    }
}

// If this failed, another user would read forbidden data, or get a misleading error.
#[test]
fn other_user_gets_permission_denied() {
    const NAME: &str = "other_user_gets_permission_denied";
    if !rustix::process::geteuid().is_root() {
        return skipped(NAME, "it needs root, to be another user");
    }
    let (daemon, scratch) = (node(), scratch());
    let program = scratch.join("ddss");
    copy_program(&binary("ddss").unwrap(), &program).unwrap();
    let stranger = |words: &str| ended(&program, daemon.folder(), &scratch, words, Some(NOBODY));
    // The directory is its owner's only.
    for words in ASKING {
        let said = stranger(words);
        let denied = ["ermission denied", "no permission", "not for this user"];
        let is_told = denied.iter().any(|words| said.err.contains(words) || said.out.contains(words));
        assert!(said.code != 0 && is_told && !said.out.contains("start one with"), "{words}: {said:?}");
    }
    drop(daemon);
    let options = DaemonOptions::new(1).unwrap().argument("--socket-mode").argument("666");
    let daemon = options.argument("--status-mode").argument("644").start().unwrap();
    fs::set_permissions(daemon.folder(), Permissions::from_mode(0o711)).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    client.segment("x").allocate(Spec::new(64)).unwrap().put(0, b"secret").unwrap();
    let stranger = |words: &str| ended(&program, daemon.folder(), &scratch, words, Some(NOBODY));
    // For locks the other user gets the answer for an absent segment: no holder.
    for words in ASKING.iter().filter(|words| words.contains(" x") && !words.starts_with("locks")) {
        let said = stranger(words);
        assert!(said.code == 1 && !said.out.contains("secret"), "{words}: {said:?}");
    }
    assert!(!stranger("ls").out.contains('x') && !stranger("top --once --interval-ms 100").out.contains(" x "));
    assert_eq!(client.segment("x").open().unwrap().get(0..6).unwrap()[..], *b"secret");
}

// If this failed, root would create a key for a service that the service cannot read.
#[test]
fn files_created_by_root_belong_to_the_daemon_user() {
    const NAME: &str = "files_created_by_root_belong_to_the_daemon_user";
    if !rustix::process::geteuid().is_root() {
        return skipped(NAME, "it needs root, to be another user");
    }
    let (program, scratch) = (binary("ddss").unwrap(), scratch());
    for (folder, words) in [("one", "cluster init"), ("two", "cluster join 127.0.0.1:7400 TOKEN")] {
        let state = scratch.join(folder);
        fs::create_dir(&state).unwrap();
        chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
        let words = format!("{words} --state-dir {}", state.display()).replace("TOKEN", TEST_KEY);
        assert_eq!(ended(&program, scratch.path(), &scratch, &words, None).code, 0);
        let made: Vec<_> = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap()).collect();
        assert!(!made.is_empty());
        for entry in made {
            let found = entry.metadata().unwrap();
            assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{:?}", entry.path());
        }
    }
}

// If this failed, segments of a service outside its directory could not be found after its death.
#[test]
fn segments_of_dead_daemon_are_found_in_any_directory() {
    let (memory, scratch, program) = (TempNode::new().unwrap(), scratch(), binary("ddss").unwrap());
    let options = DaemonOptions::new(1).unwrap().argument("--memory-dir").argument(memory.join("segments"));
    let mut daemon = options.start().unwrap();
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()))
        .unwrap()
        .segment("x")
        .allocate(Spec::new(64))
        .unwrap();
    daemon.kill().unwrap();
    let said = ended(&program, daemon.folder(), &scratch, "ls --json", None);
    assert!(said.code == 4 && said.out.contains("\"name\":\"x\""), "{said:?}");
}

// If this failed, a forged or corrupt page could crash or deceive a command.
#[test]
fn corrupt_status_page_is_reported_as_corrupt() {
    let (mut daemon, scratch, program) = (node(), scratch(), binary("ddss").unwrap());
    daemon.kill().unwrap();
    let page = fs::canonicalize(daemon.folder().join("memory/status")).unwrap();
    let whole = fs::read(&page).unwrap();
    let mut turned = whole.clone();
    turned.iter_mut().for_each(|byte| *byte = !*byte);
    for nonsense in [
        &b""[..],
        b"short",
        &vec![0xff; whole.len()],
        &turned,
        &whole[..whole.len() / 2],
        &[whole.clone(), whole.clone()].concat(),
    ] {
        fs::write(&page, nonsense).unwrap();
        for words in ["counters", "clients", "top --once", "trace", "top --json", "doctor"] {
            ended(&program, daemon.folder(), &scratch, words, None);
        }
    }
    fs::write(&page, &whole).unwrap();
    assert_eq!(ended(&program, daemon.folder(), &scratch, "counters", None).code, 4);
    // The directory is a file, a loop, a name that is too long.
    let file = scratch.join("imported");
    std::os::unix::fs::symlink("round", scratch.join("round")).unwrap();
    for folder in [file, scratch.join("round"), scratch.join(&"long/".repeat(800))] {
        for words in ASKING {
            let said = ended(&program, &folder, &scratch, words, None);
            assert_ne!(said.code, 0, "{words}: {said:?}");
        }
    }
}
