//! Copies files: blocks travel from readers to writers.

use super::blocks::{Block, part_path};
use super::job::Job;
use ddss_river::flow::{Flow, FlowError};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

/// Builds the flow. A block that comes twice is written twice to the same place.
pub(super) fn build(flow: &mut Flow, job: &Job) -> Result<(), FlowError> {
    let read = super::read::place(flow, job, "records")?;
    let out = job.folder("out");
    let write = flow.sink("write", job.each(), move |_, input| {
        while let Some(message) = input.take()? {
            let (block, bytes) = Block::split(&message)?;
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(part_path(&out, block.part))?;
            file.write_all_at(bytes, block.offset())?;
            message.acknowledge();
        }
        Ok(())
    })?;
    flow.attach(read, write, job.edge())
}
