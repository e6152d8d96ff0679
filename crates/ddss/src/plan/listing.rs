//! Pages of a listing of segments, and the events of its changes.

use crate::error::Error;
use crate::plan::{CallPlan, Decoder, PlannedCall};
use ddss_core::{Failure, ListPage, ListQuery, Listing, NodeId};

/// A page of a listing, or the reason why its bytes are invalid.
pub(crate) type Page = Result<(ListPage, Vec<Listing>), Failure>;

impl<'a> CallPlan<'a> {
    /// Adds the decoder of a page in the arena.
    pub(crate) fn returns_page(self) -> PlannedCall<'a, impl Decoder<Page>> {
        self.receives(Listing::PAGE_BYTES).returns(|completion, reply| {
            let mut bytes = [0; Listing::PAGE_BYTES];
            reply.read(0, &mut bytes);
            let page = ListPage::decode(&completion.data);
            let mut left = bytes.get(..page.bytes.into()).ok_or(Failure::Malformed)?;
            let mut found = Vec::new();
            while !left.is_empty() {
                found.push(Listing::take_from(&mut left)?);
            }
            Ok((page, found))
        })
    }
}

/// Position of a listing on one shard.
#[derive(Debug)]
pub(crate) struct ListCursor {
    pub(crate) query: ListQuery,
    /// Node of the next page; `None` at the end.
    pub(crate) node: Option<NodeId>,
    /// Nodes of this shard whose pages are complete.
    covered: Vec<NodeId>,
}

impl ListCursor {
    pub(crate) fn new(prefix: &str) -> Result<Self, Error> {
        let query = ListQuery::new(prefix, "").map_err(|failure| list_error(prefix, failure))?;
        Ok(Self { query, node: Some(NodeId(1)), covered: Vec::new() })
    }

    /// Returns the nodes of this shard whose pages are complete.
    pub(crate) fn covered(&self) -> &[NodeId] {
        &self.covered
    }

    /// Moves to the begin of the next shard.
    pub(crate) fn restart(&mut self) {
        self.query.after.clear();
        self.covered.clear();
        self.node = Some(NodeId(1));
    }

    /// Moves past a page.
    pub(crate) fn advance(&mut self, page: &ListPage, last: Option<&Listing>) {
        self.query.after.clear();
        self.node = match (page.node, last) {
            (NodeId::NONE, _) => None,
            (node, Some(last)) if page.more => {
                self.query.after.push_str(last.name.as_str());
                Some(node)
            }
            (node, _) => {
                if !page.away {
                    self.covered.push(node);
                }
                node.0.checked_add(1).map(NodeId)
            }
        };
    }
}

pub(crate) fn list_error(prefix: &str, failure: Failure) -> Error {
    Error::failed("list", prefix, failure)
}
