//! Native libraries that a program links by depending on the client crate.
//!
//! `cargo metadata` knows the dependencies but not the linker's arguments, so this reads the four ways by which a crate
//! can bring a C library: the `links` key, a build dependency that compiles C or searches installed libraries, a build
//! script that prints a link argument, and `#[link(..)]` in the source. It does not see a library that is opened at run
//! time by name.

use std::path::Path;
use std::{fs, io};

use cargo_metadata::{DependencyKind, Metadata, Package, PackageId, TargetKind};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::tokens::lex;

/// Crates whose only use in a build script is to compile C or to search an installed library.
const C_TOOLS: &[&str] = &["autotools", "bindgen", "cc", "cmake", "pkg-config", "system-deps", "vcpkg"];

/// Crates that declare the C library itself, which every Rust program on this system links anyway.
const LIBC: &[&str] = &["libc"];

/// Returns the package called `name` and every package that is linked with it.
///
/// Dev-dependencies are left out because users do not build them, and build dependencies because they are not linked.
pub fn dependency_tree<'a>(metadata: &'a Metadata, name: &str) -> Vec<&'a Package> {
    let root = metadata.packages.iter().find(|package| package.name.as_str() == name);
    let mut found: Vec<&Package> = root.into_iter().collect();
    let mut next = 0;
    while next < found.len() {
        for id in dependencies(metadata, &found[next].id, DependencyKind::Normal) {
            if !found.iter().any(|package| package.id == *id) {
                found.push(&metadata[id]);
            }
        }
        next += 1;
    }
    found
}

/// Returns the packages of `dependency_tree` that bring a C library, and how they do so.
pub fn c_libraries(metadata: &Metadata, dependency_tree: &[&Package]) -> io::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in dependency_tree {
        let name = package.name.as_str();
        if let Some(library) = &package.links {
            complaints.push(format!("{name} links the library {library}"));
        }
        for id in dependencies(metadata, &package.id, DependencyKind::Build) {
            let tool = metadata[id].name.as_str();
            if C_TOOLS.contains(&tool) {
                complaints.push(format!("{name} builds with {tool}"));
            }
        }
        let script = package.targets.iter().find(|target| target.kind.contains(&TargetKind::CustomBuild));
        if let Some(script) = script {
            let text = fs::read_to_string(&script.src_path)?;
            if text.contains("cargo:rustc-link") || text.contains("cargo::rustc-link") {
                complaints.push(format!("{name} has a build script that adds a link argument"));
            }
        }
        if !LIBC.contains(&name) {
            let folder = package.manifest_path.parent().expect("a manifest lies in a folder");
            complaints.extend(link_attributes(name, folder.join("src").as_std_path())?);
        }
    }
    Ok(complaints)
}

fn dependencies<'a>(metadata: &'a Metadata, id: &PackageId, kind: DependencyKind) -> Vec<&'a PackageId> {
    let resolve = metadata.resolve.as_ref().expect("cargo metadata resolves by default");
    let node = resolve.nodes.iter().find(|node| node.id == *id).expect("every package is a node");
    let wanted = node.deps.iter().filter(|dependency| dependency.dep_kinds.iter().any(|info| info.kind == kind));
    wanted.map(|dependency| &dependency.pkg).collect()
}

/// Returns the files below `folder` with a `#[link(..)]`.
fn link_attributes(package: &str, folder: &Path) -> io::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            complaints.extend(link_attributes(package, &path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            // Lexing every dependency takes seconds; few files contain the attribute's name at all.
            let lexed = if text.contains("link") { lex(&text).ok() } else { None };
            if lexed.is_some_and(has_link_attribute) {
                complaints.push(format!("{package} links a library in {}", path.display()));
            }
        }
    }
    Ok(complaints)
}

fn has_link_attribute(tokens: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let attribute = |index: usize| index > 0 && matches!(&tokens[index - 1], TokenTree::Punct(p) if p.as_char() == '#');
    tokens.iter().enumerate().any(|(index, token)| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket && attribute(index) => {
            matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(word)) if word == "link")
        }
        TokenTree::Group(group) => has_link_attribute(group.stream()),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a crate could link a C library by attribute and the client would need it installed.
    #[test]
    fn link_attribute_is_found_and_comment_is_not() {
        let found = |text: &str| has_link_attribute(lex(text).unwrap());
        assert!(found("mod a { #[link(name = \"ibverbs\")] extern \"C\" {} }"));
        assert!(!found("// #[link(name = \"ibverbs\")]\nfn f() { g(\"#[link(name)]\"); }"));
        assert!(!found("fn link() {} #[link_name = \"a\"] fn g() { [link][0] }"));
    }
}
