//! The commands `river dot` and `cancel`, and what `ls` and `show` know of flows.

use crate::arguments::river::RiverNameOptions;
use crate::connect::connect;
use crate::error::CommandError;
use crate::output::table::Table;
use ddss::Client;
use ddss_river::flow::{EdgeInfo, FlowError, FlowInfo, FlowMember, Life, ModuleInfo};
use serde_json::{Value, json};

pub(super) fn dot(named: &RiverNameOptions) -> Result<(), CommandError> {
    let RiverNameOptions { name, place } = named;
    let flow = FlowInfo::read(&connect(place)?, name)?;
    print!("{}", flow.ok_or_else(|| FlowError::Unknown { flow: name.clone() })?.dot());
    Ok(())
}

pub(super) fn cancel(named: &RiverNameOptions, json: bool) -> Result<(), CommandError> {
    let RiverNameOptions { name, place } = named;
    let is_removed = ddss_river::flow::cancel(&connect(place)?, name)?;
    if json {
        println!("{}", json!({ "flow": name, "removed": is_removed }));
    } else if is_removed {
        println!("{name}: removed");
    } else {
        println!("{name}: its members are about to end; repeat this command to remove its names");
    }
    Ok(())
}

/// Shows a flow.
pub(super) fn show(client: &Client, name: &str, flow: &FlowInfo, json: bool) -> Result<(), CommandError> {
    let edges = flow.edges.iter().map(|edge| waiting(client, edge).map(|waiting| (edge, waiting)));
    let edges = edges.collect::<Result<Vec<_>, CommandError>>()?;
    if json {
        println!("{}", as_json(name, flow, &edges));
        return Ok(());
    }
    println!("{name}: {}, {} members, graph {:016x}", flow.status.as_str(), flow.living, flow.hash);
    if let Some(failure) = &flow.failure {
        println!("{failure}");
    }
    let mut table = Table::new(&["MODULE", "RUNS IN", "DONE IN", ""]);
    table.align_right(&[1, 2]);
    for ModuleInfo { name, running, done, is_finished, .. } in &flow.modules {
        let note = if *is_finished { "ended by an earlier attempt".to_owned() } else { String::new() };
        table.row(vec![name.clone(), running.to_string(), done.to_string(), note]);
    }
    table.print_or("it has no modules");
    let mut table = Table::new(&["FROM", "TO", "KIND", "NAME", "WAITING"]);
    table.align_right(&[4]);
    for (EdgeInfo { from, to, kind, name, .. }, waiting) in &edges {
        let waiting = waiting.map_or_else(String::new, |waiting| waiting.to_string());
        table.row(vec![from.clone(), to.clone(), kind.as_str().to_owned(), name.clone(), waiting]);
    }
    table.print_or("it has no edges");
    let mut table = Table::new(&["MEMBER", "PROCESS", "NODE", "LIFE", "MODULES"]);
    table.align_right(&[0, 1, 2]);
    for member in &flow.members {
        let FlowMember { number, process, node, modules, .. } = member;
        let modules: Vec<_> = modules.iter().map(|(module, state)| format!("{module} {state}")).collect();
        let life = life(member).to_owned();
        table.row(vec![number.to_string(), process.to_string(), node.to_string(), life, modules.join(", ")]);
    }
    table.print_or("no process has joined");
    Ok(())
}

/// Returns the messages or units of an edge that are not done. `None` if nothing counts them.
fn waiting(client: &Client, edge: &EdgeInfo) -> Result<Option<u64>, CommandError> {
    if let Some(queue) = edge.queue(client)? {
        return Ok(Some(queue.members.iter().map(|member| u64::from(member.held)).sum()));
    }
    let Some(units) = edge.units(client)? else { return Ok(None) };
    let mut waiting = 0;
    for unit in units.list()? {
        waiting += u64::from(!matches!(unit?.status, ddss_river::UnitStatus::Done));
    }
    Ok(Some(waiting))
}

const fn life(member: &FlowMember) -> &'static str {
    match member.life {
        Life::Alive => "alive",
        Life::Left => "left",
        Life::Dead => "dead",
    }
}

fn as_json(name: &str, flow: &FlowInfo, edges: &[(&EdgeInfo, Option<u64>)]) -> Value {
    let modules = flow.modules.iter().map(|module| {
        json!({ "module": module.name, "runs_in": module.running, "done_in": module.done,
            "finished": module.is_finished })
    });
    let edges = edges.iter().map(|(edge, waiting)| {
        let mut value = json!({ "from": edge.from, "to": edge.to, "kind": edge.kind.as_str(), "name": edge.name });
        if let Some(waiting) = waiting {
            value["waiting"] = json!(waiting);
        }
        value
    });
    let members = flow.members.iter().map(|member| {
        let modules: Vec<_> =
            member.modules.iter().map(|(module, state)| json!({ "module": module, "state": state })).collect();
        json!({ "member": member.number, "process": member.process, "node": member.node, "life": life(member),
            "modules": modules })
    });
    let mut value = json!({ "flow": name, "state": flow.status.as_str(), "graph": format!("{:016x}", flow.hash),
        "living": flow.living, "modules": modules.collect::<Vec<_>>(), "edges": edges.collect::<Vec<_>>(),
        "members": members.collect::<Vec<_>>() });
    if let Some(failure) = &flow.failure {
        value["failure"] = json!(failure);
    }
    value
}
