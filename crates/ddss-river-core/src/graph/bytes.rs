//! Bytes of a graph, for those that show a flow without its program.

use super::error::GraphError;
use super::flow::{Each, EdgeKind, FlowGraph, ModuleId};

const KINDS: [EdgeKind; 5] =
    [EdgeKind::Queue, EdgeKind::Units, EdgeKind::OneToOne, EdgeKind::ByKey, EdgeKind::AllToAll];

/// Reads fields one behind the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], GraphError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(GraphError::Bytes)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, GraphError> {
        Ok(self.take(1)?[0])
    }

    fn half(&mut self) -> Result<u16, GraphError> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }
}

impl FlowGraph {
    /// Returns the bytes of the graph.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((self.modules.len() as u16).to_le_bytes());
        bytes.extend((self.edges.len() as u16).to_le_bytes());
        for module in &self.modules {
            let (code, count) = module.each.code();
            bytes.extend([code | u8::from(module.holds_data) << 7]);
            bytes.extend(count.unwrap_or(0).to_le_bytes());
            bytes.push(module.name.len() as u8);
            bytes.extend(module.name.as_bytes());
        }
        for edge in &self.edges {
            bytes.extend(edge.from.0.to_le_bytes());
            bytes.extend(edge.to.0.to_le_bytes());
            bytes.push(edge.kind as u8);
        }
        bytes
    }

    /// Reads a graph. Bytes behind it are ignored.
    ///
    /// # Errors
    /// Bytes that no graph has.
    pub fn decode(bytes: &[u8]) -> Result<Self, GraphError> {
        let mut fields = Fields(bytes);
        let (modules, edges) = (fields.half()?, fields.half()?);
        let mut graph = Self::default();
        for _ in 0..modules {
            let (code, count, length) = (fields.byte()?, fields.half()?, fields.byte()?);
            let each = match code & 0x7f {
                0 => Each::Flow,
                1 => Each::Node,
                2 => Each::Core,
                3 => Each::Member,
                4 => Each::Count(count),
                5 => Each::Outside,
                _ => return Err(GraphError::Bytes),
            };
            let name = std::str::from_utf8(fields.take(length.into())?).map_err(|_| GraphError::Bytes)?;
            let module = graph.place(name, each)?;
            graph.modules[module.index()].holds_data = code & 0x80 != 0;
        }
        for _ in 0..edges {
            let (from, to) = (ModuleId(fields.half()?), ModuleId(fields.half()?));
            let kind = *KINDS.get(usize::from(fields.byte()?)).ok_or(GraphError::Bytes)?;
            graph.attach(from, to, kind)?;
        }
        Ok(graph)
    }
}
