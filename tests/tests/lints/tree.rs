//! Repository lints over the source tree.
//!
//! The tables below *are* the rules. To change a rule, change its table and explain the change in
//! `docs/architecture.md`.
#![allow(clippy::unwrap_used, reason = "the helpers of a test may unwrap as the test may")]

use std::fs;
use std::path::Path;
use std::process::Command;

use cargo_metadata::{Metadata, MetadataCommand};
use ddss_testkit::repo_lints::{self, MemberDependency, MemberRule, PermittedDependencies, Source};

/// Permitted dependencies of each member.
const RULES: &[MemberRule] = &[
    rule("ddss-core", &[], &[]),
    // Without dependencies, so that the fabric stands alone.
    rule("ddss-admission", &[], &[]),
    // Daemons use it, and groups of processes.
    rule("ddss-auth", &[], &[]),
    // The simulator and a driver over any fabric use them.
    rule("ddss-dsm-core", &[], &[]),
    rule("ddss-river-core", &[], &[]),
    // Only daemons and simulations run the engine: a change of it changes no client and no command.
    rule("ddss-engine", &["ddss-core"], &[]),
    rule("ddss-ipc", &["ddss-core", "ddss-admission"], &[]),
    rule("ddss-verbs", &["ddss-admission"], &["ddss-auth", "ddss-sdp"]),
    rule("ddss-runtime", &[], &[]),
    rule("ddss-sdp", &[], &[]),
    // The examples of the client crate start a daemon of their own.
    rule("ddss-client", &["ddss-core", "ddss-ipc", "ddss-twin"], &["ddssd"]),
    // Attributes of the client crate; nothing of them is left at run time.
    rule("ddss-twin", &[], &[]),
    rule("ddss-admin", &["ddss-core", "ddss-ipc"], &[]),
    rule(
        "ddssd",
        &[
            "ddss-core",
            "ddss-admin",
            "ddss-admission",
            "ddss-auth",
            "ddss-engine",
            "ddss-ipc",
            "ddss-verbs",
            "ddss-runtime",
        ],
        &[],
    ),
    rule("ddss-group", &["ddss-auth", "ddss-client", "ddss-verbs"], &[]),
    rule("ddss-dsm", &["ddss-client", "ddss-dsm-core", "ddss-group", "ddss-runtime", "ddss-verbs"], &[]),
    rule(
        "ddss-river",
        &["ddss-client", "ddss-group", "ddss-ipc", "ddss-river-core", "ddss-runtime", "ddss-verbs"],
        &[],
    ),
    // Streams know nothing of segments, and the client crate nothing of streams.
    rule("ddss-stream", &["ddss-sdp"], &[]),
    rule("ddss-preload", &["ddss-stream"], &[]),
    rule("ddss-cli", &["ddss-client", "ddss-admin", "ddss-core", "ddss-dsm", "ddss-river", "ddss-stream"], &[]),
    rule("ddss-sim", &["ddss-core", "ddss-dsm-core", "ddss-engine", "ddss-river-core"], &[]),
    // Programs on DDSS start daemons, as tests do.
    rule("ddss-testkit", &["ddss-client"], &[]),
    // Programs in C link it.
    rule("ddss-dsm-c", &["ddss-client", "ddss-dsm"], &[]),
    rule("ddss-apps", &["ddss-client", "ddss-dsm", "ddss-river", "ddss-stream", "ddss-testkit"], &["ddssd"]),
    MemberRule { name: "ddss-tests", permitted: PermittedDependencies::Anything, permitted_in_tests: &[] },
    MemberRule { name: "ddss-benches", permitted: PermittedDependencies::Anything, permitted_in_tests: &[] },
    // The examples use the client crate as applications do, and start a node of their own.
    rule("ddss-examples", &["ddss-client", "ddss-dsm", "ddss-river", "ddssd"], &[]),
];

