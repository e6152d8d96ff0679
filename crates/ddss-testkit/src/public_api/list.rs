//! The list of public items.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::crates::{Docs, ItemId};
use super::render::Renderer;

/// Traits of the language that say how a type may be used by threads.
const AUTOMATIC: [&str; 2] = ["Send", "Sync"];

/// The public interface of a crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicApi {
    /// One line an item, sorted.
    pub lines: BTreeSet<String>,
    /// Paths of types and traits that belong to other packages and that the crate does not re-export.
    pub foreign: BTreeSet<String>,
}

/// Lists the public interface of the first crate of `docs`.
pub fn public_api(docs: &Docs) -> Option<PublicApi> {
    let (name, root) = docs.root()?;
    let mut places = Vec::new();
    collect(docs, root, name, &mut places);
    // An item that is reachable by two paths is called by the shorter one.
    let mut names: BTreeMap<ItemId, String> = BTreeMap::new();
    for (item, path) in &places {
        let known = names.entry(*item).or_insert_with(|| path.clone());
        if path.len() < known.len() {
            known.clone_from(path);
        }
    }
    let foreign = RefCell::new(BTreeSet::new());
    let mut lines = BTreeSet::new();
    for (item, path) in &places {
        let renderer = Renderer { docs, of_crate: item.of_crate, names: &names, foreign: &foreign };
        Lister { renderer, lines: &mut lines }.item(docs.item(*item)?, path);
    }
    Some(PublicApi { lines, foreign: foreign.into_inner() })
}

/// Collects the public items below a module, with their public paths.
fn collect(docs: &Docs, module: ItemId, path: &str, places: &mut Vec<(ItemId, String)>) {
    let Some(items) = docs.item(module).and_then(|item| item["inner"]["module"]["items"].as_array()) else { return };
    for id in items.iter().filter_map(Value::as_u64) {
        let here = ItemId { of_crate: module.of_crate, id };
        let Some(item) = docs.item(here).filter(|item| item["visibility"] == "public") else { continue };
        let (target, name) = match item["inner"].get("use") {
            Some(import) => (import["id"].as_u64().and_then(|id| docs.resolve(module.of_crate, id)), &import["name"]),
            None => (Some(here), &item["name"]),
        };
        let Some(target) = target else {
            places.push((here, format!("{path}::{}", name.as_str().unwrap_or("*"))));
            continue;
        };
        if item["inner"]["use"]["is_glob"] == true {
            collect(docs, target, path, places);
            continue;
        }
        let path = format!("{path}::{}", name.as_str().unwrap_or("?"));
        collect(docs, target, &path, places);
        places.push((target, path));
    }
}

struct Lister<'a> {
    renderer: Renderer<'a>,
    lines: &'a mut BTreeSet<String>,
}

