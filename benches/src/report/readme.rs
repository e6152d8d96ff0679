//! Measured figures for README and `docs/notes/measurements.md`: no number there is typed by hand.
//!
//! A place begins with `<!-- begin NAME: .. -->` and ends with `<!-- end NAME -->`. The text between the marks is replaced
//! if something was measured for it; everything else stays.

use serde_json::Value;

use super::machine::Machine;
use super::rows::{Entry, Rows};
use super::units;
use crate::harness::SAME_CORE_NOTE;

/// Text about the rows of a line.
#[derive(Clone, Copy)]
enum Says {
    /// The median in multiples of the limit.
    Multiple,
    /// The median in multiples of the limit, and the median itself.
    MultipleAndTime,
    /// The rate.
    Rate,
    /// The rate in multiples of the limit's, and the rate itself.
    MultipleOfRate,
    /// Ratio of this row's time to the first one's.
    Beside(&'static str),
}

/// A line of the table: rows by their bench and their first five columns.
struct Line {
    what: &'static str,
    /// The raw limit, with its label.
    limit: Option<(&'static str, &'static str)>,
    ours: &'static [&'static str],
    says: Says,
}

const LINE: &str = "ipc:raw,pingpong,8,shm/spin/t1,1";

/// The lines of [`LINES`] that the README shows.
const README_LINES: &[&str] = &[
    "null call, client to daemon and back, `rcq` / `auto`",
    "local 8-byte get in place",
    "remote 8-byte get / put, `rcq`, both daemons and the client on two cores",
    "remote 64 KiB get / put, `rcq`",
];

