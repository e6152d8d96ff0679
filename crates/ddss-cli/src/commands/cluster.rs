//! The commands that make a cluster, and bring nodes into it.

use crate::arguments::{ClusterCommand, JoinOptions, LeaveOptions, Place, StatePlace};
use crate::error::{ASK, CommandError};
use crate::output::table::Table;
use crate::output::terminal_text::say;
use ddss::Client;
use ddssd::{AdminRequest, AdminResponse, ClusterKey, NodeReport};
use serde_json::json;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};

/// More than a token is.
const TOKEN_BYTES_MAX: u64 = 256;
const OTHER_RELEASE: &str = "the daemon answers another question: is it of another release?";

pub(crate) fn run(command: &ClusterCommand, json: bool) -> Result<(), CommandError> {
    match command {
        ClusterCommand::Init(place) => init(place, json),
        ClusterCommand::Token(place) => token(place, json),
        ClusterCommand::Join(options) => join(options, json),
        ClusterCommand::Leave(LeaveOptions { force, place }) => {
            left(ask(place, &AdminRequest::Leave { force: *force })?, "left the cluster: the daemon ends", json)
        }
        ClusterCommand::Remove(options) => {
            let answer = ask(&options.place, &AdminRequest::Remove { node: options.node.0, force: options.force })?;
            left(answer, &format!("{} is out of the cluster", options.node), json)
        }
        ClusterCommand::Status(place) => status(place, json),
    }
}

/// The cluster as one of its nodes sees it.
pub(crate) struct Seen {
    node: u16,
    pub(crate) leader: Option<u16>,
    pub(crate) nodes: Vec<NodeReport>,
    pub(crate) names: usize,
    pub(crate) majority: bool,
}

const NO_MAJORITY: &str = "no majority of the voters can be reached: no name is made or given back";

impl Seen {
    pub(crate) fn alive(&self) -> usize {
        self.nodes.iter().filter(|report| report.alive).count()
    }

    pub(crate) fn voters(&self) -> usize {
        self.nodes.iter().filter(|report| report.voter).count()
    }

    /// Another node that is alive.
    pub(crate) fn other(&self) -> Option<u16> {
        self.nodes.iter().find(|report| report.alive && report.node != self.node).map(|report| report.node)
    }

    /// As one sentence.
    pub(crate) fn in_words(&self) -> String {
        let leader = self.leader.map_or_else(|| "nobody leads".to_owned(), |leader| format!("node {leader} leads"));
        let leader = if self.majority { leader } else { format!("{leader}; {NO_MAJORITY}") };
        let (node, alive, voters) = (self.node, self.alive(), self.voters());
        let names = if self.names == 1 { "1 name".to_owned() } else { format!("{} names", self.names) };
        let others = match (self.nodes.len(), voters) {
            (1, _) => "it is alone".to_owned(),
            (nodes, 1) => format!("{alive} of {nodes} nodes are alive, 1 votes"),
            (nodes, _) => format!("{alive} of {nodes} nodes are alive, {voters} vote"),
        };
        format!("this is node {node}; {leader}; {others}; {names}")
    }
}

impl Place {
    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(ddssd::client_folder)
    }
}

/// What the environment names.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Asks the daemon; one that has no control plane is alone.
fn ask(place: &Place, ask: &AdminRequest) -> Result<AdminResponse, CommandError> {
    let folder = place.folder();
    match ask.ask(&folder) {
        Ok(answer) => Ok(answer),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            // Who does not run at all is told as everywhere else.
            Client::builder().folder(&folder).channels(1).connect()?;
            Err(CommandError::Alone { folder })
        }
        Err(error) => Err(CommandError::system(ASK)(error)),
    }
}

/// What the daemon says of a node that is to go.
fn left(answer: AdminResponse, words: &str, json: bool) -> Result<(), CommandError> {
    match answer {
        AdminResponse::Left { dropped } if json => println!("{}", json!({ "done": true, "dropped": dropped })),
        AdminResponse::Left { dropped: 0 } => say(words, 2),
        AdminResponse::Left { dropped: 1 } => say(&format!("{words}; 1 segment was only there and is gone"), 2),
        AdminResponse::Left { dropped } => say(&format!("{words}; {dropped} segments were only there and are gone"), 2),
        AdminResponse::Refused(why) => return Err(CommandError::Refused(why)),
        _ => return Err(CommandError::Refused(OTHER_RELEASE.to_owned())),
    }
    Ok(())
}

