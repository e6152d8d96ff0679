//! Permitted dependencies between the members of the workspace.

use cargo_metadata::{DependencyKind, Metadata};

/// One dependency between two members of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberDependency {
    /// The dependent member.
    pub from: String,
    /// The member that it depends on.
    pub to: String,
    /// True for dev-dependencies.
    pub development: bool,
}

/// Members that a member may depend on.
#[derive(Debug, Clone, Copy)]
pub enum PermittedDependencies {
    /// Only on these members.
    Only(&'static [&'static str]),
    /// On every member, for packages that no other package depends on.
    Anything,
}

/// A member with the dependencies that it may have.
#[derive(Debug, Clone, Copy)]
pub struct MemberRule {
    /// The member.
    pub name: &'static str,
    /// Permitted dependencies.
    pub permitted: PermittedDependencies,
    /// Additional permitted dev-dependencies.
    pub permitted_in_tests: &'static [&'static str],
}

/// Returns every dependency between members, in any table of the manifest and under any local name.
pub fn member_dependencies(metadata: &Metadata) -> Vec<MemberDependency> {
    let members = metadata.workspace_packages();
    let is_member = |name: &str| members.iter().any(|package| package.name.as_str() == name);
    let mut found = Vec::new();
    for package in &members {
        for dependency in package.dependencies.iter().filter(|dependency| is_member(&dependency.name)) {
            found.push(MemberDependency {
                from: package.name.to_string(),
                to: dependency.name.clone(),
                development: dependency.kind == DependencyKind::Development,
            });
        }
    }
    found
}

/// Returns the dependencies that no rule permits, and the rules that match no member.
pub fn refused_dependencies(
    members: &[String],
    dependencies: &[MemberDependency],
    rules: &[MemberRule],
) -> Vec<String> {
    let rule_of = |name: &str| rules.iter().find(|rule| rule.name == name);
    let mut complaints = Vec::new();
    for member in members.iter().filter(|member| rule_of(member).is_none()) {
        complaints.push(format!("{member} is a member of the workspace without a rule for its dependencies"));
    }
    for rule in rules.iter().filter(|rule| !members.iter().any(|member| member == rule.name)) {
        complaints.push(format!("{} has a rule for its dependencies and is no member of the workspace", rule.name));
    }
    for dependency in dependencies {
        let Some(rule) = rule_of(&dependency.from) else { continue };
        if !allows(rule, dependency) {
            let kind = if dependency.development { "dev-depends" } else { "depends" };
            complaints.push(format!("{} {kind} on {}, which no rule permits", dependency.from, dependency.to));
        }
    }
    complaints
}

fn allows(rule: &MemberRule, dependency: &MemberDependency) -> bool {
    let always = match rule.permitted {
        PermittedDependencies::Anything => true,
        PermittedDependencies::Only(names) => names.contains(&dependency.to.as_str()),
    };
    always || (dependency.development && rule.permitted_in_tests.contains(&dependency.to.as_str()))
}
