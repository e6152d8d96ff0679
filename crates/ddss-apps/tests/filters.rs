//! Tests of the programs of filter streams, each filter a process.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ddss_apps::filters::microscope::{self, SlideWriter, View};
use ddss_apps::filters::{FilterGroup, GroupConfig, LinkKind, Query, StageCommand};
use ddss_testkit::TempNode;
use rustix::process::{Pid, Signal, kill_process};

const FILTERS: &str = env!("CARGO_BIN_EXE_filters");

fn slide_group(folder: &Path, link: LinkKind) -> FilterGroup {
    let slide = folder.join("slide");
    let pixels: Vec<u8> = (0..3 * 64 * 64u32).map(|at| (at * at / 32) as u8).collect();
    SlideWriter { pixels: &pixels, side: 64, copies: 8 }.write(&slide).unwrap();
    let arguments = |name: &str| ["stage", "microscope", name, slide.to_str().unwrap()].map(str::to_owned).to_vec();
    let stages = microscope::STAGES.iter().map(|name| StageCommand { name, arguments: arguments(name) }).collect();
    let folder = folder.to_path_buf();
    let program = PathBuf::from(FILTERS);
    FilterGroup::start(&GroupConfig { program, stages, link, folder, unit_max: Duration::from_secs(60) }).unwrap()
}

fn run(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(FILTERS).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

// If this failed, the bytes of a unit would be lost, doubled or mixed on one of the transports.
#[test]
fn answers_equal_the_direct_computation_on_every_link() {
    for program in ["microscope", "isosurface"] {
        let (is_good, out, err) = run(&[program, "--queries", "3"]);
        assert!(is_good, "{program}: {out}{err}");
        assert!(out.contains("15 of 15 answers equal the direct computation"), "{out}");
        LinkKind::ALL.iter().for_each(|link| assert!(out.contains(&format!("{link}: 3 queries")), "{out}"));
    }
}

// If this failed, a user would wait for an answer that no filter computes, or search for the dead filter.
#[test]
fn killed_filter_is_named_and_its_neighbours_end() {
    for link in LinkKind::ALL {
        for (victim, name) in microscope::STAGES.iter().enumerate() {
            let folder = TempNode::new().unwrap();
            let mut group = slide_group(folder.path(), link);
            let view = View { x: 0, y: 0, columns: 512, rows: 512, zoom: 1 }.to_bytes();
            group.ask(&view).unwrap();
            let pid = Pid::from_raw(group.pids()[victim].cast_signed()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
            let error = group.ask(&view).unwrap_err().to_string();
            assert!(error.contains(&format!("the process of {name} ended early (signal: 9")), "{link}: {error}");
        }
    }
}

// If this failed, a wrong query would end the filters without a reason.
#[test]
fn view_outside_the_slide_is_refused_with_its_reason() {
    let folder = TempNode::new().unwrap();
    let mut group = slide_group(folder.path(), LinkKind::SameNode);
    let view = View { x: 500, y: 0, columns: 100, rows: 1, zoom: 1 };
    let error = group.ask(&view.to_bytes()).unwrap_err().to_string();
    assert!(error.contains("a view up to 600, 1 of a slide of 512 x 512 pixels"), "{error}");
}

// If this failed, a user who has not fetched the data would not know how.
#[test]
fn missing_data_names_the_script_that_fetches_it() {
    let (is_good, _, err) = run(&["microscope", "--data", "/nonexistent"]);
    assert!(!is_good && err.contains("scripts/datasets fetches it"), "{err}");
    let (is_good, _, err) = run(&["microscope", "--link", "pigeon"]);
    assert!(
        !is_good && err.contains("no link is called pigeon; there are: tcp, unix, same-node, basic, enhanced"),
        "{err}"
    );
}
