//! The command `doctor`: checks this machine for a node and its clients, with advice for each problem.

use super::finding::{CheckResult, Finding, finding};
use super::memory_file_systems::is_in_memory;
use crate::arguments::DaemonOptions;
use crate::connect::connect;
use crate::error::CommandError;
use crate::hints::next_step;
use crate::output::table::format_bytes;
use crate::output::terminal_text::print_sentence;
use ddss_admin::Settings;
use ddss_admin::storage::MemoryLimit;
use ddss_dsm::PageFaults;
use rustix::process::{Resource, Rlimit, getrlimit};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    read(path)?.split_whitespace().next()?.parse().ok()
}

fn daemon(options: &DaemonOptions) -> Finding {
    let asked = connect(options).and_then(|client| {
        client.ping()?;
        let began = Instant::now();
        client.ping()?;
        Ok((client.node(), client.strategy(), began.elapsed().as_secs_f64() * 1e6))
    });
    match asked {
        Ok((node, strategy, micros)) => {
            finding("daemon", CheckResult::Good, format!("{node} answers in {micros:.1} µs ({strategy})"), "")
        }
        Err(error) => {
            let start = "start a daemon with `ddssd`, or name its folder with --dir";
            finding(
                "daemon",
                CheckResult::Bad,
                ddss_admin::format_error_chain(&error),
                next_step(&error).unwrap_or(start),
            )
        }
    }
}

fn cores() -> Finding {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let state = if count > 1 { CheckResult::Good } else { CheckResult::Poor };
    let advice =
        "with one core the progress thread and its clients share it: calls take microseconds instead of nanoseconds";
    finding("cores", state, format!("{count} for this process"), advice)
}

fn limit(check: &'static str, resource: Resource, least: u64, advice: &str) -> Finding {
    let Rlimit { current, .. } = getrlimit(resource);
    let state = if current.is_none_or(|current| current >= least) { CheckResult::Good } else { CheckResult::Poor };
    let found = current.map_or_else(|| "no limit".to_owned(), |current| format!("at most {current} per process"));
    finding(check, state, found, advice)
}

/// Checks the limit of locked memory, which matters only with an RDMA adapter.
fn locked_memory() -> Finding {
    let Rlimit { current, .. } = getrlimit(Resource::Memlock);
    let found = current.map_or_else(|| "no limit".to_owned(), format_bytes);
    let is_enough = current.is_none_or(|current| current >= 64 << 20);
    if !is_enough && adapter_names().is_empty() {
        return finding("locked memory", CheckResult::Good, format!("{found}: enough without RDMA adapters"), "");
    }
    let state = if is_enough { CheckResult::Good } else { CheckResult::Poor };
    let advice = "an RDMA adapter needs more: ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit";
    finding("locked memory", state, found, advice)
}

/// Checks the daemon's memory directory: enough space, and not on a disk.
fn shared_memory(options: &DaemonOptions) -> Finding {
    let folder = Settings::memory_folder(options.dir.clone());
    // A directory that does not exist yet will be created in its nearest existing ancestor.
    let there = folder.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    let found = rustix::fs::statvfs(there).ok().zip(is_in_memory(there));
    let place = there.display();
    let Some((room, is_in_memory)) = found else {
        let advice = "mount -t tmpfs tmpfs /dev/shm, or name another --memory-dir";
        return finding("shared memory", CheckResult::Bad, format!("cannot inspect {place}"), advice);
    };
    let (free, total) = (room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize);
    let words = format!("{} of {} are free in {place}", format_bytes(free), format_bytes(total));
    if !is_in_memory {
        let advice =
            "this is a disk, to which puts are written back: choose a --memory-dir on a tmpfs, such as /dev/shm";
        return finding("shared memory", CheckResult::Poor, words, advice);
    }
    let state = if free >= 256 << 20 { CheckResult::Good } else { CheckResult::Poor };
    finding(
        "shared memory",
        state,
        words,
        "segments are stored there: enlarge that file system (mount -o remount,size=8G)",
    )
}

/// Checks the memory limit of this control group. A daemon in another one has another limit.
fn memory_limit() -> Finding {
    let Some(limit) = MemoryLimit::of_this_process() else {
        return finding("memory limit", CheckResult::Good, "none for this control group", "");
    };
    let found = format!("{}: {} for segments", format_bytes(limit.bytes), format_bytes(limit.pool_bytes()));
    let state = if limit.pool_bytes() >= Settings::POOL_BYTES { CheckResult::Good } else { CheckResult::Poor };
    let advice = format!("raise it for a larger pool ({})", limit.path.display());
    finding("memory limit", state, found, &advice)
}

fn queues() -> Vec<Finding> {
    let of = |name: &str| number(&format!("/proc/sys/kernel/{name}"));
    let (Some(queues), Some(bytes)) = (of("msgmni"), of("msgmnb")) else {
        let advice = "the strategies mq and rmq need them; rcq and auto do not";
        return vec![finding("message queues", CheckResult::Poor, "this kernel has none", advice)];
    };
    let state = |good| if good { CheckResult::Good } else { CheckResult::Poor };
    vec![
        finding(
            "message queues",
            state(queues >= 1024),
            format!("at most {queues} on this machine"),
            "each mq client needs two and each rmq client one: sysctl kernel.msgmni=32000",
        ),
        finding(
            "bytes per queue",
            state(bytes >= 16384),
            format!("at most {bytes}"),
            "too few for many channels with mq and rmq: sysctl kernel.msgmnb=65536",
        ),
    ]
}

