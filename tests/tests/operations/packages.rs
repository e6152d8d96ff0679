//! The packages: their content, and a test run of their programs.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod deployment;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ddss_testkit::{
    DaemonOptions, Process, TempNode, binary, copy_program, preload_library, repo_lints, run_ddss, skipped,
    static_programs, static_target, write_program,
};

/// Runs a command to its end; returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the relative path of every file below a directory.
fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

/// Files of every package.
const FILES: &[&str] = &[
    "usr/bin/ddss",
    "usr/bin/ddssd",
    "usr/lib/systemd/system/ddssd.service",
    "usr/lib/systemd/system/ddssd.socket",
    "usr/lib/sysusers.d/ddss.conf",
    "etc/ddss/ddssd.conf",
    "usr/share/man/man1/ddss.1.gz",
    "usr/share/man/man1/ddss-allocate.1.gz",
    "usr/share/man/man1/ddssd.1.gz",
    "usr/share/bash-completion/completions/ddss",
    "usr/share/zsh/vendor-completions/_ddssd",
    "usr/share/fish/vendor_completions.d/ddss.fish",
    "usr/share/doc/ddss/schemas/segment.json",
    "usr/share/doc/ddss/alerts.yml",
    "usr/share/doc/ddss/grafana.json",
    "usr/share/doc/ddss/compose.yaml",
    "usr/share/doc/ddss/kubernetes/daemonset.yaml",
    "usr/share/doc/ddss/copyright",
];

/// Builds the programs and the preload library, and returns their directory.
fn programs() -> PathBuf {
    let folder = binary("ddss").unwrap().parent().unwrap().to_owned();
    // Cargo has put the library into the same directory.
    assert!(preload_library().unwrap().starts_with(&folder) && folder.join("libddss_preload.so").is_file());
    folder
}

/// Expects that all files exist and are not empty.
fn has_everything(root: &Path) {
    let found = files(root);
    for file in FILES {
        assert!(found.iter().any(|name| name == file), "{file} is not in {found:?}");
        assert!(fs::metadata(root.join(file)).unwrap().len() > 40, "{file} is empty");
    }
}

// If this failed, the package would contain a daemon that does not start, or no manual.
#[test]
fn debian_package_is_complete_and_its_daemon_serves() {
    const NAME: &str = "debian_package_is_complete_and_its_daemon_serves";
    if !is_there("dpkg-deb") || !is_there("gzip") {
        return skipped(NAME, "dpkg-deb is missing: this is no Debian");
    }
    let scratch = tempfile::tempdir().unwrap();
    let (out, root) = (scratch.path().join("out"), scratch.path().join("root"));
    let programs = programs();
    let mut make = Command::new(repo_lints::workspace_root().join("scripts/package"));
    let made = run(make.args(["--deb-only", "--programs"]).arg(&programs).arg("--out").arg(&out));
    let package = PathBuf::from(made.lines().last().unwrap());
    let about = run(Command::new("dpkg-deb").arg("-f").arg(&package));
    for part in ["Package: ddss\n", "Depends: libc6", "Suggests: libibverbs1"] {
        assert!(about.contains(part), "{part} is not in\n{about}");
    }
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root));
    has_everything(&root);
    // The unit starts an existing program with an existing and valid configuration.
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/ddssd.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut words = start.split(' ').map(str::to_owned);
    let program = root.join(words.next().unwrap().trim_start_matches('/'));
    let node = TempNode::new().unwrap();
    let mut daemon = Command::new(program);
    for word in words {
        daemon.arg(match word.as_str() {
            "/etc/ddss/ddssd.conf" => root.join("etc/ddss/ddssd.conf"),
            "/run/ddss" => node.path().to_owned(),
            "/var/lib/ddss" => node.join("state"),
            "/dev/shm/ddss" => node.join("memory"),
            _ => word.into(),
        });
    }
    let mut daemon = Process::start(daemon, node.path(), "ddssd").unwrap();
    daemon.wait_until(Duration::from_secs(20), |process| process.stdout().contains("ready")).unwrap();
    let ping = run(Command::new(root.join("usr/bin/ddss")).args(["ping", "--dir"]).arg(node.path()));
    assert!(ping.contains("node 1 answered in"), "{ping}");
    // The command finds its library in the package, and the loader takes it.
    let run_with = run(Command::new(root.join("usr/bin/ddss")).args(["run", "--", "sh", "-c", "cat /proc/self/maps"]));
    let library = root.join("usr/lib/ddss/libddss_preload.so").canonicalize().unwrap();
    assert!(run_with.contains(library.to_str().unwrap()), "{run_with}");
    let mode = fs::metadata(node.join("ddssd.sock")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777,
        0o660,
        "its settings were not read"
    );
}

