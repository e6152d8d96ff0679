//! Writer of a tree that a test kills: it changes the tree step by step and prints the number of commits after each.
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;
use std::io::{self, Write};

use ddss::{Client, ConnectOptions};
use ddss_apps::storage::DdssPages;
use ddss_apps::tree::{BTree, RTree, crash_workload};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, name, sort, seed] = &arguments[..] else {
        return Err("usage: tree-writer FOLDER NAME btree|rtree SEED".into());
    };
    let client = Client::connect_with(ConnectOptions::new().directory(folder))?;
    let (pages, seed) = (DdssPages::open(&client, name)?, seed.parse()?);
    let mut step: Box<dyn FnMut() -> Result<u64, ddss_apps::Error>> = if sort == "btree" {
        let mut tree = BTree::open(pages)?;
        Box::new(move || crash_workload::step(&mut tree, seed))
    } else {
        let mut tree = RTree::open(pages)?;
        Box::new(move || crash_workload::step_in_place(&mut tree, seed))
    };
    let mut out = io::stdout().lock();
    loop {
        let steps = step()?;
        writeln!(out, "{steps}")?;
        out.flush()?;
    }
}
