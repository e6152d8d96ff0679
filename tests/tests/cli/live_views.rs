//! Views of a daemon's activity: as text, live in a terminal, and of a dead daemon.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, LockOptions, Spec};
use ddss_testkit::{Daemon, Process, binary, skipped};

fn ddss_output(daemon: &Daemon, words: &[&str]) -> (i32, String, String) {
    let output = Command::new(binary("ddss").unwrap()).args(words).env("DDSS_DIR", daemon.folder()).output();
    let Output { status, stdout, stderr } = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

fn out(daemon: &Daemon, words: &[&str]) -> String {
    let (code, out, err) = ddss_output(daemon, words);
    assert_eq!(code, 0, "{words:?}: {err}");
    out
}

// If this failed, a user would search for the slow part of a call in the wrong place.
#[test]
fn trace_shows_each_step_of_local_and_remote_calls() {
    let [a, b] = Daemon::pair().unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(a.folder())).unwrap();
    client.segment("followed").allocate(Spec::new(4096)).unwrap();
    let here = out(&a, &["trace", "followed"]);
    for part in ["a get of followed: get, 8 bytes", "ddssd of node 1", "--- submit ", "|<------", "total "] {
        assert!(here.contains(part), "{part}: {here}");
    }
    while ddss_output(&b, &["stat", "followed"]).0 != 0 {
        std::thread::yield_now();
    }
    let away = out(&b, &["trace", "followed", "--bytes", "4096"]);
    assert!(away.contains("ddssd of node 2") && away.contains("node 1") && away.contains(" complete "), "{away}");
    assert!(away.lines().all(|line| line.chars().count() <= 80), "{away}");
    let before = client.segment("followed").open().unwrap().stat().unwrap().stamp.version.0;
    out(&b, &["trace", "followed", "--call", "put"]);
    assert!(client.segment("followed").open().unwrap().stat().unwrap().stamp.version.0 > before);
}

// If this failed, an operator would have no data on a dead daemon, or take old data for current data.
#[test]
fn status_of_dead_daemon_is_shown_as_not_live() {
    let mut daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder()).local_reads(false)).unwrap();
    let segment = client.segment("busy").allocate(Spec::new(64)).unwrap();
    for _ in 0..500 {
        segment.put(0, &[1; 64]).unwrap();
        segment.get(..).unwrap();
    }
    let text = out(&daemon, &["top", "--once", "--interval-ms", "200"]);
    assert!(text.starts_with("node 1  ") && text.contains("busy") && text.contains("clients"), "{text}");
    let text = out(&daemon, &["counters", "commits"]);
    assert!(text.contains("commits") && text.contains("500"), "{text}");
    daemon.kill().unwrap();
    // The last heartbeat must become old first.
    while !ddss_output(&daemon, &["clients"]).2.contains("is dead") {
        std::thread::sleep(Duration::from_millis(50));
    }
    for words in [&["counters"][..], &["clients"], &["top", "--once"], &["trace"]] {
        let (code, text, err) = ddss_output(&daemon, words);
        assert_eq!(code, 4, "{words:?}: {err}");
        assert!(err.contains("node 1 is dead") && text.lines().count() > 1, "{words:?}: {text}{err}");
    }
    assert!(ddss_output(&daemon, &["top", "--once"]).1.contains("node 1  dead"));
    for words in [&["status"][..], &["ls"], &["stat", "busy"]] {
        let (code, text, err) = ddss_output(&daemon, words);
        assert_eq!(code, 4, "{words:?}: {err}");
        assert!(err.contains("no daemon is running") && text.lines().count() > 1, "{words:?}: {text}{err}");
    }
}

/// Returns the number of sleeps of all threads of a process.
fn sleeps(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let texts = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default());
    let count = |text: String| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
    };
    texts.filter_map(count).sum()
}

// If this failed, one watcher of an idle segment would keep a core awake.
#[test]
fn watch_and_lock_on_idle_segment_let_the_daemon_sleep() {
    let daemon = Daemon::start(1).unwrap();
    out(&daemon, &["allocate", "quiet", "64"]);
    out(&daemon, &["allocate", "held", "64"]);
    let mut command = Command::new(binary("ddss").unwrap());
    command.args(["watch", "quiet", "--dir"]).arg(daemon.folder());
    let mut watch = Process::start(command, daemon.folder(), "watch").unwrap();
    watch.wait_until(Duration::from_secs(20), |process| process.stdout().contains("v0 ")).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder())).unwrap();
    let held = client.segment("held").open().unwrap();
    let _held = held.lock_with(LockOptions::new().lease(Duration::from_secs(600))).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let (before, began) = ([daemon.pid(), watch.pid()].map(sleeps), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let after = [daemon.pid(), watch.pid()].map(sleeps);
    // The daemon once woke 1000 times a second; now each thread checks its state some 20 to 50 times a second. A busy
    // machine wakes this thread late.
    let most = 150 * (began.elapsed().as_secs() + 1);
    assert!(after[0] - before[0] < most, "the daemon woke {} times in {:?}", after[0] - before[0], began.elapsed());
    assert!(after[1] - before[1] < most, "the watch woke {} times in {:?}", after[1] - before[1], began.elapsed());
    out(&daemon, &["put", "quiet", "x"]);
    watch.wait_until(Duration::from_secs(20), |process| process.stdout().lines().count() == 2).unwrap();
}

