//! Variables of the environment that look like ours and are not: whoever mistyped one is told.

use super::arguments::Arguments;
use crate::error_chain::distance;
use clap::CommandFactory;

const PREFIX: &str = "DDSS_";
/// Those that are not the daemon's: of clients, of the applications that come with DDSS, and of its tests.
const OTHERS: &[&str] =
    &["DDSS_BIN_DIR", "DDSS_PLACES", "DDSS_STRATEGY", "DDSS_TESTS", "DDSS_TEST_FAULT", "DDSS_TEST_ROLE", "DDSS_WEAKEN"];
/// Those of the tests of adapters.
const OTHER_PREFIX: &str = "DDSS_RDMA_";

/// One sentence for each of these variables that nobody reads.
pub fn strange_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let command = Arguments::command();
    let settings = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    let known: Vec<&str> = settings.chain(OTHERS.iter().copied()).collect();
    let is_strange =
        |name: &String| name.starts_with(PREFIX) && !name.starts_with(OTHER_PREFIX) && !known.contains(&name.as_str());
    let mut strange: Vec<String> = names.filter(is_strange).collect();
    strange.sort();
    strange.iter().map(|name| sentence(name, &known)).collect()
}

fn sentence(name: &str, known: &[&str]) -> String {
    let ending = name.trim_start_matches(PREFIX);
    // Half a name stands for the whole one; else the letters count.
    let near = known.iter().map(|other| {
        let theirs = other.trim_start_matches(PREFIX);
        let letters = if theirs.starts_with(ending) { 0 } else { distance(ending, theirs) };
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
    fn a_variable_that_was_mistyped_is_named_and_others_are_not() {
        // If this broke, a daemon would run with a default that somebody believes to have changed.
        let told = |names: &[&str]| strange_variables(names.iter().map(|&name| name.to_owned()));
        assert_eq!(
            told(&["PATH", "DDSS_SPIN", "DDSS_POOL_BYTES", "DDSS_STRATEGY", "DDSS_RDMA_A", "DDSS_CONFIG", "DDSSD_X"]),
            ["DDSS_SPIN in the environment is no setting: did you mean DDSS_SPIN_US?"]
        );
        let long = "DDSS_SOMETHING_QUITE_DIFFERENT";
        assert_eq!(told(&[long]), [format!("{long} in the environment is no setting")]);
        assert!(told(&["DDSS_PEER"])[0].ends_with("did you mean DDSS_PEERS?"));
    }
}
