//! The module that splits blocks of records by their keys, and the edge to the module that owns each part of the keys.

use super::blocks::Block;
use super::job::Job;
use super::records::{RECORD_BYTES, key};
use ddss_river::flow::{Edge, Flow, FlowError, Module, ModuleError};

/// Parts of the keys for each process: an owner has several small ones, so that the runs of a sort are many.
const PARTITIONS_A_PROCESS: u16 = 4;

/// Returns the number of parts of the keys.
pub(super) fn partitions(job: &Job) -> u16 {
    PARTITIONS_A_PROCESS * job.processes
}

/// Reads an input, and places the partitioners behind its readers: at place 1 of the published figure.
pub(super) fn place(
    flow: &mut Flow,
    job: &Job,
    input: &str,
    partition_of: fn(&[u8], u16) -> u16,
) -> Result<Module, FlowError> {
    let read = super::read::place(flow, job, input)?;
    let partitions = partitions(job);
    let partition = flow.place(&format!("partition-{input}"), job.each(), move |_, input, output| {
        let mut portions = vec![Vec::new(); partitions.into()];
        while let Some(message) = input.take()? {
            let (block, records) = Block::split(&message)?;
            for record in records.chunks_exact(RECORD_BYTES) {
                portions[usize::from(partition_of(key(record), partitions))].extend_from_slice(record);
            }
            for (portion, partition) in portions.iter_mut().zip(0_u16..).filter(|(portion, _)| !portion.is_empty()) {
                output.put(&[&partition.to_le_bytes()[..], &block.encode(), portion].concat())?;
                portion.clear();
            }
            message.acknowledge();
        }
        Ok(())
    })?;
    flow.attach(read, partition, job.edge())?;
    Ok(partition)
}

/// Returns the edge to the owners of the parts.
pub(super) fn edge() -> Edge {
    Edge::by_key(|message| &message[..message.len().min(2)])
}

/// Returns the part, the block and the records of a message.
pub(super) fn split(message: &[u8]) -> Result<(u16, Block, &[u8]), ModuleError> {
    let (partition, rest) = message.split_first_chunk().ok_or("a message without its part of the keys")?;
    let (block, records) = Block::split(rest)?;
    Ok((u16::from_le_bytes(*partition), block, records))
}
