//! Checks of names and sentences: directories show a structure, files and types have no retired names, doc comments
//! name their subject.

use ddss_testkit::repo_lints::{Source, identifier_lines, sources, workspace_root};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of files in one directory: more hide a structure that subdirectories would show.
const FILES_PER_FOLDER_MAX: usize = 12;

/// Directories with more files, each with their number, which only ever becomes smaller.
const FULLER_FOLDERS: &[(&str, usize)] = &[
    ("benches/src/harness", 14),
    ("benches/src/system", 13),
    ("crates/ddss-apps/src/river", 14),
    ("crates/ddss-cli/src", 13),
    ("crates/ddss-cli/src/commands/programs/river", 13),
    ("crates/ddss-dsm-core/src/engine/state", 14),
    ("crates/ddss-engine/src", 14),
    ("crates/ddss-engine/src/remote", 14),
    ("crates/ddss-engine/src/state", 14),
    ("crates/ddss-engine/src/state/segments", 13),
    ("crates/ddss-group/src", 14),
    ("crates/ddss-ipc/src/server", 13),
    ("crates/ddss-ipc/src/sys", 13),
    ("crates/ddss-stream/src/endpoint", 14),
    ("crates/ddss-stream/src/wire", 13),
    ("crates/ddss-testkit/src/repo_lints", 13),
    ("crates/ddss-verbs/src/iwarp/connection", 13),
    ("crates/ddss-verbs/src/rdma", 14),
    ("crates/ddss/src/api", 14),
    ("crates/ddss/src/tests", 14),
    ("crates/ddssd/src", 13),
    ("crates/ddssd/src/control", 14),
    ("crates/ddssd/src/control/rpc", 13),
    ("examples", 14),
    ("tests/src/bin/attack/network", 13),
    ("tests/tests/end_to_end", 14),
    ("tests/tests/end_to_end/streams", 14),
    ("tests/tests/failure", 14),
    ("tests/tests/operations", 14),
];

/// Words with which no doc comment begins: the sentence names the thing or the action instead.
const FORBIDDEN_FIRST_WORDS: &[&str] =
    &["Who", "Whoever", "Whom", "Whose", "What", "Whatever", "Whether", "Those", "He", "Somebody", "Nobody"];

/// Doc comments that still begin with such a word, by package. The numbers only ever become smaller.
const FORBIDDEN_LEFT: &[(&str, usize)] = &[];

/// File and directory names that were replaced by a word of the field.
const RETIRED_FILES: &[&str] = &[
    "at_once",
    "attached",
    "besieged",
    "birth",
    "busiest",
    "chores",
    "closet",
    "core_claim",
    "doorman",
    "duties",
    "endings",
    "far",
    "flights",
    "house",
    "islands",
    "kept",
    "lanes",
    "liars",
    "look",
    "meeting",
    "mirror_copy",
    "near",
    "pacing",
    "perform",
    "planes",
    "porch",
    "pulse",
    "reception",
    "remains",
    "road",
    "said",
    "seldom",
    "sentry",
    "stage",
    "station",
    "strangers",
    "sweep",
    "tally",
    "told",
    "torment",
    "vital",
    "words",
];

/// Types that were replaced by a word of the field.
const RETIRED_TYPES: &[&str] = &[
    "AtOnce",
    "Audiences",
    "Besieged",
    "Busiest",
    "Changed",
    "Chores",
    "Closet",
    "Copies",
    "Doorkeeper",
    "Doorman",
    "Facts",
    "Flights",
    "Hands",
    "HandId",
    "Have",
    "Holdings",
    "Islands",
    "Kept",
    "Keeper",
    "Knock",
    "Lane",
    "LaneFull",
    "Lanes",
    "Ledger",
    "Listings",
    "Locked",
    "LockWish",
    "Minds",
    "Mirroring",
    "Offence",
    "Outbox",
    "Pacer",
    "Permit",
    "Plane",
    "Planes",
    "Porch",
    "Pulse",
    "Reception",
    "Remains",
    "Road",
    "Seldom",
    "Sentry",
    "ServiceLane",
    "SlotMap",
    "Station",
    "Stored",
    "Sweep",
    "Tally",
    "Told",
    "Vigil",
    "Vital",
    "Vitals",
    "Warden",
    "Wish",
];

/// Identifiers that were replaced by a word of the field, and the crates that do not use them any more.
const RETIRED_WORDS: &[(&str, &[&str])] = &[
    ("asks", &["ddss", "ddss-core", "ddss-engine"]),
    ("duties", ALL_CORE),
    ("duty", ALL_CORE),
    ("facts", ALL_CORE),
    ("keeps", ALL_CORE),
    ("lane", ALL_CORE),
    ("lanes", ALL_CORE),
    ("look", &["ddss-core", "ddss-engine", "ddss-ipc", "ddss-sim"]),
    ("minds", ALL_CORE),
    ("mirror", ALL_CORE),
    ("mirrored", ALL_CORE),
    ("mirroring", ALL_CORE),
    ("mirrors", ALL_CORE),
    ("permits", ALL_CORE),
    ("plane", &["ddss", "ddss-core", "ddss-engine", "ddss-ipc", "ddss-sim"]),
    ("planes", ALL_CORE),
    ("road", ALL_CORE),
    ("terms", ALL_CORE),
    ("who", ALL_CORE),
    ("wish", ALL_CORE),
];

/// The engine and the crates that use its types.
const ALL_CORE: &[&str] = &["ddss", "ddss-core", "ddss-engine", "ddss-ipc", "ddss-sim", "ddssd"];

fn rust_sources() -> Vec<Source> {
    let all = sources(&workspace_root()).expect("the repository can be read");
    let rust: Vec<Source> = all.into_iter().filter(|source| source.path.ends_with(".rs")).collect();
    assert!(rust.len() > 300, "the files were not read");
    rust
}

