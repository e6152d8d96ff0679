//! Limits on the length of files and on the content of `mod.rs`.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

use super::tokens::lex;

/// Returns a complaint if `text` has more than `lines_max` lines.
pub fn long_file(path: &str, text: &str, lines_max: usize) -> Option<String> {
    let lines = text.lines().count();
    (lines > lines_max).then(|| format!("{path} has {lines} lines, more than {lines_max}"))
}

/// Returns the functions of a file outside its tests, each with its lines of code: that of its name, and those of its body.
pub fn function_lengths(text: &str) -> Result<Vec<(String, usize)>, LexError> {
    let mut found = Vec::new();
    collect_functions(lex(text)?, &mut found);
    Ok(found)
}

fn collect_functions(tokens: TokenStream, found: &mut Vec<(String, usize)>) {
    // Name of the function whose body comes next, and whether the next item is a test's.
    let (mut name, mut first, mut is_test) = (None, 0, false);
    let mut before: Option<TokenTree> = None;
    for token in tokens {
        match &token {
            TokenTree::Ident(word) if is_word(before.as_ref(), "fn") => {
                (name, first) = (Some(word.to_string()), word.span().start().line);
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => (name, is_test) = (None, false),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket && is_punct(before.as_ref(), '#') => {
                is_test |= group.stream().to_string().replace(' ', "").starts_with("cfg(test");
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                if !is_test {
                    if let Some(name) = name.take() {
                        let mut lines = BTreeSet::from([first, group.span_close().end().line]);
                        collect_lines(group.stream(), &mut lines);
                        found.push((name, lines.len()));
                    }
                    collect_functions(group.stream(), found);
                }
                (name, is_test) = (None, false);
            }
            TokenTree::Group(group) if name.is_none() => collect_functions(group.stream(), found),
            _ => {}
        }
        before = Some(token);
    }
}

/// Collects the lines on which tokens stand. Comments are no tokens.
fn collect_lines(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    for token in tokens {
        let span = token.span();
        lines.extend([span.start().line, span.end().line]);
        if let TokenTree::Group(group) = token {
            collect_lines(group.stream(), lines);
        }
    }
}

/// Returns the items at the top of a `mod.rs` that are not docs, `mod name;` or `use`.
pub fn mod_file_complaints(path: &str, text: &str) -> Result<Vec<String>, LexError> {
    let tokens: Vec<TokenTree> = lex(text)?.into_iter().collect();
    let mut rest = tokens.as_slice();
    while !rest.is_empty() {
        match item(rest) {
            Some(after) => rest = after,
            None => {
                let line = rest[0].span().start().line;
                return Ok(vec![format!("{path}:{line} holds more than docs, mod and use")]);
            }
        }
    }
    Ok(Vec::new())
}

/// Takes one attribute, `mod name;` or `use ..;` from the front; `None` if something else stands there.
fn item(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    if is_punct(tokens.first(), '#') {
        let bang = usize::from(is_punct(tokens.get(1), '!'));
        return is_group(tokens.get(1 + bang), Delimiter::Bracket).then(|| &tokens[2 + bang..]);
    }
    let mut rest = tokens;
    if is_word(rest.first(), "pub") {
        rest = &rest[1..];
        if is_group(rest.first(), Delimiter::Parenthesis) {
            rest = &rest[1..];
        }
    }
    if is_word(rest.first(), "mod") {
        return is_punct(rest.get(2), ';').then(|| &rest[3..]);
    }
    if is_word(rest.first(), "use") {
        let end = rest.iter().position(|token| is_punct(Some(token), ';'))?;
        return Some(&rest[end + 1..]);
    }
    None
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_word(token: Option<&TokenTree>, wanted: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(word)) if word == wanted)
}

fn is_group(token: Option<&TokenTree>, wanted: Delimiter) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, files would grow too long to be read in one sitting.
    #[test]
    fn file_one_line_over_the_limit_is_refused() {
        assert_eq!(long_file("a.rs", "1\n2\n3\n", 3), None);
        assert_eq!(long_file("a.rs", "1\n2\n3\n4\n", 3).unwrap(), "a.rs has 4 lines, more than 3");
    }

    // If this failed, a page of contents could not have its usual lines.
    #[test]
    fn file_of_docs_mods_and_uses_is_a_contents_page() {
        let page = "//! Words.\n#![allow(missing_docs)]\n#[cfg(test)]\nmod a;\npub(crate) mod b;\n\
                    pub use a::{B, c::{D, E}};\n/// Words.\npub mod f;\n";
        assert_eq!(mod_file_complaints("mod.rs", page).unwrap(), Vec::<String>::new());
    }

    // If this failed, code would hide in `mod.rs`, where readers do not look for it.
    #[test]
    fn code_in_contents_page_is_refused() {
        for planted in ["mod a { fn f() {} }", "fn f() {}", "pub struct A;", "pub const A: u8 = 1;", "a!();"] {
            let page = format!("//! Words.\nmod z;\n{planted}\n");
            let complaints = mod_file_complaints("a/mod.rs", &page).unwrap();
            assert_eq!(complaints, ["a/mod.rs:3 holds more than docs, mod and use"], "for {planted}");
        }
    }

    // If this failed, functions would grow past what a reader keeps in mind, and nobody would notice.
    #[test]
    fn lines_of_code_of_functions_are_counted_and_tests_are_not() {
        let text = "impl A {\n    /// Words.\n    pub fn long(\n        a: u8,\n    ) -> u8 {\n        // A comment.\n\n        \
                    let b = |c: u8| {\n            c\n        };\n        b(a)\n    }\n    fn short() {}\n}\n\
                    trait B {\n    fn none();\n}\nstruct C {\n    a: u8,\n}\n#[cfg(test)]\nmod tests {\n    fn test() {}\n}\n\
                    #[test]\nfn f() {\n    fn inner() {}\n}\n";
        let expected = [("long", 6), ("short", 1), ("f", 3), ("inner", 1)];
        assert_eq!(function_lengths(text).unwrap(), expected.map(|(name, lines)| (name.to_owned(), lines)));
    }
}
