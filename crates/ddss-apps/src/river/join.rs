//! A one-pass hash join of two inputs of records: the flow of Figure 11.
//!
//! Each input is read and split by a hash of its keys. A joiner first takes the records of the input `build` into a hash table, then
//! searches it for each record of `probe`. The rows go to any writer.

use super::blocks::{Block, Seen, write_complete};
use super::job::{Job, MESSAGE_BYTES_MAX};
use super::partition::{self, split};
use super::records::{KEY_BYTES, RECORD_BYTES, hash_of, key, payload};
use ddss_river::flow::{Each, Flow, FlowError, Input, ModuleError, Output};
use std::collections::HashMap;

/// Bytes of rows in a message at most; a row has 189.
const ROWS_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize - 1024;

type Table = HashMap<[u8; KEY_BYTES], Vec<Vec<u8>>>;

/// Builds the flow.
pub(super) fn build(flow: &mut Flow, job: &Job) -> Result<(), FlowError> {
    let build = partition::place(flow, job, "build", hash_of)?;
    let probe = partition::place(flow, job, "probe", hash_of)?;
    let join = flow.place("join", Each::Count(job.processes), |_, input, output| {
        let table = read_build(input)?;
        let mut seen = Seen::default();
        while let Some(message) = input.take_from("partition-probe")? {
            let (partition, block, records) = split(&message)?;
            if seen.is_new(partition, block) {
                put_rows(&table, records, partition, block, output)?;
            }
            message.acknowledge();
        }
        Ok(())
    })?;
    let out = job.folder("out");
    let write = flow.sink("write", job.each(), move |cx, input| {
        while let Some(message) = input.take()? {
            let (partition, block, rest) = split(&message)?;
            let (piece, rows) = rest.split_first_chunk().ok_or("rows without the number of their piece")?;
            let Block { part, number } = block;
            let name = format!("{partition}-{part}-{number}-{}", u16::from_le_bytes(*piece));
            write_complete(&out, &name, &format!("write-{}", cx.member()), rows)?;
            message.acknowledge();
        }
        Ok(())
    })?;
    flow.holds_data(join)?;
    flow.attach(build, join, partition::edge())?;
    flow.attach(probe, join, partition::edge())?;
    flow.attach(join, write, job.edge())
}

/// Takes the smaller input into a hash table.
fn read_build(input: &mut Input) -> Result<Table, ModuleError> {
    let (mut table, mut seen) = (Table::new(), Seen::default());
    while let Some(message) = input.take_from("partition-build")? {
        let (partition, block, records) = split(&message)?;
        if seen.is_new(partition, block) {
            for record in records.chunks_exact(RECORD_BYTES) {
                table.entry(key(record).try_into()?).or_default().push(payload(record).to_vec());
            }
        }
        message.acknowledge();
    }
    Ok(table)
}

/// Puts a row for each pair of records with one key.
fn put_rows(
    table: &Table,
    records: &[u8],
    partition: u16,
    block: Block,
    output: &mut Output,
) -> Result<(), ModuleError> {
    let mut piece = 0_u16;
    let begin = |piece: u16| [&partition.to_le_bytes()[..], &block.encode(), &piece.to_le_bytes()].concat();
    let (mut rows, empty) = (begin(piece), begin(piece).len());
    for record in records.chunks_exact(RECORD_BYTES) {
        for built in table.get(key(record)).into_iter().flatten() {
            if rows.len() > ROWS_BYTES_MAX {
                output.put(&rows)?;
                piece = piece.checked_add(1).ok_or("too many rows of one block")?;
                rows = begin(piece);
            }
            rows.extend_from_slice(&[key(record), b" ", built, b" ", payload(record), b"\n"].concat());
        }
    }
    if rows.len() > empty {
        output.put(&rows)?;
    }
    Ok(())
}
