//! Recorded values and the comparison with them.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

/// Values by name, with the tools that produced them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// Compiler version: another compiler makes other instructions of the same source.
    pub compiler: String,
    /// Permitted increase over the recorded value, as a fraction of it.
    pub tolerance: f64,
    /// The numbers; lower is better.
    pub numbers: BTreeMap<String, f64>,
}

impl Recorded {
    /// Parses the output of [`json`](Self::json).
    pub fn parse(text: &str) -> Result<Recorded, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let numbers = value["numbers"].as_object().ok_or("there are no numbers")?;
        let number = |(name, number): (&String, &Value)| {
            let number = number.as_f64().filter(|number| number.is_finite() && *number > 0.0);
            number.map(|number| (name.clone(), number)).ok_or_else(|| format!("{name} is no number above 0"))
        };
        Ok(Recorded {
            compiler: value["compiler"].as_str().unwrap_or_default().to_owned(),
            tolerance: value["tolerance"].as_f64().ok_or("there is no tolerance")?,
            numbers: numbers.iter().map(number).collect::<Result<_, _>>()?,
        })
    }

    /// Formats a file for comparison line by line.
    pub fn json(&self) -> String {
        let Recorded { compiler, tolerance, numbers } = self;
        let value = json!({ "compiler": compiler, "tolerance": tolerance, "numbers": numbers });
        serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
    }
}

/// Result of one comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// No considerable change; the change as a fraction.
    Fine(f64),
    /// An improvement beyond twice the tolerance: the value should be recorded again.
    Better(f64),
    /// Worse by more than the tolerance.
    Worse(f64),
    /// Without a recorded value.
    New,
    /// Recorded, but not measured.
    Missing,
}

impl Verdict {
    /// Returns true if the guard must fail.
    pub fn is_bad(&self) -> bool {
        matches!(self, Verdict::Worse(_) | Verdict::New | Verdict::Missing)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Fine(change) => write!(formatter, "fine     {:+.1} %", change * 100.0),
            Verdict::Better(change) => write!(formatter, "better   {:+.1} %: keep it", change * 100.0),
            Verdict::Worse(change) => write!(formatter, "WORSE    {:+.1} %", change * 100.0),
            Verdict::New => write!(formatter, "NEW      without a recorded value"),
            Verdict::Missing => write!(formatter, "MISSING  it was not measured"),
        }
    }
}

/// Compares each value with its recorded one.
pub fn compare(kept: &Recorded, measured: &BTreeMap<String, f64>) -> Vec<(String, Verdict)> {
    let of = |name: &String| match (kept.numbers.get(name), measured.get(name)) {
        (Some(was), Some(is)) => {
            let change = is / was - 1.0;
            match change {
                change if change > kept.tolerance => Verdict::Worse(change),
                change if change < -2.0 * kept.tolerance => Verdict::Better(change),
                change => Verdict::Fine(change),
            }
        }
        (None, _) => Verdict::New,
        (Some(_), None) => Verdict::Missing,
    };
    let mut names: Vec<&String> = kept.numbers.keys().chain(measured.keys()).collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|name| (name.clone(), of(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Recorded {
        let numbers = [("a", 100.0), ("b", 200.0), ("c", 300.0)];
        Recorded {
            compiler: "rustc 1".into(),
            tolerance: 0.03,
            numbers: numbers.map(|(name, number)| (name.to_owned(), number)).into(),
        }
    }

    // If this failed, a change that lengthens every call would land unnoticed.
    #[test]
    fn regression_above_tolerance_is_reported_and_noise_is_not() {
        let measured = [("a", 102.9), ("b", 207.0), ("d", 1.0)].map(|(name, number)| (name.to_owned(), number)).into();
        let verdicts = compare(&kept(), &measured);
        let bad: Vec<&str> = verdicts.iter().filter(|(_, verdict)| verdict.is_bad()).map(|(name, _)| &**name).collect();
        assert_eq!(bad, ["b", "c", "d"], "{verdicts:?}");
        assert!(matches!(verdicts[1].1, Verdict::Worse(change) if (change - 0.035).abs() < 1e-9));
        assert_eq!((&verdicts[2].1, &verdicts[3].1), (&Verdict::Missing, &Verdict::New));
    }

    // If this failed, an improvement would be lost again within its tolerance.
    #[test]
    fn improvement_is_reported_and_passes() {
        let mut measured = kept().numbers;
        measured.insert("a".into(), 50.0);
        let verdicts = compare(&kept(), &measured);
        assert!(matches!(verdicts[0].1, Verdict::Better(_)) && verdicts.iter().all(|(_, verdict)| !verdict.is_bad()));
    }

    // If this failed, the recorded file would be read differently than written.
    #[test]
    fn recorded_values_round_trip_through_the_file() {
        assert_eq!(Recorded::parse(&kept().json()).unwrap(), kept());
        assert!(Recorded::parse("{}").is_err());
        assert!(Recorded::parse(r#"{"tolerance":0.1,"numbers":{"a":-1}}"#).unwrap_err().contains('a'));
    }
}
