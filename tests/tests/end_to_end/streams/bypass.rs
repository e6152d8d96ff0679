//! Calls that bypass the library, and images that start without it: no byte is lost, or the stream is reset.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ddss_testkit::{preload_library, skipped};
use tempfile::TempDir;

use super::{DEADLINE, LEFT_BYTES, PORT, child, free_port, output_of, port_of, result, wait_for_line};

/// The C program, linked both ways.
pub(super) struct Programs {
    pub(super) folder: TempDir,
}

impl Programs {
    /// Compiles the program. `None`: no C compiler is installed, or none that links statically.
    fn compile() -> Option<Self> {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/bypass.c");
        let programs = Self { folder: TempDir::new().unwrap() };
        for (path, linking) in [(programs.dynamic(), &[][..]), (programs.fixed(), &["-static"][..])] {
            let compiled = Command::new("cc").args(["-O1", "-w", "-o"]).arg(path).args(linking).arg(source).status();
            if !compiled.is_ok_and(|status| status.success()) {
                return None;
            }
        }
        Some(programs)
    }

    pub(super) fn dynamic(&self) -> PathBuf {
        self.folder.path().join("dynamic")
    }

    pub(super) fn fixed(&self) -> PathBuf {
        self.folder.path().join("static")
    }

    /// Runs the program as acceptor with a connector of this file. Returns the output of both.
    fn run(&self, part: &str, connector: &str, image: PathBuf) -> [String; 2] {
        self.run_with(Some(&preload_library().unwrap()), part, connector, image)
    }

    pub(super) fn run_with(&self, library: Option<&Path>, part: &str, connector: &str, image: PathBuf) -> [String; 2] {
        let library = library.map(Path::as_os_str).unwrap_or_default();
        let mut accepting = Command::new(self.dynamic());
        accepting.arg(part).arg(image).env("LD_PRELOAD", library).stdout(Stdio::piped());
        let mut accepting = accepting.spawn().unwrap();
        let port = port_of(&mut accepting);
        if port == 0 {
            assert!(accepting.wait().unwrap().success());
            return [String::new(), String::new()];
        }
        let connecting = child(connector).env(PORT, port.to_string()).env("LD_PRELOAD", library).spawn().unwrap();
        let connecting = output_of(connecting);
        [result(&output_of(accepting)), result(&connecting)]
    }

    /// Lets a program of the system serve one connection that has left TCP. Returns the bytes that the connector read.
    pub(super) fn converse(&self, call: &str, command: &str) -> String {
        let library = preload_library().unwrap();
        let mut accepting = Command::new(self.dynamic());
        accepting.arg(call).args(command.split(' ')).env("LD_PRELOAD", &library).stdout(Stdio::piped());
        let mut accepting = accepting.spawn().unwrap();
        let port = port_of(&mut accepting).to_string();
        let connecting = child("ask_lines").env(PORT, port).env("LD_PRELOAD", &library).spawn().unwrap();
        let connecting = output_of(connecting);
        assert!(output_of(accepting).status.success());
        result(&connecting)
    }

    fn answers(&self, part: &str, image: PathBuf, expected: &str, is_shared: bool) {
        let said = self.run(part, "half_close", image);
        let connector = format!("shared={is_shared} bytes={}", 20 * LEFT_BYTES);
        assert_eq!(said, [format!("{expected} bytes={LEFT_BYTES}"), connector], "{part}");
    }
}

pub(super) fn programs(name: &str) -> Option<Programs> {
    let programs = Programs::compile();
    if programs.is_none() {
        skipped(name, "no C compiler that links statically");
    }
    programs
}

// If this failed, a program that opens its socket as a file would lose the bytes of the ring.
#[test]
fn stdio_on_a_shared_stream_reads_and_writes_every_byte() {
    let Some(programs) = programs("stdio_on_a_shared_stream_reads_and_writes_every_byte") else { return };
    programs.answers("stdio", PathBuf::new(), "shared=1 extra=0", true);
}

// If this failed, a static or a cleared image would read TCP while its peer writes to the ring.
#[test]
fn image_without_the_library_gets_every_byte() {
    let Some(programs) = programs("image_without_the_library_gets_every_byte") else { return };
    programs.answers("exec_without_environment", programs.dynamic(), "shared=0 extra=0", true);
    for call in ["exec", "execl", "execlp", "execle"] {
        programs.answers(call, programs.fixed(), "shared=0 extra=0", true);
        programs.answers(call, programs.dynamic(), "shared=0 extra=0", true);
    }
}

