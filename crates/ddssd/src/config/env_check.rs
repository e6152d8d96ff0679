//! Warnings about environment variables that look like settings of DDSS but are none, such as typos.

use clap::CommandFactory;
use ddss_admin::Arguments;

const PREFIX: &str = "DDSS_";
/// Variables of clients, of the applications that come with DDSS, and of its tests.
const OTHERS: &[&str] =
    &["DDSS_BIN_DIR", "DDSS_PLACES", "DDSS_STRATEGY", "DDSS_TESTS", "DDSS_TEST_FAULT", "DDSS_TEST_ROLE", "DDSS_WEAKEN"];
/// Prefix of the variables for adapter tests.
const OTHER_PREFIX: &str = "DDSS_RDMA_";

/// Returns one warning for each unknown variable with the prefix of DDSS.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let command = Arguments::command();
    let settings = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    let known: Vec<&str> = settings.chain(OTHERS.iter().copied()).collect();
    let is_unknown =
        |name: &String| name.starts_with(PREFIX) && !name.starts_with(OTHER_PREFIX) && !known.contains(&name.as_str());
    let mut unknown: Vec<String> = names.filter(is_unknown).collect();
    unknown.sort();
    unknown.iter().map(|name| warning(name, &known)).collect()
}

fn warning(name: &str, known: &[&str]) -> String {
    let ending = name.trim_start_matches(PREFIX);
    // A prefix of a known name suggests that name; otherwise the edit distance decides.
    let near = known.iter().map(|other| {
        let theirs = other.trim_start_matches(PREFIX);
        let letters = if theirs.starts_with(ending) { 0 } else { strsim::levenshtein(ending, theirs) };
        (letters, other)
    });
    match near.min() {
        Some((letters, other)) if letters <= ending.len().max(3) / 2 => {
            format!("{name} in the environment is no setting: did you mean {other}?")
        }
        _ => format!("{name} in the environment is no setting"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_variable_is_reported_with_suggestion() {
        // If this broke, a daemon would silently run with a default that the operator meant to change.
        let warnings = |names: &[&str]| unknown_variables(names.iter().map(|&name| name.to_owned()));
        assert_eq!(
            warnings(&[
                "PATH",
                "DDSS_SPIN",
                "DDSS_POOL_BYTES",
                "DDSS_STRATEGY",
                "DDSS_RDMA_A",
                "DDSS_CONFIG",
                "DDSSD_X"
            ]),
            ["DDSS_SPIN in the environment is no setting: did you mean DDSS_SPIN_US?"]
        );
        let long = "DDSS_SOMETHING_QUITE_DIFFERENT";
        assert_eq!(warnings(&[long]), [format!("{long} in the environment is no setting")]);
        assert!(warnings(&["DDSS_PEER"])[0].ends_with("did you mean DDSS_PEERS?"));
    }
}
