//! Packages of the registry: metadata, licence texts, features, and dependencies of the client library.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use ddss_testkit::repo_lints::{self, Source};

/// Published packages, in the order in which the registry can take them.
const PUBLISHED: &[&str] = &[
    "ddss-core",
    "ddss-admission",
    "ddss-auth",
    "ddss-dsm-core",
    "ddss-engine",
    "ddss-ipc",
    "ddss-river-core",
    "ddss-runtime",
    "ddss-sdp",
    "ddss-verbs",
    "ddss-admin",
    "ddssd",
    "ddss-twin",
    "ddss-client",
    "ddss-group",
    "ddss-dsm",
    "ddss-river",
    "ddss-stream",
    "ddss-cli",
];

/// Direct dependencies of the packages that a client links, each with its reason. Users of the client compile all of them.
const CLIENT_DEPENDENCIES: &[(&str, &str)] = &[
    ("arc-swap", "readers of the session take no lock while a thread replaces it"),
    ("arrayvec", "the engine's tables have a bound and do not allocate"),
    ("atomic-waker", "one waker a call without a lock; its races are hard to get right"),
    ("crossbeam-utils", "padding to the lines that a processor fetches together"),
    ("foldhash", "hash of segment ids on the data path, at a third of what the standard one costs"),
    ("futures-core", "the trait `Stream`, and nothing else of futures"),
    ("futures-io", "an optional feature: the traits of cursors for tasks, without a runtime"),
    ("libc", "System V queues and what a signal handler may call, which rustix does not offer"),
    ("memmap2", "mappings whose life and thread rules are safe code"),
    ("nix", "credentials of a peer without a process id here, and `sigaction`"),
    ("postcard", "an optional feature: values of any type that serde knows, as compact bytes"),
    ("rustix", "system calls as safe functions"),
    ("thiserror", "error types with source and message; compile time only"),
    ("tracing", "events that the program's subscriber takes or that cost one load"),
    ("serde", "optional: programs store and send versions, stamps and specifications"),
    ("siphasher", "hash of map keys that is the same in all releases, and that no user can aim at one bucket"),
    ("zerocopy", "typed views of bytes without unsafe code here"),
];

fn metadata() -> Metadata {
    MetadataCommand::new().manifest_path(repo_lints::workspace_root().join("Cargo.toml")).no_deps().exec().unwrap()
}

fn published(metadata: &Metadata) -> Vec<&Package> {
    let is_published = |package: &&Package| package.publish.as_ref().is_none_or(|places| !places.is_empty());
    metadata.packages.iter().filter(is_published).collect()
}

/// Returns everything that a published package lacks.
fn package_complaints(package: &Package, licences: &[(&str, String)]) -> Vec<String> {
    let name = &package.name;
    let folder = package.manifest_path.parent().unwrap();
    let mut complaints = Vec::new();
    let mut require = |holds: bool, what: &str| {
        if !holds {
            complaints.push(format!("{name} has no {what}"));
        }
    };
    require(package.description.as_ref().is_some_and(|text| text.len() > 20), "description");
    require(package.repository.is_some(), "repository");
    require(package.rust_version.is_some(), "lowest Rust version");
    require(package.license.as_deref() == Some("MIT OR Apache-2.0"), "licence");
    require(!package.categories.is_empty(), "categories");
    let keywords = &package.keywords;
    // The registry refuses more than five keywords, and longer ones.
    require((1..=5).contains(&keywords.len()) && keywords.iter().all(|word| word.len() <= 20), "valid keywords");
    require(package.metadata.pointer("/docs/rs/targets").is_some(), "targets for docs.rs");
    for (file, text) in licences {
        require(fs::read_to_string(folder.join(file)).is_ok_and(|found| found == *text), file);
    }
    let readme = fs::read_to_string(folder.join("README.md")).unwrap_or_default();
    require(package.readme.is_some() && readme.starts_with(&format!("# {name}\n")), "README.md");
    for feature in package.features.keys().filter(|feature| *feature != "default") {
        require(readme.contains(&format!("| `{feature}` |")), &format!("row for the feature {feature} in README.md"));
    }
    complaints
}

