//! Both ends of a queue in processes that are killed or stopped, over connections that end.
//!
//! `plan` says what happens. `process` and `link` hold the state of processes and connections, `world` all of them. `post`
//! executes actions, `application` puts and takes messages, `connection` begins and ends connections, `fault` kills and
//! stops. `checker` judges each message.

mod application;
mod checker;
mod connection;
mod event;
mod fault;
mod link;
mod plan;
mod post;
mod process;
mod run;
mod world;

pub(crate) use plan::{QueuePlan, Sink, Source, random_plan};
pub(crate) use run::run_queue;
pub(crate) use world::QueueCounts;
