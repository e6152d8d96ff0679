//! Builds the programs of the workspace and finds them.
//!
//! `cargo test --workspace` builds the programs of a package for the tests of that same package only
//! (`CARGO_BIN_EXE_..`), and `ddssd` and `ddss` belong to other packages than these tests. So the first test of each
//! test program that asks runs `cargo build` once. Cargo holds no lock while tests run. If everything is built, this
//! takes about 0.2 seconds. Profile and target directory are those of the running test. If everything is built already
//! (`scripts/test`) or there is no cargo (the emulated machine), `DDSS_BIN_DIR` names cargo's directory with the
//! programs.

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use cargo_metadata::Message;

use crate::Error;
use crate::repo_lints::workspace_root;

/// Arguments that make cargo build the released programs.
const PROGRAMS: &[&str] = &["--bins", "--package", "ddssd", "--package", "ddss-cli", "--features", "rdma"];

/// Programs that cargo has built, by name.
type Built = OnceLock<Result<HashMap<String, PathBuf>, String>>;

/// Builds the program called `name` (`ddssd` or `ddss`) and returns its path.
pub fn binary(name: &str) -> Result<PathBuf, Error> {
    static BUILT: Built = OnceLock::new();
    find(name, name, &BUILT, PROGRAMS)
}

/// Builds the program called `name` of `ddss-apps` and returns its path.
pub fn application(name: &str) -> Result<PathBuf, Error> {
    static BUILT: Built = OnceLock::new();
    find(name, name, &BUILT, &["--bins", "--package", "ddss-apps"])
}

/// Builds the example called `name` and returns its path.
pub fn example(name: &str) -> Result<PathBuf, Error> {
    static BUILT: Built = OnceLock::new();
    let what = ["--examples", "--package", "ddss-examples", "--package", "ddss-apps"];
    find(name, &format!("examples/{name}"), &BUILT, &what)
}

/// Builds the preload library and returns its path.
pub fn preload_library() -> Result<PathBuf, Error> {
    static BUILT: Built = OnceLock::new();
    find("ddss_preload", "libddss_preload.so", &BUILT, &["--lib", "--package", "ddss-preload"])
}

/// Builds the library for programs in C that share pages, and returns its path. The static one lies beside it.
pub fn dsm_library() -> Result<PathBuf, Error> {
    static BUILT: Built = OnceLock::new();
    find("ddss_dsm_c", "libddss_dsm_c.so", &BUILT, &["--lib", "--package", "ddss-dsm-c"])
}

/// Returns the path of a target: `file` below `DDSS_BIN_DIR`, or what the first call builds.
fn find(name: &str, file: &str, built: &Built, what: &[&str]) -> Result<PathBuf, Error> {
    if let Some(program) = already_built(file) {
        return program;
    }
    let programs = built.get_or_init(|| build(what)).as_ref().map_err(|error| Error::Build(error.clone()))?;
    programs.get(name).cloned().ok_or_else(|| Error::NoSuchProgram(name.to_owned()))
}

/// Returns the file below `DDSS_BIN_DIR`, if that variable is set.
fn already_built(name: &str) -> Option<Result<PathBuf, Error>> {
    let file = Path::new(&env::var_os("DDSS_BIN_DIR")?).join(name);
    Some(if file.is_file() { Ok(file) } else { Err(Error::NotBuilt(file)) })
}

/// Returns the target triple of statically linked programs on this machine, if that target is installed.
pub fn static_target() -> Option<String> {
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);
    let asked = Command::new("rustc").args(["--print", "target-libdir", "--target", &target]).output().ok()?;
    let folder = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim_end());
    folder.is_dir().then_some(target)
}

/// Builds `ddssd` and `ddss` with the profile of the test, linked statically as those of the tarball, and returns their
/// directory.
pub fn static_programs(target: &str) -> Result<PathBuf, Error> {
    let programs = build(&["--bins", "--package", "ddssd", "--package", "ddss-cli", "--target", target]);
    let programs = programs.map_err(Error::Build)?;
    let program = programs.get("ddss").and_then(|path| path.parent());
    program.map(Path::to_owned).ok_or_else(|| Error::NoSuchProgram("ddss".to_owned()))
}

