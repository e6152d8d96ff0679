//! A one-pass external sort of records: the flow of Figure 8.
//!
//! Readers pass blocks to partitioners, partitioners pass records to the sorter that owns their range of keys. A sorter collects, sorts,
//! and writes a run for each of its ranges, which a writer copies to its place in the output. At place 1 of the figure, behind the
//! readers, there is a queue. At place 2, behind the sorters, runs are units that writers claim: a run stays in order, and writers with
//! slow disks claim fewer.

use super::blocks::{Seen, part_name, part_path, write_complete};
use super::job::{Form, Job};
use super::partition::{self, split};
use super::records::{RECORD_BYTES, range_of};
use ddss_river::flow::{Each, Edge, Flow, FlowError};
use std::collections::BTreeMap;
use std::fs;

/// Builds the flow.
pub(super) fn build(flow: &mut Flow, job: &Job) -> Result<(), FlowError> {
    let partition = partition::place(flow, job, "records", range_of)?;
    let (runs, from, out) = (job.folder("runs"), job.folder("runs"), job.folder("out"));
    let sort = flow.place("sort", Each::Count(job.processes), move |cx, input, output| {
        let (mut ranges, mut seen) = (BTreeMap::<u16, Vec<u8>>::new(), Seen::default());
        while let Some(message) = input.take()? {
            let (range, block, records) = split(&message)?;
            if seen.is_new(range, block) {
                ranges.entry(range).or_default().extend_from_slice(records);
            }
            message.acknowledge();
        }
        for (range, records) in ranges {
            write_complete(&runs, &part_name(range), &format!("sort-{}", cx.member()), &sorted(&records))?;
            output.put(&range.to_le_bytes())?;
        }
        Ok(())
    })?;
    let write = flow.sink("write", job.each(), move |cx, input| {
        while let Some(run) = input.take()? {
            let range = u16::from_le_bytes(run[..].try_into()?);
            let records = fs::read(part_path(&from, range))?;
            write_complete(&out, &part_name(range), &format!("write-{}", cx.member()), &records)?;
            run.acknowledge();
        }
        Ok(())
    })?;
    flow.holds_data(sort)?;
    flow.attach(partition, sort, partition::edge())?;
    let to_writers = if job.form == Form::Queues { Edge::units() } else { Edge::one_to_one() };
    flow.attach(sort, write, to_writers)
}

/// Returns records in the order of their bytes.
fn sorted(records: &[u8]) -> Vec<u8> {
    let mut order: Vec<&[u8]> = records.chunks_exact(RECORD_BYTES).collect();
    order.sort_unstable();
    order.concat()
}
