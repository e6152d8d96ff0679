//! Figure 4: programs of filters over each kind of stream.

use crate::report::figures::paper_value;
use crate::report::paper::STREAM_PROGRAMS;
use crate::report::picture::{Bar, Bars, Panel, PaperValue, Part, Picture, Scale, Style};
use crate::report::rows::{Entry, Rows};
use crate::report::units;

const TITLE: &str = "Programs of filters over each kind of stream";
/// Streams by the name of their rows.
const STREAMS: [(&str, &str, Style); 5] = [
    ("tcp", "TCP", Style::Raw),
    ("unix", "Unix sockets", Style::Peer),
    ("same-node", "shared memory", Style::Auto),
    ("basic", "basic", Style::Mq),
    ("enhanced", "enhanced", Style::Rcq),
];
/// Runs from which on the paper's difference can be seen.
const RUNS_MIN: f64 = 20.0;

/// The figure.
pub(super) fn four(rows: &Rows) -> Picture {
    let commands = STREAM_PROGRAMS.map(|(program, ..)| command(program));
    let missing = Picture { commands: commands.to_vec(), ..Picture::missing("stream-4", "Figure 4", TITLE, "") };
    let panels: Vec<Panel> =
        STREAM_PROGRAMS.iter().filter_map(|(program, title, _, paper)| panel(rows, program, title, *paper)).collect();
    if panels.is_empty() {
        return missing;
    }
    Picture {
        says: says(rows),
        panels,
        paper_values: STREAM_PROGRAMS.iter().filter_map(|program| value(rows, *program)).collect(),
        notes: vec![format!(
            "Each filter is a process, and all share the cores of one machine; the paper's had nodes of their own. Each answer was compared with a \
             direct computation. Enhanced lets units wait for each other (`no_delay` off), as basic does without credits; the \
             filters flush before they wait. {}.",
            STREAM_PROGRAMS
                .iter()
                .filter_map(|(program, title, ..)| runs(rows, program, title))
                .collect::<Vec<_>>()
                .join(". ")
        )],
        ..missing
    }
}

fn command(program: &str) -> String {
    let copies = if program == "microscope" { " --copies 32" } else { "" };
    format!(
        "cargo run --release -p ddss-apps --bin filters -- {program} --data target/datasets{copies} --runs 21 --csv {program}.csv"
    )
}

fn row<'a>(rows: &'a Rows, program: &str, name: &str) -> Option<&'a Entry> {
    rows.of(program).find(|entry| entry.op == program && entry.name == name)
}

/// The runs of a program, in words.
fn runs(rows: &Rows, program: &str, title: &str) -> Option<String> {
    let entry = row(rows, program, "enhanced")?;
    let (name, runs) = (title.split(',').next().unwrap_or_default(), units::plain(entry.more("runs")?));
    Some(format!("The {name}: {runs} runs over each stream, {}", entry.notes.replace(';', ",")))
}

fn panel(rows: &Rows, program: &str, title: &str, paper: f64) -> Option<Panel> {
    let bar = |(name, label, style): &(&str, &str, Style)| {
        let entry = row(rows, program, name)?;
        let part = Part { label: String::new(), curve_style: *style, value: 100.0 * entry.more("of_basic")? };
        Some(Bar {
            label: format!("{label}, {}", units::time(entry.p50_us)),
            parts: vec![part],
            paper: (*name == "enhanced").then_some(paper),
        })
    };
    let bars: Vec<Bar> = STREAMS.iter().filter_map(bar).collect();
    (!bars.is_empty()).then(|| {
        let unit = ("time of a query; bars: to basic's, medians of paired runs".to_owned(), Scale::Percent);
        Panel::Bars(Bars { title: title.to_owned(), unit, bars })
    })
}

fn says(rows: &Rows) -> String {
    let words = |(program, title, ..): &(&str, &str, &str, f64)| {
        let of_basic = row(rows, program, "enhanced")?.more("of_basic")?;
        let name = title.split(',').next().unwrap_or_default();
        Some(format!("{name} {:.0} %", 100.0 * of_basic))
    };
    let words: Vec<String> = STREAM_PROGRAMS.iter().filter_map(words).collect();
    format!("With the enhanced plan the programs take this part of the time with basic: {}.", words.join(", "))
}

fn value(rows: &Rows, (program, title, paper, _): (&str, &str, &str, f64)) -> Option<PaperValue> {
    let entry = row(rows, program, "enhanced")?;
    let of_basic = entry.more("of_basic")?;
    let of = |name: &str| row(rows, program, name)?.more("of_basic");
    let others = [("tcp", "TCP"), ("same-node", "shared memory")];
    let others = others.into_iter().filter_map(|(name, label)| Some(format!("{label} {}", units::times(of(name)?))));
    let here = std::iter::once(format!("enhanced {}", units::times(of_basic))).chain(others).collect::<Vec<_>>();
    let so = match (entry.more("runs"), of_basic) {
        (Some(runs), _) if runs < RUNS_MIN => "too few runs to tell",
        (_, of_basic) if of_basic <= 0.97 => "as in the paper",
        (_, of_basic) if of_basic < 1.03 => "hardly a difference: the filters' own work counts",
        _ => "other than in the paper",
    };
    Some(paper_value(&format!("{title}: time to basic's"), paper, here.join(", "), so))
}
