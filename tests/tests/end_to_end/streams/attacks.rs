//! A hostile peer of the same user that writes anything into the memory of its streams: the victim loses only these
//! streams.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ddss_testkit::{preload_library, skipped};
use tempfile::TempDir;

use super::{Killed, output_of, port_of, result, wait_for_line};

/// Answers that an honest client gets beside the hostile one.
const ANSWERS: usize = 400;
/// Number of attacks on an inherited stream.
const ATTACKS: usize = 5;

struct Attacks {
    folder: TempDir,
}

impl Attacks {
    fn compile(name: &str) -> Option<Self> {
        let attacks = Self { folder: TempDir::new().unwrap() };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/streams/attacks.c");
        let compiled =
            Command::new("cc").args(["-O1", "-w", "-pthread", "-o"]).arg(attacks.program()).arg(source).status();
        if compiled.is_ok_and(|status| status.success()) {
            return Some(attacks);
        }
        skipped(name, "no C compiler");
        None
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("attacks")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, arguments: &[&Path]) -> Child {
        let mut command = Command::new(self.program());
        command.args(arguments).env("LD_PRELOAD", preload_library().unwrap());
        command.stdout(Stdio::piped()).spawn().unwrap()
    }
}

fn serve_beside_an_attack(name: &str, server: &str) {
    let Some(attacks) = Attacks::compile(name) else { return };
    let mut server = Killed(attacks.start(&[server.as_ref()]));
    let port = port_of(&mut server.0).to_string();
    let mut attacker = Killed(attacks.start(&["attack_server".as_ref(), port.as_ref()]));
    wait_for_line(&mut attacker.0, "READY");
    let honest = attacks.start(&["ask".as_ref(), port.as_ref(), ANSWERS.to_string().as_ref()]);
    assert_eq!(result(&output_of(honest)), "done");
    assert!(server.0.try_wait().unwrap().is_none() && attacker.0.try_wait().unwrap().is_none(), "one of them ended");
}

// If this failed, one hostile client would stop every other client of a server, as it did with Redis: the server's own locks lay in the
// client's memory, and calls on bells waited because the client had changed the descriptors.
#[test]
fn hostile_client_delays_no_other_client_of_an_epoll_server() {
    serve_beside_an_attack("hostile_client_delays_no_other_client_of_an_epoll_server", "serve_with_epoll");
}

#[test]
fn hostile_client_delays_no_other_client_of_a_poll_server() {
    serve_beside_an_attack("hostile_client_delays_no_other_client_of_a_poll_server", "serve_with_poll");
}

// If this failed, a peer could make a program write into its own files: the numbers of descriptors came from the peer's memory.
#[test]
fn inherited_stream_writes_to_no_descriptor_that_its_peer_names() {
    let Some(attacks) = Attacks::compile("inherited_stream_writes_to_no_descriptor_that_its_peer_names") else {
        return;
    };
    for attack in 0..ATTACKS {
        let [file, marker] = ["file", "marker"].map(|name| attacks.path(&format!("{name}{attack}")));
        let mut victim = attacks.start(&["serve_then_exec".as_ref(), &file, &marker]);
        let port = port_of(&mut victim).to_string();
        let _attacker = Killed(attacks.start(&["attack_inherited".as_ref(), port.as_ref(), &marker]));
        assert_eq!(result(&output_of(victim)), "size=0");
    }
}
