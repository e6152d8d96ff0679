//! The calls of an application.

mod block_on;
mod consumer;
mod inspect;
mod message;
mod options;
mod producer;
mod queue;
mod session;

pub(crate) use block_on::block_on;
pub use consumer::{AsyncConsumer, Consumer};
pub use inspect::{MemberWork, QueueInfo, QueueMember, QueueStatus};
pub use message::Message;
pub use options::QueueOptions;
pub use producer::{AsyncProducer, Producer};
pub use queue::Queue;
