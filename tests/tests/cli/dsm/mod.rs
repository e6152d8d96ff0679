//! `ddss dsm` with real ranks: this program again, which `ddss dsm run` starts several times.

mod check;
mod checkpoint;
mod run;
mod top;
