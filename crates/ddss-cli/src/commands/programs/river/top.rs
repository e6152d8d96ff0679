//! The command `river top`: what the members of queues do.

use super::listing::{member_as_json, queues, slowest};
use crate::arguments::river::RiverTopOptions;
use crate::connect::connect;
use crate::error::CommandError;
use crate::output::table::Table;
use ddss::Client;
use ddss_river::flow::FlowInfo;
use ddss_river::{MemberWork, QueueInfo, QueueMember};
use serde_json::{Value, json};

/// A queue with living members.
struct Found {
    name: String,
    /// Modules at both ends, for an edge of a flow.
    edge: Option<[String; 2]>,
    queue: QueueInfo,
}

pub(super) fn show(options: &RiverTopOptions, json: bool) -> Result<(), CommandError> {
    let client = connect(&options.place)?;
    let is_asked = |name: &str| {
        let rest = options.name.as_ref().map(|asked| name.strip_prefix(asked.as_str()));
        rest.is_none_or(|rest| rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    };
    let mut found = Vec::new();
    for (name, queue) in queues(&client)?.into_iter().filter(|(name, _)| is_asked(name)) {
        if !queue.members.is_empty() {
            let edge = edge_of(&client, &name);
            found.push(Found { name, edge, queue });
        }
    }
    if let Some(name) = options.name.as_ref().filter(|_| found.is_empty()) {
        let why = format!("no process has opened the queue or flow {name}: `ddss river ls` lists them");
        return Err(CommandError::Refused(why));
    }
    if json {
        println!("{}", Value::Array(found.iter().map(as_json).collect()));
        return Ok(());
    }
    let mut table =
        Table::new(&["QUEUE", "MEMBER", "PROCESS", "PUT/S", "HELD", "FILL", "TAKEN/S", "BUSY", "BLOCKED", "IDLE", ""]);
    table.align_right(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    table.set_optional(&[2, 4]);
    for Found { name, edge, queue } in &found {
        let slowest = slowest(&queue.members);
        for member in &queue.members {
            table.row(vec![
                edge.as_ref().map_or_else(|| name.clone(), |[from, to]| format!("{name}: {from} -> {to}")),
                member.number.to_string(),
                member.process.to_string(),
                format!("{:.1}", member.put_rate),
                member.held.to_string(),
                work(member, |work| format!("{:.0} %", 100.0 * f64::from(member.held) / f64::from(work.send_slots))),
                format!("{:.1}", member.take_rate),
                work(member, |work| format!("{:.2}", work.busy)),
                work(member, |work| format!("{:.2}", work.blocked)),
                work(member, |work| format!("{:.2}", work.idle)),
                if slowest == Some(member.number) { "slowest".to_owned() } else { String::new() },
            ]);
        }
    }
    table.print_or("no process has opened a queue");
    Ok(())
}

/// Returns the modules at the ends of a queue, if it is an edge of a flow that can be read: the flow may end just now, and its
/// name may be that of something else.
fn edge_of(client: &Client, queue: &str) -> Option<[String; 2]> {
    // The name of a flow may have slashes.
    let flow = queue.match_indices('/').find_map(|(at, _)| FlowInfo::read(client, &queue[..at]).ok().flatten())?;
    let is_its = |name: &str| queue.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    flow.edges.into_iter().find(|edge| is_its(&edge.name)).map(|edge| [edge.from, edge.to])
}

/// Formats what a member is busy with, if it says that.
fn work(member: &QueueMember, format: impl FnOnce(MemberWork) -> String) -> String {
    member.work.map_or_else(|| "-".to_owned(), format)
}

fn as_json(found: &Found) -> Value {
    let slowest = slowest(&found.queue.members);
    let members = found.queue.members.iter().map(|member| {
        let mut value = member_as_json(member);
        value["send_slots"] = json!(member.work.map(|work| work.send_slots));
        value["busy"] = json!(member.work.map(|work| work.busy));
        value["blocked"] = json!(member.work.map(|work| work.blocked));
        value["idle"] = json!(member.work.map(|work| work.idle));
        value["slowest"] = json!(slowest == Some(member.number));
        value
    });
    let mut value = json!({ "queue": found.name, "state": found.queue.status.as_str(),
        "members": members.collect::<Vec<_>>() });
    if let Some([from, to]) = &found.edge {
        (value["from"], value["to"]) = (json!(from), json!(to));
    }
    value
}