// If this failed, an image that inherits a stream as another descriptor than the first three would not find it.
#[test]
fn image_with_the_library_takes_an_inherited_stream_over() {
    let Some(programs) = programs("image_with_the_library_takes_an_inherited_stream_over") else { return };
    programs.answers("exec_high", programs.dynamic(), "shared=1 extra=0", true);
}

// If this failed, programs of the system would see an empty standard input behind inetd and in a CGI directory: libc's stdio reads and
// writes past the library.
#[test]
fn program_of_the_system_serves_a_late_stream_on_its_standard_descriptors() {
    let Some(programs) = programs("program_of_the_system_serves_a_late_stream_on_its_standard_descriptors") else {
        return;
    };
    for call in ["inetd", "inetd_spawn", "inetd_spawn_by_name"] {
        for (command, expected) in [
            ("sort", "apple fig pear "),
            ("rev", "raep elppa gif "),
            ("cat", "pear apple fig "),
            ("sed s/p/q/", "qear aqple fig "),
        ] {
            assert_eq!(programs.converse(call, command), format!("shared=true {expected}"), "{call} {command}");
        }
    }
}

// If this failed, a peer would wait forever for an image whose pump was killed.
#[test]
fn killed_pump_ends_the_stream_on_both_sides() {
    let Some(programs) = programs("killed_pump_ends_the_stream_on_both_sides") else { return };
    let library = preload_library().unwrap();
    let mut accepting = Command::new(programs.dynamic());
    accepting.args(["exec".as_ref(), programs.fixed().as_os_str()]).env("LD_PRELOAD", &library).stdout(Stdio::piped());
    let mut accepting = accepting.spawn().unwrap();
    let port = port_of(&mut accepting).to_string();
    let connecting = child("write_until_error").env(PORT, port).env("LD_PRELOAD", &library).spawn().unwrap();
    let runs = |process: &str, image: &Path| {
        std::fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|found| found == image)
    };
    let end = Instant::now() + DEADLINE;
    while !runs(&accepting.id().to_string(), &programs.fixed()) {
        assert!(Instant::now() < end, "the image was not started");
        std::thread::sleep(Duration::from_millis(2));
    }
    // The pump is the remaining process of the program that called `exec`.
    let processes =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let pumps: Vec<i32> =
        processes.filter(|process| runs(process, &programs.dynamic())).flat_map(|process| process.parse()).collect();
    assert_eq!(pumps.len(), 1, "{pumps:?}");
    rustix::process::kill_process(rustix::process::Pid::from_raw(pumps[0]).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    let found = result(&output_of(connecting));
    assert!(found == "shared=true error=BrokenPipe" || found == "shared=true error=ConnectionReset", "{found}");
    let _ = output_of(accepting);
}

// If this failed, a setuid program would load its caller's library, or would not be served.
#[test]
fn setuid_program_is_served_over_tcp() {
    use std::os::unix::fs::PermissionsExt;
    const NAME: &str = "setuid_program_is_served_over_tcp";
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        return skipped(NAME, "not root, or setpriv is not installed");
    }
    let Some(programs) = programs(NAME) else { return };
    // The caller can read the library: only the rights of the program prevent its use.
    let library = programs.folder.path().join("libddss_preload.so");
    std::fs::copy(preload_library().unwrap(), &library).unwrap();
    for (path, mode) in [(programs.folder.path(), 0o755), (&library, 0o755), (&programs.dynamic(), 0o4755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut accepting = Command::new("setpriv");
    accepting.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "env"]);
    accepting.arg(format!("LD_PRELOAD={}", library.display())).arg(programs.dynamic()).arg("plain");
    let mut accepting = accepting.stdout(Stdio::piped()).spawn().unwrap();
    let port = port_of(&mut accepting).to_string();
    let connecting = child("half_close").env(PORT, port).env("LD_PRELOAD", &library).spawn().unwrap();
    assert_eq!(result(&output_of(connecting)), format!("shared=false bytes={}", 20 * LEFT_BYTES));
    assert_eq!(result(&output_of(accepting)), format!("shared=0 extra=0 bytes={LEFT_BYTES}"));
}

