//! The paper's programs on shared pages, on small problems.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::process::{Command, Output};

use ddss_testkit::{Daemon, application, binary};

const PROGRAMS: [&str; 4] = ["barnes-hut", "tsp", "radix", "3d-fft"];

fn said(command: &mut Command) -> (bool, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.success(), text(stdout), text(stderr))
}

// If this failed, a protocol would lose bytes of a program, or let it read old ones.
#[test]
fn dsm_programs_have_the_same_checked_result_under_every_protocol() {
    let mut command = Command::new(application("dsm-apps").unwrap());
    let (is_good, out, err) = said(command.args(["--all", "--small", "--check", "--ranks", "2"]));
    assert!(is_good, "{out}{err}");
    for program in PROGRAMS {
        // Three kinds of stamps and orderings where diffs are written one-sided, else two.
        let settings = out.lines().filter(|line| line.starts_with(&format!("{program}, ")));
        assert_eq!(settings.filter(|line| line.contains(": the same; ")).count(), 10, "{out}");
    }
}

// If this failed, page faults would lose bytes of a program, or let it read old ones.
#[test]
fn dsm_programs_by_page_faults_have_the_same_checked_result_under_every_protocol() {
    for (ranks, programs) in [("2", &PROGRAMS[..]), ("4", &PROGRAMS[..2])] {
        let mut command = Command::new(application("dsm-apps").unwrap());
        command.args(["--all", "--small", "--check", "--transparent", "--ranks", ranks]).args(programs);
        let (is_good, out, err) = said(&mut command);
        assert!(is_good, "{out}{err}");
        assert_eq!(out.lines().filter(|line| line.contains(": the same; ")).count(), programs.len() * 10, "{out}");
    }
}

// If this failed, a result would depend on a lucky order of the ranks.
#[test]
fn dsm_programs_have_no_race() {
    let (daemon, program) = (Daemon::start(1).unwrap(), application("dsm-apps").unwrap());
    for name in PROGRAMS {
        let mut command = Command::new(binary("ddss").unwrap());
        command.env("DDSS_DIR", daemon.folder()).args(["dsm", "run", "-n", "2", "--check", "--"]);
        let (is_good, out, err) = said(command.arg(&program).args([name, "--small"]));
        assert!(is_good && !out.contains("race:"), "{name}: {out}{err}");
    }
}
