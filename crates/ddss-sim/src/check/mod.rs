//! What clients saw, and what of it must not be.
//!
//! | file | what it checks |
//! | --- | --- |
//! | `history.rs` | by version, exact and O(n log n): values, order as each model promises it, updates lost |
//! | `sections.rs` | what happened while somebody held a lock |
//! | `stamps.rs` | timestamps rise with the versions |
//! | `search.rs` | a general search for a linear order, as second opinion on small windows |

mod history;
mod search;
mod sections;
mod stamps;

pub use history::{History, Observation, What};
pub use search::{Step, explain};
pub use sections::{Section, Sections};
pub use stamps::Stamps;
