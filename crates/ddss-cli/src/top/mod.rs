//! The command `top`: a live view of a daemon's status page. `screen` draws and handles keys, `view` computes rates and
//! tables, `layout` distributes the lines of the terminal, and `name_cache` resolves segment names.

mod layout;
mod name_cache;
mod screen;
mod view;

pub(crate) use screen::run;
