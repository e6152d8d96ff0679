//! Unmodified nginx under wrk, which does not change its interest in epoll for each request.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use ddss_benches::harness::Cores;

use crate::compare::{Options, Row, Sample, compare};
use crate::measured_process::{MeasuredProcess, free_port, is_installed, run_client, wait_for_port};
use crate::redis::preload;

const CONNECTIONS: &str = "16";
/// Name of a file, its bytes, and the name of its rows.
const FILES: [(&str, usize, &str); 2] =
    [("small", 300, "nginx, 16 connections, 300 B"), ("large", 1 << 20, "nginx, 16 connections, 1 MiB")];

/// Transport between client and server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp,
    Shared { spins: bool },
}

const ROWS: [Row<Kind>; 3] = [
    Row { kind: Kind::Tcp, name: "tcp" },
    Row { kind: Kind::Shared { spins: false }, name: "ddss run, no spin" },
    Row { kind: Kind::Shared { spins: true }, name: "ddss run" },
];

struct Server {
    kind: Kind,
    process: MeasuredProcess,
    port: u16,
}

/// A server of one process with `sendfile`.
fn start(folder: &Path, kind: Kind, cores: Cores, library: &Path) -> io::Result<Server> {
    let port = free_port()?;
    let configuration = folder.join(format!("{port}.conf"));
    let of = folder.display();
    fs::write(
        &configuration,
        format!(
            "daemon off; master_process off; pid {of}/{port}.pid; error_log {of}/error.log; user root;
            events {{ worker_connections 512; }}
            http {{ access_log off; sendfile on; keepalive_requests 1000000000;
              client_body_temp_path {of}/b; proxy_temp_path {of}/p; fastcgi_temp_path {of}/f; uwsgi_temp_path {of}/u;
              scgi_temp_path {of}/s; server {{ listen 127.0.0.1:{port}; root {of}; }} }}"
        ),
    )?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&configuration).stderr(Stdio::null());
    if let Kind::Shared { spins } = kind {
        preload(&mut command, library, spins);
    }
    let process = MeasuredProcess::start(&mut command, cores, cores.service)?;
    wait_for_port(port)?;
    Ok(Server { kind, process, port })
}

fn client(server: &Server, file: &str, seconds: &str, library: &Path) -> Command {
    let mut command = Command::new("wrk");
    command.args(["-t", "1", "-c", CONNECTIONS, "-d", seconds, "--timeout", "60"]);
    command.arg(format!("http://127.0.0.1:{}/{file}", server.port));
    if let Kind::Shared { spins } = server.kind {
        preload(&mut command, library, spins);
    }
    command
}

/// Returns the requests that the client counted and their rate.
fn counts(output: &str) -> io::Result<(f64, f64)> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let number = |line: Option<&str>, place: usize| words(line?).get(place)?.parse::<f64>().ok();
    let requests = number(output.lines().find(|line| line.contains(" requests in ")), 0);
    let rate = number(output.lines().find(|line| line.starts_with("Requests/sec:")), 1);
    let has_failed = output.contains("Socket errors") || output.contains("Non-2xx");
    match (requests, rate) {
        (Some(requests), Some(rate)) if !has_failed && requests > 0.0 => Ok((requests, rate)),
        _ => Err(io::Error::other(format!("requests failed: {output}"))),
    }
}

/// Measures both files.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    let wanted: Vec<_> = FILES.iter().filter(|(_, _, name)| options.wants(name)).collect();
    if wanted.is_empty() || !is_installed("nginx") || !is_installed("wrk") {
        return Ok(());
    }
    let (folder, cores) = (tempfile::tempdir()?, options.cores);
    let library = ddss_testkit::preload_library().map_err(io::Error::other)?;
    for (file, bytes, _) in FILES {
        fs::write(folder.path().join(file), vec![7; bytes])?;
    }
    let servers = ROWS.map(|row| start(folder.path(), row.kind, cores, &library));
    let servers = servers.into_iter().collect::<io::Result<Vec<_>>>()?;
    for server in servers.iter().filter(|server| server.kind != Kind::Tcp) {
        let mut command = client(server, "small", "1", &library);
        let mut warm = MeasuredProcess::start(command.stdout(Stdio::null()), cores, cores.client)?;
        server.process.wait_for_shared_memory(&mut warm)?;
        warm.0.wait()?;
    }
    for (file, _, name) in wanted {
        compare(options, name, "req/s", &ROWS, false, |kind| {
            let server = servers.iter().find(|server| server.kind == kind);
            let server = server.ok_or(io::ErrorKind::NotFound)?;
            let before = server.process.processor_s()?;
            let (output, client_s) = run_client(&mut client(server, file, "1", &library), cores)?;
            let server_s = server.process.processor_s()? - before;
            let (requests, rate) = counts(&output)?;
            Ok(Sample { rate, server_us: server_s * 1e6 / requests, client_us: client_s * 1e6 / requests })
        })?;
    }
    Ok(())
}
