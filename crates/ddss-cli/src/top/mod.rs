//! What a node does now: a live view of the page on which its daemon shows what it does.

mod layout;
mod name_cache;
mod screen;
mod view;

pub(crate) use screen::run;