/// A terminal whose screen the test reads.
struct Terminal(String);

impl Terminal {
    fn tmux(&self, words: &[&str]) -> Output {
        Command::new("tmux").args(["-L", &self.0]).args(words).output().unwrap()
    }

    fn start(name: &str, size: (u16, u16), command: &str) -> Self {
        let terminal = Self(format!("ddss-{name}-{}", std::process::id()));
        let (columns, lines) = (size.0.to_string(), size.1.to_string());
        let made = terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &lines, command]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        terminal
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// Waits until the screen shows a text.
    fn shows(&self, words: &str) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(words) {
                return screen;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{words} is not on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

// If this failed, the live view would break a narrow terminal, or leave it unusable.
#[test]
fn top_fits_its_terminal_and_restores_it() {
    if !Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success()) {
        return skipped("top_fits_its_terminal_and_restores_it", "tmux is missing");
    }
    let daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder()).local_reads(false)).unwrap();
    let busy = client.segment(&format!("a name that is long {}", "x".repeat(90))).allocate(Spec::new(64)).unwrap();
    let ddss = binary("ddss").unwrap();
    let top = format!(
        "{} top --interval-ms 100 --dir {}; echo ended=$?; exec cat",
        ddss.display(),
        daemon.folder().display()
    );
    for (size, way) in [((80, 24), "q"), ((200, 50), "TERM")] {
        busy.put(0, &[1; 64]).unwrap();
        let terminal = Terminal::start(way, size, &top);
        terminal.shows("busiest segments");
        for _ in 0..200 {
            busy.put(0, &[1; 64]).unwrap();
        }
        let screen = terminal.shows("a name that");
        assert!(screen.lines().all(|line| line.chars().count() <= size.0.into()), "{screen}");
        for part in ["node 1  ", "calls ", "other nodes 0 of 0", "clients", "q quit"] {
            assert!(screen.contains(part), "{part}:\n{screen}");
        }
        if way == "q" {
            terminal.tmux(&["send-keys", "q"]);
        } else {
            // The program is the only child of the terminal's shell.
            let shell = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]).stdout;
            let shell = String::from_utf8_lossy(&shell).trim().to_owned();
            let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
            let pid = children.split_whitespace().next().unwrap().parse().unwrap();
            rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::TERM)
                .unwrap();
        }
        let screen = terminal.shows("ended=0");
        assert!(!screen.contains("busiest"), "the view is still there:\n{screen}");
        let cursor = terminal.tmux(&["display-message", "-p", "#{cursor_flag} #{alternate_on}"]).stdout;
        assert_eq!(String::from_utf8_lossy(&cursor).trim(), "1 0", "the cursor or the screen was not given back");
    }
}

// If this failed, watching a busy node would take its processor time.
#[test]
fn top_of_a_thousand_segments_uses_little_cpu() {
    if !Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success()) {
        return skipped("top_of_a_thousand_segments_uses_little_cpu", "tmux is missing");
    }
    let daemon = Daemon::start(1).unwrap();
    let client = Client::connect_with(ConnectOptions::new().directory(daemon.folder()).local_reads(false)).unwrap();
    for index in 0..1_000 {
        client.segment(&format!("segment/{index:04}")).allocate(Spec::new(64)).unwrap().put(0, &[1]).unwrap();
    }
    let ddss = binary("ddss").unwrap();
    let command = format!("exec {} top --segments 1000 --dir {}", ddss.display(), daemon.folder().display());
    let terminal = Terminal::start("many", (200, 50), &command);
    terminal.shows("segment/0");
    let pid =
        String::from_utf8_lossy(&terminal.tmux(&["display-message", "-p", "#{pane_pid}"]).stdout).trim().to_owned();
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<u64> =
            stat.rsplit_once(')').unwrap().1.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0)).collect();
        fields[10] + fields[11]
    };
    let (before, begin) = (ticks(), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    // Ticks count 10 ms of processor time, which other load on the machine does not increase.
    let part = (ticks() - before) as f64 / 100.0 / begin.elapsed().as_secs_f64();
    // An unoptimized build needs this much; a release needs a fifth of it.
    let most = if cfg!(debug_assertions) { 0.25 } else { 0.05 };
    assert!(part < most, "the view takes {:.1} % of a core", part * 100.0);
    println!("top with 1,000 segments: {:.1} % of a core", part * 100.0);
}
