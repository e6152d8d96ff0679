//! Tests of the regression guard, with a planted longer path.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::process::{Command, Output};

use ddss_benches::regression::Recorded;

fn guard(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_guard")).args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

// If this failed, a change that lengthens every call would pass, or noise would stop every change.
#[test]
fn guard_fails_on_longer_path_and_passes_on_equal_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.json");
    let kept = path.to_str().unwrap();
    let output = guard(&["--only", "codec", "--keep", "--kept", kept]);
    if text(&output).starts_with("skipped: ") {
        return ddss_testkit::skipped("guard_fails_on_longer_path_and_passes_on_equal_path", "there is no valgrind");
    }
    assert!(output.status.success(), "{}", text(&output));
    let again = guard(&["--only", "codec", "--kept", kept]);
    assert!(again.status.success(), "{}", text(&again));
    assert!(text(&again).contains("1 numbers, 0 worse"), "{}", text(&again));

    // As if the recorded path had been a tenth shorter.
    let mut shorter = Recorded::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let count = shorter.numbers["codec"];
    assert!(count > 50.0, "{count} instructions are no request");
    shorter.numbers.insert("codec".into(), count / 1.1);
    std::fs::write(&path, shorter.json()).unwrap();
    let longer = guard(&["--only", "codec", "--kept", kept]);
    assert_eq!(longer.status.code(), Some(1), "{}", text(&longer));
    assert!(text(&longer).contains("WORSE"), "{}", text(&longer));

    // A workload without a recorded value is no success either.
    shorter.numbers.clear();
    std::fs::write(&path, shorter.json()).unwrap();
    assert_eq!(guard(&["--only", "codec", "--kept", kept]).status.code(), Some(1));
}

// If this failed, the recorded numbers would belong to other workloads than the counted ones.
#[test]
fn recorded_files_in_the_repository_parse() {
    for (name, least) in [("instructions.json", ddss_benches::regression::WORKLOADS.len()), ("ratios.json", 5)] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("guard").join(name);
        let kept = Recorded::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(kept.numbers.len(), least, "{name}");
        assert!(kept.tolerance > 0.0 && kept.tolerance < 0.5, "{name}");
    }
}
