//! The commands `cluster` and `nodes`: create a cluster, join, leave, and show its state.

use crate::arguments::{DaemonOptions, JoinOptions, LeadOptions, LeaveOptions, MembershipCommand, StateOptions};
use crate::error::{CommandError, QUERY_CLUSTER};
use crate::output::table::Table;
use crate::output::terminal_text::{print_note, print_sentence};
use ddss::{Client, ConnectOptions};
use ddss_admin::storage::{
    FOUND_FILE_NAME, JOIN_FILE_NAME, STATE_FOLDER_OF_ROOT, STATE_VARIABLE, default_state_folder,
};
use ddss_admin::{AdminRequest, AdminResponse, ClusterKey, NameReport, NodeReport};
use serde_json::json;
use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

/// Upper bound of the length of a token.
const TOKEN_BYTES_MAX: u64 = 256;
const UNEXPECTED_ANSWER: &str = "unexpected answer of the daemon: compare `ddssd --version` with `ddss --version`";

pub(crate) fn run(command: &MembershipCommand, json: bool) -> Result<(), CommandError> {
    match command {
        MembershipCommand::Init(place) => init(place, json),
        MembershipCommand::Token(place) => token(place, json),
        MembershipCommand::Join(options) => join(options, json),
        MembershipCommand::Lead(options) => lead(options, json),
        MembershipCommand::Leave(LeaveOptions { force, place }) => print_removal(
            ask(place, &AdminRequest::Leave { force: *force })?,
            "left the cluster: the daemon ends",
            json,
        ),
        MembershipCommand::Remove(options) => {
            let answer = ask(&options.place, &AdminRequest::Remove { node: options.node.0, force: options.force })?;
            print_removal(answer, &format!("{} is out of the cluster", options.node), json)?;
            // The removal is done, whatever can be seen of the rest.
            match fetch(&options.place) {
                Ok(rest) if rest.nodes.len() == 2 => print_note(ONE_VOTER),
                _ => {}
            }
            Ok(())
        }
        MembershipCommand::Status(place) => status(place, json),
    }
}

/// State of the cluster, as reported by one of its nodes.
pub(crate) struct ClusterView {
    node: u16,
    pub(crate) leader: Option<u16>,
    pub(crate) nodes: Vec<NodeReport>,
    pub(crate) names: usize,
    pub(crate) majority: bool,
    /// Microseconds by which the clock of this node is ahead of the leader's.
    pub(crate) clock_ahead_us: i64,
    /// Newest protocol that every node speaks; `None` while a node does not answer.
    level: Option<u8>,
}

const NO_MAJORITY: &str = "no majority of the voters is reachable: segments cannot be allocated or released";

const ONE_VOTER: &str = "two nodes are left, of which one votes: its loss would end the cluster; join a third node";

impl ClusterView {
    pub(crate) fn alive(&self) -> usize {
        self.nodes.iter().filter(|report| report.alive).count()
    }

    pub(crate) fn voters(&self) -> usize {
        self.nodes.iter().filter(|report| report.voter).count()
    }

    /// Returns another live node.
    pub(crate) fn other(&self) -> Option<u16> {
        self.nodes.iter().find(|report| report.alive && report.node != self.node).map(|report| report.node)
    }

    /// Formats the state as one sentence.
    pub(crate) fn describe(&self) -> String {
        let leader = self.leader.map_or_else(|| "no leader".to_owned(), |leader| format!("node {leader} leads"));
        let leader = if self.majority { leader } else { format!("{leader}; {NO_MAJORITY}") };
        let (node, alive, voters) = (self.node, self.alive(), self.voters());
        let names = if self.names == 1 { "1 name".to_owned() } else { format!("{} names", self.names) };
        let others = match (self.nodes.len(), voters) {
            (1, _) => "the only node".to_owned(),
            (nodes, 1) => format!("{alive} of {nodes} nodes are alive, 1 votes"),
            (nodes, _) => format!("{alive} of {nodes} nodes are alive, {voters} vote"),
        };
        let is_told = self.nodes.iter().any(|report| report.release.is_some());
        let level = match self.level {
            Some(level) => format!("protocol {level}"),
            None if is_told => "protocol unknown: a node does not answer".to_owned(),
            None => "protocol unknown: this daemon is of an earlier release".to_owned(),
        };
        format!("this is node {node}; {leader}; {others}; {names}; {level}")
    }
}

impl DaemonOptions {
    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(ddss_admin::client_folder)
    }
}

/// Returns the path in an environment variable.
fn path_variable(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Sends an administrative request to the daemon. A daemon without a control socket belongs to no cluster.
fn ask(place: &DaemonOptions, ask: &AdminRequest) -> Result<AdminResponse, CommandError> {
    let folder = place.folder();
    let on_copying = |uncopied| print_note(&format!("segments that wait for a copy elsewhere: {uncopied}"));
    match ask.ask(&folder, on_copying) {
        Ok(answer) => Ok(answer),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            // A daemon that does not run is reported as by all other commands.
            Client::connect_with(ConnectOptions::new().directory(&folder).channels(1))?;
            Err(CommandError::NoCluster { folder })
        }
        Err(error) => Err(CommandError::system(QUERY_CLUSTER)(error)),
    }
}

