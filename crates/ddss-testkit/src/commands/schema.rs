//! A checker for the JSON schemas of the command `ddss`.
//!
//! It implements the part of the 2020-12 draft that they use. An unknown keyword is an error, so that no schema holds a
//! rule that is not checked.

use serde_json::{Map, Value};
use std::path::Path;

/// Keywords without effect on validation.
const WORDS: &[&str] = &["$schema", "title", "description"];

/// Returns the violations of the schema in `file` by `value`; empty if the value is valid.
pub fn schema_complaints(file: &Path, value: &Value) -> Vec<String> {
    let mut complaints = Vec::new();
    match std::fs::read_to_string(file).map_err(|error| error.to_string()).and_then(|text| parse(&text)) {
        Ok(schema) => check(file, &schema, value, "$", &mut complaints),
        Err(error) => complaints.push(format!("{}: {error}", file.display())),
    }
    complaints
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn check(file: &Path, schema: &Value, value: &Value, at: &str, complaints: &mut Vec<String>) {
    let Some(rules) = schema.as_object() else {
        return complaints.push(format!("{} at {at} is no schema", file.display()));
    };
    for (keyword, rule) in rules {
        let holds = match keyword.as_str() {
            "$ref" => {
                let other = file.with_file_name(rule.as_str().unwrap_or_default());
                complaints
                    .extend(schema_complaints(&other, value).into_iter().map(|complaint| format!("{at}: {complaint}")));
                true
            }
            "type" => rule.as_array().map_or_else(|| is(rule, value), |any| any.iter().any(|kind| is(kind, value))),
            "enum" => rule.as_array().is_some_and(|any| any.contains(value)),
            "const" => rule == value,
            "minimum" => value.as_f64().is_none_or(|number| rule.as_f64().is_some_and(|least| number >= least)),
            "pattern" => value.as_str().is_none_or(|text| matches(rule.as_str().unwrap_or_default(), text)),
            "required" => value.as_object().is_none_or(|members| {
                rule.as_array().is_some_and(|names| {
                    names.iter().all(|name| members.contains_key(name.as_str().unwrap_or_default()))
                })
            }),
            // A map has one schema for all its members.
            "additionalProperties" if rule.is_object() => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    check(file, rule, member, &format!("{at}.{name}"), complaints);
                }
                true
            }
            "additionalProperties" => *rule == Value::Bool(false) && only_known(rules, value),
            "properties" => {
                for (name, rule) in rule.as_object().into_iter().flatten() {
                    if let Some(member) = value.get(name) {
                        check(file, rule, member, &format!("{at}.{name}"), complaints);
                    }
                }
                true
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(file, rule, item, &format!("{at}[{index}]"), complaints);
                }
                true
            }
            word if WORDS.contains(&word) => true,
            unknown => {
                complaints.push(format!("{} uses {unknown}, which is not checked", file.display()));
                true
            }
        };
        if !holds {
            complaints.push(format!("{at} is {value}, against {keyword} {rule} of {}", file.display()));
        }
    }
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    }
}

fn only_known(rules: &Map<String, Value>, value: &Value) -> bool {
    let known = rules.get("properties").and_then(Value::as_object);
    value
        .as_object()
        .is_none_or(|members| members.keys().all(|name| known.is_some_and(|known| known.contains_key(name))))
}

/// Matches the few patterns that the schemas use. An unknown pattern matches nothing, so that its test fails.
fn matches(pattern: &str, text: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    match pattern {
        "^([0-9a-f]{2})*$" => text.len().is_multiple_of(2) && hex(text),
        "^[0-9a-f]{64}$" => text.len() == 64 && hex(text),
        "^[0-7]{3}$" => text.len() == 3 && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte)),
        "^(null|read|write|strict|version|(delta|temporal)=[0-9]+)$" => {
            let number = text.strip_prefix("delta=").or_else(|| text.strip_prefix("temporal="));
            number.map_or_else(
                || ["null", "read", "write", "strict", "version"].contains(&text),
                |number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()),
            )
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // If this failed, a command could change what scripts read, and the tests of its output would pass.
    #[test]
    fn schema_violation_is_reported_with_its_json_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("one.json");
        let schema = json!({
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": { "type": "string" },
                    "count": { "type": ["integer", "null"], "minimum": 1 },
                    "hex": { "type": "string", "pattern": "^([0-9a-f]{2})*$" },
                    "state": { "enum": ["good", "bad"] },
                },
                "required": ["name"],
                "additionalProperties": false,
            },
        });
        std::fs::write(&file, schema.to_string()).unwrap();
        let complaints = |value: Value| schema_complaints(&file, &value).len();
        assert_eq!(complaints(json!([{ "name": "a", "count": 3, "hex": "00ff", "state": "bad" }])), 0);
        assert_eq!(complaints(json!([{ "name": "a", "count": null }])), 0);
        for wrong in [
            json!({ "name": "a" }),
            json!([{ "count": 3 }]),
            json!([{ "name": 3 }]),
            json!([{ "name": "a", "count": 0 }]),
            json!([{ "name": "a", "count": 1.5 }]),
            json!([{ "name": "a", "hex": "0" }]),
            json!([{ "name": "a", "state": "ugly" }]),
            json!([{ "name": "a", "more": 1 }]),
        ] {
            assert_eq!(complaints(wrong.clone()), 1, "{wrong}");
        }
        let other = folder.path().join("two.json");
        std::fs::write(&other, r#"{ "$ref": "one.json", "oneOf": [] }"#).unwrap();
        let found = schema_complaints(&other, &json!([{}])).join("\n");
        assert!(found.contains("uses oneOf") && found.contains("required"), "{found}");
        assert_eq!(schema_complaints(&folder.path().join("none.json"), &json!(1)).len(), 1);
    }
}
