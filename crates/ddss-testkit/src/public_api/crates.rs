//! Rustdoc's JSON of several crates, and items in it.

use serde_json::Value;

/// The JSON of one crate.
#[derive(Debug, Clone)]
pub struct CrateDocs {
    /// Name of the library.
    pub name: String,
    /// Rustdoc's output.
    pub json: Value,
}

/// The JSON of a crate, and of the crates whose items it re-exports.
#[derive(Debug, Clone)]
pub struct Docs {
    crates: Vec<CrateDocs>,
}

/// An item: the index of its crate, and its id in that crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemId {
    pub(super) of_crate: usize,
    pub(super) id: u64,
}

impl Docs {
    /// Collects the JSON of crates; the interface is that of the first.
    pub fn new(crates: Vec<CrateDocs>) -> Docs {
        Docs { crates }
    }

    /// Name of the first crate, and its root module.
    pub(super) fn root(&self) -> Option<(&str, ItemId)> {
        let first = self.crates.first()?;
        Some((&first.name, ItemId { of_crate: 0, id: first.json["root"].as_u64()? }))
    }

    /// The item, if its crate's JSON has it.
    pub(super) fn item(&self, at: ItemId) -> Option<&Value> {
        self.crates[at.of_crate].json["index"].get(at.id.to_string())
    }

    /// Finds the item that crate `of_crate` calls `id`, in the crate that defines it; `None` outside of these crates.
    pub(super) fn resolve(&self, of_crate: usize, id: u64) -> Option<ItemId> {
        let here = ItemId { of_crate, id };
        if self.item(here).is_some() {
            return Some(here);
        }
        let summary = &self.crates[of_crate].json["paths"][id.to_string()];
        let path = summary["path"].as_array()?;
        let owner =
            self.crates.iter().position(|other| path.first().is_some_and(|name| name == other.name.as_str()))?;
        let paths = self.crates[owner].json["paths"].as_object()?;
        let same = |entry: &Value| entry["path"] == summary["path"] && entry["kind"] == summary["kind"];
        let (id, _) = paths.iter().find(|(_, entry)| entry["crate_id"] == 0 && same(entry))?;
        Some(ItemId { of_crate: owner, id: id.parse().ok()? })
    }

    /// The path under which an item is defined.
    pub(super) fn path(&self, of_crate: usize, id: u64) -> Option<String> {
        let path = self.crates[of_crate].json["paths"][id.to_string()]["path"].as_array()?;
        Some(path.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("::"))
    }
}
