//! **A flow.** Three processes on two nodes run one graph: one loads a folder of images, all of them count shapes, and one adds up.
//!
//! ```sh
//! cargo run --example images
//! ```
#![allow(clippy::print_stdout, reason = "an example prints to its user")]

use ddss_examples::{Failed, Nodes, Task};
use ddss_river::flow::{Each, Edge, Flow, FlowOptions};
use std::fs::{read, read_dir};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/notes/figures");

/// Returns the number of shapes in a drawing.
fn shapes(image: &[u8]) -> u64 {
    image.iter().filter(|byte| **byte == b'<').count() as u64
}

fn main() -> Result<(), Failed> {
    let Some(task) = Task::given() else {
        let nodes = Nodes::take(2)?;
        let members = [nodes.worker(0, "first")?, nodes.worker(1, "second")?, nodes.worker(0, "third")?];
        members.into_iter().try_for_each(|member| member.finish())?;
        println!("three processes say that the flow has ended");
        return Ok(());
    };
    let mut flow = Flow::join_with(&task.client()?, "examples/images", FlowOptions::new().processes(3))?;
    let load = flow.source("load", Each::Flow, |_, output| {
        read_dir(FOLDER)?.try_for_each(|image| Ok(output.put(&read(image?.path())?)?))
    })?;
    let count = flow.place("count", Each::Member, |_, input, output| {
        while let Some(image) = input.take()? {
            output.put(&shapes(&image).to_le_bytes())?;
            image.acknowledge();
        }
        Ok(())
    })?;
    let add = flow.sink("add", Each::Flow, |_, input| {
        let (mut sum, mut expected) = (0, 0);
        while let Some(counted) = input.take()? {
            sum += u64::from_le_bytes(counted[..].try_into()?);
            counted.acknowledge();
        }
        for image in read_dir(FOLDER)? {
            expected += shapes(&read(image?.path())?);
        }
        if sum == expected { Ok(()) } else { Err(format!("{sum} instead of {expected} shapes").into()) }
    })?;
    flow.attach(load, count, Edge::queue())?;
    flow.attach(count, add, Edge::queue())?;
    Ok(flow.go()?.wait()?)
}
