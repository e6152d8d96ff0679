//! Description of a figure before it is drawn.

use serde::{Deserialize, Serialize};

/// Scale and number format of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Microseconds, each decade as long as the next.
    Time,
    /// Operations a second, each decade as long as the next.
    Rate,
    /// Operations a second from 0 on.
    RateFromZero,
    /// Bytes, each doubling as long as the next.
    Bytes,
    /// A count, each doubling as long as the next.
    Count,
    /// A bare number from 0 on.
    Number,
    /// Microseconds from 0 on.
    TimeFromZero,
    /// Microseconds as parts of a total: only for bars, which then all have the same length.
    TimeShare,
    /// Percent from 0 on.
    Percent,
    /// Bytes a second, each decade as long as the next.
    Bandwidth,
}

/// Colour and shape of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// Message queues both ways.
    Mq,
    /// A ring for the request, a queue for the answer.
    Rmq,
    /// Rings both ways.
    Rcq,
    /// Rings, and a client that sleeps after a while.
    Auto,
    /// A limit of the machine.
    Raw,
    /// Another program.
    Peer,
    /// The application without DDSS.
    Without,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Label.
    pub label: String,
    /// Its colour and mark.
    pub curve_style: Style,
    /// Draws the line with dashes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_dashed: bool,
    /// Positions of the points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A number of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Label.
    pub label: String,
    /// Style of the curve that it belongs to.
    pub curve_style: Style,
    /// Position on the y axis: the paper's conditions are no point of the x axis.
    pub value: f64,
}

/// Curves over two axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// Title of the panel.
    pub title: String,
    /// Quantity and scale of the x axis.
    pub x: (String, Scale),
    /// Quantity and scale of the y axis.
    pub y: (String, Scale),
    /// Curves.
    pub curves: Vec<Curve>,
    /// Numbers of the paper.
    pub marks: Vec<Mark>,
}

/// A part of a bar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Label; the same in every bar of a panel.
    pub label: String,
    /// Its colour.
    pub curve_style: Style,
    /// Length.
    pub value: f64,
}

/// One bar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// Label of the bar.
    pub label: String,
    /// Its parts, one behind the other.
    pub parts: Vec<Part>,
    /// Number of the paper.
    pub paper: Option<f64>,
}

/// Bars from 0 on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// Title of the panel.
    pub title: String,
    /// Quantity and number format of the bars.
    pub unit: (String, Scale),
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableRow {
    /// Text of each column; the first is the label.
    pub cells: Vec<String>,
    /// Length of its bar, if there is one.
    pub bar: Option<f64>,
    /// Number of the paper.
    pub paper: Option<f64>,
}

/// A table with a bar at the end of each row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Title of the panel.
    pub title: String,
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// Quantity and number format of the bars.
    pub unit: (String, Scale),
    /// Colour of the bars.
    pub curve_style: Style,
    /// From top to bottom.
    pub rows: Vec<TableRow>,
}

/// One drawing of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Panel {
    /// Curves.
    Curves(Curves),
    /// Bars.
    Bars(Bars),
    /// A table with a bar in each row.
    Table(Table),
}

/// A number of the paper beside one of this run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaperValue {
    /// Compared quantity.
    pub what: String,
    /// The paper's.
    pub paper: String,
    /// This run's.
    pub here: String,
    /// Verdict: `as in the paper`, or the reason for the difference.
    pub verdict: String,
}

/// Paper whose figure is measured again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paper {
    /// Data shared between the nodes of a data center.
    #[default]
    Ddss,
    /// Streams by the Sockets Direct Protocol over iWARP.
    Sdp,
    /// Data flow around slow nodes.
    River,
}

impl Paper {
    fn is_ddss(&self) -> bool {
        *self == Paper::Ddss
    }
}

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Its paper.
    #[serde(default, skip_serializing_if = "Paper::is_ddss")]
    pub paper: Paper,
    /// The name of its file and of its place on the page.
    pub id: String,
    /// Figure of the paper, or another label.
    pub number: String,
    /// Subject.
    pub title: String,
    /// Summary in one sentence.
    pub says: String,
    /// The drawings; empty if nothing was measured for the figure.
    pub panels: Vec<Panel>,
    /// The paper's numbers and ours.
    pub paper_values: Vec<PaperValue>,
    /// Commands that reproduce its numbers.
    pub commands: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Picture {
    /// Creates a figure of [`Paper::Ddss`] for which nothing was measured in this run.
    pub fn missing(id: &str, number: &str, title: &str, command: &str) -> Picture {
        Picture {
            paper: Paper::Ddss,
            id: id.to_owned(),
            number: number.to_owned(),
            title: title.to_owned(),
            says: "Not measured in this run.".to_owned(),
            panels: Vec::new(),
            paper_values: Vec::new(),
            commands: vec![command.to_owned()],
            notes: Vec::new(),
        }
    }
}
