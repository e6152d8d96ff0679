//! Names the commit of which the programs are built, for `ddssd --version` and for refusals of other releases.
//!
//! It is `DDSS_COMMIT` of the environment, or that of a published package, or that of the checkout, with `-dirty` if files
//! differ from the commit. A debug build from a checkout has none: its programs would be compiled again after each commit.
#![allow(clippy::print_stdout, reason = "cargo reads it")]

use std::path::Path;
use std::process::Command;

/// Digits of a commit.
const DIGITS: usize = 12;
/// Mark behind a commit from which the sources differ.
const DIRTY: &str = "-dirty";
/// File of a published package that names its commit.
const PACKAGE_FILE: &str = ".cargo_vcs_info.json";
/// Place of this package in its checkout. Elsewhere the checkout is of another project.
const PLACE: &str = "crates/ddss-admin/";

fn main() {
    println!("cargo::rerun-if-env-changed=DDSS_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let named = std::env::var("DDSS_COMMIT").ok();
    let commit = named.or_else(of_package).or_else(of_checkout).unwrap_or_default();
    let (digits, mark) = commit.strip_suffix(DIRTY).map_or((commit.as_str(), ""), |digits| (digits, DIRTY));
    assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "DDSS_COMMIT is no commit: {commit}");
    let commit = match &digits[..digits.len().min(DIGITS)] {
        "" => "unknown".to_owned(),
        digits => format!("{digits}{mark}"),
    };
    println!("cargo::rustc-env=DDSS_COMMIT={commit}");
}

fn of_package() -> Option<String> {
    let text = std::fs::read_to_string(PACKAGE_FILE).ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(str::to_owned)
}

fn of_checkout() -> Option<String> {
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug")
        || git(&["rev-parse", "--show-prefix"])? != PLACE
    {
        return None;
    }
    // Each commit and each checkout of another one adds a line to the log. Without one it changes HEAD or a branch.
    let path = |name| git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists());
    let watched = path("logs/HEAD").map_or_else(|| [path("HEAD"), path("refs/heads")], |log| [Some(log), None]);
    watched.iter().flatten().for_each(|path| println!("cargo::rerun-if-changed={path}"));
    let mark = if git(&["--no-optional-locks", "status", "--porcelain", "-uno"])?.is_empty() { "" } else { DIRTY };
    Some(git(&["rev-parse", "HEAD"])? + mark)
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
