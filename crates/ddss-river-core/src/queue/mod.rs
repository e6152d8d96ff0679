//! The queue: credits, choice, recall, and delivery until a message is acknowledged.
//!
//! `messages` and `peers` hold the producer's state. `choice` and `recall` select consumers and messages. `producer` and
//! `consumer` are the two ends.

mod action;
mod arrivals;
mod choice;
mod consumer;
mod event;
mod messages;
mod peers;
mod producer;
mod recall;

pub use action::{ConsumerAction, ProducerAction};
pub use arrivals::{Taken, Violation};
pub use consumer::{Consumer, Take};
pub use event::{ConsumerEvent, ProducerEvent};
pub use producer::Producer;
