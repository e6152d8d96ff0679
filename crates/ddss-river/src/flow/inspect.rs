//! A flow as its tables describe it.

use super::error::FlowError;
use super::remove::state_name;
use super::tables::{FlowStatus, FlowTable, edge_name, group_name};
use crate::queue::{Queue, QueueInfo};
use crate::units::UnitQueue;
use ddss::Client;
use ddss_group::inspect;
use ddss_river_core::{Each, EdgeKind, FlowGraph, Life};
use std::fmt::Write as _;

/// A flow, as its tables describe it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlowInfo {
    /// State.
    pub status: FlowStatus,
    /// Hash of the graph.
    pub hash: u64,
    /// Why it failed, with module, member and node.
    pub failure: Option<String>,
    /// Members that live.
    pub living: usize,
    /// Modules.
    pub modules: Vec<ModuleInfo>,
    /// Edges.
    pub edges: Vec<EdgeInfo>,
    /// Processes that have joined.
    pub members: Vec<FlowMember>,
}

/// A module of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ModuleInfo {
    /// Name.
    pub name: String,
    /// Placement.
    pub each: Each,
    /// Members in which instances run.
    pub running: usize,
    /// Members in which all instances have ended.
    pub done: usize,
    /// An earlier attempt has ended it.
    pub is_finished: bool,
}

/// An edge of a flow.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EdgeInfo {
    /// Module at its beginning.
    pub from: String,
    /// Module at its end.
    pub to: String,
    /// Kind.
    pub kind: EdgeKind,
    /// Queue, or list of work, below `river/`. With one queue for each instance it is the beginning of their names.
    pub name: String,
}

/// A process that has joined a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FlowMember {
    /// Place.
    pub number: u16,
    /// Process id on its node.
    pub process: u32,
    /// Node.
    pub node: u16,
    /// Life.
    pub life: Life,
    /// Names and states of the modules that run or have ended there.
    pub modules: Vec<(String, &'static str)>,
}

impl FlowInfo {
    /// Reads what the tables of a flow say. `None` if there is no flow of this name.
    ///
    /// # Errors
    /// A row is of another release, or the error of a call.
    pub fn read(client: &Client, flow: &str) -> Result<Option<Self>, FlowError> {
        let Some(table) = FlowTable::open(client, flow)? else { return Ok(None) };
        let (status, _) = table.status()?;
        let graph = table.graph(&status)?;
        let rows = table.members(u16::MAX, status.attempt)?;
        let state = |name: &'static str, module: usize| {
            let alive = rows.iter().filter(|row| row.report.life == Life::Alive || name == "done");
            alive.filter(|row| row.report.modules.get(module).is_some_and(|state| state_name(*state) == name)).count()
        };
        let modules = graph.modules().map(|module| ModuleInfo {
            name: graph.name(module).to_owned(),
            each: graph.each(module),
            running: state("running", module.index()),
            done: state("done", module.index()),
            is_finished: status.finished.get(module.index()).copied().unwrap_or_default(),
        });
        let members = rows.iter().map(|row| {
            let states = graph
                .modules()
                .zip(&row.report.modules)
                .map(|(module, state)| (graph.name(module).to_owned(), state_name(*state)));
            FlowMember {
                number: row.report.place,
                process: row.process,
                node: row.site.node,
                life: row.report.life,
                modules: states.filter(|(_, state)| *state != "idle").collect(),
            }
        });
        let failure = status.verdict.clone().map(|verdict| verdict.error(flow.to_owned(), &graph).to_string());
        Ok(Some(Self {
            status: status.status,
            hash: graph.hash(),
            failure,
            living: inspect(client, &group_name(flow))?.map_or(0, |group| group.members.len()),
            modules: modules.collect(),
            edges: edges(&graph, flow),
            members: members.collect(),
        }))
    }

    /// Returns the graph in the language of Graphviz.
    #[must_use]
    pub fn dot(&self) -> String {
        let mut text = "digraph flow {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
        let quoted = |name: &str| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
        for ModuleInfo { name, each, .. } in &self.modules {
            let (label, shape) = match each {
                Each::Flow => ("one", ""),
                Each::Node => ("each node", ""),
                Each::Core => ("each core", ""),
                Each::Member => ("each member", ""),
                Each::Count(count) => (&*count.to_string(), ""),
                Each::Outside => ("list", ", shape=cylinder"),
            };
            let label = quoted(&format!("{name}\n{label}")).replace('\n', "\\n");
            let _ = writeln!(text, "  {} [label={label}{shape}];", quoted(name));
        }
        for EdgeInfo { from, to, kind, .. } in &self.edges {
            let _ = writeln!(text, "  {} -> {} [label={}];", quoted(from), quoted(to), quoted(kind.as_str()));
        }
        text.push_str("}\n");
        text
    }
}

impl EdgeInfo {
    /// Reads the queue of the edge. `None` if it has none, or one for each instance.
    ///
    /// # Errors
    /// The error of a call.
    pub fn queue(&self, client: &Client) -> Result<Option<QueueInfo>, FlowError> {
        if self.kind == EdgeKind::Queue { Ok(Queue::inspect(client, &self.name)?) } else { Ok(None) }
    }

    /// Opens the list of work of the edge. `None` if it has none, or none yet.
    ///
    /// # Errors
    /// The error of a call.
    pub fn units(&self, client: &Client) -> Result<Option<UnitQueue>, FlowError> {
        if self.kind != EdgeKind::Units {
            return Ok(None);
        }
        match UnitQueue::open(client, &self.name) {
            Err(crate::QueueError::UnknownUnits { .. }) => Ok(None),
            other => Ok(Some(other?)),
        }
    }
}

fn edges(graph: &FlowGraph, flow: &str) -> Vec<EdgeInfo> {
    let edges = graph.edges().map(|(edge, from, to, kind)| EdgeInfo {
        from: graph.name(from).to_owned(),
        to: graph.name(to).to_owned(),
        kind,
        name: match graph.each(from) {
            Each::Outside => graph.name(from).to_owned(),
            _ => edge_name(flow, edge),
        },
    });
    edges.collect()
}
