//! What the machine where this runs can do: a call to the daemon under each strategy, gets and puts here and on another
//! node, beside the time that one cache line takes from core to core and back.

mod baseline;
mod chart;
mod figures;
mod setup;

pub(crate) use figures::run;