/// Returns each `include_str!` and its like that leaves the package: its tarball would not compile.
fn includes_outside(package: &str, source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    let folder = Path::new(source.path.strip_prefix(package).unwrap()).parent().unwrap();
    let depth = folder.components().filter(|part| matches!(part, Component::Normal(_))).count();
    for macro_name in ["include_str!(\"", "include_bytes!(\"", "include!(\""] {
        for (at, _) in source.text.match_indices(macro_name) {
            let path = source.text[at + macro_name.len()..].split('"').next().unwrap();
            if path.matches("../").count() > depth {
                complaints.push(format!("{} includes {path}, which its package lacks", source.path));
            }
        }
    }
    complaints
}

// If this failed, the registry would refuse a package, or show a page without explanation or licence.
#[test]
fn published_packages_have_metadata_and_licence_texts() {
    let metadata = metadata();
    let root = repo_lints::workspace_root();
    let licences = ["LICENSE-MIT", "LICENSE-APACHE"].map(|file| (file, fs::read_to_string(root.join(file)).unwrap()));
    let published = published(&metadata);
    let names: BTreeSet<&str> = published.iter().map(|package| package.name.as_str()).collect();
    assert_eq!(names, PUBLISHED.iter().copied().collect(), "a package is published without a decision");
    let complaints: Vec<String> = published.iter().flat_map(|package| package_complaints(package, &licences)).collect();
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));

    let mut planted = (*published[0]).clone();
    planted.keywords = vec!["longer than twenty characters".to_owned()];
    planted.features.insert("undocumented".to_owned(), Vec::new());
    let complaints = package_complaints(&planted, &licences);
    assert_eq!(complaints.len(), 2, "{complaints:?}");
}

// If this failed, the registry would refuse a package because a dependency is not there yet.
#[test]
fn published_packages_depend_on_earlier_ones_only() {
    let metadata = metadata();
    let place = |name: &str| PUBLISHED.iter().position(|published| *published == name);
    for package in published(&metadata) {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some()) {
            let (ours, theirs) = (place(&package.name), place(&dependency.name));
            assert!(theirs.is_some() && theirs < ours, "{} depends on {}", package.name, dependency.name);
        }
    }
}

// If this failed, a package would compile in the repository only.
#[test]
fn published_packages_include_no_file_from_outside() {
    let metadata = metadata();
    let root = repo_lints::workspace_root();
    let sources = repo_lints::sources(&root).unwrap();
    let (mut complaints, mut read) = (Vec::new(), 0);
    for package in published(&metadata) {
        let folder = package.manifest_path.parent().unwrap().strip_prefix(root.to_str().unwrap()).unwrap();
        let prefix = format!("{folder}/");
        for source in sources.iter().filter(|source| source.path.starts_with(&prefix) && source.path.ends_with(".rs")) {
            read += 1;
            complaints.extend(includes_outside(&prefix, source));
        }
    }
    assert!(read > 300, "only {read} files were read");
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));

    let plant =
        |path: &str| Source { path: "crates/a/src/b/c.rs".to_owned(), text: format!("include_str!(\"{path}\")") };
    assert_eq!(includes_outside("crates/a/", &plant("../../README.md")), Vec::<String>::new());
    assert_eq!(includes_outside("crates/a/", &plant("../../../README.md")).len(), 1);
}

