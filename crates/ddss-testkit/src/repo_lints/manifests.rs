//! Checks that every manifest inherits its lints and dependency versions from the workspace.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::Metadata;
use toml::{Table, Value};

/// Returns the settings of one member's manifest that it should inherit from the workspace.
pub fn manifest_complaints(path: &str, text: &str) -> Result<Vec<String>, toml::de::Error> {
    let manifest: Table = toml::from_str(text)?;
    let mut complaints = Vec::new();
    if !manifest.get("lints").is_some_and(from_workspace) {
        complaints.push(format!("{path} does not take its lints from the workspace"));
    }
    let mut targets = vec![&manifest];
    if let Some(Value::Table(by_target)) = manifest.get("target") {
        targets.extend(by_target.values().filter_map(Value::as_table));
    }
    for table in targets {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(Value::Table(dependencies)) = table.get(kind) else { continue };
            for (name, _) in dependencies.iter().filter(|(_, value)| !from_workspace(value)) {
                complaints.push(format!("{path} does not take {name} ({kind}) from the workspace"));
            }
        }
    }
    Ok(complaints)
}

/// Returns the dependencies of members that occur in more than one version.
pub fn version_complaints(metadata: &Metadata) -> Vec<String> {
    let resolve = metadata.resolve.as_ref().expect("cargo metadata resolves by default");
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for node in resolve.nodes.iter().filter(|node| metadata.workspace_members.contains(&node.id)) {
        for dependency in &node.dependencies {
            let package = &metadata[dependency];
            versions.entry(package.name.as_str()).or_default().insert(package.version.to_string());
        }
    }
    let several = versions.into_iter().filter(|(_, found)| found.len() > 1);
    several.map(|(name, found)| format!("members depend on {name} in the versions {found:?}")).collect()
}

fn from_workspace(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a crate could leave the lints that keep its unsafe code explained.
    #[test]
    fn member_without_workspace_lints_is_reported() {
        let complaints = manifest_complaints("a/Cargo.toml", "[lints.rust]\nmissing_docs = \"allow\"\n").unwrap();
        assert_eq!(complaints, ["a/Cargo.toml does not take its lints from the workspace"]);
        assert_eq!(manifest_complaints("a/Cargo.toml", "[lints]\nworkspace = true\n").unwrap(), Vec::<String>::new());
    }

    // If this failed, two crates could disagree about the version of a third, and users would build both.
    #[test]
    fn own_dependency_version_is_reported_in_every_table() {
        let planted = "[lints]\nworkspace = true\n[dependencies]\na = \"1\"\nb.workspace = true\n\
                       [dev-dependencies]\nc = { path = \"../c\" }\n[build-dependencies]\nd = { workspace = false, version = \"1\" }\n\
                       [target.'cfg(unix)'.dependencies]\ne = { version = \"1\" }\nf = { workspace = true, optional = true }\n";
        let complaints = manifest_complaints("m", planted).unwrap().join("\n");
        let named: Vec<bool> = ["a", "b", "c", "d", "e", "f"]
            .iter()
            .map(|name| complaints.contains(&format!("does not take {name} (")))
            .collect();
        assert_eq!(named, [true, false, true, true, true, false], "{complaints}");
    }
}
