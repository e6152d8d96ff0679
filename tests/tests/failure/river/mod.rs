//! Data flow between processes that are killed, stopped and cut off.

mod campaign;
mod files;
mod flow_attempts;
mod flow_graphs;
mod flow_joins;
mod flow_members;
mod flows;
mod queues;
mod unauthenticated;
mod units;
