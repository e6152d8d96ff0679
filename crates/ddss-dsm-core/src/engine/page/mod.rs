//! Pages on their way: fetched from their home, and served to peers.

mod fetch;
mod replies;
mod serve;

pub(crate) use fetch::{resume_due, resume_unblocked, touch};
pub(crate) use replies::{on_appointed, on_claimed, on_reached, on_read, on_written};
pub(crate) use serve::{forward_or_serve, resume_stamped, serve};
