//! Rules for messages of lost consumers, and for the end of an edge.

mod end;
mod outcome;
mod strikes;

pub(crate) use end::Inputs;
pub(crate) use outcome::{Outcome, after_loss, after_rejection, after_return};
pub(crate) use strikes::Strikes;