/// `crates/ddss/src/client.rs` belongs to `crates/ddss`, `tests/tests/cli/demo.rs` to `tests`.
fn package_of(path: &str) -> &str {
    let parts = if path.starts_with("crates/") { 2 } else { 1 };
    path.match_indices('/').nth(parts - 1).map_or(path, |(at, _)| &path[..at])
}

/// The first lines of doc comments that begin with a forbidden word, with their line numbers.
fn riddles(text: &str) -> Vec<(usize, &str)> {
    let is_doc = |line: &str| line.trim_start().starts_with("///") || line.trim_start().starts_with("//!");
    let mut found = Vec::new();
    let mut before = "";
    for (index, line) in text.lines().enumerate() {
        if is_doc(line) && !is_doc(before) {
            let first = line.trim_start()[3..].split_whitespace().next().unwrap_or_default();
            if FORBIDDEN_FIRST_WORDS.contains(&first) {
                found.push((index + 1, line.trim()));
            }
        }
        before = line;
    }
    found
}

/// The types that a text defines.
fn defined_types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| matches!(*word, "struct" | "enum" | "trait" | "type" | "union"))?;
        let is_item = words[..at].iter().all(|word| word.starts_with("pub"));
        let name = words.get(at + 1)?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        is_item.then_some(name)
    })
}

// If this failed, a reader would have to search a long list for a file.
#[test]
fn no_folder_holds_a_hidden_structure() {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for source in rust_sources() {
        let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        *folders.entry(folder).or_default() += 1;
    }
    let mut full = folders.clone();
    full.retain(|_, files| *files > FILES_PER_FOLDER_MAX);
    for (folder, max) in FULLER_FOLDERS {
        let files = full.remove(*folder);
        assert!(files == Some(*max), "FULLER_FOLDERS gives {folder} {max} files: it has {files:?}");
    }
    assert!(full.is_empty(), "give these folders sub-folders (at most {FILES_PER_FOLDER_MAX} files): {full:?}");
}

// If this failed, a doc comment could begin without naming its subject.
#[test]
fn doc_comments_name_their_subject() {
    let mut counts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in rust_sources() {
        for (line, text) in riddles(&source.text) {
            let place = format!("{}:{line}: {text}", source.path);
            counts.entry(package_of(&source.path).to_owned()).or_default().push(place);
        }
    }
    let allowed: BTreeMap<&str, usize> = FORBIDDEN_LEFT.iter().copied().collect();
    for (package, places) in &counts {
        let max = allowed.get(package.as_str()).copied().unwrap_or_default();
        assert!(
            places.len() <= max,
            "{package}: {} doc comments begin with one of {FORBIDDEN_FIRST_WORDS:?}, {max} may:\n{}",
            places.len(),
            places.join("\n")
        );
    }
    for (package, max) in allowed {
        let left = counts.get(package).map_or(0, Vec::len);
        assert!(left == max, "{package}: {left} are left; lower the number in FORBIDDEN_LEFT from {max}");
    }
}

// If this failed, one concept would have two names again.
#[test]
fn no_file_or_type_has_a_retired_name() {
    let (files, types): (BTreeSet<&str>, BTreeSet<&str>) =
        (RETIRED_FILES.iter().copied().collect(), RETIRED_TYPES.iter().copied().collect());
    let mut complaints = Vec::new();
    for source in rust_sources().iter().filter(|source| source.path.starts_with("crates/")) {
        let stems = source.path.trim_end_matches(".rs").split('/').skip(2);
        complaints.extend(stems.filter(|stem| files.contains(stem)).map(|stem| format!("{}: {stem}", source.path)));
        let names = defined_types(&source.text).filter(|name| types.contains(name));
        complaints.extend(names.map(|name| format!("{}: type {name}", source.path)));
    }
    assert!(complaints.is_empty(), "use the words of docs/architecture.md:\n{}", complaints.join("\n"));
}

// If this failed, a field or a variable could have a retired name again.
#[test]
fn no_identifier_is_a_retired_word() {
    let mut complaints = Vec::new();
    for source in rust_sources() {
        let Some(name) = source.path.strip_prefix("crates/").and_then(|path| path.split('/').next()) else { continue };
        let words: Vec<&str> =
            RETIRED_WORDS.iter().filter(|(_, crates)| crates.contains(&name)).map(|(word, _)| *word).collect();
        let lines = identifier_lines(&source.text, &words).unwrap_or_else(|error| panic!("{}: {error}", source.path));
        complaints.extend(lines.into_iter().map(|(line, word)| format!("{}:{line}: {word}", source.path)));
    }
    assert!(complaints.is_empty(), "use the words of docs/architecture.md:\n{}", complaints.join("\n"));
}

#[test]
fn planted_riddles_and_types_are_found() {
    let text = "//! Who knows.\n//! What else.\n\n/// Counts.\nstruct Tally;\n    /// Whether it is.\n    is: bool,\npub(crate) enum Road {\n";
    assert_eq!(riddles(text), [(1, "//! Who knows."), (6, "/// Whether it is.")]);
    assert_eq!(defined_types(text).collect::<Vec<_>>(), ["Tally", "Road"]);
    let code = "struct Row {\n    lane: u8, // a plane\n}\nlet text = \"road\";\nf(row.lane, m!(wish));\n";
    let found = identifier_lines(code, &["lane", "plane", "road", "wish"]).unwrap();
    assert_eq!(found, [(2, "lane".to_owned()), (5, "lane".to_owned()), (5, "wish".to_owned())]);
    assert_eq!(package_of("crates/ddss/src/client.rs"), "crates/ddss");
    assert_eq!(package_of("tests/tests/cli/demo.rs"), "tests");
}
