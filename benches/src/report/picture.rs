//! What a figure is, before anybody draws it.

/// How numbers lie along an axis, and how they are written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Microseconds as parts of a whole: of bars only, which are all as long as each other.
    TimeShare,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What it is.
    pub label: String,
    /// Its colour and mark: `mq`, `rmq`, `rcq`, `auto`, `raw`, `peer`.
    pub look: &'static str,
    /// Where it goes.
    pub points: Vec<(f64, f64)>,
}

/// A number of the paper.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// What it is.
    pub label: String,
    /// As the curve that it belongs to.
    pub look: &'static str,
    /// Where it stands.
    pub at: (f64, f64),
}

/// Curves over two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// What this panel has.
    pub title: String,
    /// What lies along the axis, and how.
    pub x: (String, Scale),
    /// What stands on the axis, and how.
    pub y: (String, Scale),
    /// What is drawn.
    pub curves: Vec<Curve>,
    /// What the paper has.
    pub marks: Vec<Mark>,
}

/// A part of a bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// What it is; the same in every bar of a panel.
    pub label: String,
    /// Its colour.
    pub look: &'static str,
    /// How long it is.
    pub value: f64,
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// What it is of.
    pub label: String,
    /// Its parts, one behind the other.
    pub parts: Vec<Part>,
    /// What the paper has instead.
    pub paper: Option<f64>,
}

/// Bars from 0 on.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What this panel has.
    pub title: String,
    /// What their length is, and how it is written.
    pub unit: (String, Scale),
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// One drawing of a figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Panel {
    /// Curves.
    Curves(Curves),
    /// Bars.
    Bars(Bars),
}

/// A number of the paper beside one of this run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside {
    /// What is compared.
    pub what: String,
    /// The paper's.
    pub paper: String,
    /// This run's.
    pub here: String,
    /// What that means: `as in the paper`, or why not.
    pub verdict: String,
}

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// The name of its file and of its place on the page.
    pub id: &'static str,
    /// Which one of the paper it is, or what else.
    pub number: &'static str,
    /// What it is of.
    pub title: String,
    /// One sentence: what it shows.
    pub says: String,
    /// The drawings; none if nothing of it was measured.
    pub panels: Vec<Panel>,
    /// The paper's numbers and ours.
    pub beside: Vec<Beside>,
    /// What makes its numbers again.
    pub commands: Vec<String>,
    /// What has to be known to read it.
    pub notes: Vec<String>,
}

impl Picture {
    /// A figure of which nothing was measured in this run.
    pub fn missing(id: &'static str, number: &'static str, title: &str, command: &str) -> Picture {
        Picture {
            id,
            number,
            title: title.to_owned(),
            says: "Not measured in this run.".to_owned(),
            panels: Vec::new(),
            beside: Vec::new(),
            commands: vec![command.to_owned()],
            notes: Vec::new(),
        }
    }
}