// If this failed, Debian's own check would find faults in the package.
#[test]
fn debian_package_has_no_faults_that_lintian_finds() {
    const NAME: &str = "debian_package_has_no_faults_that_lintian_finds";
    if !is_there("lintian") {
        return skipped(NAME, "lintian is missing");
    }
    let scratch = tempfile::tempdir().unwrap();
    let mut make = Command::new(repo_lints::workspace_root().join("scripts/package"));
    let made = run(make.args(["--deb-only", "--programs"]).arg(programs()).arg("--out").arg(scratch.path()));
    run(Command::new("lintian").args(["--fail-on", "error,warning"]).arg(made.lines().last().unwrap()));
}

// If this failed, users could not verify that a package was built from the sources that it names.
#[test]
fn packages_of_equal_programs_are_equal() {
    const NAME: &str = "packages_of_equal_programs_are_equal";
    if !is_there("dpkg-deb") || !is_there("gzip") {
        return skipped(NAME, "dpkg-deb is missing: this is no Debian");
    }
    let scratch = tempfile::tempdir().unwrap();
    let programs = programs();
    let package = |folder: &str, time: &str| {
        let mut make = Command::new(repo_lints::workspace_root().join("scripts/package"));
        make.env("SOURCE_DATE_EPOCH", time).args(["--deb-only", "--programs"]).arg(&programs);
        let made = run(make.arg("--out").arg(scratch.path().join(folder)));
        fs::read(made.lines().last().unwrap()).unwrap()
    };
    let first = package("first", "1700000000");
    assert!(first == package("second", "1700000000"), "two packages of the same programs differ");
    assert!(first != package("third", "1700086400"), "the time of the release is in no file");
}

// If this failed, an installation into a root directory would change the machine, or would not end.
#[test]
fn package_installs_into_a_root_directory_and_uninstalls() {
    const NAME: &str = "package_installs_into_a_root_directory_and_uninstalls";
    if !is_there("dpkg-deb") || !rustix::process::getuid().is_root() {
        return skipped(NAME, "it takes root and dpkg");
    }
    let scratch = tempfile::tempdir().unwrap();
    let (out, root) = (scratch.path().join("out"), scratch.path().join("root"));
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let programs = programs();
    let mut make = Command::new(repo_lints::workspace_root().join("scripts/package"));
    let made = run(make.arg("--programs").arg(&programs).arg("--out").arg(&out));
    let dpkg = |words: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg("--root").arg(&root).args(["--force-depends", "--force-script-chrootless"]);
        run(command.args(words))
    };
    dpkg(&["--install", made.lines().last().unwrap()]);
    assert!(root.join("usr/bin/ddssd").exists());
    // Files that the daemon created since; the key is a secret, and a later user with the same id could read it.
    let made_later =
        ["var/lib/ddss/cluster.key", "var/lib/ddss/segments/area-1", "etc/ddss/more.conf", "dev/shm/ddss/area-1"];
    for file in made_later {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), "bytes").unwrap();
    }
    dpkg(&["--remove", "ddss"]);
    assert!(made_later.iter().all(|file| root.join(file).exists()), "what was taken out may come again");
    dpkg(&["--purge", "ddss"]);
    for folder in ["var/lib/ddss", "etc/ddss", "dev/shm/ddss"] {
        assert!(!root.join(folder).exists(), "{folder} stays behind");
    }
    assert!(!root.join("usr/bin/ddssd").exists() && !root.join("etc/ddss/ddssd.conf").exists());
}

