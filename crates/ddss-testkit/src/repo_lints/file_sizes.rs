//! Limits on the length of files and on the content of `mod.rs`.

use proc_macro2::{Delimiter, LexError, TokenTree};

use super::tokens::lex;

/// Returns a complaint if `text` has more than `lines_max` lines.
pub fn long_file(path: &str, text: &str, lines_max: usize) -> Option<String> {
    let lines = text.lines().count();
    (lines > lines_max).then(|| format!("{path} has {lines} lines, more than {lines_max}"))
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
}
