//! The commands of mirrored files: `river serve`, `load`, `cat`, `files`, `verify` and `repair`.

use super::source::Source;
use crate::arguments::river::{RiverCatOptions, RiverFilesOptions, RiverLoadOptions, RiverServeOptions};
use crate::arguments::values::DaemonOptions;
use crate::connect::connect;
use crate::error::{CommandError, WRITE_STDOUT};
use crate::output::table::{Table, format_bytes};
use crate::output::terminal_text::print_warning;
use ddss_river::{CollectionInfo, Damage, FileServer, Files, FilesOptions, QueueError};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::fs::{self, File};
use std::io::{Write, stdin, stdout};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two looks for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn options(listen: Option<IpAddr>) -> FilesOptions {
    listen.map_or_else(FilesOptions::new, |address| FilesOptions::new().listen(address))
}

fn join(named: &RiverFilesOptions, copies: u8) -> Result<Files, CommandError> {
    let options = options(named.listen).timeout(Duration::from_secs(named.timeout_s)).copies(copies);
    Ok(Files::join(&connect(&named.place)?, options)?)
}

pub(super) fn serve(arguments: &RiverServeOptions) -> Result<(), CommandError> {
    let is_ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A disk that hangs delays the end: the second signal, which finds the flag set, does not wait for it.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&is_ending))
            .and_then(|_| flag::register(signal, Arc::clone(&is_ending)))
            .map_err(CommandError::system("listen to signals"))?;
    }
    let client = connect(&arguments.place)?;
    let options = options(arguments.listen).copies(arguments.copies);
    let server = FileServer::start(&client, &arguments.directory, options)?;
    println!("file server {:016x} serves {}", server.number(), arguments.directory.display());
    while !is_ending.load(Ordering::Relaxed) {
        match server.failure() {
            None => {}
            Some(QueueError::Fenced { .. }) => {
                let error = "this file server was stopped for longer than its lease, or river/files was released or lost: no \
                             process finds it any more; start it again";
                return Err(CommandError::Refused(error.to_owned()));
            }
            Some(error) => return Err(error.into()),
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

pub(super) fn load(arguments: &RiverLoadOptions, json: bool) -> Result<(), CommandError> {
    let RiverLoadOptions { files, file, copies } = arguments;
    let opened = match file {
        Some(file) => File::open(file).map_err(CommandError::file("open", file))?,
        None => stdin().as_fd().try_clone_to_owned().map_err(CommandError::system("read standard input"))?.into(),
    };
    let mut source = Source::new(opened).map_err(CommandError::system("listen to signals"))?;
    let mut joined = join(files, *copies)?;
    source.check()?;
    let loaded = joined.load(&files.name, &mut source);
    if loaded.is_err() {
        source.check()?;
    }
    let loaded = loaded?;
    if json {
        println!("{}", as_json(&files.name, Some(&loaded)));
    } else {
        println!("{}: {} in {} parts, each on two file servers", files.name, format_bytes(loaded.bytes), loaded.parts);
    }
    Ok(())
}

pub(super) fn cat(arguments: &RiverCatOptions) -> Result<(), CommandError> {
    let RiverCatOptions { files: named, into } = arguments;
    let mut files = join(named, 1)?;
    if let Some(into) = into {
        // Half a collection never has the name.
        let partial = into.with_added_extension("partial");
        let copied = copy_unordered(&mut files, &named.name, &partial)
            .and_then(|()| fs::rename(&partial, into).map_err(CommandError::file("write", into)));
        if copied.is_err() {
            let _ = fs::remove_file(&partial);
        }
        return copied;
    }
    let (mut reader, mut out) = (files.read(&named.name)?, stdout().lock());
    while let Some(chunk) = reader.next_chunk()? {
        out.write_all(&chunk).map_err(CommandError::system(WRITE_STDOUT))?;
    }
    out.flush().map_err(CommandError::system(WRITE_STDOUT))
}

/// Writes the chunks of a collection into a file as they come.
fn copy_unordered(files: &mut Files, name: &str, into: &Path) -> Result<(), CommandError> {
    let mut reader = files.read_unordered(name)?;
    let file = File::create(into).map_err(CommandError::file("write", into))?;
    while let Some(chunk) = reader.next_chunk()? {
        file.write_all_at(&chunk.bytes, chunk.position).map_err(CommandError::file("write", into))?;
    }
    Ok(())
}

fn as_json(name: &str, found: Option<&CollectionInfo>) -> Value {
    let number = |server: &u64| format!("{server:016x}");
    json!({
        "collection": name,
        "complete": found.is_some(),
        "parts": found.map(|found| found.parts),
        "bytes": found.map(|found| found.bytes),
        "servers": found.map(|found| found.servers.iter().map(number).collect::<Vec<_>>()),
    })
}

pub(super) fn list(place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    let found = Files::list(&connect(place)?)?;
    if json {
        println!("{}", Value::Array(found.iter().map(|(name, found)| as_json(name, found.as_ref().ok())).collect()));
        return Ok(());
    }
    let mut table = Table::new(&["COLLECTION", "BYTES", "PARTS", "SERVERS"]);
    table.align_right(&[1, 2, 3]);
    for (name, found) in &found {
        let cells = match found {
            Ok(found) => [format_bytes(found.bytes), found.parts.to_string(), found.servers.len().to_string()],
            Err(QueueError::Incomplete { .. }) => ["incomplete".to_owned(), String::new(), String::new()],
            Err(error) => {
                print_warning(&format!("{name}: {error}"));
                ["unreadable".to_owned(), String::new(), String::new()]
            }
        };
        table.row(std::iter::once(name.clone()).chain(cells).collect());
    }
    table.print_or("there is no collection");
    Ok(())
}

/// Writes the damages of a collection again, and shows them.
pub(super) fn repair(named: &RiverFilesOptions, json: bool) -> Result<(), CommandError> {
    let damages = join(named, 1)?.repair(&named.name)?;
    if json {
        println!("{}", json!({ "collection": named.name, "repaired": damages_as_json(&damages) }));
    } else {
        println!("{}: both mirrors of each part are complete, {} of them new", named.name, damages.len());
    }
    Ok(())
}

fn damages_as_json(damages: &[Damage]) -> Vec<Value> {
    let as_json = |damage: &Damage| json!({ "part": damage.part, "server": format!("{:016x}", damage.server), "chunk": damage.chunk });
    damages.iter().map(as_json).collect()
}

pub(super) fn verify(named: &RiverFilesOptions, json: bool) -> Result<(), CommandError> {
    let damages = join(named, 1)?.verify(&named.name)?;
    if json {
        println!("{}", json!({ "collection": named.name, "damages": damages_as_json(&damages) }));
    } else {
        for damage in &damages {
            let (part, server) = (damage.part, damage.server);
            match damage.chunk {
                Some(chunk) => println!("part {part}: file server {server:016x} does not have chunk {chunk}"),
                None => println!("part {part}: file server {server:016x} does not answer"),
            }
        }
        if damages.is_empty() {
            println!("{}: both mirrors of each part are complete", named.name);
        }
    }
    match damages.len() {
        0 => Ok(()),
        count => Err(CommandError::Refused(format!("{count} mirrors of parts are damaged or do not answer"))),
    }
}