/// The only files in which `unsafe` may stand.
const UNSAFE_FILES: &[&str] = &[
    "crates/ddss-ipc/src/sys/**",
    "crates/ddss-ipc/src/shm/ring.rs",
    "crates/ddss-ipc/src/shm/mapped_ring.rs",
    // Only `fork`, which is unsafe.
    "crates/ddss/tests/fork.rs",
    "crates/ddss-verbs/src/sys/**",
    "crates/ddss-runtime/src/affinity.rs",
    "crates/ddss-dsm/src/sys/**",
    // Calls from C, and variables of programs in C.
    "bindings/c/dsm/src/ffi/**",
    "bindings/c/dsm/src/distribution.rs",
    "bindings/c/dsm/src/program.rs",
    // Only slices in place, which are unsafe.
    "tests/tests/end_to_end/groups/page_faults.rs",
    "tests/tests/end_to_end/streams/calls.rs",
    "crates/ddss-stream/src/sys/**",
    "crates/ddss-preload/src/interpose/**",
    "crates/ddss-preload/src/sys/**",
    // Not DDSS itself: libnfs, for the comparison with NFS.
    "crates/ddss-apps/src/sys/**",
    // Not DDSS itself: rdma-core, for a peer of the adapter fabric in the emulated machine.
    "tests/vm/foreign/peer/src/connection.rs",
];

/// Files on the path of a call, from the caller's thread to the home's memory and back: no lock is permitted there.
const DATA_PATH: &[&str] = &[
    "crates/ddss/src/async_client/call.rs",
    "crates/ddss/src/reactor/reactor.rs",
    "crates/ddss/src/reactor/shared_channel.rs",
    "crates/ddss/src/reactor/backpressure.rs",
    "crates/ddss/src/call/arena.rs",
    "crates/ddss/src/session/session.rs",
    "crates/ddss/src/client.rs",
    "crates/ddss/src/call/channels.rs",
    "crates/ddss/src/call/pipeline.rs",
    "crates/ddss/src/call/wait_queue.rs",
    "crates/ddss/src/api/vectored.rs",
    "crates/ddss/src/location/local_read.rs",
    "crates/ddss/src/session/mapped_areas.rs",
    "crates/ddss/src/api/get_put.rs",
    "crates/ddss/src/location/location.rs",
    "crates/ddss/src/api/segment.rs",
    "crates/ddss/src/api/word.rs",
    "crates/ddss-ipc/src/client/call_table.rs",
    "crates/ddss-ipc/src/client/channel.rs",
    "crates/ddss-ipc/src/shm/ring.rs",
    "crates/ddss-ipc/src/transport/ring_transport.rs",
    "crates/ddss-ipc/src/server/channel.rs",
    "crates/ddss-ipc/src/server/server.rs",
    "crates/ddss-ipc/src/server/poll_scheduler.rs",
    "crates/ddss-ipc/src/server/fair_share.rs",
    "crates/ddss-core/src/**",
    "crates/ddss-engine/src/**",
    "crates/ddssd/src/shard/actions/inflight_reads.rs",
    "crates/ddssd/src/shard/actions/remote_get.rs",
    "crates/ddssd/src/shard/actions/copy_actions.rs",
    "crates/ddssd/src/shard/actions/transfers.rs",
    "crates/ddssd/src/shard/executor.rs",
    "crates/ddssd/src/shard/event_loop.rs",
    "crates/ddssd/src/shard/request_handler.rs",
];

/// Permitted locks off the fast path: the file, a word of the line, and the time when it is taken.
const COLD_LOCKS: &[(&str, &str, &str)] = &[
    ("crates/ddss/src/reactor/backpressure.rs", "queue", "where there is no room for a call, so that it waits anyway"),
    ("crates/ddss/src/session/session.rs", "turn", "by the thread that searches for the next daemon"),
    (
        "crates/ddss/src/call/wait_queue.rs",
        "queues",
        "where more threads call than there is room for, so that one sleeps anyway",
    ),
    ("crates/ddss/src/call/channels.rs", "for_tasks", "once, by the first asynchronous client"),
    ("crates/ddss/src/session/mapped_areas.rs", "Areas", "when a segment is opened"),
];

