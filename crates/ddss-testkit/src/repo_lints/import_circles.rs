//! Circles of imports between the modules of a crate: files that can only be understood together.
//!
//! An import is a `use`, or a path that begins with `crate` or `super`, outside tests. A module that only re-exports a
//! name does not use it: the import leads to the module that defines the name.

use super::tokens::lex;
use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

/// Path of a module below its crate's root, which is empty.
type ModulePath = Vec<String>;

/// Maximum number of re-exports between an import and the definition.
const REEXPORTS_MAX: usize = 8;

/// One import: its path as written, and whether it is a `pub use`.
#[derive(Debug)]
struct Import {
    path: Vec<String>,
    is_public: bool,
}

/// Imports of all modules of a crate.
#[derive(Debug)]
struct Graph {
    modules: BTreeMap<ModulePath, Vec<Import>>,
    /// Module and name that it re-exports, with the module from which the name comes.
    reexports: BTreeMap<(ModulePath, String), ModulePath>,
}

/// Returns the circles among files, each given by its path below `src` and its text. A circle is the sorted list of its
/// modules.
pub fn import_circles<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Vec<String>>, LexError> {
    let circles = circles(&edges(files)?);
    Ok(circles.into_iter().map(|circle| circle.iter().map(|module| module.join("::")).collect()).collect())
}

/// Returns the circles among the folders and files that stand beside each other. A folder imports whatever its files import.
pub fn folder_circles<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Vec<String>>, LexError> {
    // By the folder in which the two ends of an import stand beside each other.
    let mut levels: BTreeMap<ModulePath, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, imports) in edges(files)? {
        for target in imports {
            let common = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(common), target.get(common)) {
                let level = levels.entry(module[..common].to_vec()).or_default();
                level.entry(from.clone()).or_default().insert(to.clone());
                level.entry(to.clone()).or_default();
            }
        }
    }
    let name = |level: &ModulePath, member: &String| [level.join("::"), member.clone()].join("::");
    let mut found = Vec::new();
    for (level, edges) in &levels {
        for circle in circles(edges) {
            found.push(circle.iter().map(|member| name(level, member).trim_start_matches("::").to_owned()).collect());
        }
    }
    Ok(found)
}

/// Returns the modules that each module imports.
fn edges<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<BTreeMap<ModulePath, BTreeSet<ModulePath>>, LexError> {
    // A program without a library has no file for the root.
    let mut modules = BTreeMap::from([(ModulePath::new(), Vec::new())]);
    for (file, text) in files {
        let mut imports = Vec::new();
        collect_imports(lex(text)?, &mut imports);
        modules.insert(module_of(file), imports);
    }
    let mut graph = Graph { modules, reexports: BTreeMap::new() };
    graph.find_reexports();
    Ok(graph.modules.keys().map(|module| (module.clone(), graph.imports_of(module))).collect())
}

/// Returns the sets of nodes that reach each other.
pub(super) fn circles<K: Ord + Clone>(edges: &BTreeMap<K, BTreeSet<K>>) -> BTreeSet<Vec<K>> {
    let reached: BTreeMap<&K, BTreeSet<K>> = edges.keys().map(|node| (node, reachable(node, edges))).collect();
    let in_circle = reached.iter().filter(|(node, others)| others.contains(**node));
    in_circle
        .map(|(&node, others)| {
            others.iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(node))).cloned().collect()
        })
        .collect()
}

/// `engine/state/mod.rs` and `engine/state.rs` are the module `engine::state`.
fn module_of(file: &str) -> ModulePath {
    let mut path: ModulePath = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|name| matches!(name.as_str(), "mod" | "lib")) {
        path.pop();
    }
    path
}

/// Returns all nodes that a node reaches.
fn reachable<K: Ord + Clone>(node: &K, edges: &BTreeMap<K, BTreeSet<K>>) -> BTreeSet<K> {
    let (mut found, mut open) = (BTreeSet::new(), vec![node]);
    while let Some(next) = open.pop() {
        for other in edges.get(next).into_iter().flatten() {
            if found.insert(other.clone()) {
                open.push(other);
            }
        }
    }
    found
}