// If this failed, a service with a user of its own could never share memory with its clients, or would do so without a
// rule.
#[test]
fn other_users_share_memory_if_rules_of_both_ends_allow_it() {
    use std::os::unix::fs::PermissionsExt;
    const NAME: &str = "other_users_share_memory_if_rules_of_both_ends_allow_it";
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        return skipped(NAME, "not root, or setpriv is not installed");
    }
    let Some(programs) = programs(NAME) else { return };
    let path = |name: &str| programs.folder.path().join(name);
    let (library, service, client) = (path("libddss_preload.so"), path("service"), path("client"));
    std::fs::copy(preload_library().unwrap(), &library).unwrap();
    std::fs::write(&service, "allow listen dynamic root\n").unwrap();
    for file in [programs.folder.path(), &library, &programs.dynamic(), &service] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // The last rule is for another end, the one before for another user.
    for (rules, is_shared) in [
        ("allow connect * 65534\n", true),
        ("", false),
        ("allow connect * 65533\n", false),
        ("allow listen * 65534\n", false),
    ] {
        std::fs::write(&client, rules).unwrap();
        let mut accepting = Command::new("setpriv");
        accepting.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "env"]);
        accepting.arg(format!("LD_PRELOAD={}", library.display()));
        accepting.arg(format!("DDSS_STREAMS_RULES={}", service.display())).arg(programs.dynamic()).arg("plain");
        let mut accepting = accepting.stdout(Stdio::piped()).spawn().unwrap();
        let port = port_of(&mut accepting).to_string();
        let mut connecting = child("half_close");
        connecting.env(PORT, port).env("LD_PRELOAD", &library).env("DDSS_STREAMS_RULES", &client);
        let connecting = connecting.spawn().unwrap();
        let said = result(&output_of(connecting));
        assert_eq!(said, format!("shared={is_shared} bytes={}", 20 * LEFT_BYTES), "{rules}");
        let said = result(&output_of(accepting));
        assert_eq!(said, format!("shared={} extra=0 bytes={LEFT_BYTES}", i32::from(is_shared)), "{rules}");
    }
}

// If this failed, an allowed user who takes the name of a connection of others would get its memory.
#[test]
fn allowed_user_who_takes_a_name_of_others_gets_nothing() {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    const NAME: &str = "allowed_user_who_takes_a_name_of_others_gets_nothing";
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        return skipped(NAME, "not root, or setpriv is not installed");
    }
    let folder = TempDir::new().unwrap();
    let (program, rules) = (folder.path().join("squatter"), folder.path().join("rules"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/squatter.c");
    if !Command::new("cc").args(["-O1", "-w", "-o"]).arg(&program).arg(source).status().is_ok_and(|made| made.success())
    {
        return skipped(NAME, "no C compiler");
    }
    std::fs::write(&rules, "allow listen * 65533\nallow connect * 65533\n").unwrap();
    for file in [folder.path(), &program] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let end = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).env("LD_PRELOAD", preload_library().unwrap()).env("DDSS_STREAMS_RULES", &rules);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    for squats in [None, Some("listen"), Some("connect")] {
        let mut server = end(&["server"]);
        let (port, own) = (port_of(&mut server).to_string(), free_port().to_string());
        let squat = |part| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "65533", "--regid", "65533", "--clear-groups"]).arg(&program).arg(part);
            command.arg(format!("ddss-stream/3/{own}/127.0.0.1:{port}")).stdout(Stdio::piped());
            let mut squatter = command.spawn().unwrap();
            wait_for_line(&mut squatter, "READY");
            squatter
        };
        let listener = squats.filter(|part| *part == "listen").map(squat);
        let mut client = end(&["client", &port, &own]);
        wait_for_line(&mut client, "READY");
        let squatter = listener.or_else(|| squats.filter(|part| *part == "connect").map(squat));
        server.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let expected = format!("shared={} done", i32::from(squats.is_none()));
        let said = [client, server].map(|end| result(&output_of(end)));
        assert_eq!(said, [expected.clone(), expected], "{squats:?}");
        if let Some(squatter) = squatter {
            assert_eq!(result(&output_of(squatter)), "bytes=0 descriptors=0", "{squats:?}");
        }
    }
}

// If this failed, `posix_spawn` would do what `exec` does not.
#[test]
fn spawned_image_without_the_library_gets_every_byte() {
    let Some(programs) = programs("spawned_image_without_the_library_gets_every_byte") else { return };
    programs.answers("spawn", programs.fixed(), "shared=0 extra=0", true);
}

