//! Removing the names of a flow, and preparing another attempt.

use super::error::FlowError;
use super::tables::{FlowStatus, StatusRow};
use super::tables::{FlowTable, group_name};
use ddss::{Client, ErrorKind, SegmentInfo};
use ddss_group::{GroupState, inspect};
use ddss_river_core::{EdgeKind, FlowGraph, Life, ModuleId, ModuleState, Site};

/// End of the names of lists of work.
const UNITS: &str = "/units";

/// Removes the names of a flow that has ended, if this process is the last one that leaves it.
pub(super) fn remove_ended(
    client: &Client,
    flow: &str,
    table: &FlowTable,
    group: &GroupState,
) -> Result<(), FlowError> {
    let members = table.members(u16::MAX)?;
    // The group goes first, and only one process releases it. The table goes last: until then nobody begins a flow of this name.
    if members.iter().all(|member| member.report.life != Life::Alive) && group.release()? {
        remove_queues(client, flow, |_| true)?;
        table.release()?;
    }
    Ok(())
}

/// Releases the queues and lists of a flow.
fn remove_queues(client: &Client, flow: &str, is_removed: impl Fn(&str) -> bool) -> Result<(), FlowError> {
    let group = group_name(flow);
    let segments: Vec<SegmentInfo> = client.list(&format!("{group}/")).collect::<Result<_, _>>()?;
    for segment in segments {
        // Behind the name of the flow comes the number of an edge. Other names may begin like this one.
        let rest = segment.name.strip_prefix(&group).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
        let is_edge = rest.split('/').next().is_some_and(|edge| edge.parse::<u32>().is_ok());
        if is_edge && is_removed(&segment.name) {
            release(client, &segment.name)?;
        }
    }
    Ok(())
}

fn release(client: &Client, name: &str) -> Result<(), FlowError> {
    match client.segment(name).open().and_then(|segment| segment.release()) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => Ok(other?),
    }
}

/// Cancels a flow: its members end with an error. Removes the names of a flow without living members, with all that is left of
/// its work. Returns false if members live: they are about to end.
///
/// # Errors
/// There is no such flow, or the error of a call.
pub fn cancel(client: &Client, flow: &str) -> Result<bool, FlowError> {
    let table = FlowTable::open(client, flow)?;
    if table.is_none() && inspect(client, &group_name(flow))?.is_none() {
        return Err(FlowError::Unknown { flow: flow.to_owned() });
    }
    if let Some(table) = &table {
        loop {
            let (status, version) = table.status()?;
            let cancelled = StatusRow { status: FlowStatus::Cancelled, ..status.clone() };
            if status.status.is_over() || table.put_status(&cancelled, version)? {
                break;
            }
        }
    }
    if living(client, flow)? > 0 {
        return Ok(false);
    }
    release(client, &group_name(flow))?;
    remove_queues(client, flow, |_| true)?;
    if let Some(table) = table {
        table.release()?;
    }
    Ok(true)
}

/// Prepares another attempt of a flow that failed or was cancelled. Lists of work stay, with the units that are done. Modules
/// whose only outputs are such lists, and that had ended, are not run again.
///
/// # Errors
/// Members live, there is no such flow, or the error of a call.
pub fn prepare(client: &Client, flow: &str) -> Result<(), FlowError> {
    let unknown = || FlowError::Unknown { flow: flow.to_owned() };
    let table = FlowTable::open(client, flow)?.ok_or_else(unknown)?;
    let members = living(client, flow)?;
    if members > 0 {
        return Err(FlowError::Living { flow: flow.to_owned(), members });
    }
    let (mut status, version) = table.status()?;
    let graph = table.graph(&status)?;
    status.finished = finished(&table, &status, &graph)?;
    // A process that dies on the way leaves a flow that is over: the next attempt to prepare it goes on from there.
    release(client, &group_name(flow))?;
    remove_queues(client, flow, |name| !name.ends_with(UNITS))?;
    let over = StatusRow { status: FlowStatus::Cancelled, founders: Vec::new(), verdict: None, ..status };
    table.put_status(&over, version)?;
    table.clear_members()?;
    let (_, version) = table.status()?;
    table.put_status(&StatusRow { status: FlowStatus::Waiting, ..over }, version)?;
    Ok(())
}

/// Returns the number of living members.
pub(super) fn living(client: &Client, flow: &str) -> Result<usize, FlowError> {
    Ok(inspect(client, &group_name(flow))?.map_or(0, |group| group.members.len()))
}

/// Returns for each module whether it need not run again.
fn finished(table: &FlowTable, status: &StatusRow, graph: &FlowGraph) -> Result<Vec<bool>, FlowError> {
    let sites: Vec<Site> = status.founders.iter().map(|founder| founder.site).collect();
    let founders: Vec<_> = status.founders.iter().map(|founder| (founder.place, founder.run)).collect();
    let reports: Vec<_> = table.members(u16::MAX)?.into_iter().map(|member| member.report).collect();
    // A flow that has not begun has no plan, and has ended nothing.
    let Ok(plan) = graph.plan(&sites) else { return Ok(status.finished.clone()) };
    let ended = graph.progress(&plan, &founders, &reports, &status.finished, false).ended;
    let has_only_lists = |module: ModuleId| {
        let mut outputs = graph.edges().filter(|(_, from, ..)| *from == module).peekable();
        outputs.peek().is_some() && outputs.all(|(.., kind)| kind == EdgeKind::Units)
    };
    // A list that is the input of such a module has done units only if its results are in the next list.
    let is_finished = |(module, ended): (ModuleId, bool)| ended && has_only_lists(module);
    Ok(graph.modules().zip(ended).map(is_finished).collect())
}

/// Returns the name of the state of a module in a member.
pub(super) const fn state_name(state: ModuleState) -> &'static str {
    match state {
        ModuleState::Idle => "idle",
        ModuleState::Running => "running",
        ModuleState::Done => "done",
    }
}
