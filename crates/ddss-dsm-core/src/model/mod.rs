//! Vocabulary of a space: ranks, pages, vector times, notices, settings.

mod config;
mod config_error;
mod log_shape;
mod notice;
mod page;
mod page_set;
mod rank;
mod settings;
mod vector_time;

pub use config::{Config, Homes, Ordering, Protocol, Stamps, Tuning};
pub use config_error::ConfigError;
pub use log_shape::LogShape;
pub use notice::{ChangedPages, Notice};
pub use page::{Access, PageId, PageRange};
pub(crate) use page_set::PageSet;
pub use rank::{Rank, RankSet};
pub use settings::{SETTINGS_BYTES, SettingsError};
pub use vector_time::VectorTime;