/// The nodes as the daemon sees them, and who leads them.
pub(crate) fn look(place: &Place) -> Result<Seen, CommandError> {
    match ask(place, &AdminRequest::Status)? {
        AdminResponse::Status { node, leader, nodes, names, majority } => {
            Ok(Seen { node, leader, nodes, names, majority })
        }
        AdminResponse::Refused(why) => Err(CommandError::Refused(why)),
        _ => Err(CommandError::Refused(OTHER_RELEASE.to_owned())),
    }
}

/// One node in words.
fn role(report: &NodeReport, leader: Option<u16>) -> &'static str {
    match report {
        NodeReport { node, .. } if Some(*node) == leader => "leads",
        NodeReport { voter: true, .. } => "votes",
        _ => "learns",
    }
}

pub(crate) fn nodes(place: &Place, json: bool) -> Result<(), CommandError> {
    let Seen { node: ours, leader, nodes, majority, .. } = look(place)?;
    if json {
        println!("{}", json!(nodes));
        return Ok(());
    }
    let mut table = Table::new(&["NODE", "ADDRESS", "ROLE", "STATE"]);
    for report in &nodes {
        let alive = if report.alive { "alive" } else { "dead" };
        let here = if report.node == ours { ", here" } else { "" };
        let (node, address) = (report.node.to_string(), report.address.to_string());
        table.row(vec![node, address, role(report, leader).to_owned(), format!("{alive}{here}")]);
    }
    table.print();
    if !majority {
        say(NO_MAJORITY, 2);
    }
    Ok(())
}

fn status(place: &Place, json: bool) -> Result<(), CommandError> {
    let seen = look(place)?;
    if json {
        let Seen { node, leader, nodes, names, majority } = &seen;
        let seen = json!({ "node": node, "leader": leader, "nodes": nodes, "names": names, "majority": majority });
        println!("{seen}");
    } else {
        say(&seen.in_words(), 2);
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
    place.give(&place.key_path())?;
    let path = place.folder().join(ddssd::JOIN_FILE_NAME);
    // Not through a link, if one lies there.
    let _ = std::fs::remove_file(&path);
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    let written = file.and_then(|mut file| writeln!(file, "{}", options.address));
    written.map_err(CommandError::file("write", &path))?;
    place.give(&path)?;
    if json {
        println!("{}", json!({ "key_file": place.key_path(), "join": options.address.to_string() }));
    } else {
        say(&format!("the key is in {}", place.key_path().display()), 2);
        say(&format!("next: ddssd --listen IP:7400   joins the cluster at {} as it starts", options.address), 6);
    }
    Ok(())
}

impl StatePlace {
    /// The folder that the daemon itself would take.
    fn folder(&self) -> PathBuf {
        let state = self.state_dir.clone().or_else(|| named(ddssd::STATE_VARIABLE));
        state.unwrap_or_else(|| {
            let folder = self.place.dir.clone().or_else(|| named("DDSS_DIR"));
            ddssd::default_state_folder(folder.as_deref())
        })
    }

    fn make_folder(&self) -> Result<(), CommandError> {
        let folder = self.folder();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(CommandError::file("make the state folder", &folder))
    }

    /// What root has made there is the folder's owner's, as whom the daemon runs and reads it.
    fn give(&self, path: &Path) -> Result<(), CommandError> {
        let given = std::fs::metadata(self.folder()).and_then(|folder| {
            let is_his = std::fs::symlink_metadata(path)?.uid() == folder.uid();
            if is_his { Ok(()) } else { lchown(path, Some(folder.uid()), Some(folder.gid())) }
        });
        given.map_err(CommandError::file("give its folder's owner", path))
    }

    fn key_path(&self) -> PathBuf {
        self.folder().join(ClusterKey::FILE_NAME)
    }
}

fn init(place: &StatePlace, json: bool) -> Result<(), CommandError> {
    place.make_folder()?;
    let path = place.key_path();
    ClusterKey::generate()?.write(&path)?;
    place.give(&path)?;
    if json {
        println!("{}", json!({ "key_file": path }));
    } else {
        say(&format!("the key of a new cluster is in {}", path.display()), 2);
        println!("next: ddssd --listen IP:7400 here, and on every other node");
        say("      ddss cluster join IP:7400 TOKEN   with the word that `ddss cluster token` shows here", 8);
    }
    Ok(())
}

fn token(place: &StatePlace, json: bool) -> Result<(), CommandError> {
    let token = ClusterKey::read(&place.key_path())?.token();
    if json {
        println!("{}", json!({ "token": token }));
    } else {
        println!("{token}");
    }
    Ok(())
}
