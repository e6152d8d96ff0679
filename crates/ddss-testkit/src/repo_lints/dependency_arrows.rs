//! Which crate leans on which.

use cargo_metadata::{DependencyKind, Metadata};

/// One dependency between two members of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrow {
    /// Who leans.
    pub from: String,
    /// On whom.
    pub to: String,
    /// Whether only its tests and examples do.
    pub development: bool,
}

/// On whom a member may lean.
#[derive(Debug, Clone, Copy)]
pub enum LeansOn {
    /// On these members and no others.
    Only(&'static [&'static str]),
    /// On every member: packages that nothing leans on.
    Anything,
}

/// One room of the house: a member and the arrows it may have.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// The member.
    pub name: &'static str,
    /// What it may lean on.
    pub leans_on: LeansOn,
    /// What its tests and examples may lean on besides.
    pub tests_also: &'static [&'static str],
}

/// Every arrow between members, whatever table of the manifest it stands in and whatever it is renamed to.
pub fn arrows(metadata: &Metadata) -> Vec<Arrow> {
    let members = metadata.workspace_packages();
    let is_member = |name: &str| members.iter().any(|package| package.name.as_str() == name);
    let mut found = Vec::new();
    for package in &members {
        for dependency in package.dependencies.iter().filter(|dependency| is_member(&dependency.name)) {
            found.push(Arrow {
                from: package.name.to_string(),
                to: dependency.name.clone(),
                development: dependency.kind == DependencyKind::Development,
            });
        }
    }
    found
}

/// The arrows that the house does not have, and the rooms that do not match the members.
pub fn refused(members: &[String], arrows: &[Arrow], house: &[Room]) -> Vec<String> {
    let room = |name: &str| house.iter().find(|room| room.name == name);
    let mut complaints = Vec::new();
    for member in members.iter().filter(|member| room(member).is_none()) {
        complaints.push(format!("{member} is a member of the workspace and has no room in the house"));
    }
    for room in house.iter().filter(|room| !members.iter().any(|member| member == room.name)) {
        complaints.push(format!("{} has a room in the house and is no member of the workspace", room.name));
    }
    for arrow in arrows {
        let Some(room) = room(&arrow.from) else { continue };
        if !allows(room, arrow) {
            let kind = if arrow.development { "dev-depends" } else { "depends" };
            complaints.push(format!("{} {kind} on {}, which the house does not allow", arrow.from, arrow.to));
        }
    }
    complaints
}

fn allows(room: &Room, arrow: &Arrow) -> bool {
    let always = match room.leans_on {
        LeansOn::Anything => true,
        LeansOn::Only(names) => names.contains(&arrow.to.as_str()),
    };
    always || (arrow.development && room.tests_also.contains(&arrow.to.as_str()))
}
