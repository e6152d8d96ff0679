//! The files of the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// A text file of the workspace.
#[derive(Debug, Clone)]
pub struct Source {
    /// Path from the root of the workspace, with `/` between the parts.
    pub path: String,
    /// Content.
    pub text: String,
}

impl Source {
    /// Returns the last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Returns true if `rule` names this file: the path itself, or `folder/**` for all files below a directory.
    pub fn matches(&self, rule: &str) -> bool {
        match rule.strip_suffix("**") {
            Some(folder) => self.path.starts_with(folder),
            None => self.path == rule,
        }
    }
}

/// Returns the directory of the workspace.
pub fn workspace_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("the package is two folders below the workspace").to_path_buf()
}

/// Returns every text file below `root` that git tracks or does not ignore.
///
/// Where there is no git, or no repository (a tarball), it is every file outside `target` and `.git`.
pub fn sources(root: &Path) -> io::Result<Vec<Source>> {
    let mut paths = match listed_by_git(root) {
        Some(paths) => paths,
        None => walked(root)?,
    };
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        match fs::read(root.join(&path)) {
            // Binary files hold no words, and no rule applies to them.
            Ok(bytes) => found.extend(String::from_utf8(bytes).ok().map(|text| Source { path, text })),
            // The file was deleted after git listed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io::Error::new(error.kind(), format!("reading {path}: {error}"))),
        }
    }
    Ok(found)
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").arg("-C").arg(root).args(listing).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> = text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walked(root: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let name = entry.file_name();
            if kind.is_dir() && name != "target" && name != ".git" {
                folders.push(entry.path());
            } else if kind.is_file() {
                let path = entry.path();
                let below = path.strip_prefix(root).expect("a walk stays below its root");
                found.extend(below.to_str().map(str::to_owned));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a tarball would pass without any check.
    #[test]
    fn directory_without_git_is_walked() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["a/b.rs", "a/target/c.rs", ".ci/run", "d.bin"] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "words").unwrap();
        }
        fs::write(folder.path().join("d.bin"), [0xff, 0xfe]).unwrap();
        let mut walk = walked(folder.path()).unwrap();
        walk.sort();
        assert_eq!(walk, [".ci/run", "a/b.rs", "d.bin"]);
        let paths: Vec<String> = sources(folder.path()).unwrap().into_iter().map(|source| source.path).collect();
        assert_eq!(paths, [".ci/run", "a/b.rs"]);
    }

    // If this failed, a rule for one directory would apply to a neighbour with a longer name.
    #[test]
    fn rule_matches_one_file_or_one_directory() {
        let source = |path: &str| Source { path: path.into(), text: String::new() };
        assert!(source("a/src/sys/deep/b.rs").matches("a/src/sys/**"));
        assert!(!source("a/src/system/b.rs").matches("a/src/sys/**"));
        assert!(source("a/src/ring.rs").matches("a/src/ring.rs"));
        assert!(!source("a/src/ring.rs.bak").matches("a/src/ring.rs"));
        assert!(!source("b/a/src/ring.rs").matches("a/src/ring.rs"));
    }
}
