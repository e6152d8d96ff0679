//! The pictures of the applications.

use super::values::{gain, orders};
use super::{panels, values};
use crate::report::picture::{Panel, Paper, PaperValue, Picture};
use crate::report::rows::Rows;

const COMMAND: &str = "cargo bench -p ddss-benches --bench apps -- --csv apps.csv";
const PROGRAMS: [(&str, &str); 3] =
    [("rtree", "R-tree query"), ("btree", "B-tree query"), ("storm", "STORM selection")];
const SHARES: [(&str, &str); 3] = [("rtree-data", "R-tree"), ("btree-data", "B-tree"), ("storm-data", "STORM")];
const CHECKPOINTS: [(&str, &str); 1] = [("checkpoint", "commits and restarts")];

/// One figure for each of the paper's.
pub(crate) fn applications(rows: &Rows) -> [Picture; 3] {
    let of_all = |panel: fn(&Rows, (&str, &str)) -> Option<Panel>, ops: [(&'static str, &'static str); 3]| {
        ops.into_iter().filter_map(move |op| panel(rows, op)).collect::<Vec<Panel>>()
    };
    let rest = |ops| [of_all(panels::beside_others, ops), of_all(panels::together, ops)].concat();
    let table = panels::table_one(rows).into_iter().chain(rest(PROGRAMS)).collect();
    let shares = [of_all(panels::shares, SHARES), rest(SHARES)].concat();
    let (sharing, programs) = ("The data sharing part of the applications alone", "Applications with and without DDSS");
    let values = values::table_one(rows).into_iter().chain(values::pages(rows)).collect();
    [
        figure("table-1", "Table 1", programs, says(rows, "rtree"), table, values),
        figure("fig-5", "Figure 5", sharing, says(rows, "rtree-data"), shares, orders(rows, &SHARES)),
        figure(
            "fig-6",
            "Figure 6",
            "Checkpoints of more and more processes",
            says(rows, "checkpoint"),
            panels::checkpoints(rows),
            orders(rows, &CHECKPOINTS),
        ),
    ]
}

fn figure(
    id: &str,
    number: &str,
    title: &str,
    says: String,
    panels: Vec<Panel>,
    paper_values: Vec<PaperValue>,
) -> Picture {
    if panels.is_empty() {
        return Picture::missing(id, number, title, COMMAND);
    }
    Picture {
        paper: Paper::Ddss,
        id: id.to_owned(),
        number: number.to_owned(),
        title: title.to_owned(),
        says,
        panels,
        paper_values,
        commands: vec![COMMAND.to_owned()],
        notes: vec!["The applications are ours, of the same kind as the paper's and not the same programs.".to_owned()],
    }
}

fn says(rows: &Rows, op: &str) -> String {
    gain(rows, op, None).map_or_else(
        || {
            "What a process waits for its commit, or for its restart, while more and more of them do the same: under Auto those \
             who run are answered at once."
                .to_owned()
        },
        |gain| format!("With DDSS the application takes up to {:.0} % less time than without.", gain * 100.0),
    )
}

#[cfg(test)]
mod tests {
    use super::super::rows::{along, label, of};
    use super::super::values::{gain, took};
    use crate::harness::CONTRACT;
    use crate::report::rows::{Entry, Rows};

    // If this failed, application rows would be drawn at wrong places, or parts would be mixed with totals.
    #[test]
    fn application_rows_are_distinguished_by_mode() {
        let lines = [
            "none,rtree,8192,tcp-lo/block/q20,1,3000,1,1,8 operations",
            "ddss,rtree,8192,tcp-lo/rcq/q20,1,1500,1,1,8 operations; saves 187.5 us each",
            "ddss,rtree,8192,tcp-lo/rcq/q20-data,1,500,1,1",
            "ddss,rtree,8192,tcp-lo/rcq/q20,32,1200,1,1",
            "ddss,checkpoint,64,shm/auto/t16,1,9,1,1",
            "ddss,storm,8,tcp-lo/auto/r10K,1,9,1,1",
        ];
        let rows = Rows::parse("apps", &format!("{CONTRACT},notes\n{}\n", lines.join("\n"))).unwrap();
        assert_eq!((of(&rows, "rtree").len(), of(&rows, "rtree-data").len()), (3, 1));
        let places: Vec<u64> = rows.0.iter().map(along).collect();
        assert_eq!(places, [20, 20, 20, 20, 16, 10_000]);
        assert_eq!(label(&rows.0[3]).0, "RCQ, 32 pages together");
        // Two curves of equal style are one curve for a reader.
        let bare = Entry { name: "raw".to_owned(), ..rows.0[0].clone() };
        assert_ne!(label(&rows.0[0]).1, label(&bare).1);
        assert!(
            (gain(&rows, "rtree", Some(20)).unwrap() - 0.5).abs() < 1e-9,
            "32 pages together are no fair comparison"
        );
        let took = took(&rows, "rtree", Some(20)).unwrap();
        assert_eq!(took, "3 ms without, RCQ 1.5 ms: 50 % less; RCQ saves 188 µs in each of 8 operations");
    }
}