impl Graph {
    /// Splits a path as written in `module` into the module that it leads to and the rest; `None` for another crate.
    fn resolve(&self, module: &ModulePath, path: &[String]) -> Option<(ModulePath, Vec<String>)> {
        let (mut base, mut rest) = (module.clone(), path);
        match path.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &path[1..]),
            "super" | "self" => {
                while let Some(("super" | "self", behind)) = rest.split_first().map(|(word, all)| (word.as_str(), all))
                {
                    if rest[0] == "super" {
                        base.pop();
                    }
                    rest = behind;
                }
            }
            child => {
                let child: ModulePath = module.iter().cloned().chain([child.to_owned()]).collect();
                self.modules.get(&child)?;
            }
        }
        while let Some((next, behind)) = rest.split_first() {
            let child: ModulePath = base.iter().cloned().chain([next.clone()]).collect();
            if !self.modules.contains_key(&child) {
                break;
            }
            (base, rest) = (child, behind);
        }
        self.modules.contains_key(&base).then(|| (base, rest.to_vec()))
    }

    fn find_reexports(&mut self) {
        let mut found = BTreeMap::new();
        for (module, imports) in &self.modules {
            for import in imports.iter().filter(|import| import.is_public) {
                if let Some((from, rest)) = self.resolve(module, &import.path)
                    && from != *module
                    && let Some(name) = rest.first()
                {
                    found.insert((module.clone(), name.clone()), from);
                }
            }
        }
        self.reexports = found;
    }

    /// Returns the modules that define what a module imports.
    fn imports_of(&self, module: &ModulePath) -> BTreeSet<ModulePath> {
        let mut found = BTreeSet::new();
        for import in &self.modules[module] {
            let Some((mut target, rest)) = self.resolve(module, &import.path) else { continue };
            if import.is_public && target.starts_with(module) {
                continue;
            }
            for _ in 0..REEXPORTS_MAX {
                let key = rest.first().map(|name| (target.clone(), name.clone()));
                let Some(next) = key.and_then(|key| self.reexports.get(&key)) else { break };
                target.clone_from(next);
            }
            found.insert(target);
        }
        found.remove(module);
        found
    }
}

/// Collects the imports of a file. Items behind `#[cfg(test)]` are left out.
fn collect_imports(tokens: TokenStream, found: &mut Vec<Import>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let (mut at, mut is_public, mut is_test) = (0, false, false);
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Bracket && is_hash(tokens.get(at.wrapping_sub(1))) =>
            {
                is_test |= is_cfg_test(group.stream());
            }
            TokenTree::Ident(word) if word == "pub" => is_public = true,
            // `pub(crate)` belongs to the item behind it.
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis && is_public => {}
            TokenTree::Ident(word) if word == "use" => {
                let end = (at..tokens.len()).find(|&end| is_punct(tokens.get(end), ';')).unwrap_or(tokens.len());
                if !is_test {
                    let mut paths = Vec::new();
                    collect_tree(&tokens[at + 1..end], &mut Vec::new(), &mut paths);
                    found.extend(paths.into_iter().map(|path| Import { path, is_public }));
                }
                (at, is_public, is_test) = (end, false, false);
            }
            TokenTree::Ident(word)
                if (word == "crate" || word == "super") && is_punct(tokens.get(at + 1), ':') && !is_test =>
            {
                found.push(Import { path: simple_path(&tokens[at..]), is_public: false });
            }
            TokenTree::Group(group) => {
                if !is_test {
                    collect_imports(group.stream(), found);
                }
                if group.delimiter() == Delimiter::Brace {
                    (is_public, is_test) = (false, false);
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => (is_public, is_test) = (false, false),
            _ => {}
        }
        at += 1;
    }
}

/// Words of a path such as `super::state::Slot`.
fn simple_path(tokens: &[TokenTree]) -> Vec<String> {
    let mut path = Vec::new();
    for pair in tokens.chunks(3) {
        let Some(TokenTree::Ident(word)) = pair.first() else { break };
        path.push(word.to_string());
        if !is_punct(pair.get(1), ':') || !is_punct(pair.get(2), ':') {
            break;
        }
    }
    path
}