/// Members that have `#![forbid(unsafe_code)]` in their library and in each of their programs.
const FORBID_UNSAFE: &[&str] = &[
    "ddss-core",
    "ddss-admin",
    "ddss-admission",
    "ddss-auth",
    "ddss-dsm-core",
    "ddss-engine",
    "ddss-river",
    "ddss-river-core",
    "ddss-sdp",
    "ddss-twin",
    "ddss-client",
    "ddssd",
    "ddss-cli",
    "ddss-sim",
    "ddss-tests",
    "ddss-benches",
    "ddss-examples",
];

/// Lines of a file of Rust.
const FILE_LINES_MAX: usize = 600;
/// Lines of a `lib.rs`, which is a contents page.
const LIB_LINES_MAX: usize = 120;

/// Directories that exist on one machine only. Each is written in two parts, so that this file does not contain it.
const MACHINE_WORDS: &[&str] = &[concat!("/wo", "rk/")];

const fn rule(
    name: &'static str,
    permitted: &'static [&'static str],
    permitted_in_tests: &'static [&'static str],
) -> MemberRule {
    MemberRule { name, permitted: PermittedDependencies::Only(permitted), permitted_in_tests }
}

// If this failed, the two transports could know each other, or a client could link dependencies of the daemon.
#[test]
fn workspace_has_only_permitted_dependencies() {
    let metadata = metadata(&repo_lints::workspace_root());
    let arrows = repo_lints::member_dependencies(&metadata);
    assert!(arrows.contains(&arrow("ddss-client", "ddss-ipc")), "the arrows that exist were not read: {arrows:?}");
    assert_none(&repo_lints::refused_dependencies(&members(&metadata), &arrows, RULES));
}

// If this failed, the test above could pass for any manifest.
#[test]
fn planted_dependency_is_refused() {
    let members: Vec<String> = RULES.iter().map(|rule| rule.name.to_owned()).collect();
    let complaints = |arrow: MemberDependency| repo_lints::refused_dependencies(&members, &[arrow], RULES);
    for (from, to) in [
        ("ddss-core", "ddss-ipc"),
        ("ddss-ipc", "ddss-verbs"),
        ("ddss-verbs", "ddss-ipc"),
        ("ddss-verbs", "ddss-core"),
        ("ddss-runtime", "ddss-core"),
        ("ddss-client", "ddss-verbs"),
        ("ddss-client", "ddss-engine"),
        ("ddss-admin", "ddss-engine"),
        ("ddss-cli", "ddss-engine"),
        ("ddss-core", "ddss-engine"),
        ("ddss-client", "ddssd"),
        ("ddssd", "ddss-client"),
        ("ddss-cli", "ddssd"),
        ("ddss-sim", "ddss-verbs"),
        ("ddssd", "ddss-tests"),
    ] {
        assert_eq!(complaints(arrow(from, to)), [format!("{from} depends on {to}, which no rule permits")]);
    }
    let in_examples = |from: &str, to: &str| MemberDependency { development: true, ..arrow(from, to) };
    assert_none(&complaints(in_examples("ddss-client", "ddssd")));
    assert_eq!(complaints(in_examples("ddss-ipc", "ddss-verbs")).len(), 1);
    assert_none(&complaints(arrow("ddss-tests", "ddss-verbs")));
    assert_eq!(repo_lints::refused_dependencies(&members[1..], &[], RULES).len(), 1, "a room without a member");
    let stranger = [members.as_slice(), &["ddss-shed".to_owned()]].concat();
    assert_eq!(repo_lints::refused_dependencies(&stranger, &[], RULES).len(), 1, "a member without a room");
}

// If this failed, a dependency could hide behind another name, or in the table of one platform.
#[test]
fn dependencies_are_read_from_every_manifest_table() {
    let folder = tempfile::tempdir().unwrap();
    plant(folder.path(), "ddss-verbs", "");
    plant(folder.path(), "ddss-core", "");
    let tables = "[target.'cfg(unix)'.dependencies]\nroad = { package = \"ddss-verbs\", path = \"../ddss-verbs\" }\n\
                  [dev-dependencies]\nddss-core = { path = \"../ddss-core\" }\n";
    plant(folder.path(), "ddss-ipc", tables);
    let mut arrows = repo_lints::member_dependencies(&metadata(folder.path()));
    arrows.sort_by(|a, b| a.to.cmp(&b.to));
    let expected =
        [MemberDependency { development: true, ..arrow("ddss-ipc", "ddss-core") }, arrow("ddss-ipc", "ddss-verbs")];
    assert_eq!(arrows, expected);
}

