//! The module that reads an input, block by block.

use super::blocks::Block;
use super::job::{Form, Job};
use ddss_river::flow::{Edge, Flow, FlowError, Module};

/// Places the readers of an input. With queues any of them reads the next block of a list; in the static form reader i reads part i.
pub(super) fn place(flow: &mut Flow, job: &Job, input: &str) -> Result<Module, FlowError> {
    let (name, folder) = (format!("read-{input}"), job.folder(input));
    if job.form == Form::Static {
        return flow.source(&name, job.each(), move |cx, output| {
            for block in Block::all(&folder, cx.instance())? {
                output.put(&block.read(&folder)?)?;
            }
            Ok(())
        });
    }
    let list = flow.list(&job.list(input))?;
    let read = flow.place(&name, job.each(), move |_, input, output| {
        while let Some(unit) = input.take()? {
            let (block, _) = Block::split(&unit)?;
            output.put(&block.read(&folder)?)?;
            unit.acknowledge();
        }
        Ok(())
    })?;
    flow.attach(list, read, Edge::units())?;
    Ok(read)
}
