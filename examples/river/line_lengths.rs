//! **A flow.** Two processes on two nodes run one graph: a source puts lines, each process measures them, and one adds them up.
//!
//! ```sh
//! cargo run --example line_lengths
//! ```
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss_examples::{Failed, Nodes, Task};
use ddss_river::flow::{Each, Edge, Flow, FlowOptions};

fn main() -> Result<(), Failed> {
    let Some(task) = Task::given() else {
        let nodes = Nodes::take(2)?;
        let members = [nodes.worker(0, "first")?, nodes.worker(1, "second")?];
        members.into_iter().try_for_each(|member| member.finish())?;
        println!("both processes say that the flow has ended");
        return Ok(());
    };
    let mut flow = Flow::join_with(&task.client()?, "examples/lines", FlowOptions::new().processes(2))?;
    let read = flow.source("read", Each::Flow, |_, output| {
        (0..1000_usize).try_for_each(|length| Ok(output.put(&vec![b'x'; length])?))
    })?;
    let measure = flow.place("measure", Each::Member, |_, input, output| {
        while let Some(line) = input.take()? {
            output.put(&(line.len() as u64).to_le_bytes())?;
            line.acknowledge();
        }
        Ok(())
    })?;
    let add = flow.sink("add", Each::Flow, |_, input| {
        let mut sum = 0;
        while let Some(length) = input.take()? {
            sum += u64::from_le_bytes(length[..].try_into()?);
            length.acknowledge();
        }
        if sum == 499_500 { Ok(()) } else { Err(format!("{sum} is not the sum").into()) }
    })?;
    flow.attach(read, measure, Edge::queue())?;
    flow.attach(measure, add, Edge::queue())?;
    Ok(flow.go()?.wait()?)
}