/// Checks each way of page faults, which only programs on shared pages use.
fn page_faults() -> Finding {
    let tried = PageFaults::ALL.map(|way| (way, way.check()));
    let words = tried.iter().map(|(way, result)| match result {
        Ok(()) => format!("{way} works"),
        Err(error) => format!("{way} does not: {error}"),
    });
    let state = if tried.iter().any(|(_, result)| result.is_ok()) { CheckResult::Good } else { CheckResult::Poor };
    let advice = "only programs that use shared pages without views need them: use views";
    finding("page faults", state, words.collect::<Vec<_>>().join("; "), advice)
}

fn huge_pages() -> Finding {
    let setting = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let Some(setting) = setting else {
        return finding(
            "huge pages",
            CheckResult::Poor,
            "this kernel has none for shared memory",
            "large segments cost more page faults",
        );
    };
    let chosen = setting.split_whitespace().find(|word| word.starts_with('[')).unwrap_or(&setting).to_owned();
    let state = if chosen.contains("never") || chosen.contains("deny") { CheckResult::Poor } else { CheckResult::Good };
    let advice = "for large segments: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
    finding("huge pages", state, format!("for shared memory: {}", chosen.trim_matches(['[', ']'])), advice)
}

/// Library directories of the distributions.
const LIBRARY_FOLDERS: &[&str] =
    &["/usr/lib", "/usr/lib64", "/lib", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];

/// Returns true if rdma-core, the user-space driver of RDMA adapters, is installed.
fn has_rdma_core() -> bool {
    let is_there = |name: &str| LIBRARY_FOLDERS.iter().any(|folder| Path::new(folder).join(name).exists());
    is_there("libibverbs.so.1") && is_there("librdmacm.so.1")
}

fn adapter_names() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Checks each RDMA adapter and reports why it is used or not.
fn adapters() -> Vec<Finding> {
    let names = adapter_names();
    if names.is_empty() {
        return vec![finding("RDMA adapters", CheckResult::Good, "none: nodes talk iWARP in user space over TCP", "")];
    }
    let installed = has_rdma_core();
    names.iter().map(|name| adapter(name, installed)).collect()
}

fn adapter(name: &str, installed: bool) -> Finding {
    let of = |file: &str| read(&format!("/sys/class/infiniband/{name}/ports/1/{file}")).unwrap_or_default();
    let active = of("state").contains("ACTIVE");
    let (link, interface) = (of("link_layer"), of("gid_attrs/ndevs/0"));
    let state = if active { "up" } else { "down" };
    let through = if interface.is_empty() { String::new() } else { format!(", {interface}") };
    let found = format!("{name}: {link}, {state}{through}");
    if !cfg!(feature = "rdma") {
        let advice =
            "not used: built without its feature rdma (cargo build --release --features rdma --bin ddssd --bin ddss)";
        return finding("RDMA adapter", CheckResult::Poor, found, advice);
    }
    if !installed {
        let advice = "not used: rdma-core is not installed (libibverbs1, librdmacm1, ibverbs-providers)";
        return finding("RDMA adapter", CheckResult::Poor, found, advice);
    }
    if !active {
        return finding("RDMA adapter", CheckResult::Poor, found, "not used: the link of its first port is down");
    }
    finding("RDMA adapter", CheckResult::Good, format!("{found}: used by a node that listens on its address"), "")
}

/// Checks whether the progress thread is pinned to a core.
fn pinning(options: &DaemonOptions) -> Option<Finding> {
    let page = crate::status_page::read(options).ok()?;
    let advice = "the thread migrates between cores: start ddssd with --core auto, or with a core number";
    Some(match page.status.daemon.core {
        Some(core) => finding("progress thread", CheckResult::Good, format!("on core {core}"), ""),
        None => finding("progress thread", CheckResult::Poor, "not pinned to a core", advice),
    })
}

/// Prints a line for each check, with the advice below.
fn print(findings: &[Finding]) {
    let names = findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
    let line = |check: &str, state: &str, found: &str| {
        let begin = format!("{check:<names$}  {state:<5}  ");
        print_sentence(&format!("{begin}{found}"), begin.chars().count());
    };
    line("CHECK", "STATE", "FOUND");
    for finding in findings {
        line(finding.check, finding.state.word(), &finding.found);
        if !finding.advice.is_empty() {
            print_sentence(&format!("  → {}", finding.advice), 4);
        }
    }
}

pub(crate) fn run(options: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    let mut findings = vec![daemon(options)];
    findings.extend(pinning(options));
    findings.extend(super::cluster::checks(options));
    findings.extend([cores(), shared_memory(options), memory_limit()]);
    findings.push(limit(
        "open files",
        Resource::Nofile,
        4096,
        "each client takes a few: ulimit -n 65536, or LimitNOFILE= in the unit",
    ));
    findings.push(locked_memory());
    findings.extend(queues());
    findings.extend([huge_pages(), page_faults()]);
    findings.extend(adapters());
    if json {
        let row = |finding: &Finding| json!({ "check": finding.check, "state": finding.state.word(), "found": finding.found, "advice": finding.advice });
        println!("{}", serde_json::Value::Array(findings.iter().map(row).collect()));
    } else {
        print(&findings);
    }
    if findings.iter().any(|finding| finding.state == CheckResult::Bad) {
        Err(CommandError::ChecksFailed)
    } else {
        Ok(())
    }
}
