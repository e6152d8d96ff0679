//! Comparison of what the programs wrote with the result of other programs: `sort` and `join` of the system.

use super::blocks::{names, part_path};
use super::images::thumbnail;
use super::job::{Job, Program};
use super::records::RECORD_BYTES;
use crate::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compares the output. Returns what was compared.
pub(super) fn check(job: &Job) -> Result<String, Error> {
    match job.program {
        Program::Copy => copy(job),
        Program::Sort => sort(job),
        Program::Join => join(job),
        Program::Load => load(job),
    }
}

fn copy(job: &Job) -> Result<String, Error> {
    let mut bytes = 0;
    for part in 0..job.processes {
        let [from, to] = ["records", "out"].map(|name| part_path(&job.folder(name), part));
        let (from, to) = (read(&from)?, read(&to)?);
        expect(from == to, || format!("part {part} differs from its copy"))?;
        bytes += from.len();
    }
    Ok(format!("{bytes} bytes equal those that were copied"))
}

fn sort(job: &Job) -> Result<String, Error> {
    let expected = job.folder("expected");
    sort_files(&parts(job, "records")?, &expected)?;
    let (expected, found) = (read(&expected)?, concatenation(&job.folder("out"))?);
    let mut input = Vec::new();
    for part in parts(job, "records")? {
        input.extend(read(&part)?);
    }
    let (sum, sum_found) = (sum(&input), sum(&found));
    expect(sum == sum_found, || format!("the sum of the records is {sum_found:016x} instead of {sum:016x}"))?;
    expect(expected == found, || "the output is not that of LC_ALL=C sort".to_owned())?;
    let records = found.len() / RECORD_BYTES;
    Ok(format!("{records} records equal those of LC_ALL=C sort, byte for byte; their sum is {sum:016x}"))
}

fn join(job: &Job) -> Result<String, Error> {
    let sorted = |input: &str| {
        let to = job.folder(&format!("sorted-{input}"));
        sort_files(&parts(job, input)?, &to).map(|()| to)
    };
    let (build, probe) = (sorted("build")?, sorted("probe")?);
    let rows = run(Command::new("join").args([&build, &probe]))?;
    let joined = job.folder("joined");
    fs::write(&joined, &rows).map_err(Error::system("writing the rows of join"))?;
    let (expected, found) = (job.folder("expected"), job.folder("found"));
    sort_files(&[joined], &expected)?;
    fs::write(&found, concatenation(&job.folder("out"))?).map_err(Error::system("writing the rows"))?;
    sort_files(std::slice::from_ref(&found), &job.folder("found-sorted"))?;
    let (expected, found) = (read(&expected)?, read(&job.folder("found-sorted"))?);
    let rows = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    let (wanted, count) = (rows(&expected), rows(&found));
    expect(wanted > 0 && expected == found, || format!("{count} rows are not the {wanted} of the program join"))?;
    Ok(format!("{count} rows equal those of the program join"))
}

fn load(job: &Job) -> Result<String, Error> {
    let (from, out) = (job.folder("images"), job.folder("out"));
    let list = |folder: &Path| names(folder).map_err(Error::system(format!("reading {}", folder.display())));
    let (wanted, found) = (list(&from)?, list(&out)?);
    expect(wanted == found, || format!("{} thumbnails of {} pictures", found.len(), wanted.len()))?;
    let mut counts = vec![0_u32; job.processes.into()];
    for name in &wanted {
        let expected = thumbnail(&from.join(name)).map_err(Error::system(format!("decoding {name}")))?;
        let bytes = read(&out.join(name))?;
        let (consumer, picture) = bytes.split_at(2);
        expect(*picture == expected, || format!("the thumbnail of {name} is wrong"))?;
        counts[usize::from(u16::from_le_bytes([consumer[0], consumer[1]]))] += 1;
    }
    Ok(format!("{} thumbnails are right; the consumers, the fastest first, took {counts:?}", wanted.len()))
}

/// Sorts the lines of files into a file.
fn sort_files(files: &[PathBuf], to: &Path) -> Result<(), Error> {
    run(Command::new("sort").arg("-o").arg(to).args(files)).map(drop)
}

/// Runs a program of the system, in the locale of bytes. Returns its output.
fn run(command: &mut Command) -> Result<Vec<u8>, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.env("LC_ALL", "C").output().map_err(Error::system(format!("running {name}")))?;
    let answer = || String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(output.stdout) } else { Err(Error::Wrong(format!("{name} failed: {}", answer()))) }
}

fn parts(job: &Job, input: &str) -> Result<Vec<PathBuf>, Error> {
    Ok((0..job.processes).map(|part| part_path(&job.folder(input), part)).collect())
}

/// Returns the bytes of all files of a directory, in the order of their names.
fn concatenation(folder: &Path) -> Result<Vec<u8>, Error> {
    let names = names(folder).map_err(Error::system(format!("reading {}", folder.display())))?;
    let mut bytes = Vec::new();
    for name in names {
        bytes.extend(read(&folder.join(name))?);
    }
    Ok(bytes)
}

/// Returns the sum of the checksums of records, whose order is of no matter.
fn sum(records: &[u8]) -> u64 {
    records.chunks_exact(RECORD_BYTES).map(|record| u64::from(crc32c::crc32c(record))).fold(0, u64::wrapping_add)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(Error::system(format!("reading {}", path.display())))
}

fn expect(is_so: bool, why: impl FnOnce() -> String) -> Result<(), Error> {
    if is_so { Ok(()) } else { Err(Error::Wrong(why())) }
}