/// Collects the paths of a `use` tree.
fn collect_tree(tokens: &[TokenTree], prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    for branch in tokens.split(|token| is_punct(Some(token), ',')) {
        let (length, mut is_tree) = (prefix.len(), false);
        for token in branch {
            match token {
                // The local name of a renamed import does not matter.
                TokenTree::Ident(word) if word == "as" => break,
                TokenTree::Ident(word) => prefix.push(word.to_string()),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    collect_tree(&inner, prefix, paths);
                    is_tree = true;
                }
                _ => {}
            }
        }
        if !is_tree && prefix.len() > length {
            paths.push(prefix.clone());
        }
        prefix.truncate(length);
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_hash(token: Option<&TokenTree>) -> bool {
    is_punct(token, '#')
}

/// Returns true for the inside of `#[cfg(test)]` and of conditions that contain it, but not of `not(test)`.
fn is_cfg_test(attribute: TokenStream) -> bool {
    let text = attribute.to_string();
    text.starts_with("cfg") && text.contains("test") && !text.contains("not")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        import_circles(files.iter().copied()).unwrap()
    }

    #[test]
    fn planted_circle_is_found() {
        let engine = ("engine.rs", "use crate::state::table::{Slot, Table};\npub struct Engine(Table);\n");
        let table = ("state/table.rs", "pub struct Slot;\nuse crate::engine::{Engine as Core};\n");
        let files = [("lib.rs", "mod engine;\nmod state;\n"), ("state/mod.rs", "pub mod table;\n"), engine, table];
        assert_eq!(circles(&files), [["engine", "state::table"]]);
        let inline = ("state/table.rs", "fn f(engine: &super::super::engine::Engine) {}\n");
        assert_eq!(circles(&[files[0], files[1], engine, inline]), [["engine", "state::table"]]);
    }

    #[test]
    fn reexports_and_tests_make_no_circle() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub(crate) use b::{B, b};\n"),
            ("a.rs", "use crate::B;\npub struct A(B);\n"),
            (
                "b.rs",
                "pub struct B;\npub fn b() {}\n#[cfg(test)]\nmod tests {\n    use crate::A;\n    use super::*;\n}\n",
            ),
        ];
        assert_eq!(circles(&files), Vec::<Vec<String>>::new());
        let other = ("b.rs", "use crate::A;\npub struct B;\n");
        assert_eq!(circles(&[files[0], files[1], other]), [["a", "b"]]);
    }

    #[test]
    fn trees_lead_to_each_of_their_names() {
        let files = [
            ("a.rs", "use crate::{b::{self, B}, c::{d::D, C}};\n"),
            ("b.rs", "use std::fmt;\n"),
            ("c/mod.rs", "mod d;\n"),
            ("c/d.rs", "use super::super::a::A;\n"),
            ("lib.rs", ""),
        ];
        assert_eq!(circles(&files), [["a", "c::d"]]);
    }

    #[test]
    fn folders_that_need_each_other_are_found_although_no_files_do() {
        let files = [
            ("low/mod.rs", ""),
            ("high/mod.rs", ""),
            ("low/a.rs", "pub struct A;\n"),
            ("low/b.rs", "use crate::high::c::C;\npub struct B(C);\n"),
            ("high/c.rs", "use crate::low::a::A;\npub struct C(A);\n"),
        ];
        assert_eq!(circles(&files), Vec::<Vec<String>>::new());
        assert_eq!(folder_circles(files).unwrap(), [["high", "low"]]);
        let inside = [
            ("x/mod.rs", ""),
            ("x/p/mod.rs", ""),
            ("x/q/mod.rs", ""),
            ("x/p/a.rs", "use crate::x::q::b::B;\n"),
            ("x/q/b.rs", "pub struct B;\n"),
            ("x/q/c.rs", "use super::super::p::d::D;\n"),
            ("x/p/d.rs", "pub struct D;\n"),
        ];
        assert_eq!(folder_circles(inside).unwrap(), [["x::p", "x::q"]]);
        assert_eq!(folder_circles(files[..4].iter().copied()).unwrap(), Vec::<Vec<String>>::new());
    }
}
