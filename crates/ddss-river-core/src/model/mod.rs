//! Vocabulary: names, messages, settings.

mod chunk;
mod config;
mod guarantee;
mod header;
mod id;
mod moment;
mod notice;
mod unit;

pub use chunk::{ChunkReply, ChunkRequest, Mirror, PartId, Progress, ReaderId};
pub use config::{ConfigError, QueueConfig};
pub use guarantee::Guarantee;
pub use header::{Attempt, Flags, Header};
pub use id::{ConsumerId, EdgeId, ProducerId, Route, UnitId};
pub(crate) use moment::Draw;
pub use moment::Moment;
pub use notice::{Load, ToConsumer, ToProducer};
pub use unit::{ListId, UnitRef, UnitRow, UnitState, WorkerId};