fn lead(LeadOptions { node, place }: &LeadOptions, json: bool) -> Result<(), CommandError> {
    match ask(place, &AdminRequest::Lead { node: node.0 })? {
        AdminResponse::Leads { leader } if json => println!("{}", json!({ "leader": leader })),
        AdminResponse::Leads { leader } => println!("node {leader} leads"),
        AdminResponse::Refused(why) => return Err(CommandError::Refused(why)),
        _ => return Err(CommandError::Refused(UNEXPECTED_ANSWER.to_owned())),
    }
    Ok(())
}

/// Prints the answer to the removal of a node.
fn print_removal(answer: AdminResponse, words: &str, json: bool) -> Result<(), CommandError> {
    match answer {
        AdminResponse::Left { dropped, uncopied, .. } if json => {
            println!("{}", json!({ "done": true, "dropped": dropped, "uncopied": uncopied }));
        }
        AdminResponse::Left { dropped, uncopied, uncopied_names } => {
            let mut sentence = words.to_owned();
            sentence += &match dropped {
                0 => String::new(),
                1 => "; 1 segment existed only there and is lost".to_owned(),
                dropped => format!("; {dropped} segments existed only there and are lost"),
            };
            sentence += &match uncopied {
                0 => String::new(),
                1 => format!("; 1 segment has one copy: {uncopied_names}"),
                uncopied => format!("; {uncopied} segments have one copy: {uncopied_names}"),
            };
            print_sentence(&sentence, 2);
        }
        AdminResponse::Refused(why) => return Err(CommandError::Refused(why)),
        _ => return Err(CommandError::Refused(UNEXPECTED_ANSWER.to_owned())),
    }
    Ok(())
}

/// Asks the daemon for the nodes and the leader of its cluster.
pub(crate) fn fetch(place: &DaemonOptions) -> Result<ClusterView, CommandError> {
    match ask(place, &AdminRequest::Status)? {
        AdminResponse::Status { node, leader, nodes, names, majority, clock_ahead_us, level } => {
            Ok(ClusterView { node, leader, nodes, names, majority, clock_ahead_us, level })
        }
        AdminResponse::Refused(why) => Err(CommandError::Refused(why)),
        _ => Err(CommandError::Refused(UNEXPECTED_ANSWER.to_owned())),
    }
}

