//! Removing the names of a flow, and preparing another attempt.

use super::error::FlowError;
use super::options::FlowOptions;
use super::tables::{FlowStatus, StatusRow};
use super::tables::{FlowTable, edge_name, group_name, table_name};
use ddss::{Client, ErrorKind, Segment, Version};
use ddss_group::{count_living, inspect};
use ddss_river_core::{FlowGraph, Life, ModuleState, Resume, Site};

/// Removes the names of a flow that has ended, if no process takes part in it any more.
pub(super) fn remove_ended(client: &Client, flow: &str, table: &FlowTable) -> Result<(), FlowError> {
    let (status, version) = table.status()?;
    if table.members(u16::MAX, status.attempt)?.iter().all(|member| member.report.life != Life::Alive) {
        remove(client, flow, table, version)?;
    }
    Ok(())
}

/// Removes the names of a flow that is over, unless its status has another version. The table goes last: until then no process
/// begins a flow of this name. Returns true if they are removed.
fn remove(client: &Client, flow: &str, table: &FlowTable, version: Version) -> Result<bool, FlowError> {
    let segments = open_names(client, flow, |_| false)?;
    // They are those of this flow, and no later one's: its table exists, and says that it is over.
    if table.status()?.1 != version {
        return Ok(false);
    }
    release(&segments)?;
    table.release()?;
    Ok(true)
}

/// Opens the group of a flow, its queues and its lists, apart from those that are kept. Names that are released do not exist.
fn open_names(client: &Client, flow: &str, is_kept: impl Fn(&str) -> bool) -> Result<Vec<Segment>, FlowError> {
    let mut names = vec![group_name(flow)];
    for edge in client.list(&format!("{}/", table_name(flow))) {
        names.push(edge?.name);
    }
    let mut segments = Vec::new();
    for name in names.iter().filter(|name| !is_kept(name)) {
        match client.segment(name).open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => segments.push(other?),
        }
    }
    Ok(segments)
}

/// Releases segments that another process may release, too.
fn release(segments: &[Segment]) -> Result<(), FlowError> {
    for segment in segments {
        match segment.release() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Cancels a flow: its members end with an error. Removes the names of a flow without living members, with all that is left of
/// its work. Returns false if members live: they are about to end.
///
/// # Errors
/// There is no such flow, or the error of a call.
pub fn cancel(client: &Client, flow: &str) -> Result<bool, FlowError> {
    let Some(table) = FlowTable::open(client, flow)? else { return remove_unbegun(client, flow) };
    let version = loop {
        let (status, version) = table.status()?;
        if status.status.is_over() {
            break version;
        }
        let cancelled = StatusRow { status: FlowStatus::Cancelled, ..status };
        if let Some(version) = table.put_status(&cancelled, version)? {
            break version;
        }
    };
    Ok(living(client, flow)? == 0 && remove(client, flow, &table, version)?)
}

/// Removes what a process has left that died while it created a flow. Returns false if a process is about to do so.
fn remove_unbegun(client: &Client, flow: &str) -> Result<bool, FlowError> {
    let unknown = || FlowError::Unknown { flow: flow.to_owned() };
    let group = inspect(client, &group_name(flow))?;
    // A queue may have the name.
    if group.is_some_and(|group| FlowOptions::lease_in(&group.settings).is_none()) {
        return Err(unknown());
    }
    if living(client, flow)? > 0 {
        return Ok(false);
    }
    let mut segments = open_names(client, flow, |_| false)?;
    match client.segment(&table_name(flow)).open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        other => segments.push(other?),
    }
    if segments.is_empty() {
        return Err(unknown());
    }
    release(&segments)?;
    Ok(true)
}

/// Prepares another attempt of a flow that failed or was cancelled. Modules that have ended and whose results are in lists of
/// work, or with such modules, are not run again. Lists stay, with the units that are done, unless the module that fills them
/// begins again.
///
/// # Errors
/// Members live, there is no such flow, or the error of a call.
pub fn prepare(client: &Client, flow: &str) -> Result<(), FlowError> {
    loop {
        let unknown = || FlowError::Unknown { flow: flow.to_owned() };
        let table = FlowTable::open(client, flow)?.ok_or_else(unknown)?;
        let (status, version) = table.status()?;
        // Another process may have prepared it, and processes may have joined.
        if status.status == FlowStatus::Waiting {
            return Ok(());
        }
        let members = living(client, flow)?;
        if members > 0 {
            return Err(FlowError::Living { flow: flow.to_owned(), members });
        }
        if try_to_prepare(client, flow, &table, status, version)? {
            return Ok(());
        }
    }
}

/// Prepares another attempt of a flow whose status has this version. Returns false if another process has changed it since.
fn try_to_prepare(
    client: &Client,
    flow: &str,
    table: &FlowTable,
    status: StatusRow,
    version: Version,
) -> Result<bool, FlowError> {
    let graph = table.graph(&status)?;
    let Resume { finished, kept } = graph.resume(&ended(table, &status, &graph)?);
    let kept: Vec<String> = kept.iter().map(|edge| format!("river/{}/units", edge_name(flow, *edge))).collect();
    // A process that dies on the way leaves a flow that is over: the next attempt to prepare it goes on from there.
    let over = StatusRow { status: FlowStatus::Cancelled, founders: Vec::new(), verdict: None, finished, ..status };
    let Some(version) = table.put_status(&over, version)? else { return Ok(false) };
    let segments = open_names(client, flow, |name| kept.iter().any(|kept| kept == name))?;
    // No process joins before the status changes: they are those of this attempt, and no later one's.
    if table.status()?.1 != version {
        return Ok(false);
    }
    release(&segments)?;
    let waiting = StatusRow { status: FlowStatus::Waiting, attempt: over.attempt.wrapping_add(1), ..over };
    Ok(table.put_status(&waiting, version)?.is_some())
}

/// Returns the number of living members, once it is certain: the locks of living ones are free for a while when their home
/// restarts.
fn living(client: &Client, flow: &str) -> Result<usize, FlowError> {
    let name = group_name(flow);
    let group = inspect(client, &name)?;
    match group.and_then(|group| FlowOptions::lease_in(&group.settings)) {
        Some(lease) => Ok(count_living(client, &name, lease)?),
        None => Ok(0),
    }
}

/// Returns for each module whether it has ended.
fn ended(table: &FlowTable, status: &StatusRow, graph: &FlowGraph) -> Result<Vec<bool>, FlowError> {
    let sites: Vec<Site> = status.founders.iter().map(|founder| founder.site).collect();
    let founders: Vec<_> = status.founders.iter().map(|founder| (founder.place, founder.run)).collect();
    let members = table.members(u16::MAX, status.attempt)?;
    let reports: Vec<_> = members.into_iter().map(|member| member.report).collect();
    // A flow that has not begun has no plan, and has ended nothing.
    let Ok(plan) = graph.plan(&sites) else { return Ok(status.finished.clone()) };
    Ok(graph.progress(&plan, &founders, &reports, &status.finished, false).ended)
}

/// Returns the name of the state of a module in a member.
pub(super) const fn state_name(state: ModuleState) -> &'static str {
    match state {
        ModuleState::Idle => "idle",
        ModuleState::Running => "running",
        ModuleState::Done => "done",
    }
}