/// Returns each example on a page of the client's documentation that names a package which its users do not have. Items that the
/// client takes over bring their pages with them.
fn foreign_examples(source: &Source, package: &str, taken_over: &BTreeSet<&str>) -> Vec<String> {
    let (mut complaints, mut examples) = (Vec::new(), Vec::new());
    for line in source.text.lines().map(str::trim) {
        let Some(doc) = line.strip_prefix("///") else {
            let item = line.strip_prefix("pub ").and_then(|item| item.split([' ', '(', '<', ';']).nth(1));
            let is_seen = item.is_some_and(|name| taken_over.contains(name));
            if is_seen || !line.starts_with("#[") {
                let found = examples.drain(..).filter(|example: &&str| is_seen || names_only(example, taken_over));
                complaints.extend(found.map(|example| format!("{}: {example}", source.path)));
            }
            continue;
        };
        if doc.contains(&format!("{package}::")) && !doc.trim().starts_with("# ") && !doc.contains("](") {
            examples.push(doc.trim());
        }
    }
    complaints
}

/// Returns true if an import names nothing but items that the client takes over: it is the example of one of their methods.
fn names_only(example: &str, taken_over: &BTreeSet<&str>) -> bool {
    let items = example.rsplit("::").next().unwrap();
    example.starts_with("use ")
        && items.split(['{', '}', ',', ';', ' ']).all(|name| name.is_empty() || taken_over.contains(name))
}

// If this failed, a user who copies an example from the client's documentation would get an error: the program has no such package.
#[test]
fn examples_on_pages_of_the_client_name_the_client() {
    let sources = repo_lints::sources(&repo_lints::workspace_root()).unwrap();
    let client = sources.iter().find(|source| source.path == "crates/ddss/src/lib.rs").unwrap();
    let (mut complaints, mut read) = (Vec::new(), 0);
    for (package, folder) in [("ddss_core", "crates/ddss-core/src/"), ("ddss_ipc", "crates/ddss-ipc/src/")] {
        let (_, list) = client.text.split_once(&format!("pub use {package}::")).unwrap();
        let (list, _) = list.split_once(';').unwrap();
        let names = list.trim_matches(['{', '}']).split(',').map(str::trim);
        let taken_over: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
        read += taken_over.len();
        let of_package = sources.iter().filter(|source| source.path.starts_with(folder));
        complaints.extend(of_package.flat_map(|source| foreign_examples(source, package, &taken_over)));
    }
    assert!(read > 10, "only {read} items were read");
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));

    let taken_over = BTreeSet::from(["Spec", "Model"]);
    for (planted, count) in [
        ("/// use ddss_core::{Model, Spec};\n#[derive(Debug)]\npub struct Spec {", 1),
        ("    /// let spec = ddss_core::Spec::new(8);\npub struct Spec {", 1),
        ("    /// use ddss_core::Spec;\n    pub const fn table() {}", 1),
        ("/// # use ddss_core as ddss;\n/// use ddss::Spec;\npub struct Spec {", 0),
        ("/// use ddss_core::{Request, Spec};\npub struct Request {", 0),
    ] {
        let source = Source { path: "a.rs".to_owned(), text: planted.to_owned() };
        assert_eq!(foreign_examples(&source, "ddss_core", &taken_over).len(), count, "{planted}");
    }
}

// If this failed, a service that uses the client would compile more and more crates without a decision.
#[test]
fn client_library_has_only_explained_dependencies() {
    let metadata = metadata();
    let linked = ["ddss-client", "ddss-twin", "ddss-ipc", "ddss-core", "ddss-admission"];
    let mut found = BTreeSet::new();
    for package in metadata.packages.iter().filter(|package| linked.contains(&package.name.as_str())) {
        let linked = package.dependencies.iter().filter(|one| {
            // The models of concurrency replace the standard library's atomics; no user builds them.
            one.kind == DependencyKind::Normal && one.path.is_none() && one.target.is_none()
        });
        found.extend(linked.map(|dependency| dependency.name.as_str()));
    }
    let explained: BTreeSet<&str> = CLIENT_DEPENDENCIES.iter().map(|(name, _)| *name).collect();
    assert_eq!(found, explained);
    assert!(CLIENT_DEPENDENCIES.iter().all(|(_, reason)| reason.len() > 20));
}
