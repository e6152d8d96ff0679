//! What is kept, and how it is compared.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

/// Numbers by their names, and what they were made with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// The compiler: another one makes other instructions of the same words.
    pub compiler: String,
    /// What a number may be larger than the kept one, as a part of it.
    pub tolerance: f64,
    /// The numbers; lower is better.
    pub numbers: BTreeMap<String, f64>,
}

impl Kept {
    /// Reads what [`json`](Self::json) wrote.
    pub fn parse(text: &str) -> Result<Kept, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let numbers = value["numbers"].as_object().ok_or("there are no numbers")?;
        let number = |(name, number): (&String, &Value)| {
            let number = number.as_f64().filter(|number| number.is_finite() && *number > 0.0);
            number.map(|number| (name.clone(), number)).ok_or_else(|| format!("{name} is no number above 0"))
        };
        Ok(Kept {
            compiler: value["compiler"].as_str().unwrap_or_default().to_owned(),
            tolerance: value["tolerance"].as_f64().ok_or("there is no tolerance")?,
            numbers: numbers.iter().map(number).collect::<Result<_, _>>()?,
        })
    }

    /// As a file that people can compare line by line.
    pub fn json(&self) -> String {
        let Kept { compiler, tolerance, numbers } = self;
        let value = json!({ "compiler": compiler, "tolerance": tolerance, "numbers": numbers });
        serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
    }
}

/// What became of one number.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// As it was, or better, by so much less: a part of it.
    Fine(f64),
    /// So much better that the kept number says nothing any more, and should be kept anew.
    Better(f64),
    /// Worse by more than is tolerated.
    Worse(f64),
    /// Nothing is kept of it.
    New,
    /// It is kept and was not measured.
    Missing,
}

impl Verdict {
    /// Whether the guard has to stop who asks.
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
            Verdict::New => write!(formatter, "NEW      nothing is kept of it"),
            Verdict::Missing => write!(formatter, "MISSING  it was not measured"),
        }
    }
}

/// Each number with what was kept of it.
pub fn compare(kept: &Kept, measured: &BTreeMap<String, f64>) -> Vec<(String, Verdict)> {
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

    fn kept() -> Kept {
        let numbers = [("a", 100.0), ("b", 200.0), ("c", 300.0)];
        Kept {
            compiler: "rustc 1".into(),
            tolerance: 0.03,
            numbers: numbers.map(|(name, number)| (name.to_owned(), number)).into(),
        }
    }

    // If this failed, a change that makes every call longer would land, and nobody would hear of it.
    #[test]
    fn a_worse_count_is_bad_and_noise_is_not() {
        let measured = [("a", 102.9), ("b", 207.0), ("d", 1.0)].map(|(name, number)| (name.to_owned(), number)).into();
        let verdicts = compare(&kept(), &measured);
        let bad: Vec<&str> = verdicts.iter().filter(|(_, verdict)| verdict.is_bad()).map(|(name, _)| &**name).collect();
        assert_eq!(bad, ["b", "c", "d"], "{verdicts:?}");
        assert!(matches!(verdicts[1].1, Verdict::Worse(change) if (change - 0.035).abs() < 1e-9));
        assert_eq!((&verdicts[2].1, &verdicts[3].1), (&Verdict::Missing, &Verdict::New));
    }

    // If this failed, a gain would be lost again within the slack that it left.
    #[test]
    fn a_better_count_is_told_and_is_not_bad() {
        let mut measured = kept().numbers;
        measured.insert("a".into(), 50.0);
        let verdicts = compare(&kept(), &measured);
        assert!(matches!(verdicts[0].1, Verdict::Better(_)) && verdicts.iter().all(|(_, verdict)| !verdict.is_bad()));
    }

    // If this failed, the file in the repository would be read as something else than was written.
    #[test]
    fn what_is_kept_is_read_as_it_was_written() {
        assert_eq!(Kept::parse(&kept().json()).unwrap(), kept());
        assert!(Kept::parse("{}").is_err());
        assert!(Kept::parse(r#"{"tolerance":0.1,"numbers":{"a":-1}}"#).unwrap_err().contains('a'));
    }
}
