//! Circles of calls between the files in which a type has its methods: files that can only be understood together.

use super::import_circles::circles;
use super::tokens::{is_cfg_test, lex};
use proc_macro2::{Delimiter, Group, LexError, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

/// Methods of one type in one file, and the methods of `self` that they call.
#[derive(Debug, Default)]
struct Methods {
    defined: BTreeSet<String>,
    called: BTreeSet<String>,
}

/// Returns each type of a crate whose files call each other in circles by `self.method()`, and the number of those files. The
/// files are given by their path below `src` and their text; methods of traits and of tests do not count.
pub fn method_circles<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<BTreeMap<String, usize>, LexError> {
    let mut types: BTreeMap<String, BTreeMap<&str, Methods>> = BTreeMap::new();
    for (file, text) in files {
        collect_impls(lex(text)?, &mut |name, body| {
            let methods = types.entry(name).or_default().entry(file).or_default();
            collect_methods(body.stream(), methods);
        });
    }
    let in_circles = types.into_iter().map(|(name, files)| {
        let home =
            |method: &String| files.iter().find(|(_, methods)| methods.defined.contains(method)).map(|(&at, _)| at);
        let edges: BTreeMap<&str, BTreeSet<&str>> = files
            .iter()
            .map(|(&file, methods)| (file, methods.called.iter().filter_map(home).filter(|&at| at != file).collect()))
            .collect();
        (name, circles(&edges).iter().map(Vec::len).sum())
    });
    Ok(in_circles.filter(|&(_, count)| count > 0).collect())
}

/// Passes the name and the body of each `impl Type { .. }` to `found`. A type in two modules of one name counts as one.
fn collect_impls(tokens: TokenStream, found: &mut impl FnMut(String, &Group)) {
    let (mut header, mut is_test): (Option<Vec<TokenTree>>, bool) = (None, false);
    for token in tokens {
        match (token, &mut header) {
            (TokenTree::Group(body), Some(words)) if body.delimiter() == Delimiter::Brace => {
                if let Some(name) = type_of(words).filter(|_| !is_test) {
                    found(name, &body);
                }
                (header, is_test) = (None, false);
            }
            (token, Some(words)) => words.push(token),
            (TokenTree::Ident(word), None) if word == "impl" => header = Some(Vec::new()),
            (TokenTree::Group(attribute), None) if attribute.delimiter() == Delimiter::Bracket => {
                is_test |= is_cfg_test(attribute.stream());
            }
            // The end of another item.
            (TokenTree::Group(body), None) if body.delimiter() == Delimiter::Brace => is_test = false,
            (TokenTree::Punct(end), None) if end.as_char() == ';' => is_test = false,
            _ => {}
        }
    }
}

/// Returns the type of an `impl`; `None` if that is of a trait.
fn type_of(header: &[TokenTree]) -> Option<String> {
    let (mut depth, mut name) = (0, None);
    for token in header {
        match token {
            TokenTree::Punct(bracket) if bracket.as_char() == '<' => depth += 1,
            TokenTree::Punct(bracket) if bracket.as_char() == '>' => depth -= 1,
            TokenTree::Ident(word) if depth == 0 && word == "for" => return None,
            TokenTree::Ident(word) if depth == 0 && word == "where" => break,
            TokenTree::Ident(word) if depth == 0 => name = Some(word.to_string()),
            _ => {}
        }
    }
    name
}

/// Collects the methods of an `impl` and their calls of `self.name(`.
fn collect_methods(body: TokenStream, methods: &mut Methods) {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let of_function = tokens.windows(2).filter_map(|pair| match pair {
        [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "fn" => Some(name.to_string()),
        _ => None,
    });
    methods.defined.extend(of_function);
    collect_calls(&tokens, &mut methods.called);
}

fn collect_calls(tokens: &[TokenTree], called: &mut BTreeSet<String>) {
    for (at, token) in tokens.iter().enumerate() {
        match (token, &tokens[at + 1..]) {
            (TokenTree::Group(group), _) => collect_calls(&group.stream().into_iter().collect::<Vec<_>>(), called),
            (
                TokenTree::Ident(word),
                [TokenTree::Punct(dot), TokenTree::Ident(name), TokenTree::Group(arguments), ..],
            ) if word == "self" && dot.as_char() == '.' && arguments.delimiter() == Delimiter::Parenthesis => {
                called.insert(name.to_string());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the files of one type could grow together unnoticed.
    #[test]
    fn circle_of_methods_is_found_and_a_tree_is_none() {
        let a = "impl Home<'_> { fn ask(&mut self) { if true { self.answer(1) } } }\nimpl Tree { fn up(&self) { self.down() } }";
        let b = "impl<'a> Home<'a> where u8: Copy { fn answer(&mut self, x: u8) { let _ = x; self.ask(); } }";
        let c = "impl Tree { fn down(&self) {} }\nimpl Drop for Tree { fn drop(&mut self) { self.up() } }\n\
                 #[cfg(test)]\nimpl Tree { fn test(&self) { self.up() } }";
        let found = method_circles([("a.rs", a), ("b.rs", b), ("c.rs", c)]).unwrap();
        assert_eq!(found, BTreeMap::from([("Home".to_owned(), 2)]));
    }
}
