//! Prints the components of the released programs as a CycloneDX 1.5 document.
//!
//! The document depends on `Cargo.lock`, the manifests and `SOURCE_DATE_EPOCH` only: equal sources make equal documents.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the document is the output")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use ddss_testkit::repo_lints;
use serde_json::{Value, json};

/// Packages with released programs.
const PROGRAMS: &[&str] = &["ddssd", "ddss-cli"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = repo_lints::workspace_root();
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .other_options(["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"].map(str::to_owned))
        .exec()?;
    let checksums = checksums(&fs::read_to_string(root.join("Cargo.lock"))?)?;
    let seconds = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| "0".to_owned()).parse()?;
    println!("{:#}", document(&metadata, &checksums, seconds));
    Ok(())
}

/// Reads the checksums of the registry's packages, by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>, toml::de::Error> {
    let lock: toml::Table = toml::from_str(lock)?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let text = |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let found = packages
        .into_iter()
        .flatten()
        .filter_map(|package| Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?)));
    Ok(found.collect())
}

fn document(metadata: &Metadata, checksums: &BTreeMap<(String, String), String>, seconds: i64) -> Value {
    let dependencies = dependencies(metadata);
    let components = dependencies.keys().map(|id| component(&metadata[*id], checksums));
    let links = dependencies.iter().map(|(id, on)| {
        let on: BTreeSet<String> = on.iter().map(|id| purl(&metadata[*id])).collect();
        json!({ "ref": purl(&metadata[*id]), "dependsOn": on })
    });
    let version = metadata.packages.iter().find(|package| package.name == PROGRAMS[0]).map(|package| &package.version);
    let version = version.expect("the daemon is a member").to_string();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(seconds),
            "component": { "type": "application", "bom-ref": "ddss", "name": "ddss", "version": version },
        },
        "components": components.collect::<Vec<_>>(),
        "dependencies": links.collect::<Vec<_>>(),
    })
}

/// Returns every package that the programs are built from, with its dependencies. Tests are left out.
fn dependencies(metadata: &Metadata) -> BTreeMap<&PackageId, Vec<&PackageId>> {
    let resolve = metadata.resolve.as_ref().expect("cargo metadata resolves by default");
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let members = metadata.workspace_packages();
    let programs = members.iter().filter(|package| PROGRAMS.contains(&package.name.as_str()));
    let mut open: Vec<&PackageId> = programs.map(|package| &package.id).collect();
    let mut found = BTreeMap::new();
    while let Some(id) = open.pop() {
        if found.contains_key(id) {
            continue;
        }
        let built = nodes[id].deps.iter().filter(|one| {
            one.dep_kinds.iter().any(|info| matches!(info.kind, DependencyKind::Normal | DependencyKind::Build))
        });
        let on: Vec<&PackageId> = built.map(|dependency| &dependency.pkg).collect();
        open.extend(&on);
        found.insert(id, on);
    }
    found
}

fn component(package: &Package, checksums: &BTreeMap<(String, String), String>) -> Value {
    let version = package.version.to_string();
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": package.name.as_str(),
        "version": version,
        "purl": purl(package),
    });
    if let Some(licence) = &package.license {
        // Older manifests write an alternative with a slash.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(checksum) = checksums.get(&(package.name.to_string(), version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version.to_string().replace('+', "%2B"))
}

/// Formats seconds since 1970 as RFC 3339. (The days are counted from 1 March of the year 0.)
fn timestamp(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the document would have a wrong release date.
    #[test]
    fn timestamps_are_those_of_the_calendar() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_795_745_731), "2026-11-27T02:15:31Z");
    }

    // If this failed, a component could be missing, or could not be found in a database of vulnerabilities.
    #[test]
    fn document_lists_what_programs_are_built_from() {
        let root = repo_lints::workspace_root();
        let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).exec().unwrap();
        let checksums = checksums(&fs::read_to_string(root.join("Cargo.lock")).unwrap()).unwrap();
        let document = document(&metadata, &checksums, 0);
        let components = document["components"].as_array().unwrap();
        let named = |name: &str| components.iter().find(|component| component["name"] == name);
        for name in ["ddssd", "ddss-cli", "ddss-client", "snow", "libc"] {
            assert!(named(name).is_some(), "{name} is missing");
        }
        for name in ["proptest", "ddss-testkit", "tempfile"] {
            assert!(named(name).is_none(), "{name} is in no program");
        }
        let foreign = components.iter().filter(|component| !component["name"].as_str().unwrap().starts_with("ddss"));
        for component in foreign {
            assert_eq!(component["hashes"][0]["content"].as_str().map(str::len), Some(64), "{component}");
            let licence = component["licenses"][0]["expression"].as_str().unwrap();
            assert!(!licence.contains('/'), "{component}");
        }
        assert_eq!(document["dependencies"].as_array().unwrap().len(), components.len());
    }
}
