//! The commands that make a cluster, and bring nodes into it.

use crate::arguments::{ClusterCommand, StatePlace};
use crate::failure::CommandError;
use ddssd::ClusterKey;
use serde_json::json;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

pub(crate) fn run(command: &ClusterCommand, json: bool) -> Result<(), CommandError> {
    match command {
        ClusterCommand::Init(place) => init(place, json),
        ClusterCommand::Token(place) => token(place, json),
    }
}

impl StatePlace {
    /// The folder that the daemon itself would take.
    fn folder(&self) -> PathBuf {
        let named = |variable| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        let state = self.state_dir.clone().or_else(|| named(ddssd::STATE_VARIABLE));
        state.unwrap_or_else(|| {
            let folder = self.place.dir.clone().or_else(|| named("DDSS_DIR"));
            ddssd::default_state_folder(folder.as_deref())
        })
    }

    fn key_path(&self) -> PathBuf {
        self.folder().join(ClusterKey::FILE_NAME)
    }
}

fn init(place: &StatePlace, json: bool) -> Result<(), CommandError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(place.folder());
    made.map_err(CommandError::system("make the state folder"))?;
    let path = place.key_path();
    ClusterKey::generate()?.write(&path)?;
    if json {
        println!("{}", json!({ "key_file": path }));
    } else {
        println!("the key of a new cluster is in {}", path.display());
        println!("next: ddssd --listen IP:7400 here, and on every other node");
        println!("      ddss cluster join IP:7400 TOKEN   with the word that `ddss cluster token` shows here");
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
