//! The unit, the compose file and the manifests: what they allow, and the clusters that they start.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ddss_testkit::{
    Daemon, DaemonOptions, Process, TEST_KEY, TempNode, binary, copy_program, free_tcp_port, repo_lints, run_ddss,
    skipped,
};
use serde_json::Value;

use super::{is_there, run};

const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the names of the system calls of a set of systemd.
fn system_calls(set: &str) -> BTreeSet<String> {
    let text = run(Command::new("systemd-analyze").args(["--no-pager", "syscall-filter", set]));
    let names = text.lines().skip(1).map(str::trim).filter(|name| !name.is_empty() && !name.starts_with('#'));
    names
        .flat_map(|name| if name.starts_with('@') { system_calls(name) } else { BTreeSet::from([name.to_owned()]) })
        .collect()
}

// If this failed, a bug in the daemon would open more of the machine than the daemon needs, or systemd would kill it.
#[test]
fn unit_confines_the_daemon_to_what_it_calls() {
    const NAME: &str = "unit_confines_the_daemon_to_what_it_calls";
    let unit = repo_lints::workspace_root().join("packaging/ddssd.service");
    let mut security = Command::new("systemd-analyze");
    security.args(["--no-pager", "security", "--offline=yes", "--threshold=30"]).arg(&unit);
    let Ok(output) = security.output() else { return skipped(NAME, "systemd-analyze is missing") };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if said.contains("unrecognized option") {
        return skipped(NAME, "this systemd-analyze examines no file");
    }
    assert!(output.status.success(), "more than 3.0: {said}");
    if !is_there("strace") {
        return skipped(NAME, "strace is missing");
    }
    let unit = fs::read_to_string(unit).unwrap();
    let sets = unit.lines().find_map(|line| line.strip_prefix("SystemCallFilter=")).unwrap();
    let allowed: BTreeSet<String> = sets.split(' ').flat_map(system_calls).collect();
    assert!(allowed.contains("read") && !allowed.contains("ptrace") && !allowed.contains("mount"), "{allowed:?}");
    let scratch = tempfile::tempdir().unwrap();
    let counts = scratch.path().join("counts");
    // The tracer is not the parent: the daemon has the process id that the test signals.
    let strace = ["strace", "-D", "-f", "-qq", "-c", "-o", counts.to_str().unwrap()].map(str::to_owned).to_vec();
    let mut first = DaemonOptions::new(1).unwrap().clustered().command_prefix(strace).start().unwrap();
    let second = DaemonOptions::new(2).unwrap().joins(first.listen()).start().unwrap();
    let done = |daemon: &Daemon, words: &[&str]| {
        let said = run_ddss(daemon.folder(), words, "").unwrap();
        assert_eq!(said.code, 0, "{words:?}: {said:?}");
        said.out
    };
    for words in [
        &["allocate", "memory", "100000", "--copies", "2"][..],
        &["allocate", "file", "4096", "--storage", "file"],
        &["put", "memory", "hello"],
        &["put", "file", "hello"],
        &["cluster", "snapshot", "saved"],
        &["release", "file"],
    ] {
        done(&first, words);
    }
    assert_eq!(done(&second, &["get", "memory", "--length", "5"]), "hello");
    first.process().terminate().unwrap();
    assert!(first.process().wait(PATIENCE).unwrap().unwrap().success(), "{}", first.process().stderr());
    let end = Instant::now() + PATIENCE;
    let called = loop {
        let text = fs::read_to_string(&counts).unwrap_or_default();
        // The last line has the sums.
        if text.trim_end().ends_with("total") {
            break text;
        }
        assert!(Instant::now() < end, "strace has counted nothing: {text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let is_count = |line: &&str| line.split_whitespace().next().is_some_and(|word| word.parse::<f64>().is_ok());
    let names = called.lines().filter(is_count).filter_map(|line| line.split_whitespace().last());
    let refused: Vec<&str> = names.filter(|name| *name != "total" && !allowed.contains(*name)).collect();
    assert!(called.contains("fallocate") && refused.is_empty(), "{refused:?} of\n{called}");
}

/// Reads YAML, or returns `None` without a program that can.
fn read_yaml(text: &str) -> Option<Vec<Value>> {
    let script = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)";
    let mut command = Command::new("python3");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).ok()?;
    let output = child.wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    if why.contains("ModuleNotFoundError") {
        return None;
    }
    assert!(output.status.success(), "{why}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Returns the strings of a list.
fn words(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Reads a number of bytes such as `256M` or `512Mi`.
fn bytes(text: &str) -> u64 {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    assert!(["m", "mi"].contains(&text[digits.len()..].to_lowercase().as_str()), "{text}");
    digits.parse::<u64>().unwrap() << 20
}

/// Expects that a limit holds a pool, its tables and the daemon's own memory.
fn fits(pool: &str, limit: &str) {
    assert!(bytes(limit) >= bytes(pool) * 5 / 4 + (64 << 20), "a pool of {pool} in {limit}");
}

/// Waits until a daemon knows so many living nodes.
fn until_nodes(folder: &Path, count: usize) {
    let end = Instant::now() + PATIENCE;
    loop {
        let said = run_ddss(folder, &["nodes", "--json"], "").unwrap();
        let nodes: Value = serde_json::from_str(&said.out).unwrap_or_default();
        let nodes = nodes.as_array().map(Vec::as_slice).unwrap_or_default();
        if nodes.len() == count && nodes.iter().all(|node| node["alive"] == true) {
            return;
        }
        assert!(Instant::now() < end, "{said:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn wait_until_ready(daemon: &mut Process) {
    daemon.wait_until(PATIENCE, |process| process.stdout().contains("ready")).unwrap_or_else(|error| {
        panic!("{error}: {}", daemon.stderr());
    });
}

// If this failed, the first cluster that a user starts would not come up, or its nodes would be killed when their pool fills.
#[test]
fn compose_file_starts_a_cluster() {
    let text = fs::read_to_string(repo_lints::workspace_root().join("packaging/compose.yaml")).unwrap();
    let Some(compose) = read_yaml(&text) else {
        return skipped("compose_file_starts_a_cluster", "python3-yaml is missing");
    };
    let compose = &compose[0];
    let services = compose["services"].as_object().unwrap();
    let key = tempfile::tempdir().unwrap();
    let key_file = key.path().join("cluster.key");
    fs::write(&key_file, TEST_KEY).unwrap();
    fs::set_permissions(&key_file, PermissionsExt::from_mode(0o600)).unwrap();
    // Each address of the file becomes one of this machine.
    let places: Vec<(String, String)> = services
        .values()
        .map(|service| {
            let address = service["networks"]["cluster"]["ipv4_address"].as_str().unwrap();
            (format!("{address}:7400"), format!("127.0.0.1:{}", free_tcp_port([127, 0, 0, 1].into()).unwrap()))
        })
        .collect();
    let here = |word: String| places.iter().fold(word, |word, (there, here)| word.replace(there, here));
    let mut daemons = Vec::new();
    for (name, service) in services {
        let (environment, limit) =
            (service["environment"].as_object().unwrap(), service["mem_limit"].as_str().unwrap());
        let pool = environment["DDSS_POOL_BYTES"].as_str().unwrap();
        fits(pool, limit);
        let memory = service["volumes"][0].as_str().unwrap().strip_suffix(":/run/ddss").unwrap();
        let options = compose["volumes"][memory]["driver_opts"]["o"].as_str().unwrap();
        let size = options.split(',').find_map(|option| option.strip_prefix("size=")).unwrap();
        assert!(bytes(size) > bytes(pool) && bytes(size) < bytes(limit), "{size} of {limit}");
        assert_eq!(service["healthcheck"]["test"], serde_json::json!(["CMD", "/usr/bin/ddss", "ping"]));
        let node = TempNode::new().unwrap();
        let mut command = Command::new(binary("ddssd").unwrap());
        command.args(words(&service["command"]).into_iter().map(here));
        command.envs(environment.iter().map(|(name, value)| (name, value.as_str().unwrap())));
        command.env("DDSS_KEY_FILE", &key_file).env("DDSS_POOL_BYTES", "4M");
        command.env("DDSS_DIR", node.path()).env("DDSS_STATE_DIR", node.join("state"));
        daemons.push((Process::start(command, node.path(), name).unwrap(), node));
    }
    daemons.iter_mut().for_each(|(daemon, _)| wait_until_ready(daemon));
    daemons.iter().for_each(|(_, node)| until_nodes(node.path(), 3));
}

/// Expects that all fields of a manifest are in what a typed reader has made of it.
fn is_kept(given: &Value, typed: &Value, path: &str) {
    match (given, typed) {
        (Value::Object(given), Value::Object(typed)) => {
            for (name, value) in given {
                let found = typed.get(name).unwrap_or_else(|| panic!("Kubernetes knows no {path}.{name}"));
                is_kept(value, found, &format!("{path}.{name}"));
            }
        }
        (Value::Array(given), Value::Array(typed)) => {
            assert!(given.len() <= typed.len(), "{path}");
            given.iter().zip(typed).for_each(|(given, typed)| is_kept(given, typed, path));
        }
        _ => assert_eq!(given, typed, "{path}"),
    }
}

// If this failed, a node of Kubernetes would not start, join nobody, or begin a cluster of its own.
#[test]
fn kubernetes_manifests_start_a_cluster() {
    const NAME: &str = "kubernetes_manifests_start_a_cluster";
    if !Command::new("kubectl").args(["version", "--client"]).output().is_ok_and(|output| output.status.success()) {
        return skipped(NAME, "kubectl is missing");
    }
    if !rustix::process::getuid().is_root() || !is_there("setpriv") {
        return skipped(NAME, "it takes root and setpriv, to be the user of the container");
    }
    let folder = repo_lints::workspace_root().join("packaging/kubernetes");
    let text = run(Command::new("kubectl").arg("kustomize").arg(folder));
    let Some(documents) = read_yaml(&text) else { return skipped(NAME, "python3-yaml is missing") };
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap();
    let (service, set) = (of_kind("Service"), of_kind("DaemonSet"));
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    // It reads the manifest into the types of Kubernetes, and needs no cluster.
    let file = scratch.path().join("set.json");
    fs::write(&file, set.to_string()).unwrap();
    let mut typed = Command::new("kubectl");
    typed.args(["set", "env", "--local", "--output", "json", "ADDED=1", "--filename"]).arg(&file);
    is_kept(set, &serde_json::from_str(&run(&mut typed)).unwrap(), "DaemonSet");
    let pod = &set["spec"]["template"]["spec"];
    let (prepare, container) = (&pod["initContainers"][0], &pod["containers"][0]);
    let arguments = words(&container["args"]);
    let pool = arguments.iter().skip_while(|word| *word != "--pool-bytes").nth(1).unwrap();
    fits(pool, container["resources"]["limits"]["memory"].as_str().unwrap());
    let (name, namespace) =
        (service["metadata"]["name"].as_str().unwrap(), service["metadata"]["namespace"].as_str().unwrap());
    assert_eq!(prepare["env"][0]["value"], format!("{name}.{namespace}.svc:7400"));
    assert_eq!(
        (&service["spec"]["selector"], &service["spec"]["clusterIP"]),
        (&set["spec"]["template"]["metadata"]["labels"], &"None".into())
    );
    let (secret, program) = (scratch.path().join("secret"), scratch.path().join("ddssd"));
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("key"), TEST_KEY).unwrap();
    copy_program(&binary("ddssd").unwrap(), &program).unwrap();
    let ports = [(); 2].map(|()| free_tcp_port([127, 0, 0, 1].into()).unwrap());
    let hosts = ["first", "second"].map(|name| scratch.path().join(name));
    let init = |host: &Path| {
        let here = |place: &str| host.join(place).to_str().unwrap().to_owned();
        let script =
            words(&prepare["args"])[0].replace("/var/lib/ddss", &here("state")).replace("/run/ddss", &here("run"));
        let script = script.replace("/secret/", &format!("{}/", secret.display()));
        run(Command::new("sh").args(["-ec", &script]).env("JOIN", format!("127.0.0.1:{}", ports[0])));
    };
    let mut daemons = Vec::new();
    for (host, port) in hosts.iter().zip(ports) {
        fs::create_dir_all(host.join("state")).unwrap();
        if daemons.is_empty() {
            fs::write(host.join("state/found"), "").unwrap();
        }
        init(host);
        // Killed at any step, it is done again.
        init(host);
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65532", "--regid", "65532", "--clear-groups"]).arg(&program);
        let address = format!("127.0.0.1:{port}");
        command
            .args(arguments.iter().map(|word| word.replace("$(HOST_IP):7400", &address).replace(pool.as_str(), "4M")));
        command.env("DDSS_DIR", host.join("run")).env("DDSS_STATE_DIR", host.join("state"));
        let mut daemon = Process::start(command, scratch.path(), host.file_name().unwrap().to_str().unwrap()).unwrap();
        wait_until_ready(&mut daemon);
        daemons.push(daemon);
    }
    hosts.iter().for_each(|host| until_nodes(&host.join("run"), 2));
    // The next pod of the first host goes on with its state.
    init(&hosts[0]);
    assert!(!hosts[0].join("state/join").exists() && !hosts[0].join("state/found").exists(), "it would begin again");
}