fn build(what: &[&str]) -> Result<HashMap<String, PathBuf>, String> {
    let test = env::current_exe().map_err(|error| error.to_string())?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .args(["build", "--quiet", "--message-format=json-render-diagnostics", "--manifest-path"])
        .arg(workspace_root().join("Cargo.toml"))
        .args(what)
        .args(same_build_as(&test))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("starting {}: {error}", cargo.display()))?;
    if !output.status.success() {
        return Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let mut programs = HashMap::new();
    for message in Message::parse_stream(output.stdout.as_slice()) {
        if let Message::CompilerArtifact(artifact) = message.map_err(|error| error.to_string())? {
            let library = artifact.filenames.iter().find(|path| path.extension() == Some("so")).cloned();
            let program = artifact.executable.or(library).map(|path| (artifact.target.name, path.into_std_path_buf()));
            programs.extend(program);
        }
    }
    Ok(programs)
}

/// Returns the arguments that make cargo build into the directory of `test`, with its profile.
fn same_build_as(test: &Path) -> Vec<OsString> {
    let mut arguments = Vec::new();
    // TARGET/PROFILE/deps/TEST, TARGET/TRIPLE/PROFILE/deps/TEST, or TARGET/PROFILE/PROGRAM.
    let mut folders = test.ancestors().skip(1).skip_while(|folder| folder.ends_with("deps"));
    match folders.next().and_then(Path::file_name).and_then(|name| name.to_str()) {
        None | Some("debug") => {}
        Some(profile) => arguments.extend(["--profile".into(), profile.into()]),
    }
    if let Some(target) = folders.take(2).find(|folder| folder.join("CACHEDIR.TAG").exists()) {
        arguments.extend(["--target-dir".into(), target.into()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    // If this failed, tests of a release build would run against a daemon of a debug build, or the other way round.
    #[test]
    fn programs_are_built_with_profile_and_target_of_the_test() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        fs::create_dir_all(&target).unwrap();
        fs::write(target.join("CACHEDIR.TAG"), "").unwrap();
        let arguments = |path: &str| same_build_as(&target.join(path));
        let into_target = [OsString::from("--target-dir"), target.clone().into_os_string()];
        assert_eq!(arguments("debug/deps/crash-0123"), into_target);
        assert_eq!(arguments("x86_64-unknown-linux-gnu/debug/deps/crash-0123"), into_target);
        assert_eq!(arguments("release/chaos")[..2], ["--profile", "release"]);
        assert_eq!(arguments("release/chaos")[2..], into_target);
        assert_eq!(same_build_as(Path::new("/elsewhere/checked/deps/a")), ["--profile", "checked"]);
    }

    /// Returns the arguments with which `scripts/test` builds the workspace. With other features cargo would compile
    /// everything again.
    fn workspace() -> Vec<String> {
        let script = fs::read_to_string(workspace_root().join("scripts/features.sh")).unwrap();
        let features = script.lines().find_map(|line| line.strip_prefix("features=(--features ")?.strip_suffix(')'));
        ["--workspace", "--bins", "--examples", "--lib", "--features", features.unwrap()].map(str::to_owned).to_vec()
    }

    // If this failed, no test could start a program of the workspace.
    #[test]
    fn cli_binary_is_built_and_found() {
        let is_prebuilt = env::var_os("DDSS_BIN_DIR").is_some();
        let workspace = workspace();
        let workspace: Vec<&str> = workspace.iter().map(String::as_str).collect();
        let built = build(if is_prebuilt { &workspace } else { PROGRAMS }).unwrap();
        let path = binary("ddss").unwrap();
        assert!(path.is_file() && built["ddss"] == path, "{} and {}", path.display(), built["ddss"].display());
        let missing = binary("no-such-program");
        assert!(matches!(missing, Err(Error::NoSuchProgram(_) | Error::NotBuilt(_))), "{missing:?}");
        // Cargo names the files of a build where the tests of a prebuilt workspace look for them.
        if is_prebuilt {
            assert_eq!(preload_library().unwrap(), built["ddss_preload"]);
            assert_eq!(example("shared_counter").unwrap(), built["shared_counter"]);
        }
    }
}
