//! Quotas of each user on a node, and the errors for exceeding them.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Error, Limit, NodeId, Placement, Spec};
use ddss_core::Failure;
use ddss_core::status::{Counter, Gauge};
use ddss_ipc::read_status;
use ddss_testkit::{Daemon, DaemonOptions, binary, copy_program, skipped};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(20);
const OTHER_USER: u32 = 65534;

fn client(daemon: &Daemon) -> Client {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).timeout(PATIENCE)).expect("the daemon serves")
}

/// A copy of a program that every user can run; dropping it removes the copy.
struct Tool(PathBuf);

impl Tool {
    fn new(program: &Path, name: &str) -> Tool {
        let path = std::env::temp_dir().join(format!("ddss-quota-{name}-{}", std::process::id()));
        copy_program(program, &path).unwrap();
        Tool(path)
    }

    fn as_other_user(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.uid(OTHER_USER).gid(OTHER_USER);
        command
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Exit code and error of `ddss` for another user.
fn ddss(tool: &Tool, daemon: &Daemon, words: &[&str]) -> (i32, String) {
    let output = tool.as_other_user().args(words).arg("--dir").arg(daemon.folder()).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn heartbeat(daemon: &Daemon) -> u64 {
    read_status(daemon.folder()).unwrap().daemon.heartbeat_ns
}

fn write_quotas(daemon: &mut Daemon, text: &str) {
    std::fs::write(daemon.folder().join("ddssd.conf"), text).unwrap();
    let seen = daemon.process().stderr().matches("read the settings again").count();
    kill_process(Pid::from_raw(daemon.pid().cast_signed()).unwrap(), Signal::HUP).unwrap();
    let end = Instant::now() + PATIENCE;
    while daemon.process().stderr().matches("read the settings again").count() == seen {
        assert!(Instant::now() < end, "{}", daemon.process().stderr());
        std::thread::sleep(Duration::from_millis(5));
    }
    // The progress thread applies the quotas when it next reads the clock, and publishes its heartbeat after that.
    for _ in 0..2 {
        let before = heartbeat(daemon);
        while heartbeat(daemon) == before {
            assert!(Instant::now() < end, "the progress thread stands still");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

// If this failed, one user could exhaust a node, or get an error without a reason.
#[test]
fn quota_error_names_the_exceeded_quota() {
    if !rustix::process::geteuid().is_root() {
        return skipped("another_user_gets_what_his_quota_allows", "it needs root, to be another user");
    }
    let mut daemon = DaemonOptions::new(1).unwrap().argument("--socket-mode").argument("666").start().unwrap();
    std::fs::set_permissions(daemon.folder(), PermissionsExt::from_mode(0o711)).unwrap();
    let tool = Tool::new(&binary("ddss").unwrap(), "ddss");
    assert_eq!(ddss(&tool, &daemon, &["allocate", "a", "4096"]).0, 0);
    write_quotas(&mut daemon, "[quota.default]\nsegments = 2\nbytes = \"1M\"\nclients = 2\n");
    assert_eq!(ddss(&tool, &daemon, &["allocate", "b", "4096"]).0, 0);
    let (code, why) = ddss(&tool, &daemon, &["allocate", "c", "8"]);
    assert_eq!(code, 1, "{why}");
    assert!(why.contains("has 2 segments there and may have 2") && why.contains("release some"), "{why}");
    // The refusal leaves the unnamed segment without a name.
    assert_eq!(ddss(&tool, &daemon, &["release", "a"]).0, 0);
    let (code, why) = ddss(&tool, &daemon, &["allocate", "c", "1048576"]);
    assert_eq!(code, 1, "{why}");
    assert!(why.contains("has 4224 bytes of segments there and may have 1048576"), "{why}");
    // No other user is charged.
    let root = client(&daemon);
    for name in ["r1", "r2", "r3", "r4"] {
        root.segment(name).allocate(Spec::new(1 << 20)).unwrap();
    }
    // After a crash the daemon counts again, by the rules of the file.
    daemon.kill().unwrap();
    daemon.restart().unwrap();
    assert_eq!(ddss(&tool, &daemon, &["allocate", "c", "8"]).0, 0);
    let (code, why) = ddss(&tool, &daemon, &["allocate", "d", "8"]);
    assert!(code == 1 && why.contains("has 2 segments there and may have 2"), "{why}");
    // A rule for a user id precedes the default, and a lowered quota revokes nothing.
    write_quotas(&mut daemon, &format!("[quota.default]\nsegments = 0\n[quota.{OTHER_USER}]\nsegments = 3\n"));
    assert_eq!(ddss(&tool, &daemon, &["allocate", "d", "8"]).0, 0);
    write_quotas(&mut daemon, "[quota.default]\nsegments = 1\nclients = 2\n");
    assert_eq!(ddss(&tool, &daemon, &["stat", "b"]).0, 0);
    let (code, why) = ddss(&tool, &daemon, &["allocate", "e", "8"]);
    assert!(code == 1 && why.contains("has 3 segments there and may have 1"), "{why}");
    clients_are_counted(&tool, &daemon);
    // Refusals at the socket are counted when the daemon next reads the clock.
    let end = Instant::now() + PATIENCE;
    let status = loop {
        let status = read_status(daemon.folder()).unwrap();
        let refusals = status.counter(Counter::QuotaRefusals);
        if refusals >= 3 {
            break status;
        }
        assert!(Instant::now() < end, "{refusals}");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.failure(Failure::QuotaSegments), 2);
}

fn clients_are_counted(ddss_tool: &Tool, daemon: &Daemon) {
    let tool = Tool::new(Path::new(env!("CARGO_BIN_EXE_client")), "client");
    let attach = || -> (Child, String) {
        let mut command = tool.as_other_user();
        command.arg(daemon.folder()).arg("auto").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line)
    };
    let mut attached = [attach(), attach()];
    assert!(attached.iter().all(|(_, said)| said.starts_with("ok attached")), "{attached:?}");
    let (mut third, said) = attach();
    assert!(said.starts_with("error"), "{said}");
    let (_, why) = ddss(ddss_tool, daemon, &["ping"]);
    assert!(why.contains(&format!("user {OTHER_USER} has 2 clients attached and may have 2")), "{why}");
    third.wait().unwrap();
    client(daemon).ping().unwrap();
    for (child, _) in &mut attached {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let (mut again, said) = attach();
        again.kill().unwrap();
        again.wait().unwrap();
        if said.starts_with("ok attached") {
            break;
        }
        assert!(Instant::now() < end, "the dead still count: {said}");
    }
}

// If this failed, a user could exceed another user's quota by giving segments to that user.
#[test]
fn segments_given_by_chown_count_against_the_new_owner() {
    let test = "segments_given_by_chown_count_against_the_new_owner";
    if !rustix::process::geteuid().is_root() {
        return skipped(test, "it needs root, to give something away");
    }
    let options = DaemonOptions::new(1).unwrap().argument("--quota").argument(format!("{OTHER_USER}:segments=1"));
    let daemon = options.start().unwrap();
    let client = client(&daemon);
    let other_user = ddss::Permissions { uid: OTHER_USER, gid: OTHER_USER, mode: ddss::Mode::default() };
    let spec = Spec::new(64);
    client.segment("his").allocate(spec.owner(other_user.uid, other_user.gid)).unwrap();
    let refused = client.segment("too-much").allocate(spec.owner(other_user.uid, other_user.gid)).unwrap_err();
    assert!(refused.to_string().contains("quota"), "{refused}");
    // The refused segment does not exist, and its name is free.
    let mine = client.segment("too-much").allocate(spec).unwrap();
    let refused = mine.set_permissions(other_user).unwrap_err();
    assert!(refused.to_string().contains("quota"), "{refused}");
    client.segment("his").open().unwrap().release().unwrap();
    mine.set_permissions(other_user).unwrap();
    assert_eq!(mine.stat().unwrap().permissions, other_user);
}

// If this failed, a user could evade the quota by requests from another node.
#[test]
fn home_applies_quotas_to_remote_allocations() {
    let (a, b) = (DaemonOptions::new(1).unwrap(), DaemonOptions::new(2).unwrap());
    let uid = rustix::process::getuid().as_raw();
    let a = a.peer(&b).argument("--quota").argument(format!("{uid}:segments=1,bytes=1M"));
    let b = b.peer(&a);
    let [_home, away] = [a.start().unwrap(), b.start().unwrap()];
    let end = Instant::now() + PATIENCE;
    while read_status(away.folder()).unwrap().gauge(Gauge::Connections) == 0 {
        assert!(Instant::now() < end, "the nodes never meet");
        std::thread::sleep(Duration::from_millis(5));
    }
    let caller = client(&away);
    let at_home = |bytes| Spec::new(bytes).placement(Placement::Node(NodeId(1)));
    let too_large = caller.segment("first").allocate(at_home(1 << 20)).unwrap_err();
    let of = |error: &Error| error.limit().map(|reached| (reached.limit, reached.used, reached.value));
    assert_eq!(of(&too_large), Some((Limit::QuotaBytes, Some(0), Some(1_048_576))), "{too_large}");
    let first = caller.segment("first").allocate(at_home(64)).unwrap();
    let refused = caller.segment("second").allocate(at_home(64)).unwrap_err();
    assert_eq!(of(&refused), Some((Limit::QuotaSegments, Some(1), Some(1))), "{refused}");
    caller.segment("second").allocate(Spec::new(64)).expect("its own node bounds nothing, and the name is free");
    first.release().unwrap();
    caller.segment("third").allocate(at_home(64)).unwrap();
}

// If this failed, a mistyped rule would have no effect.
#[test]
fn invalid_quota_stops_the_start() {
    let folder = ddss_testkit::TempNode::new().unwrap();
    for (rule, part) in [
        ("nobody-of-that-name:segments=1", "no user"),
        ("default:bites=1", "there are bytes, segments and clients"),
        ("default:bytes=many", "is no amount"),
    ] {
        let mut command = Command::new(binary("ddssd").unwrap());
        let output =
            command.arg("--dir").arg(folder.path()).args(["--check-config", "--quota", rule]).output().unwrap();
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{why}");
        assert!(why.contains(part), "{why}");
    }
}

/// Accounts outside the files of this machine, as a directory service provides them.
const DIRECTORY: &str = r#"
#include <nss.h>
#include <pwd.h>
#include <errno.h>
#include <string.h>
enum nss_status _nss_ddsstest_getpwnam_r(const char *name, struct passwd *found, char *buffer, size_t length, int *wrong) {
    if (strcmp(name, "alice-of-the-directory")) { *wrong = ENOENT; return NSS_STATUS_NOTFOUND; }
    if (length < 5000) { *wrong = ERANGE; return NSS_STATUS_TRYAGAIN; }
    strcpy(buffer, name);
    memset(found, 0, sizeof *found);
    found->pw_name = buffer;
    found->pw_passwd = found->pw_gecos = found->pw_dir = found->pw_shell = "";
    found->pw_uid = 70707;
    found->pw_gid = 70708;
    return NSS_STATUS_SUCCESS;
}
"#;

// If this failed, users that a directory service knows (LDAP, sssd) could be given quotas by their numbers only.
#[test]
fn quota_accepts_user_names_of_the_system() {
    const NAME: &str = "quota_accepts_user_names_of_the_system";
    let folder = ddss_testkit::TempNode::new().unwrap();
    std::fs::write(folder.join("directory.c"), DIRECTORY).unwrap();
    std::fs::write(folder.join("nsswitch.conf"), "passwd: files ddsstest\ngroup: files\nhosts: files\n").unwrap();
    let module = folder.join("libnss_ddsstest.so.2");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&module).arg(folder.join("directory.c")).output();
    if !built.is_ok_and(|built| built.status.success()) {
        return skipped(NAME, "no C compiler makes a module of the name service switch here");
    }
    let within = |words: &[&str]| {
        let script = "mount --bind \"$1\" /etc/nsswitch.conf && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        if !rustix::process::getuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["sh", "-c", script, "sh"]).arg(folder.join("nsswitch.conf")).args(words);
        command.env("LD_LIBRARY_PATH", folder.path()).output().unwrap()
    };
    if !within(&["getent", "passwd", "alice-of-the-directory"]).status.success() {
        return skipped(
            NAME,
            "this user or this kernel makes no mounts of its own, or the C library has no such switch",
        );
    }
    let program = binary("ddssd").unwrap();
    let check = |rules: &[&str]| {
        let words =
            [&[program.to_str().unwrap(), "--dir", folder.path().to_str().unwrap(), "--check-config"], rules].concat();
        let output = within(&words);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(check(&["--quota", "alice-of-the-directory:segments=1"]), (Some(0), String::new()));
    let (code, why) = check(&["--quota", "alice-of-the-directory:segments=1", "--quota", "70707:segments=2"]);
    assert!(code == Some(2) && why.contains("user 70707 is given twice"), "{why}");
    let (code, why) = check(&["--quota", "bob-of-the-directory:segments=1"]);
    assert!(code == Some(2) && why.contains("getent passwd bob-of-the-directory"), "{why}");
}