// If this failed, unsafe code could enter a file that is not reviewed for it.
#[test]
fn unsafe_occurs_only_in_listed_files() {
    let mut complaints = Vec::new();
    let files = rust_files();
    assert!(files.iter().any(|source| source.path == "tests/tests/lints/tree.rs"), "the files were not read");
    for source in files.iter().filter(|source| !UNSAFE_FILES.iter().any(|rule| source.matches(rule))) {
        let lines = repo_lints::unsafe_lines(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.path));
        complaints.extend(lines.iter().map(|line| format!("{}:{line} is unsafe", source.path)));
    }
    assert_none(&complaints);
}

// If this failed, a call could wait for a descheduled thread: a lock would be on the path of all calls.
#[test]
fn data_path_has_no_lock() {
    let (mut complaints, mut cold) = (Vec::new(), Vec::new());
    let files = rust_files();
    for rule in DATA_PATH {
        let mut count = 0;
        for source in files.iter().filter(|source| source.matches(rule)) {
            count += 1;
            let lines: Vec<&str> = source.text.lines().collect();
            for line in repo_lints::lock_lines(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.path))
            {
                let known =
                    COLD_LOCKS.iter().filter(|(path, word, _)| *path == source.path && lines[line - 1].contains(word));
                let before = cold.len();
                cold.extend(known);
                if cold.len() == before {
                    complaints.push(format!("{}:{line} has a lock on the data path", source.path));
                }
            }
        }
        if count == 0 {
            complaints.push(format!("{rule} names no file"));
        }
    }
    let unused = COLD_LOCKS.iter().filter(|known| !cold.contains(known));
    complaints.extend(unused.map(|(path, word, _)| format!("{path} has no lock {word} any more")));
    assert_none(&complaints);
}

// If this failed, the compiler would not keep `unsafe` out of the engine and the public API.
#[test]
fn safe_members_forbid_unsafe() {
    let metadata = metadata(&repo_lints::workspace_root());
    let mut complaints = Vec::new();
    for package in metadata.workspace_packages() {
        if !FORBID_UNSAFE.contains(&package.name.as_str()) {
            continue;
        }
        for target in package.targets.iter().filter(|target| target.is_lib() || target.is_bin()) {
            let text = fs::read_to_string(&target.src_path).unwrap();
            if !repo_lints::forbids_unsafe(&text).unwrap() {
                complaints.push(format!("{} does not forbid unsafe_code", target.src_path));
            }
        }
    }
    assert_none(&complaints);
}

// If this failed, a reader would need more than one sitting for a file, or would find code in a contents page.
#[test]
fn files_stay_within_size_limits() {
    let mut complaints = Vec::new();
    for source in rust_files() {
        let lines_max = if source.name() == "lib.rs" { LIB_LINES_MAX } else { FILE_LINES_MAX };
        complaints.extend(repo_lints::long_file(&source.path, &source.text, lines_max));
        // Beside integration tests the name is cargo's, which would take any other for a test program.
        if source.name() == "mod.rs" && source.path.contains("/src/") {
            complaints.extend(repo_lints::mod_file_complaints(&source.path, &source.text).unwrap());
        }
    }
    assert_none(&complaints);
}

// If this failed, a member could leave the lints, or bring its own version of what the others use.
#[test]
fn members_inherit_lints_and_versions() {
    let metadata = metadata(&repo_lints::workspace_root());
    let mut complaints = repo_lints::version_complaints(&metadata);
    for package in metadata.workspace_packages() {
        let path = package.manifest_path.as_str();
        let text = fs::read_to_string(path).unwrap();
        complaints.extend(repo_lints::manifest_complaints(path, &text).unwrap());
    }
    assert_none(&complaints);
}