/// Starts the daemon as the packaged unit does, in a `/run` and `/dev/shm` of its own, and calls it as several users.
const PACKAGED: &str = r#"
    mount -t proc proc /proc && mount -t tmpfs -o mode=755 ddss /run && mount -t tmpfs -o mode=1777 ddss /dev/shm && mount -t tmpfs ddss /var/lib || exit 77
    mkdir -p /run/user/0 /run/user/65534 && chown 65534 /run/user/65534 || exit 77
    install -d -m 0750 -o 65533 -g 65533 /run/ddss && install -d -m 0700 -o 65533 /var/lib/ddss /dev/shm/ddss || exit 77
    cd /
    setpriv --reuid 65533 --regid 65533 --clear-groups $UNIT --socket-mode 660 --pool-bytes 1M >/run/out 2>/run/err &
    daemon=$!
    tries=0
    until grep -q ready /run/out; do
        sleep 0.05; tries=$((tries + 1))
        [ $tries -lt 400 ] && kill -0 $daemon || { cat /run/err; exit 1; }
    done
    echo "root: $("$DDSS" ping 2>&1)"
    echo "root of a session: $(XDG_RUNTIME_DIR=/run/user/0 "$DDSS" ping 2>&1)"
    member="setpriv --reuid 65534 --regid 65533 --clear-groups"
    echo "member: $($member "$DDSS" ping 2>&1)"
    echo "member of a session: $(XDG_RUNTIME_DIR=/run/user/65534 $member "$DDSS" ping 2>&1)"
    other="setpriv --reuid 65534 --regid 65534 --clear-groups"
    echo "other: $(XDG_RUNTIME_DIR=/run/user/65534 $other "$DDSS" ping 2>&1)"
    kill -9 $daemon
    echo "dead: $(XDG_RUNTIME_DIR=/run/user/0 "$DDSS" status 2>&1)"
"#;

