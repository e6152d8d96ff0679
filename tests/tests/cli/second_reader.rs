//! A second reader of the JSON schemas: Python's jsonschema (Debian package python3-jsonschema).
//!
//! The checker of the test kit is ours, so a wrong rule in it could permit wrong output. Both readers see the output of
//! the commands and every small change of it, and must agree about each.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::fs::File;
use std::process::Command;

use ddss_testkit::{repo_lints, schema_complaints, skipped};
use serde_json::{Value, json};

/// Maximum number of changed values of one line of output.
const CHANGES_MAX: usize = 60;

/// Reads pairs of schema and value, and prints the number of violations of each; status 77 without jsonschema.
const PROGRAM: &str = r#"
import json, pathlib, sys, warnings
warnings.simplefilter("ignore")
try:
    from jsonschema import Draft202012Validator, RefResolver
except ImportError:
    sys.exit(77)
folder, validators = pathlib.Path(sys.argv[1]), {}
def validator(name):
    if name not in validators:
        path = folder / (name + ".json")
        schema = json.loads(path.read_text())
        Draft202012Validator.check_schema(schema)
        validators[name] = Draft202012Validator(schema, resolver=RefResolver(path.as_uri(), schema))
    return validators[name]
pairs = json.load(open(sys.argv[2]))
print(json.dumps([len(list(validator(name).iter_errors(value))) for name, value in pairs]))
"#;

/// Expects that a second reader agrees with the test kit about each line, and about changes of it.
pub(crate) fn agrees(test: &str, lines: &[(String, Value)]) {
    let folder = repo_lints::workspace_root().join("crates/ddss-cli/schemas");
    let changed = lines.iter().flat_map(|(schema, line)| changes(line).into_iter().map(move |line| (schema, line)));
    let pairs: Vec<(&String, Value)> =
        lines.iter().map(|(schema, line)| (schema, line.clone())).chain(changed).collect();
    let work = tempfile::tempdir().unwrap();
    let file = work.path().join("pairs.json");
    serde_json::to_writer(File::create(&file).unwrap(), &pairs).unwrap();
    let read = |python: &str| Command::new(python).args(["-c", PROGRAM]).arg(&folder).arg(&file).output().ok();
    // The first one may be another Python than Debian's.
    let outputs = ["python3", "/usr/bin/python3"].into_iter().filter_map(read);
    let Some(output) = outputs.into_iter().find(|output| output.status.code() != Some(77)) else {
        return skipped(test, "there is no python3-jsonschema as second reader of the schemas");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Vec<usize> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(theirs.len(), pairs.len());
    let mut rejected = 0;
    for ((schema, line), theirs) in pairs.iter().zip(theirs) {
        let ours = schema_complaints(&folder.join(schema).with_extension("json"), line);
        assert_eq!(
            ours.is_empty(),
            theirs == 0,
            "{schema}: {theirs} violations by jsonschema in {line}, ours: {ours:?}"
        );
        rejected += usize::from(theirs > 0);
    }
    // Nearly every change violates a meaningful schema.
    assert!(rejected * 4 > pairs.len() * 3, "only {rejected} of {} values are wrong", pairs.len());
}

/// Values that differ from `value` in one place.
fn changes(value: &Value) -> Vec<Value> {
    let mut paths = Vec::new();
    collect(value, String::new(), &mut paths);
    let mut changes = Vec::new();
    for path in paths {
        for other in [Value::Null, json!(-1), json!("other"), json!([[]]), json!({ "other": 1 })] {
            let mut changed = value.clone();
            let place = changed.pointer_mut(&path).expect("the path was found in this value");
            if *place != other {
                *place = other;
                changes.push(changed);
            }
        }
        let mut removed = value.clone();
        let Some((parent, name)) = path.rsplit_once('/') else { continue };
        if let Some(members) = removed.pointer_mut(parent).and_then(Value::as_object_mut) {
            members.remove(&name.replace("~1", "/").replace("~0", "~"));
            changes.push(removed);
        }
    }
    let step = changes.len().div_ceil(CHANGES_MAX).max(1);
    changes.into_iter().step_by(step).collect()
}

/// Collects the JSON pointers of a value and of all in it; of a list only the first.
fn collect(value: &Value, path: String, paths: &mut Vec<String>) {
    if let Some(first) = value.as_array().and_then(|list| list.first()) {
        collect(first, format!("{path}/0"), paths);
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        collect(member, format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), paths);
    }
    paths.push(path);
}
