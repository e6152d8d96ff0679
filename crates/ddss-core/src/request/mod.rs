//! The protocol between a client and its daemon: operations, requests, completions, listings.

pub(crate) mod completion;
pub(crate) mod inline_request;
pub(crate) mod listing;
pub(crate) mod operation;
pub(crate) mod ranges;
pub(crate) mod request;
