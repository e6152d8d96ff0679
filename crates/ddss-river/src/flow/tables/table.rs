//! The table `river/NAME/flow`: calls, which fail in passing while a daemon is away.

use super::rows::{MEMBERS_MAX, MemberRow, ROW_BYTES, StatusRow};
use crate::flow::error::FlowError;
use ddss::{Client, ErrorKind, Model, Spec, Table, Version};
use ddss_river_core::{EdgeId, FlowGraph};

/// Row of the status.
const STATUS: u64 = 0;
/// Bytes of a graph at most.
const GRAPH_BYTES_MAX: usize = 1 << 20;

/// Returns the name of the group, which is that of the flow.
pub(crate) fn group_name(flow: &str) -> String {
    format!("river/{flow}")
}

/// Returns the name of the table. Names of edges begin so, too; users cannot choose them.
pub(crate) fn table_name(flow: &str) -> String {
    format!("river/{flow}/flow")
}

/// Returns the name of the queue or list of an edge.
pub(crate) fn edge_name(flow: &str, edge: EdgeId) -> String {
    format!("{flow}/flow/{}", edge.0)
}

/// Table of a flow.
#[derive(Clone, Debug)]
pub(crate) struct FlowTable {
    flow: String,
    table: Table,
}

impl FlowTable {
    /// Opens the table of a flow, or creates it with this graph.
    ///
    /// # Errors
    /// The flow has another graph, its table is of another release, or the error of a call.
    pub(crate) fn create(client: &Client, flow: &str, graph: &FlowGraph, copies: u8) -> Result<Self, FlowError> {
        let bytes = graph.encode();
        let rows = 1 + u64::from(MEMBERS_MAX) + bytes.len().div_ceil(ROW_BYTES) as u64;
        let spec = Spec::new(rows).row_len(ROW_BYTES as u32).model(Model::Write).copies(copies);
        let table = match client.table::<[u8]>(&table_name(flow)).open_or_allocate(spec) {
            // That of a longer or a shorter graph.
            Err(error) if error.kind() == ErrorKind::WrongShape => client.table::<[u8]>(&table_name(flow)).open()?,
            other => other?,
        };
        let flow = Self::of(flow, table)?;
        if !flow.has_status()? {
            // All members write the same, and the status behind it.
            for (row, part) in (1 + u64::from(MEMBERS_MAX)..).zip(bytes.chunks(ROW_BYTES)) {
                flow.table.row(row).put_with(&[(0, part)], ddss::PutOptions::new())?;
            }
            flow.put_status(&StatusRow::new(bytes.len(), graph.modules().count()), Version(0))?;
        }
        flow.compare(graph)?;
        Ok(flow)
    }

    /// Opens the table of a flow. `None` if there is none, or its creator has not written the status yet.
    pub(crate) fn open(client: &Client, flow: &str) -> Result<Option<Self>, FlowError> {
        let table = match client.table::<[u8]>(&table_name(flow)).open() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let flow = Self::of(flow, table)?;
        Ok(flow.has_status()?.then_some(flow))
    }

    fn of(flow: &str, table: Table) -> Result<Self, FlowError> {
        let flow = Self { flow: flow.to_owned(), table };
        if flow.table.row_len() != ROW_BYTES as u64 || flow.table.len() <= u64::from(MEMBERS_MAX) {
            return Err(flow.damaged(STATUS));
        }
        Ok(flow)
    }

    fn has_status(&self) -> Result<bool, FlowError> {
        Ok(self.table.row(STATUS).get()?.version() != Version(0))
    }

    /// Refuses another graph than that of the flow.
    pub(crate) fn compare(&self, graph: &FlowGraph) -> Result<(), FlowError> {
        let (status, _) = self.status()?;
        Ok(graph.compare(self.graph(&status)?.hash())?)
    }

    fn damaged(&self, row: u64) -> FlowError {
        FlowError::Row { flow: self.flow.clone(), row }
    }

    /// Reads the status and its version.
    pub(crate) fn status(&self) -> Result<(StatusRow, Version), FlowError> {
        let row = self.table.row(STATUS).get()?;
        let status = StatusRow::decode(&row).ok_or_else(|| self.damaged(STATUS))?;
        Ok((status, row.version()))
    }

    /// Writes the status if it has that version. Returns the next version, or `None` if it has another one.
    pub(crate) fn put_status(&self, status: &StatusRow, version: Version) -> Result<Option<Version>, FlowError> {
        self.put(STATUS, &status.encode(), version)
    }

    /// Writes a row if it has that version. Returns the next version, or `None` if it has another one.
    fn put(&self, row: u64, bytes: &[u8], version: Version) -> Result<Option<Version>, FlowError> {
        match self.table.row(row).put_if(version, bytes) {
            Err(error) if error.kind() == ErrorKind::VersionMismatch => Ok(None),
            other => Ok(Some(other?.version)),
        }
    }

    /// Reads what the process in a place reports, and the version of its row.
    pub(crate) fn member(&self, place: u16) -> Result<(Option<MemberRow>, Version), FlowError> {
        let row = self.table.row(1 + u64::from(place)).get()?;
        Ok((MemberRow::decode(&row, place), row.version()))
    }

    /// Writes the row of a place if it has that version. Returns the next version, or `None` if it has another one.
    pub(crate) fn put_member(&self, row: &MemberRow, version: Version) -> Result<Option<Version>, FlowError> {
        self.put(1 + u64::from(row.report.place), &row.encode(), version)
    }

    /// Reads what the processes in the first places report, if they take part in this attempt.
    pub(crate) fn members(&self, places: u16, attempt: u32) -> Result<Vec<MemberRow>, FlowError> {
        let rows = (0..places.min(MEMBERS_MAX)).map(|place| Ok(self.member(place)?.0));
        let rows = rows.map(|row| row.map(|row| row.filter(|row| row.attempt == attempt)));
        rows.filter_map(Result::transpose).collect()
    }

    /// Reads the graph.
    pub(crate) fn graph(&self, status: &StatusRow) -> Result<FlowGraph, FlowError> {
        let first = 1 + u64::from(MEMBERS_MAX);
        let length = status.graph_bytes as usize;
        if length > GRAPH_BYTES_MAX || length.div_ceil(ROW_BYTES) as u64 > self.table.len() - first {
            return Err(self.damaged(STATUS));
        }
        let mut bytes = Vec::with_capacity(length);
        for row in first..first + length.div_ceil(ROW_BYTES) as u64 {
            bytes.extend_from_slice(&self.table.row(row).get()?);
        }
        bytes.truncate(length);
        Ok(FlowGraph::decode(&bytes)?)
    }

    /// Releases the table. Returns false if another process was first.
    pub(crate) fn release(&self) -> Result<bool, FlowError> {
        match self.table.segment().release() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            other => {
                other?;
                Ok(true)
            }
        }
    }
}