// If this failed, no program would find the daemon of an installed package.
#[test]
fn clients_find_the_packaged_daemon_by_default() {
    const NAME: &str = "clients_find_the_packaged_daemon_by_default";
    if !rustix::process::getuid().is_root() {
        return skipped(NAME, "it takes root, to be several users");
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let programs = ["ddss", "ddssd"].map(|name| {
        let path = scratch.path().join(name);
        copy_program(&binary(name).unwrap(), &path).unwrap();
        path
    });
    let unit = fs::read_to_string(repo_lints::workspace_root().join("packaging/ddssd.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/ddssd ")).unwrap();
    let start = start.replace("--config /etc/ddss/ddssd.conf", "");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", PACKAGED]);
    command.env_remove("XDG_RUNTIME_DIR").env_remove("DDSS_DIR");
    command.env("DDSS", &programs[0]).env("UNIT", format!("{} {start}", programs[1].display()));
    let output = command.output().unwrap();
    if output.status.code() == Some(77) || !is_there("setpriv") {
        return skipped(NAME, "this kernel makes no mounts of its own");
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for user in ["root", "root of a session", "member", "member of a session"] {
        assert!(said.contains(&format!("{user}: node 1 answered in")), "{user}: {said}");
    }
    let of = |user: &str| said.split_once(&format!("{user}: ")).unwrap().1.to_owned();
    assert!(of("other").contains("/run/ddss") && of("other").contains("ermission"), "{said}");
    assert!(of("dead").contains("/run/ddss") && of("dead").contains("node 1"), "{said}");
}

/// Returns a command with mounts and processes of its own. `root` gets its script, procfs, and shared memory. Without a
/// script it only tests for the privilege.
fn alone(root: &Path, words: &[&str]) -> Command {
    const SCRIPT: &str = "cd \"$1\" && mkdir -p proc dev/shm tmp && mount -t proc proc proc &&
        mount -t tmpfs -o mode=1777 ddss dev/shm && shift && if [ $# = 0 ]; then exit; else exec chroot . \"$@\"; fi";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
    if !rustix::process::getuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", SCRIPT, "sh"]).arg(root).args(words);
    command
}

// If this failed, programs of the tarball would not start on another distribution.
#[test]
fn tarball_programs_are_statically_linked() {
    const NAME: &str = "tarball_programs_are_statically_linked";
    let Some(target) = static_target() else {
        return skipped(NAME, "Rust has no target to link statically: rustup target add ARCH-unknown-linux-musl");
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut make = Command::new(repo_lints::workspace_root().join("scripts/package"));
    let programs = static_programs(&target).unwrap();
    let made = run(make.args(["--static-only", "--programs"]).arg(programs).arg("--out").arg(scratch.path()));
    let tarball = made.lines().find(|line| line.ends_with("-linux-static.tar.gz")).unwrap();
    run(Command::new("tar").arg("-C").arg(scratch.path()).args(["-xzf", tarball]));
    let root =
        scratch.path().join(Path::new(tarball).file_name().unwrap().to_str().unwrap().trim_end_matches(".tar.gz"));
    has_everything(&root);
    assert!(root.join("LICENSE-MIT").is_file() && root.join("LICENSE-APACHE").is_file());
    if !alone(&root, &[]).output().is_ok_and(|output| output.status.success()) {
        return skipped(NAME, "this user or this kernel makes no root of its own (unshare, mount)");
    }
    assert!(run(&mut alone(&root, &["/usr/bin/ddssd", "--version"])).starts_with("ddssd "));
    // The root has only these programs and directories, without libc, shell or users. The demo runs two nodes, clients
    // of every strategy, and kills.
    let shown = run(&mut alone(&root, &["/usr/bin/ddss", "demo", "--measure-ms", "20"]));
    assert_eq!(shown.matches("by the same handle as before").count(), 2, "{shown}");
    assert!(shown.contains("  ddss allocate scores 4096 "), "who has it installed is not told of cargo: {shown}");
    let looked = alone(&root, &["/usr/bin/ddss", "doctor"]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&looked.stdout), String::from_utf8_lossy(&looked.stderr));
    let has_memory = out.lines().any(|line| line.starts_with("shared memory ") && line.contains(" good "));
    assert!(looked.status.code() == Some(1) && has_memory, "{out}{err}");
    assert!(out.contains("→ start a daemon with `ddssd`"), "{out}{err}");
}

/// Returns a `buildah` command that stores its data below a directory and needs no privilege that a cloud machine
/// lacks.
fn buildah(scratch: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("buildah");
    command.arg("--root").arg(scratch.join("images")).arg("--runroot").arg(scratch.join("running"));
    command.args(["--storage-driver", "vfs"]).args(words);
    command
}

/// A process of a container, which survives a killed starter.
struct Contained(u32);

impl Drop for Contained {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.0 as i32).unwrap();
        // The process has already ended if the test has passed.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

// If this failed, the container would not build, would be incomplete, or its node would serve no client outside.
#[test]
fn container_node_serves_clients_on_the_host() {
    const NAME: &str = "container_node_serves_clients_on_the_host";
    let Some(target) = static_target() else {
        return skipped(NAME, "Rust has no target to link statically: rustup target add ARCH-unknown-linux-musl");
    };
    if !rustix::process::getuid().is_root() || !is_there("buildah") {
        return skipped(NAME, "it takes root and buildah");
    }
    let (scratch, node) = (tempfile::tempdir().unwrap(), TempNode::new().unwrap());
    let root = repo_lints::workspace_root();
    let mut make = Command::new(root.join("scripts/package"));
    let programs = static_programs(&target).unwrap();
    let made = run(make.args(["--static-only", "--programs"]).arg(programs).arg("--out").arg(scratch.path()));
    let folder = made.lines().last().unwrap();
    let file = root.join("packaging/Containerfile");
    let build = [
        "build",
        "--format",
        "docker",
        "--isolation",
        "chroot",
        "--tag",
        "ddss-test",
        "--file",
        file.to_str().unwrap(),
        folder,
    ];
    run(&mut buildah(scratch.path(), &build));
    let what = "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Env}} {{.OCIv1.Config.Volumes}} {{.OCIv1.Config.User}} \
                {{.Docker.Config.Healthcheck}}";
    let about = run(&mut buildah(scratch.path(), &["inspect", "--type", "image", "--format", what, "ddss-test"]));
    for part in [
        "[/usr/bin/ddssd]",
        "DDSS_DIR=/run/ddss",
        "DDSS_STATE_DIR=/var/lib/ddss",
        "/var/lib/ddss:",
        " 65532:65532 ",
        "/usr/bin/ddss ping",
    ] {
        assert!(about.contains(part), "{part} is not in {about}");
    }
    std::os::unix::fs::chown(node.path(), Some(65532), Some(65532)).unwrap();
    let made = run(&mut buildah(scratch.path(), &["from", "--pull-never", "localhost/ddss-test"]));
    let container = made.trim();
    let inside = |words: &[&str]| {
        // Volumes that the image names itself are not shared by this tool, so the node has its directory elsewhere.
        let shared = format!("{}:/shared", node.path().display());
        let (dir, state) = ("DDSS_DIR=/shared", "DDSS_STATE_DIR=/shared/state");
        let options = ["run", "--isolation", "chroot", "--volume", &shared, "--env", dir, "--env", state, container];
        buildah(scratch.path(), &[&options[..], words].concat())
    };
    let shown = run(&mut inside(&["/usr/bin/ddss", "demo", "--measure-ms", "20"]));
    assert_eq!(shown.matches("by the same handle as before").count(), 2, "{shown}");
    run(&mut inside(&["/usr/bin/ddss", "cluster", "init"]));
    let listen = format!("127.0.0.1:{}", ddss_testkit::free_tcp_port("127.0.0.1".parse().unwrap()).unwrap());
    let mut daemon = Process::start(inside(&["/usr/bin/ddssd", "--listen", &listen]), scratch.path(), "ddssd").unwrap();
    daemon.wait_until(Duration::from_secs(60), |process| process.stdout().contains("ready")).unwrap();
    // A client outside finds the node in the shared directory.
    let outside = |words: &[&str]| {
        let said = run_ddss(node.path(), words, "").unwrap();
        assert_eq!(said.code, 0, "{words:?}: {said:?}");
        said.out
    };
    let counters: serde_json::Value = serde_json::from_str(&outside(&["counters", "--json"])).unwrap();
    let contained = Contained(counters["daemon"]["pid"].as_u64().unwrap() as u32);
    // The user of the container reads what root has put.
    outside(&["allocate", "scores", "4096", "--mode", "644"]);
    outside(&["put", "scores", "hello"]);
    assert_eq!(run(&mut inside(&["/usr/bin/ddss", "get", "scores", "--length", "5"])).trim_end(), "hello");
    assert_eq!(outside(&["get", "scores", "--length", "5"]), "hello");
    assert!(outside(&["status"]).contains("this is node 1"));
    drop(contained);
    assert!(daemon.wait(Duration::from_secs(20)).unwrap().is_some(), "a container whose program is gone goes on");
}

// If this failed, the container would use missing files, or start a missing program.
#[test]
fn containerfile_copies_the_staged_files() {
    let root = repo_lints::workspace_root();
    let text = fs::read_to_string(root.join("packaging/Containerfile")).unwrap();
    let script = fs::read_to_string(root.join("scripts/package")).unwrap();
    let copied = text.lines().find_map(|line| line.strip_prefix("COPY ")).unwrap();
    let (files, folder) = copied.rsplit_once(' ').unwrap();
    let start = text.lines().find_map(|line| line.strip_prefix("ENTRYPOINT [\"")).unwrap().trim_end_matches("\"]");
    let words = ["FROM", "COPY", "ENV", "VOLUME", "USER", "HEALTHCHECK", "ENTRYPOINT"];
    let others = text
        .lines()
        .filter(|line| !line.starts_with('#') && !words.iter().any(|word| line.starts_with(&format!("{word} "))));
    assert_eq!(others.count(), 0, "a line that is none");
    assert!(files.split(' ').any(|file| format!("{folder}{file}") == start), "{start} is not copied");
    for file in files.split(' ') {
        assert!(script.contains("\"$out/container\" \"$root/usr/bin/ddss\" \"$root/usr/bin/ddssd\""), "{file}");
    }
}

// If this failed, an operator would take an installed release for the one that runs, or restart a daemon that is current.
#[test]
fn installation_of_an_upgrade_says_that_the_daemon_was_not_restarted() {
    let folder = TempNode::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        write_program(&path, text).unwrap();
        path
    };
    // No user is made on this machine, and its systemd is not called.
    for name in ["systemd-sysusers", "systemctl"] {
        write(name, "#!/bin/sh\n");
    }
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    // Other tests run daemons too: this one has a place of its own.
    let program = folder.join("ddssd");
    copy_program(&binary("ddssd").unwrap(), &program).unwrap();
    let script = fs::read_to_string(repo_lints::workspace_root().join("packaging/postinst")).unwrap();
    assert!(script.contains("'/usr/bin/ddssd (deleted)'"), "{script}");
    let script = write("postinst", &script.replace("/usr/bin/ddssd", program.to_str().unwrap()));
    let configure = |before: &[&str]| {
        run(Command::new("sh").arg(&script).arg("configure").args(before).env("PATH", &path).env_remove("DPKG_ROOT"))
    };
    assert!(configure(&[]).contains("ddssd is not started"));
    let daemon = DaemonOptions::new(1).unwrap().start_program(program.clone()).unwrap();
    let text = configure(&["0.0.9"]);
    assert!(text.contains("no ddssd runs that would have to be restarted"), "{text}");
    // As dpkg replaces a file.
    let new = folder.join("ddssd.dpkg-new");
    copy_program(&binary("ddssd").unwrap(), &new).unwrap();
    fs::rename(&new, &program).unwrap();
    for before in ["0.0.9", "0.1.0"] {
        let text = configure(&[before]);
        assert!(text.contains("ddssd was not restarted and runs the program of before"), "{text}");
        assert!(!text.contains(before), "it need not be the version that runs: {text}");
    }
    drop(daemon);
    let text = configure(&["0.0.9"]);
    assert!(text.contains("no ddssd runs that would have to be restarted"), "{text}");
}
