//! What the machine where this runs can do: a call to the daemon under each strategy, gets and puts here and on another
//! node, beside the time that one cache line takes from core to core and back.

mod chart;
mod field;
mod figures;
mod raw;

pub(crate) use figures::run;
