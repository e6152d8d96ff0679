//! Arguments that several commands have, and the parsers of their values.

use clap::Args;
use ddss::{Model, NodeId, Placement};
use std::path::PathBuf;

/// Folder that identifies a daemon on this machine.
#[derive(Args, Debug)]
pub(crate) struct DaemonOptions {
    /// Folder of the daemon [default: $DDSS_DIR, else this user's daemon folder, else /run/ddss]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Name of a segment, and the daemon through which it is reached.
#[derive(Args, Debug)]
pub(crate) struct SegmentOptions {
    /// Name of the segment
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: DaemonOptions,
}

pub(crate) fn node(text: &str) -> Result<NodeId, String> {
    let node = text.parse().ok().filter(|&node| node != 0).map(NodeId);
    node.ok_or_else(|| format!("{text:?} is not a node number: give 1 or more"))
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let power = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => 64,
    };
    let number = digits.parse::<u64>().ok().filter(|_| digits.starts_with(|first: char| first.is_ascii_digit()));
    let bytes = number.and_then(|number| number.checked_mul(1_u64.checked_shl(power)?));
    bytes.ok_or_else(|| format!("{text:?} is not a size: give bytes, or as in 64K, 16M, 2G"))
}

pub(crate) fn octal(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
    mode.ok_or_else(|| format!("{text:?} is not a mode: give three octal digits, as in 640"))
}

pub(crate) fn placement(text: &str) -> Result<Placement, String> {
    match text {
        "local" => Ok(Placement::Local),
        "round-robin" => Ok(Placement::RoundRobin),
        "hash" => Ok(Placement::Hash),
        number => {
            let node = number.parse().ok().filter(|&node| node != 0).map(NodeId);
            let wrong =
                || format!("{text:?} is not a home: give local, round-robin, hash, or a node number (1 or more)");
            node.map(Placement::Node).ok_or_else(wrong)
        }
    }
}

pub(crate) fn model(text: &str) -> Result<Model, String> {
    let (kind, parameter) = text.split_once('=').unwrap_or((text, ""));
    let number = || parameter.parse().map_err(|_| format!("{kind} needs a number, as in {kind}=5"));
    match kind {
        "delta" => return Ok(Model::Delta(number()?)),
        "temporal" => return Ok(Model::Temporal(number()?)),
        _ if !parameter.is_empty() => return Err(format!("{kind} takes no number")),
        _ => {}
    }
    Ok(match kind {
        "null" => Model::Null,
        "read" => Model::Read,
        "write" => Model::Write,
        "strict" => Model::Strict,
        "version" => Model::Version,
        _ => {
            return Err(format!(
                "{text:?} is not a model: give null, read, write, strict, version, delta=VERSIONS, temporal=MICROSECONDS"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_parse_and_others_are_refused() {
        // If this broke, a user would get another size or home than the one that was typed.
        assert_eq!(model("delta=3"), Ok(Model::Delta(3)));
        assert!(model("delta").is_err() && model("strict=1").is_err() && model("fast").is_err());
        assert_eq!([size("7"), size("64K"), size("2G")], [Ok(7), Ok(65_536), Ok(2 << 30)]);
        for wrong in ["", "K", "+7", "-1", "1KK", "1k", "1.5G", "99999999T", "7 "] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(octal("888").is_err() && octal("1777").is_err() && placement("0").is_err());
        assert_eq!(placement("7"), Ok(Placement::Node(NodeId(7))));
    }
}
