//! Compiled twice, with the attributes of the module around it.

use super::{only_aio, only_blocking, twin};
use std::cell::Cell;

#[only_blocking]
pub const FORM: &str = "blocking";

#[only_aio]
pub const FORM: &str = "aio";

/// A counter.
///
/// A paragraph that the asynchronous form leaves out.
#[twin]
#[derive(Default)]
pub struct Counter(Cell<u64>);

#[twin]
impl Counter {
    pub async fn add(&self, number: u64) -> u64 {
        self.0.set(self.0.get() + number);
        self.0.get()
    }

    pub async fn add_by_each_kind_of_future(&self) -> u64 {
        let by_closure = async |number| self.add(number).await;
        let by_block = |number| async move { by_closure(number).await + 10 };
        match by_block(1).await {
            11 => self.add(self.add(1).await).await,
            _ => 0,
        }
    }

    pub fn quotes(&self) -> &'static str {
        "an async word and an .await in a text stay"
    }
}