const LINES: &[Line] = &[
    Line {
        what: "null call, client to daemon and back, `rcq` / `auto`",
        limit: Some((LINE, "one cache line there and back")),
        ours: &["ipc:ddss,null,8,shm/rcq/t1,1", "ipc:ddss,null,8,shm/auto/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "the same through the rings alone, no engine",
        limit: None,
        ours: &["ipc:ddss,echo,8,shm/rcq/t1,1", "ipc:ddss,echo,8,shm/auto/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "null call, `rmq` / `mq`",
        limit: None,
        ours: &["ipc:ddss,null,8,shm/rmq/t1,1", "ipc:ddss,null,8,shm/mq/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "null calls, 32 at once on one ring, `rcq` / `auto`",
        limit: None,
        ours: &["ipc:ddss,null,8,shm/rcq/t1,32", "ipc:ddss,null,8,shm/auto/t1,32"],
        says: Says::Rate,
    },
    Line {
        what: "first call of a node that sleeps, `auto`",
        limit: Some(("ipc:raw,wake,8,shm/block/t1,1", "a futex wake-up there and back")),
        ours: &["ipc:ddss,first,8,shm/auto/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "local 8-byte get in place",
        limit: Some(("get:raw,seqlock,8,near/spin/t1,1", "a bare sequence lock")),
        ours: &["get:ddss,get,8,near/spin/t1,1"],
        says: Says::MultipleAndTime,
    },
    Line {
        what: "local 4 KiB get in place",
        limit: Some(("get:raw,seqlock,4096,near/spin/t1,1", "the same, word by word")),
        ours: &["get:ddss,get,4096,near/spin/t1,1"],
        says: Says::MultipleAndTime,
    },
    Line {
        what: "local 64 KiB get in place",
        limit: Some(("get:raw,seqlock,65536,near/spin/t1,1", "the same")),
        ours: &["get:ddss,get,65536,near/spin/t1,1"],
        says: Says::MultipleAndTime,
    },
    Line {
        what: "local 8-byte get / put through the daemon, `rcq`",
        limit: Some(("get:raw,pingpong,8,shm/spin/t1,1", "one cache line there and back")),
        ours: &["get:ddss,get,8,shm/rcq/t1,1", "get:ddss,put,8,shm/rcq/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "remote 8-byte get / put, `rcq`, both daemons and the client on two cores",
        limit: Some(("get:raw,pingpong,8,tcp-lo/spin/t1,1", "bare TCP sockets, spinning")),
        ours: &["get:ddss,get,8,tcp-lo/rcq/t1,1", "get:ddss,put,8,tcp-lo/rcq/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "the same, `auto`",
        limit: None,
        ours: &["get:ddss,get,8,tcp-lo/auto/t1,1", "get:ddss,put,8,tcp-lo/auto/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "remote 4 KiB get / put, `rcq`",
        limit: Some(("get:raw,pingpong,4096,tcp-lo/spin/t1,1", "bare TCP sockets, spinning")),
        ours: &["get:ddss,get,4096,tcp-lo/rcq/t1,1", "get:ddss,put,4096,tcp-lo/rcq/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "remote 64 KiB get / put, `rcq`",
        limit: Some(("get:raw,pingpong,65536,tcp-lo/spin/t1,1", "the same")),
        ours: &["get:ddss,get,65536,tcp-lo/rcq/t1,1", "get:ddss,put,65536,tcp-lo/rcq/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "remote 8-byte gets, 32 at once, `rcq`",
        limit: Some(("get:raw,pingpong,8,tcp-lo/spin/t1,32", "bare TCP sockets, one system call for all 32")),
        ours: &["get:ddss,get,8,tcp-lo/rcq/t1,32"],
        says: Says::MultipleOfRate,
    },
    Line {
        what: "fabric alone: 8-byte read / fetch-add",
        limit: Some(("fabric:raw,pingpong,8,tcp-lo/spin/t1,1", "bare TCP sockets, spinning")),
        ours: &["fabric:ddss,read,8,tcp-lo/spin/t1,1", "fabric:ddss,fetch_add,8,tcp-lo/spin/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "fabric alone: 8-byte reads, 32 at once",
        limit: Some(("fabric:raw,pingpong,8,tcp-lo/spin/t1,32", "bare TCP sockets, one system call for all 32")),
        ours: &["fabric:ddss,read,8,tcp-lo/spin/t1,32"],
        says: Says::MultipleOfRate,
    },
    Line {
        what: "fabric alone: 64 KiB reads, 32 at once, with / without checksum",
        limit: Some(("fabric:raw,pingpong,65536,tcp-lo/spin/t1,32", "the same")),
        ours: &["fabric:ddss,read,65536,tcp-lo/spin/t1,32", "fabric:ddss,read,65536,tcp-lo-nocrc/spin/t1,32"],
        says: Says::MultipleOfRate,
    },
    Line {
        what: "iceoryx2, publish and subscribe, polling",
        limit: Some(("peers:ddss,null,8,shm/rcq/t1,1", "`ddss` null call of the same run")),
        ours: &["peers:raw,iceoryx2,8,shm/spin/t1,1"],
        says: Says::Beside("peers:ddss,null,8,shm/rcq/t1,1"),
    },
];

/// Values measured again with `--line-min`: only at the distance of two separate cores.
const APART: &[Line] = &[
    Line {
        what: "remote 8-byte get / put, `rcq`",
        limit: Some(("apart-get:raw,pingpong,8,tcp-lo/spin/t1,1", "bare TCP sockets, spinning")),
        ours: &["apart-get:ddss,get,8,tcp-lo/rcq/t1,1", "apart-get:ddss,put,8,tcp-lo/rcq/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "remote 4 KiB get / put, `rcq`",
        limit: Some(("apart-get:raw,pingpong,4096,tcp-lo/spin/t1,1", "the same")),
        ours: &["apart-get:ddss,get,4096,tcp-lo/rcq/t1,1", "apart-get:ddss,put,4096,tcp-lo/rcq/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "remote 64 KiB get / put, `rcq`",
        limit: Some(("apart-get:raw,pingpong,65536,tcp-lo/spin/t1,1", "the same")),
        ours: &["apart-get:ddss,get,65536,tcp-lo/rcq/t1,1", "apart-get:ddss,put,65536,tcp-lo/rcq/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "remote 8-byte gets, 32 at once, `rcq`",
        limit: Some(("apart-get:raw,pingpong,8,tcp-lo/spin/t1,32", "bare TCP sockets, one system call for all 32")),
        ours: &["apart-get:ddss,get,8,tcp-lo/rcq/t1,32"],
        says: Says::MultipleOfRate,
    },
    Line {
        what: "fabric alone: 8-byte read / fetch-add",
        limit: Some(("apart-fabric:raw,pingpong,8,tcp-lo/spin/t1,1", "bare TCP sockets, spinning")),
        ours: &["apart-fabric:ddss,read,8,tcp-lo/spin/t1,1", "apart-fabric:ddss,fetch_add,8,tcp-lo/spin/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "fabric alone: 4 KiB read",
        limit: Some(("apart-fabric:raw,pingpong,4096,tcp-lo/spin/t1,1", "the same")),
        ours: &["apart-fabric:ddss,read,4096,tcp-lo/spin/t1,1"],
        says: Says::Multiple,
    },
    Line {
        what: "fabric alone: 8-byte reads / writes, 32 at once",
        limit: Some(("apart-fabric:raw,pingpong,8,tcp-lo/spin/t1,32", "bare TCP sockets, one system call for all 32")),
        ours: &["apart-fabric:ddss,read,8,tcp-lo/spin/t1,32", "apart-fabric:ddss,write,8,tcp-lo/spin/t1,32"],
        says: Says::MultipleOfRate,
    },
    Line {
        what: "fabric alone: 8 KiB reads, 32 at once, with / without checksum",
        limit: Some(("apart-fabric:raw,pingpong,8192,tcp-lo/spin/t1,32", "the same")),
        ours: &["apart-fabric:ddss,read,8192,tcp-lo/spin/t1,32", "apart-fabric:ddss,read,8192,tcp-lo-nocrc/spin/t1,32"],
        says: Says::MultipleOfRate,
    },
    Line {
        what: "the same, the next one posted for each that ended",
        limit: Some(("apart-fabric:raw,window,8192,tcp-lo/spin/t1,32", "the same")),
        ours: &[
            "apart-fabric:ddss,read_window,8192,tcp-lo/spin/t1,32",
            "apart-fabric:ddss,read_window,8192,tcp-lo-nocrc/spin/t1,32",
        ],
        says: Says::MultipleOfRate,
    },
    Line {
        what: "fabric alone: 64 KiB reads, 32 at once, with / without checksum",
        limit: Some(("apart-fabric:raw,pingpong,65536,tcp-lo/spin/t1,32", "the same")),
        ours: &[
            "apart-fabric:ddss,read,65536,tcp-lo/spin/t1,32",
            "apart-fabric:ddss,read,65536,tcp-lo-nocrc/spin/t1,32",
        ],
        says: Says::MultipleOfRate,
    },
    Line {
        what: "the same, the next one posted for each that ended",
        limit: Some(("apart-fabric:raw,window,65536,tcp-lo/spin/t1,32", "the same")),
        ours: &[
            "apart-fabric:ddss,read_window,65536,tcp-lo/spin/t1,32",
            "apart-fabric:ddss,read_window,65536,tcp-lo-nocrc/spin/t1,32",
        ],
        says: Says::MultipleOfRate,
    },
];

/// A row by its bench and its first five columns.
fn find<'a>(rows: &'a Rows, place: &str) -> Option<&'a Entry> {
    let (bench, label) = place.split_once(':')?;
    rows.of(bench).find(|entry| {
        let Entry { name, op, size, mode, outstanding, .. } = entry;
        format!("{name},{op},{size},{mode},{outstanding}") == label
    })
}

/// Joins the words of all entries; `None` if one of them is missing.
fn joined(entries: &[&Entry], words: impl Fn(&Entry) -> Option<String>) -> Option<String> {
    Some(entries.iter().map(|entry| words(entry)).collect::<Option<Vec<_>>>()?.join(" / "))
}

impl Line {
    /// Formats a line of the table, if all of it was measured.
    fn words(&self, rows: &Rows) -> Option<String> {
        let ours: Vec<&Entry> = self.ours.iter().map(|place| find(rows, place)).collect::<Option<_>>()?;
        let limit = match self.limit {
            Some((place, note)) => {
                let entry = find(rows, place)?;
                let is_rate = matches!(self.says, Says::MultipleOfRate);
                let number = if is_rate { units::rate(entry.ops_per_s) } else { units::time(entry.p50_us) };
                format!("{number}, {note}")
            }
            None => String::new(),
        };
        let times = |ratio: f64| format!("{} ×", units::plain(ratio));
        let ratio = |entry: &Entry| entry.more("of_limit").map(units::plain);
        let said = match self.says {
            Says::Multiple => format!("{} ×", joined(&ours, ratio)?),
            Says::MultipleAndTime => {
                joined(&ours, |entry| Some(format!("{} × ({})", ratio(entry)?, units::time(entry.p50_us))))?
            }
            Says::Rate => joined(&ours, |entry| Some(units::rate(entry.ops_per_s)))?,
            Says::MultipleOfRate => joined(&ours, |entry| {
                let ratio = entry.more("rate_of_limit")?;
                Some(format!("{} ({})", times(ratio), units::rate(entry.ops_per_s)))
            })?,
            Says::Beside(other) => format!("{} slower", times(ours[0].p50_us / find(rows, other)?.p50_us)),
        };
        Some(format!("| {} | {limit} | {said} |\n", self.what))
    }
}

/// Formats the table of figures, with the machine on which it was measured. `None` if none of its lines was measured.
fn table(machine: &Machine, rows: &Rows) -> Option<String> {
    let mut text = format!("On {}:\n\n{}", machine.words(), written(LINES, rows)?);
    if let Some(get) = find(rows, "get:ddss,get,8,tcp-lo/rcq/t1,1") {
        text += &format!(
            "\nThe 99th percentile of that remote 8-byte get is {} its median: three threads share two cores, and a preempted\n\
             thread waits for the kernel.\n",
            units::times((get.p99_us / get.p50_us).max(1.0))
        );
    }
    Some(text)
}

/// The few lines of that table that the README shows, with the machine.
fn readme_table(machine: &Machine, rows: &Rows) -> Option<String> {
    let lines: String =
        LINES.iter().filter(|line| README_LINES.contains(&line.what)).filter_map(|line| line.words(rows)).collect();
    let Machine { processor, cores, commit, date, .. } = machine;
    (!lines.is_empty()).then(|| format!("On {processor}, {cores} cores, commit {commit}, {date}:\n\n{HEAD}{lines}"))
}

const HEAD: &str = "| what | raw limit of the run | multiple |\n| --- | --- | --- |\n";

/// Formats the measured lines below their head. `None` if none was measured.
fn written(lines: &[Line], rows: &Rows) -> Option<String> {
    let lines: String = lines.iter().filter_map(|line| line.words(rows)).collect();
    (!lines.is_empty()).then(|| format!("{HEAD}{lines}"))
}

/// Formats the table for two cores, from rows that were measured on two cores all the time.
fn rows_of_separate_cores(rows: &Rows) -> Option<String> {
    let rows_of_separate_cores = rows.0.iter().filter(|entry| !entry.notes.contains(SAME_CORE_NOTE)).cloned();
    written(APART, &Rows(rows_of_separate_cores.collect()))
}

/// Result of `chaos --json`, as a sentence.
fn chaos(found: &Value) -> Option<String> {
    let number = |name: &str| found[name].as_f64();
    let count = |name: &str| number(name).map(|count| format!("{count:.0}"));
    let thousands = |name: &str| number(name).map(|count| format!("{:.0},000", count / 1e3));
    Some(format!(
        "Three nodes, sixteen client processes, Strict segments, a client killed every 250 ms and a daemon every 5 s, for {} s:\n\
         {} million calls ({} a second before the first kill), {} clients and {} daemons killed, {} violations,\n\
         {} acknowledged puts lost, {} calls late.\n",
        count("seconds")?,
        units::plain(number("operations")? / 1e6),
        thousands("operations_per_second_before_faults")?,
        count("client_kills")?,
        count("daemon_kills")?,
        count("violations")?,
        count("lost")?,
        count("late")?
    ))
}

/// Output of the demo, as a block, without its advice on next steps.
fn demo(said: &str) -> Option<String> {
    let shown = said.split("\nTry next:").next()?.trim_end();
    (!shown.is_empty()).then(|| format!("```text\n{shown}\n```\n"))
}

/// Inputs of the README's sections.
#[derive(Debug, Clone, Default)]
pub struct ReadmeInputs {
    /// Output of `ddss demo`.
    pub demo: Option<String>,
    /// Output of `chaos --json`.
    pub chaos: Option<Value>,
}

/// Fills the marked sections of the page. Returns an error if the page has none, so that a misspelt mark is noticed.
pub fn readme(page: &str, machine: &Machine, rows: &Rows, said: &ReadmeInputs) -> Result<String, String> {
    let mut page = page.to_owned();
    let places = [
        ("figures", readme_table(machine, rows)),
        ("ratios", table(machine, rows)),
        ("apart", rows_of_separate_cores(rows)),
        ("chaos", said.chaos.as_ref().and_then(chaos)),
        ("demo", said.demo.as_deref().and_then(demo)),
    ];
    let mut has_place = false;
    for (name, text) in places {
        let Some(empty) = filled(&page, name, "") else { continue };
        has_place = true;
        if let Some(text) = text {
            page = filled(&empty, name, &text).unwrap_or(page);
        }
    }
    has_place.then_some(page).ok_or_else(|| "the page has no place for figures (`<!-- begin NAME: .. -->`)".to_owned())
}

fn filled(page: &str, name: &str, text: &str) -> Option<String> {
    let (head, rest) = page.split_once(&format!("<!-- begin {name}:"))?;
    let (mark, rest) = rest.split_once("-->\n")?;
    let (_, tail) = rest.split_once(&format!("<!-- end {name} -->"))?;
    Some(format!("{head}<!-- begin {name}:{mark}-->\n\n{text}\n<!-- end {name} -->{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{CONTRACT, EXTRA_COLUMNS};

    const PAGE: &str = "a\n<!-- begin figures: by x -->\nold\n<!-- end figures -->\nb\n<!-- begin chaos: y -->\n<!-- end chaos -->\n\
                        <!-- begin demo: z -->\n<!-- end demo -->\n";

    fn rows() -> Rows {
        let text = format!(
            "{CONTRACT},{}\nraw,pingpong,8,shm/spin/t1,1,0.22,0.3,4000000,1,,\nddss,null,8,shm/rcq/t1,1,0.3,0.4,3000000,1,1.333,0.7\n\
             ddss,null,8,shm/auto/t1,1,0.3,0.4,3000000,1,1.25,0.7\n",
            EXTRA_COLUMNS.join(",")
        );
        Rows::parse("ipc", &text).unwrap()
    }

    // If this failed, the README would keep an old number, or lose text outside the sections.
    #[test]
    fn marked_section_is_replaced_and_other_text_is_unchanged() {
        let said = ReadmeInputs { demo: Some("seen\n\nTry next:\n  x".to_owned()), chaos: None };
        let page = readme(PAGE, &Machine::here(), &rows(), &said).unwrap();
        assert!(page.starts_with("a\n<!-- begin figures: by x -->\n\nOn ") && !page.contains("old"), "{page}");
        assert!(page.contains("| 220 ns, one cache line there and back | 1.33 / 1.25 × |"), "{page}");
        assert!(
            page.contains("```text\nseen\n```") && page.contains("<!-- begin chaos: y -->\n<!-- end chaos -->"),
            "{page}"
        );
        assert_eq!(readme(&page, &Machine::here(), &rows(), &said).unwrap(), page, "a second time changes nothing");
        assert!(readme("no place", &Machine::here(), &rows(), &said).unwrap_err().contains("no place"));
        assert_eq!(readme(PAGE, &Machine::here(), &Rows::default(), &ReadmeInputs::default()).unwrap(), PAGE);
        assert!(README_LINES.iter().all(|what| LINES.iter().any(|line| line.what == *what)), "a line was renamed");
    }

    // If this failed, values of two threads of one core would be printed as those of two cores.
    #[test]
    fn two_core_table_has_no_single_core_row() {
        let rows = |note: &str| {
            let text = format!(
                "{CONTRACT},of_limit,rate_of_limit,notes\nraw,pingpong,4096,tcp-lo/spin/t1,1,9.0,9.9,100000,,,\n\
                 ddss,read,4096,tcp-lo/spin/t1,1,9.9,11,90000,1.1,0.9,{note}\n"
            );
            Rows::parse("apart-fabric", &text).unwrap()
        };
        let words = rows_of_separate_cores(&rows("of one frame")).unwrap();
        assert!(words.ends_with("| fabric alone: 4 KiB read | 9 µs, the same | 1.1 × |\n"), "{words}");
        assert_eq!(rows_of_separate_cores(&rows("of one frame; NEAR: the line took 0.12 us")), None);
    }

    // If this failed, a line of rows that no longer exist would silently disappear.
    #[test]
    fn lines_are_written_only_from_complete_rows() {
        let only_one = Rows(rows().0.into_iter().filter(|entry| entry.wait() != "auto").collect());
        assert_eq!(table(&Machine::here(), &only_one), None);
        let found = serde_json::json!({ "seconds": 40, "operations": 3_412_345, "client_kills": 150, "daemon_kills": 7,
            "operations_per_second_before_faults": 61_234, "violations": 0, "lost": 0, "late": 0 });
        let words = chaos(&found).unwrap();
        assert!(words.contains("3.41 million calls (61,000 a second") && words.contains("0 violations"), "{words}");
        assert_eq!(chaos(&Value::Null), None);
    }
}