/// Asks for the cluster; `None` if the daemon belongs to none. Another user than root and the daemon's may not ask, and is told so.
pub(crate) fn fetch_if_any(place: &DaemonOptions) -> Result<Option<ClusterView>, CommandError> {
    match fetch(place) {
        Ok(view) => Ok(Some(view)),
        Err(CommandError::NoCluster { .. }) => Ok(None),
        Err(CommandError::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            print_note(
                "only root and the daemon's user may ask for the cluster: segments of unreachable nodes are not known",
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Asks the daemon for all names of the cluster, in their order.
pub(crate) fn fetch_names(place: &DaemonOptions) -> Result<Vec<NameReport>, CommandError> {
    let mut all: Vec<NameReport> = Vec::new();
    loop {
        let after = all.last().map(|last| last.name.clone());
        match ask(place, &AdminRequest::Names { after: after.clone() })? {
            AdminResponse::Names { names } if names.is_empty() => return Ok(all),
            // An answer that does not go on would be asked for again without end.
            AdminResponse::Names { names } if names.iter().all(|next| after.as_ref() < Some(&next.name)) => {
                all.extend(names);
            }
            AdminResponse::Refused(why) => return Err(CommandError::Refused(why)),
            _ => return Err(CommandError::Refused(UNEXPECTED_ANSWER.to_owned())),
        }
    }
}

/// Returns the role of a node in the Raft group.
fn role(report: &NodeReport, leader: Option<u16>) -> &'static str {
    match report {
        NodeReport { node, .. } if Some(*node) == leader => "leader",
        NodeReport { voter: true, .. } => "voter",
        _ => "learner",
    }
}

pub(crate) fn nodes(place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    let ClusterView { node: ours, leader, nodes, majority, .. } = fetch(place)?;
    if json {
        println!("{}", json!(nodes));
        return Ok(());
    }
    let mut table = Table::new(&["NODE", "ADDRESS", "ROLE", "STATE", "RELEASE"]);
    for report in &nodes {
        let alive = if report.alive { "alive" } else { "dead" };
        let here = if report.node == ours { ", here" } else { "" };
        let (node, address) = (report.node.to_string(), report.address.to_string());
        let release = report.release.as_ref().map_or("-", |found| match found.name.as_str() {
            "" => "older",
            name => name,
        });
        table.row(vec![node, address, role(report, leader).to_owned(), format!("{alive}{here}"), release.to_owned()]);
    }
    table.print();
    if !majority {
        print_sentence(NO_MAJORITY, 2);
    }
    Ok(())
}

fn status(place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    let seen = fetch(place)?;
    if json {
        let ClusterView { node, leader, nodes, names, majority, clock_ahead_us, level } = &seen;
        println!(
            "{}",
            json!({
                "node": node, "leader": leader, "nodes": nodes, "names": names, "majority": majority,
                "clock_ahead_us": clock_ahead_us, "level": level,
            })
        );
    } else {
        print_sentence(&seen.describe(), 2);
    }
    Ok(())
}

fn join(options: &JoinOptions, json: bool) -> Result<(), CommandError> {
    let mut token = options.token.clone();
    if token == "-" {
        token.clear();
        let mut input = std::io::stdin().lock().take(TOKEN_BYTES_MAX);
        input.read_to_string(&mut token).map_err(CommandError::system("read standard input"))?;
    }
    let key: ClusterKey = token.trim().parse()?;
    let place = &options.state;
    place.make_folder()?;
    key.write(&place.key_path())?;
    place.give_to_folder_owner(&place.key_path())?;
    place.write(JOIN_FILE_NAME, &format!("{}\n", options.address))?;
    if json {
        println!("{}", json!({ "key_file": place.key_path(), "join": options.address.to_string() }));
    } else {
        print_sentence(&format!("the key is in {}", place.key_path().display()), 2);
        print_sentence(
            &format!("next: ddssd --listen IP:7400   joins the cluster at {} as it starts", options.address),
            6,
        );
    }
    Ok(())
}

/// Returns the state directory that the daemon itself would use.
pub(crate) fn state_folder(named: Option<PathBuf>, place: &DaemonOptions) -> PathBuf {
    named.or_else(|| path_variable(STATE_VARIABLE)).unwrap_or_else(|| {
        let folder = place.dir.clone().or_else(|| path_variable("DDSS_DIR"));
        // The packaged daemon's user has its state where root's would be.
        let of_package = PathBuf::from(STATE_FOLDER_OF_ROOT);
        let is_owner = |found: Metadata| found.uid() == rustix::process::geteuid().as_raw();
        if folder.is_none() && std::fs::metadata(&of_package).is_ok_and(is_owner) {
            return of_package;
        }
        default_state_folder(folder.as_deref())
    })
}

impl StateOptions {
    fn folder(&self) -> PathBuf {
        state_folder(self.state_dir.clone(), &self.place)
    }

    fn make_folder(&self) -> Result<(), CommandError> {
        let folder = self.folder();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(CommandError::file("create the state folder", &folder))
    }

    /// Changes the owner of a file to that of its directory: root creates it, but the daemon runs as that owner and
    /// must read it.
    fn give_to_folder_owner(&self, path: &Path) -> Result<(), CommandError> {
        let given = std::fs::metadata(self.folder()).and_then(|folder| {
            let has_same_owner = std::fs::symlink_metadata(path)?.uid() == folder.uid();
            if has_same_owner { Ok(()) } else { lchown(path, Some(folder.uid()), Some(folder.gid())) }
        });
        given.map_err(CommandError::file("change the owner of", path))
    }

    /// Writes a file for the daemon's next start.
    fn write(&self, name: &str, text: &str) -> Result<(), CommandError> {
        let path = self.folder().join(name);
        // A symbolic link at this path must not redirect the write.
        let _ = std::fs::remove_file(&path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(CommandError::file("write", &path))?;
        self.give_to_folder_owner(&path)
    }

    fn key_path(&self) -> PathBuf {
        self.folder().join(ClusterKey::FILE_NAME)
    }
}

fn init(place: &StateOptions, json: bool) -> Result<(), CommandError> {
    place.make_folder()?;
    let path = place.key_path();
    ClusterKey::generate()?.write(&path)?;
    place.give_to_folder_owner(&path)?;
    place.write(FOUND_FILE_NAME, "")?;
    if json {
        println!("{}", json!({ "key_file": path }));
    } else {
        print_sentence(&format!("the key of a new cluster is in {}", path.display()), 2);
        println!("next: ddssd --listen IP:7400 here, and on every other node");
        print_sentence(
            "      ddss cluster join IP:7400 TOKEN   with the token that `ddss cluster token` prints here",
            8,
        );
    }
    Ok(())
}

fn token(place: &StateOptions, json: bool) -> Result<(), CommandError> {
    let token = ClusterKey::read_to_show(&place.key_path())?.token();
    if json {
        println!("{}", json!({ "token": token }));
    } else {
        println!("{token}");
    }
    Ok(())
}