// If this failed, a service that depends on the client crate would need a C library on every machine it runs on.
#[test]
fn client_crate_links_no_c_library() {
    let metadata = metadata(&repo_lints::workspace_root());
    let tree = repo_lints::dependency_tree(&metadata, "ddss-client");
    for name in ["ddss-client", "ddss-ipc", "rustix"] {
        assert!(tree.iter().any(|package| package.name.as_str() == name), "{name} is missing from the tree");
    }
    assert_none(&repo_lints::c_libraries(&metadata, &tree).unwrap());
}

// If this failed, the test above could pass with a C library in the tree.
#[test]
fn planted_c_library_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    plant(root, "cc", "");
    plant(root, "ddss-client", "[dependencies]\nmiddle = { path = \"../middle\" }\n");
    plant(root, "middle", "[dependencies]\nroad-sys = { path = \"../road-sys\" }\nplain = { path = \"../plain\" }\n");
    plant(root, "plain", "[dev-dependencies]\nonly-tests = { path = \"../only-tests\" }\n");
    plant(root, "only-tests", "");
    plant(root, "road-sys", "[build-dependencies]\ncc = { path = \"../cc\" }\n");
    let manifest = root.join("road-sys/Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap().replace("edition", "links = \"ibverbs\"\nedition");
    fs::write(&manifest, text).unwrap();
    fs::write(root.join("road-sys/build.rs"), "fn main() { println!(\"cargo::rustc-link-lib=ibverbs\"); }").unwrap();
    for name in ["road-sys", "only-tests"] {
        let text = "#[link(name = \"ibverbs\")]\nunsafe extern \"C\" {}\n";
        fs::write(root.join(name).join("src/lib.rs"), text).unwrap();
    }

    let metadata = metadata(root);
    let complaints =
        repo_lints::c_libraries(&metadata, &repo_lints::dependency_tree(&metadata, "ddss-client")).unwrap();
    let said = ["links the library ibverbs", "builds with cc", "build script that adds a link", "links a library in"];
    assert_eq!(complaints.len(), said.len(), "{complaints:#?}");
    for (complaint, said) in complaints.iter().zip(said) {
        assert!(complaint.starts_with("road-sys ") && complaint.contains(said), "{complaint} instead of {said}");
    }
}

// If this failed, a clone would name directories and servers that exist on one machine only.
#[test]
fn files_contain_no_machine_paths() {
    let root = repo_lints::workspace_root();
    let mut complaints = repo_lints::foreign_sources(&fs::read_to_string(root.join("Cargo.lock")).unwrap()).unwrap();
    for source in repo_lints::sources(&root).unwrap() {
        complaints.extend(repo_lints::machine_words(&source, MACHINE_WORDS));
    }
    assert_none(&complaints);
}

/// Metadata of the workspace in `root`, for the platform that this runs on.
fn metadata(root: &Path) -> Metadata {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let version = Command::new(cargo).arg("-vV").output().expect("cargo runs where its tests run");
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo names its host");
    MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .other_options(["--filter-platform".to_owned(), host.to_owned()])
        .exec()
        .unwrap_or_else(|error| panic!("cargo metadata in {}: {error}", root.display()))
}

fn members(metadata: &Metadata) -> Vec<String> {
    metadata.workspace_packages().iter().map(|package| package.name.to_string()).collect()
}

fn rust_files() -> Vec<Source> {
    let mut files = repo_lints::sources(&repo_lints::workspace_root()).unwrap();
    files.retain(|source| source.path.ends_with(".rs"));
    files
}

fn arrow(from: &str, to: &str) -> MemberDependency {
    MemberDependency { from: from.into(), to: to.into(), development: false }
}

/// Adds an empty member called `name` to the workspace in `root`, with more lines for its manifest.
fn plant(root: &Path, name: &str, more: &str) {
    fs::create_dir_all(root.join(name).join("src")).unwrap();
    fs::write(root.join("Cargo.toml"), "[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\n").unwrap();
    fs::write(root.join(name).join("src/lib.rs"), "").unwrap();
    let head = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    fs::write(root.join(name).join("Cargo.toml"), head + more).unwrap();
}

#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}