// If this failed, a program that hands a connection to a helper by posix_spawn would lose its bytes.
#[test]
fn spawned_image_with_the_library_gets_every_byte() {
    let Some(programs) = programs("spawned_image_with_the_library_gets_every_byte") else { return };
    programs.answers("spawn", programs.dynamic(), "shared=0 extra=0", true);
}

// If this failed, a program that survives a wrong address would hang in its next wait: stress-ng does so.
#[test]
fn fault_in_a_wait_leaves_the_set_usable() {
    let Some(programs) = programs("fault_in_a_wait_leaves_the_set_usable") else { return };
    assert_eq!(programs.run("fault", "", PathBuf::new()), [String::new(), String::new()]);
}

// If this failed, a program that registers its descriptor before it connects (nginx as a proxy) would never hear of the ring's bytes.
#[test]
fn interest_from_before_the_connect_follows_the_stream() {
    let Some(programs) = programs("interest_from_before_the_connect_follows_the_stream") else { return };
    assert_eq!(programs.run("register_first", "", PathBuf::new()), [String::new(), String::new()]);
}

// If this failed, a server whose client reads quickly would wait forever for space that is there: nginx cut files short after 60 seconds.
#[test]
fn space_that_returns_before_the_look_is_an_edge() {
    let Some(programs) = programs("space_that_returns_before_the_look_is_an_edge") else { return };
    assert_eq!(programs.run("late_look", "", PathBuf::new()), [String::new(), String::new()]);
}

// If this failed, a runtime of tasks would wait forever for bytes that are there: it takes a short read for an empty queue.
#[test]
fn short_read_leaves_nothing_behind() {
    let Some(programs) = programs("short_read_leaves_nothing_behind") else { return };
    assert_eq!(programs.run("short_read", "", PathBuf::new()), [String::new(), String::new()]);
}

// If this failed, a wrong pointer would end a program that the kernel answers, or would leave the stream locked forever.
#[test]
fn wrong_pointers_are_answered_as_the_kernel_does() {
    let Some(programs) = programs("wrong_pointers_are_answered_as_the_kernel_does") else { return };
    let kernels = programs.run_with(None, "wrong_pointers", "half_close", PathBuf::new());
    assert_eq!(kernels[0], format!("shared=0 extra=0 bytes={LEFT_BYTES}"));
    programs.answers("wrong_pointers", PathBuf::new(), "shared=1 extra=0", true);
}

// If this failed, requests of io_uring would read and write TCP while the peer uses the ring.
#[test]
fn ring_of_io_uring_keeps_streams_on_tcp_or_is_refused() {
    const NAME: &str = "ring_of_io_uring_keeps_streams_on_tcp_or_is_refused";
    let Some(programs) = programs(NAME) else { return };
    programs.answers("late_ring", PathBuf::new(), "shared=1 extra=0", true);
    let said = programs.run("early_ring", "half_close", PathBuf::new());
    if said[0].is_empty() {
        return skipped(NAME, "this system forbids io_uring");
    }
    assert_eq!(said[0], format!("shared=0 extra=1 bytes={LEFT_BYTES}"));
    assert_eq!(said[1], format!("shared=false bytes={}", 20 * LEFT_BYTES));
}

// If this failed, a process would get a descriptor whose bytes are in memory that it does not have.
#[test]
fn descriptor_of_a_shared_stream_is_not_sent() {
    let Some(programs) = programs("descriptor_of_a_shared_stream_is_not_sent") else { return };
    programs.answers("send_descriptor", PathBuf::new(), "shared=1 extra=2", true);
}

// If this failed, bytes that a call sends past the library would vanish, or their reader would hang.
#[test]
fn write_past_the_library_resets_the_stream() {
    let Some(programs) = programs("write_past_the_library_resets_the_stream") else { return };
    let library = preload_library().unwrap();
    let mut accepting = Command::new(programs.dynamic());
    let mut accepting = accepting.arg("dprintf").env("LD_PRELOAD", &library).stdout(Stdio::piped()).spawn().unwrap();
    let port = port_of(&mut accepting).to_string();
    let connecting = child("read_until_error").env(PORT, port).env("LD_PRELOAD", &library).spawn().unwrap();
    assert_eq!(result(&output_of(connecting)), "shared=true error=ConnectionReset");
    let _ = output_of(accepting);
}
