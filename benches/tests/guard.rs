//! The guard, with a load that got longer.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::process::{Command, Output};

use ddss_benches::regression::Kept;

fn guard(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_guard")).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

// If this failed, a change that makes every call longer would pass the gate; or every change would be stopped by noise.
#[test]
fn a_longer_road_turns_the_guard_red_and_the_same_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.json");
    let kept = path.to_str().unwrap();
    let output = guard(&["--only", "codec", "--keep", "--kept", kept]);
    if said(&output).starts_with("skipped: ") {
        return ddss_testkit::skipped(
            "a_longer_road_turns_the_guard_red_and_the_same_one_does_not",
            "there is no valgrind",
        );
    }
    assert!(output.status.success(), "{}", said(&output));
    let again = guard(&["--only", "codec", "--kept", kept]);
    assert!(again.status.success(), "{}", said(&again));
    assert!(said(&again).contains("1 numbers, 0 worse"), "{}", said(&again));

    // As if the road had been a tenth shorter when it was kept.
    let mut shorter = Kept::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let count = shorter.numbers["codec"];
    assert!(count > 50.0, "{count} instructions are no request");
    shorter.numbers.insert("codec".into(), count / 1.1);
    std::fs::write(&path, shorter.json()).unwrap();
    let longer = guard(&["--only", "codec", "--kept", kept]);
    assert_eq!(longer.status.code(), Some(1), "{}", said(&longer));
    assert!(said(&longer).contains("WORSE"), "{}", said(&longer));

    // A load that nobody keeps watch over is no good news either.
    shorter.numbers.clear();
    std::fs::write(&path, shorter.json()).unwrap();
    assert_eq!(guard(&["--only", "codec", "--kept", kept]).status.code(), Some(1));
}

// If this failed, the numbers in the repository would be of other loads than those that are counted.
#[test]
fn what_is_kept_in_the_repository_can_be_read() {
    for (name, least) in [("instructions.json", ddss_benches::regression::LOADS.len()), ("ratios.json", 5)] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("guard").join(name);
        let kept = Kept::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(kept.numbers.len(), least, "{name}");
        assert!(kept.tolerance > 0.0 && kept.tolerance < 0.5, "{name}");
    }
}
