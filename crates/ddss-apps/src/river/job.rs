//! Settings of a run.

use crate::names::names;
use ddss_river::flow::{Each, Edge};
use std::path::PathBuf;

/// Bytes of a message at most: a block of records with its header, or a piece of the output of a join.
pub(super) const MESSAGE_BYTES_MAX: u32 = 128 << 10;

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Copies files.
    Copy,
    /// Sorts records in one pass.
    Sort,
    /// Joins two inputs by a hash table in memory.
    Join,
    /// Decodes images for consumers of different speed.
    Load,
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 4] = [Self::Copy, Self::Sort, Self::Join, Self::Load];

    /// Returns the names of the inputs.
    pub(super) const fn inputs(self) -> &'static [&'static str] {
        match self {
            Self::Copy | Self::Sort => &["records"],
            Self::Join => &["build", "probe"],
            Self::Load => &["images"],
        }
    }
}

/// Way of the work to the processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Any process takes the next piece of work.
    Queues,
    /// Process i has part i.
    Static,
}

impl Form {
    /// Both forms.
    pub const ALL: [Self; 2] = [Self::Queues, Self::Static];
}

/// Distribution of the keys of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// Each is as frequent as the others.
    Even,
    /// The n-th is 1/n times as frequent as the first.
    Zipf,
}

impl Keys {
    /// Both distributions.
    pub const ALL: [Self; 2] = [Self::Even, Self::Zipf];
}

names!(Program, "program", Copy = "copy", Sort = "sort", Join = "join", Load = "load");
names!(Form, "form", Queues = "queues", Static = "static");
names!(Keys, "distribution", Even = "even", Zipf = "zipf");

/// Settings of a run, which all its processes share.
#[derive(Clone, Debug)]
pub struct Job {
    /// Program.
    pub program: Program,
    /// Form of the program.
    pub form: Form,
    /// Distribution of the keys.
    pub keys: Keys,
    /// Processes that begin the flow, and parts of each input.
    pub processes: u16,
    /// Directory with the inputs and the output.
    pub directory: PathBuf,
}

impl Job {
    /// Returns the name of the flow.
    #[must_use]
    pub fn flow(&self) -> String {
        let Self { program, form, keys, .. } = self;
        format!("apps-{program}-{form}-{keys}")
    }

    /// Returns the name of the list of work of an input.
    pub(super) fn list(&self, input: &str) -> String {
        format!("{}-{input}", self.flow())
    }

    /// Returns the directory of an input or of the output.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the placement of a module that any process can run.
    pub(super) fn each(&self) -> Each {
        match self.form {
            Form::Queues => Each::Member,
            Form::Static => Each::Count(self.processes),
        }
    }

    /// Returns the edge to a module that any process can run.
    pub(super) fn edge(&self) -> Edge {
        match self.form {
            Form::Queues => Edge::queue(),
            Form::Static => Edge::one_to_one(),
        }
    }
}
