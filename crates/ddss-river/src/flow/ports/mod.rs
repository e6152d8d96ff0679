//! The edges of a process, and both ends of each.
//!
//! `ground` has what all instances of a process share, `edge` the kinds of edges, `output` and `input` the two ends, and `message`
//! the order of acknowledgements.

mod edge;
mod ground;
mod input;
mod message;
mod output;

pub use edge::Edge;
pub(crate) use ground::Ground;
pub use input::Input;
pub use message::Message;
pub use output::Output;
pub(crate) use output::Outputs;
