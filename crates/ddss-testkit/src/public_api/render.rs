//! Types, generics and signatures as one line of text.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::crates::{Docs, ItemId};

/// Crates whose types every user has.
const STANDARD: [&str; 3] = ["std", "core", "alloc"];

/// Formats parts of one crate's JSON, and collects the types of other packages in them.
pub(super) struct Renderer<'a> {
    pub(super) docs: &'a Docs,
    pub(super) of_crate: usize,
    /// The public path of each public item.
    pub(super) names: &'a BTreeMap<ItemId, String>,
    pub(super) foreign: &'a RefCell<BTreeSet<String>>,
}

impl Renderer<'_> {
    /// Formats a type.
    pub(super) fn ty(&self, ty: &Value) -> String {
        let Some((kind, value)) = ty.as_object().and_then(|object| object.iter().next()) else { return "_".to_owned() };
        match kind.as_str() {
            "resolved_path" => self.path(value),
            "generic" | "primitive" => value.as_str().unwrap_or("?").to_owned(),
            "borrowed_ref" => {
                let lifetime = value["lifetime"].as_str().map(|name| format!("{name} ")).unwrap_or_default();
                let mutable = if value["is_mutable"] == true { "mut " } else { "" };
                format!("&{lifetime}{mutable}{}", self.ty(&value["type"]))
            }
            "raw_pointer" => {
                let mutable = if value["is_mutable"] == true { "mut" } else { "const" };
                format!("*{mutable} {}", self.ty(&value["type"]))
            }
            "slice" => format!("[{}]", self.ty(value)),
            "array" => format!("[{}; {}]", self.ty(&value["type"]), value["len"].as_str().unwrap_or("_")),
            "tuple" => format!("({})", self.all(value, |ty| self.ty(ty)).join(", ")),
            "impl_trait" => format!("impl {}", self.bounds(value)),
            "dyn_trait" => {
                let mut traits = self.all(&value["traits"], |one| self.path(&one["trait"]));
                traits.extend(value["lifetime"].as_str().map(str::to_owned));
                format!("dyn {}", traits.join(" + "))
            }
            "qualified_path" => {
                let name = value["name"].as_str().unwrap_or("?");
                let of = self.ty(&value["self_type"]);
                if value["trait"].is_object() {
                    format!("<{of} as {}>::{name}", self.path(&value["trait"]))
                } else {
                    format!("{of}::{name}")
                }
            }
            "function_pointer" => format!("fn{}", self.inputs_and_output(&value["sig"], false)),
            other => format!("{other}?"),
        }
    }

    fn all(&self, list: &Value, format: impl Fn(&Value) -> String) -> Vec<String> {
        list.as_array().into_iter().flatten().map(format).collect()
    }

    /// Formats the path of a type or trait, under the name that a user of the crate writes.
    pub(super) fn path(&self, path: &Value) -> String {
        let Some(id) = path["id"].as_u64() else { return "?".to_owned() };
        let public = self.docs.resolve(self.of_crate, id).and_then(|item| self.names.get(&item));
        let name = public
            .cloned()
            .or_else(|| self.docs.path(self.of_crate, id))
            .unwrap_or_else(|| path["path"].as_str().or_else(|| path["name"].as_str()).unwrap_or("?").to_owned());
        let root = name.split("::").next().unwrap_or_default();
        if public.is_none() && !STANDARD.contains(&root) {
            self.foreign.borrow_mut().insert(name.clone());
        }
        name + &self.arguments(&path["args"])
    }

    fn arguments(&self, arguments: &Value) -> String {
        if let Some(list) = arguments.get("angle_bracketed") {
            let mut parts = self.all(&list["args"], |argument| {
                let constant = argument["const"]["expr"].as_str();
                let word = argument["lifetime"].as_str().or(constant).map(str::to_owned);
                word.unwrap_or_else(|| self.ty(&argument["type"]))
            });
            parts.extend(self.all(&list["constraints"], |constraint| {
                let name = constraint["name"].as_str().unwrap_or("?");
                let binding = &constraint["binding"];
                if binding["equality"].is_object() {
                    format!("{name} = {}", self.ty(&binding["equality"]["type"]))
                } else {
                    format!("{name}: {}", self.bounds(&binding["constraint"]))
                }
            }));
            return if parts.is_empty() { String::new() } else { format!("<{}>", parts.join(", ")) };
        }
        let Some(function) = arguments.get("parenthesized") else { return String::new() };
        let inputs = self.all(&function["inputs"], |ty| self.ty(ty)).join(", ");
        format!("({inputs}){}", self.output(&function["output"]))
    }

    fn output(&self, ty: &Value) -> String {
        if ty.is_null() { String::new() } else { format!(" -> {}", self.ty(ty)) }
    }

    /// Formats the bounds of a type.
    pub(super) fn bounds(&self, bounds: &Value) -> String {
        let bound = |bound: &Value| {
            if let Some(of) = bound.get("trait_bound") {
                let maybe = if of["modifier"] == "maybe" { "?" } else { "" };
                return format!("{maybe}{}", self.path(&of["trait"]));
            }
            bound["outlives"].as_str().unwrap_or("use<..>").to_owned()
        };
        self.all(bounds, bound).join(" + ")
    }

    /// Formats the parameters of a generic item.
    pub(super) fn parameters(&self, generics: &Value) -> String {
        let written = generics["params"].as_array().into_iter().flatten();
        // An `impl Trait` among the arguments is no parameter that a user sees.
        let written = written.filter(|parameter| parameter["kind"]["type"]["is_synthetic"] != true);
        let parameter = |parameter: &Value| {
            let name = parameter["name"].as_str().unwrap_or("?");
            let kind = &parameter["kind"];
            if kind["const"].is_object() {
                return format!("const {name}: {}", self.ty(&kind["const"]["type"]));
            }
            let bounds = self.bounds(&kind["type"]["bounds"]);
            if bounds.is_empty() { name.to_owned() } else { format!("{name}: {bounds}") }
        };
        let parameters: Vec<String> = written.map(parameter).collect();
        if parameters.is_empty() { String::new() } else { format!("<{}>", parameters.join(", ")) }
    }

    /// Formats the where clause of a generic item.
    pub(super) fn conditions(&self, generics: &Value) -> String {
        let conditions = self.all(&generics["where_predicates"], |condition| {
            if let Some(bound) = condition.get("bound_predicate") {
                return format!("{}: {}", self.ty(&bound["type"]), self.bounds(&bound["bounds"]));
            }
            condition.to_string()
        });
        if conditions.is_empty() { String::new() } else { format!(" where {}", conditions.join(", ")) }
    }

    /// Formats a function with its name.
    pub(super) fn function(&self, function: &Value, name: &str) -> String {
        let header = &function["header"];
        let word = |key: &str, word: &'static str| if header[key] == true { word } else { "" };
        let words = [word("is_const", "const "), word("is_async", "async "), word("is_unsafe", "unsafe ")].concat();
        let (generics, signature) = (&function["generics"], &function["sig"]);
        let tail = self.inputs_and_output(signature, true) + &self.conditions(generics);
        format!("pub {words}fn {name}{}{tail}", self.parameters(generics))
    }

    fn inputs_and_output(&self, signature: &Value, with_names: bool) -> String {
        let inputs = self.all(&signature["inputs"], |input| {
            let (name, ty) = (input[0].as_str().unwrap_or("_"), self.ty(&input[1]));
            match ty.as_str() {
                "Self" if name == "self" => "self".to_owned(),
                "&Self" if name == "self" => "&self".to_owned(),
                "&mut Self" if name == "self" => "&mut self".to_owned(),
                _ if with_names => format!("{name}: {ty}"),
                _ => ty,
            }
        });
        format!("({}){}", inputs.join(", "), self.output(&signature["output"]))
    }
}
