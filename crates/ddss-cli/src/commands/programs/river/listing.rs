//! The commands `river ls` and `show`.

use super::flows;
use crate::arguments::river::RiverNameOptions;
use crate::arguments::values::DaemonOptions;
use crate::connect::connect;
use crate::error::CommandError;
use crate::output::table::{Table, format_bytes};
use ddss::{Client, SegmentInfo};
use ddss_river::flow::FlowInfo;
use ddss_river::{Queue, QueueInfo, QueueMember, UnitQueue};
use serde_json::{Value, json};

/// Names of queues in the directory of segments begin so.
const PREFIX: &str = "river/";
/// Names of lists of work end so.
const UNITS: &str = "/units";
/// Names of the tables of flows end so.
const FLOW: &str = "/flow";

/// A flow, a queue or a list of work in the directory.
struct Found {
    name: String,
    home: u16,
    /// State and living members, or the number of units.
    is: Kind,
}

enum Kind {
    Flow(Box<FlowInfo>),
    Queue(QueueInfo),
    Units(u32),
}

pub(super) fn list(place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    let client = connect(place)?;
    let segments: Vec<SegmentInfo> = client.list(PREFIX).collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for segment in &segments {
        let name = segment.name.strip_prefix(PREFIX).unwrap_or_default();
        // What another release, or a user, has put there is left out.
        let units = name.strip_suffix(UNITS).and_then(|list| UnitQueue::open(&client, list).ok()?.count().ok());
        let flow = name.strip_suffix(FLOW).and_then(|flow| FlowInfo::read(&client, flow).ok()?);
        let is = match (units, flow) {
            (Some(units), _) => Some(Kind::Units(units)),
            (_, Some(flow)) => Some(Kind::Flow(Box::new(flow))),
            _ => Queue::inspect(&client, name).ok().flatten().map(Kind::Queue),
        };
        let suffix = match is {
            Some(Kind::Units(_)) => UNITS,
            Some(Kind::Flow(_)) => FLOW,
            _ => "",
        };
        let name = name.strip_suffix(suffix).unwrap_or(name).to_owned();
        found.extend(is.map(|is| Found { name, home: segment.home.0, is }));
    }
    if json {
        println!("{}", Value::Array(found.iter().map(as_json).collect()));
        return Ok(());
    }
    let mut table = Table::new(&["NAME", "KIND", "STATE", "MEMBERS", "UNITS", "HOME"]);
    table.align_right(&[3, 4, 5]);
    for Found { name, home, is } in &found {
        let (kind, state, members, units) = match is {
            Kind::Queue(queue) => {
                let members = format!("{} of {}", queue.members.len(), queue.places);
                ("queue", queue.status.as_str(), members, String::new())
            }
            Kind::Flow(flow) => ("flow", flow.status.as_str(), flow.living.to_string(), String::new()),
            Kind::Units(units) => ("units", "", String::new(), units.to_string()),
        };
        table.row(vec![name.clone(), kind.to_owned(), state.to_owned(), members, units, home.to_string()]);
    }
    table.print_or("there is no flow, no queue and no list of work");
    Ok(())
}

fn as_json(found: &Found) -> Value {
    match &found.is {
        Kind::Queue(queue) => json!({ "name": found.name, "kind": "queue", "home": found.home,
            "state": queue.status.as_str(), "members": queue.members.len(), "places": queue.places }),
        Kind::Flow(flow) => json!({ "name": found.name, "kind": "flow", "home": found.home,
            "state": flow.status.as_str(), "members": flow.living }),
        Kind::Units(units) => json!({ "name": found.name, "kind": "units", "home": found.home, "units": units }),
    }
}

pub(super) fn show(named: &RiverNameOptions, json: bool) -> Result<(), CommandError> {
    let RiverNameOptions { name, place } = named;
    let client = connect(place)?;
    if let Some(flow) = FlowInfo::read(&client, name)? {
        return flows::show(&client, name, &flow, json);
    }
    let Some(queue) = Queue::inspect(&client, name)? else {
        return Err(CommandError::Refused(format!("there is no queue or flow {name}: `ddss river ls` lists them")));
    };
    if json {
        let members: Vec<_> = queue.members.iter().map(member_as_json).collect();
        println!(
            "{}",
            json!({ "queue": name, "state": queue.status.as_str(), "places": queue.places,
            "message_bytes_max": queue.message_bytes_max, "members": members })
        );
        return Ok(());
    }
    let (members, places, bytes) = (queue.members.len(), queue.places, format_bytes(queue.message_bytes_max.into()));
    println!("{name}: {}, {members} of {places} members, messages of up to {bytes}", queue.status.as_str());
    let mut table =
        Table::new(&["MEMBER", "PROCESS", "ADDRESS", "PUT", "PUT/S", "HELD", "TAKEN", "TAKEN/S", "IN WORK", ""]);
    table.align_right(&[0, 1, 3, 4, 5, 6, 7, 8]);
    table.set_optional(&[2, 3, 6]);
    let slowest = slowest(&queue.members);
    for member in &queue.members {
        table.row(vec![
            member.number.to_string(),
            member.process.to_string(),
            member.address.to_string(),
            member.put.to_string(),
            format!("{:.1}", member.put_rate),
            member.held.to_string(),
            member.taken.to_string(),
            format!("{:.1}", member.take_rate),
            member.in_work.to_string(),
            if slowest == Some(member.number) { "slowest".to_owned() } else { String::new() },
        ]);
    }
    table.print_or("no process has opened it");
    Ok(())
}

/// Returns the queues in the directory, with their names.
pub(super) fn queues(client: &Client) -> Result<Vec<(String, QueueInfo)>, CommandError> {
    let mut found = Vec::new();
    for segment in client.list(PREFIX) {
        let segment = segment?;
        let name = segment.name.strip_prefix(PREFIX).unwrap_or_default();
        // What another release, or a user, has put there is left out.
        found.extend(Queue::inspect(client, name).ok().flatten().map(|queue| (name.to_owned(), queue)));
    }
    Ok(found)
}

/// Returns the consumer with the lowest rate, if there are several.
pub(super) fn slowest(members: &[QueueMember]) -> Option<u16> {
    let consumers = || members.iter().filter(|member| member.taken > 0);
    let slowest = consumers().min_by(|a, b| a.take_rate.total_cmp(&b.take_rate))?;
    (consumers().any(|other| other.take_rate > slowest.take_rate)).then_some(slowest.number)
}

pub(super) fn member_as_json(member: &QueueMember) -> Value {
    json!({
        "member": member.number,
        "process": member.process,
        "address": member.address.to_string(),
        "put": member.put,
        "put_bytes": member.put_bytes,
        "put_per_s": member.put_rate,
        "held": member.held,
        "taken": member.taken,
        "taken_per_s": member.take_rate,
        "in_work": member.in_work,
    })
}
