//! The service thread of a queue: it carries messages between the members over a fabric.

mod service;

pub(crate) use service::{CLOSED, FAILED, Service, ServiceConfig};