impl Lister<'_> {
    fn find(&self, id: &Value) -> Option<&Value> {
        let at = ItemId { of_crate: self.renderer.of_crate, id: id.as_u64()? };
        self.renderer.docs.item(at)
    }

    fn each(&mut self, ids: &Value, act: impl Fn(&mut Self, &Value)) {
        for id in ids.as_array().into_iter().flatten() {
            if let Some(item) = self.find(id).cloned() {
                act(self, &item);
            }
        }
    }

    fn item(&mut self, item: &Value, path: &str) {
        let Some((kind, inner)) = item["inner"].as_object().and_then(|inner| inner.iter().next()) else { return };
        let of = |generics: &Value| (self.renderer.parameters(generics), self.renderer.conditions(generics));
        let (parameters, conditions) = of(&inner["generics"]);
        let mark = if item["attrs"].to_string().contains("non_exhaustive") { "#[non_exhaustive] " } else { "" };
        let line = match kind.as_str() {
            "function" => self.renderer.function(inner, path),
            "constant" => format!("pub const {path}: {}", self.renderer.ty(&inner["type"])),
            "type_alias" => format!("pub type {path}{parameters} = {}", self.renderer.ty(&inner["type"])),
            "use" => format!("pub use {path} = {}", inner["source"].as_str().unwrap_or("?")),
            "module" => format!("pub mod {path}"),
            "macro" => format!("pub macro {path}!"),
            "trait" => {
                let bounds = self.renderer.bounds(&inner["bounds"]);
                let bounds = if bounds.is_empty() { bounds } else { format!(": {bounds}") };
                format!("pub trait {path}{parameters}{bounds}{conditions}")
            }
            _ => format!("pub {kind} {path}{parameters}{conditions}"),
        };
        self.lines.insert(format!("{mark}{line}"));
        match kind.as_str() {
            "struct" => {
                let fields = &inner["kind"];
                for fields in [&fields["plain"]["fields"], &fields["tuple"]] {
                    self.each(fields, |lister, field| lister.field(field, path, "pub "));
                }
            }
            "enum" => self.each(&inner["variants"], |lister, variant| lister.variant(variant, path)),
            "trait" => {
                self.each(&inner["items"], |lister, part| lister.part(part, path));
                // Those for foreign types, and for all types with some bound, belong to no item of this crate.
                self.each(&inner["implementations"], |lister, block| {
                    let block = &block["inner"]["impl"];
                    lister.implementation(block, &lister.renderer.ty(&block["for"]));
                });
            }
            _ => {}
        }
        self.each(&inner["impls"], |lister, block| lister.implementation(&block["inner"]["impl"], path));
    }

    fn field(&mut self, field: &Value, path: &str, word: &str) {
        if field["visibility"] == "public" || word.is_empty() {
            let ty = self.renderer.ty(&field["inner"]["struct_field"]);
            self.lines.insert(format!("{word}{path}::{}: {ty}", field["name"].as_str().unwrap_or("?")));
        }
    }

    fn variant(&mut self, variant: &Value, path: &str) {
        let path = format!("{path}::{}", variant["name"].as_str().unwrap_or("?"));
        self.lines.insert(format!("variant {path}"));
        let kind = &variant["inner"]["variant"]["kind"];
        for fields in [&kind["tuple"], &kind["struct"]["fields"]] {
            self.each(fields, |lister, field| lister.field(field, &path, ""));
        }
    }

    /// A part of a trait or of an implementation without trait.
    fn part(&mut self, part: &Value, path: &str) {
        let path = format!("{path}::{}", part["name"].as_str().unwrap_or("?"));
        let inner = &part["inner"];
        let line = if let Some(function) = inner.get("function") {
            self.renderer.function(function, &path)
        } else if let Some(constant) = inner.get("assoc_const") {
            format!("pub const {path}: {}", self.renderer.ty(&constant["type"]))
        } else {
            format!("pub type {path}: {}", self.renderer.bounds(&inner["assoc_type"]["bounds"]))
        };
        self.lines.insert(line);
    }

    fn implementation(&mut self, block: &Value, path: &str) {
        let implemented = &block["trait"];
        let generics = &block["generics"];
        if implemented.is_null() {
            let public = |lister: &mut Self, part: &Value| {
                if part["visibility"] == "public" {
                    lister.part(part, path);
                }
            };
            return self.each(&block["items"], public);
        }
        let name = implemented["path"].as_str().unwrap_or_default();
        let is_automatic = block["is_synthetic"] == true;
        if !block["blanket_impl"].is_null() || (is_automatic && !AUTOMATIC.contains(&name)) {
            return;
        }
        let not = if block["is_negative"] == true { "!" } else { "" };
        // Conditions of automatic implementations name private types.
        let of = |text: String| if is_automatic { String::new() } else { text };
        let parameters = of(self.renderer.parameters(generics));
        let implementor = if is_automatic { path.to_owned() } else { self.renderer.ty(&block["for"]) };
        let conditions = of(self.renderer.conditions(generics));
        let implemented = self.renderer.path(implemented);
        self.lines.insert(format!("impl{parameters} {not}{implemented} for {implementor}{conditions}"));
        let associated = |lister: &mut Self, part: &Value| {
            if let Some(ty) = part["inner"].get("assoc_type").filter(|ty| !ty["type"].is_null()) {
                let (name, ty) = (part["name"].as_str().unwrap_or("?"), lister.renderer.ty(&ty["type"]));
                lister.lines.insert(format!("type <{path} as {implemented}>::{name} = {ty}"));
            }
        };
        self.each(&block["items"], associated);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::public_api::CrateDocs;

    const INNER: &str = "
        pub struct Shared(pub u32);
        pub struct Hidden;
        pub enum Kind { Plain, Pair(u8, Shared), Named { size: usize } }
    ";
    const OUTER: &str = "
        pub use inner::{Kind, Shared as Common};
        mod private { pub struct Handle<'a, T: Clone>(&'a T); impl<'a, T: Clone> Handle<'a, T> {
            pub fn new(of: &'a T) -> Self { Handle(of) }
            pub unsafe fn read(&mut self, at: impl Into<u64>, into: &mut [u8]) -> Result<(), inner::Shared> { todo!() }
            fn secret(&self) {}
        } }
        pub use private::Handle;
        impl<T: Clone> Iterator for Handle<'_, T> { type Item = T; fn next(&mut self) -> Option<T> { None } }
        pub fn leak() -> Option<inner::Hidden> { None }
        pub trait Call: Send { const COST: u8; fn call(&self, f: &dyn Fn(u8) -> bool) -> [u8; 2]; }
        pub trait Encoding { type Output; }
        impl Encoding for str { type Output = String; }
        impl<T: Copy> Encoding for [T] { type Output = Vec<T>; }
    ";

    fn rustdoc(folder: &Path, name: &str, source: &str, more: &[&str]) -> CrateDocs {
        let file = folder.join(name).with_extension("rs");
        fs::write(&file, source).unwrap();
        for program in ["rustc", "rustdoc"] {
            let mut command = Command::new(program);
            command.env("RUSTC_BOOTSTRAP", "1").current_dir(folder).arg(&file).args(more);
            command.args(["--edition", "2024", "--crate-type", "lib", "--cap-lints", "allow"]);
            match program {
                "rustc" => command.args(["--emit", "metadata"]),
                _ => command.args(["-Zunstable-options", "--output-format", "json", "--out-dir", "."]),
            };
            let output = command.output().unwrap();
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let json = fs::read_to_string(folder.join(name).with_extension("json")).unwrap();
        CrateDocs { name: name.to_owned(), json: serde_json::from_str(&json).unwrap() }
    }

    // If this failed, a change of the interface would pass unseen, or a user would need a crate that the list does not
    // name.
    #[test]
    fn public_items_and_foreign_types_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let inner = rustdoc(folder.path(), "inner", INNER, &[]);
        let outer = rustdoc(folder.path(), "outer", OUTER, &["--extern", "inner=libinner.rmeta"]);
        let api = public_api(&Docs::new(vec![outer, inner])).unwrap();
        for line in [
            "pub struct outer::Common",
            "pub outer::Common::0: u32",
            "variant outer::Kind::Pair",
            "outer::Kind::Pair::1: outer::Common",
            "outer::Kind::Named::size: usize",
            "pub struct outer::Handle<'a, T: core::clone::Clone>",
            "pub fn outer::Handle::new(of: &'a T) -> Self",
            "pub unsafe fn outer::Handle::read(&mut self, at: impl core::convert::Into<u64>, into: &mut [u8]) -> \
             core::result::Result<(), outer::Common>",
            "impl core::marker::Send for outer::Handle",
            "type <outer::Handle as core::iter::traits::iterator::Iterator>::Item = T",
            "pub fn outer::leak() -> core::option::Option<inner::Hidden>",
            "pub trait outer::Call: core::marker::Send",
            "pub const outer::Call::COST: u8",
            "impl outer::Encoding for str",
            "type <str as outer::Encoding>::Output = alloc::string::String",
            "impl<T: core::marker::Copy> outer::Encoding for [T]",
            "pub fn outer::Call::call(&self, f: &dyn core::ops::function::Fn(u8) -> bool) -> [u8; 2]",
        ] {
            assert!(api.lines.contains(line), "{line} is missing in\n{:#?}", api.lines);
        }
        assert!(!api.lines.iter().any(|line| line.contains("secret") || line.contains("private")), "{:#?}", api.lines);
        assert_eq!(api.foreign.into_iter().collect::<Vec<_>>(), ["inner::Hidden"]);
    }
}
