//! Where the time of a get goes.

use super::{bench, beside};
use crate::report::picture::{Bar, Bars, Panel, Part, Picture, Scale};
use crate::report::rows::Rows;
use crate::report::units;

const TITLE: &str = "The road of a get in steps";
/// The steps in the order of the road, with the look of each.
const STEPS: [(&str, &str); 6] =
    [("submit", "peer"), ("dequeue", "rcq"), ("post", "mq"), ("wire", "rmq"), ("complete", "auto"), ("reply", "raw")];
const ROADS: [(&str, &str); 3] =
    [("shm", "same node, through its daemon"), ("tcp-lo", "other node, loopback"), ("tcp-veth", "other node, veth")];

/// The steps of one get, on each road that was measured.
pub(super) fn steps(rows: &Rows) -> Picture {
    let bar = |(path, label): &(&str, &str)| {
        let step = |(step, look): (&str, &'static str)| {
            let entry = rows.of("steps").find(|entry| entry.op == format!("step-{step}") && entry.path() == *path)?;
            Some(Part { label: step.to_owned(), look, value: entry.p50_us })
        };
        let parts: Vec<Part> = STEPS.into_iter().filter_map(step).collect();
        (!parts.is_empty()).then(|| Bar { label: (*label).to_owned(), parts, paper: None })
    };
    let bars: Vec<Bar> = ROADS.iter().filter_map(bar).collect();
    if bars.is_empty() {
        return Picture::missing("steps", "Steps", TITLE, &bench("steps"));
    }
    let longest = |bar: &Bar| bar.parts.iter().max_by(|a, b| a.value.total_cmp(&b.value)).cloned();
    let words = bars.iter().filter_map(|bar| {
        let (sum, part) = (bar.parts.iter().map(|part| part.value).sum::<f64>(), longest(bar)?);
        Some(format!(
            "{}: {} of {} are the step “{}”",
            bar.label,
            units::time(part.value),
            units::time(sum),
            part.label
        ))
    });
    Picture {
        id: "steps",
        number: "Steps",
        title: TITLE.to_owned(),
        says: format!("{}.", words.collect::<Vec<String>>().join("; ")),
        panels: vec![Panel::Bars(Bars {
            title: "medians of sampled gets of 8 bytes".to_owned(),
            unit: ("time, one step behind the other".to_owned(), Scale::TimeFromZero),
            bars,
        })],
        beside: vec![beside("steps", "Figure 2 names them, without times", "see the bars", "the paper has no numbers")],
        commands: vec![bench("steps")],
        notes: vec![
            "submit: the client writes its request until the daemon takes it; dequeue: until the engine has it; post: until the \
             reads are handed to the fabric; wire: until the home's bytes are back; complete: until the engine has ended the call; \
             reply: until the client has its answer. The counters are those that `ddss trace` shows."
                .to_owned(),
        ],
    }
}
