//! Finds identifiers in code as the compiler sees it: comments and strings do not count, macros do.

use std::str::FromStr;

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

/// Returns the lines with the keyword `unsafe` as code, counted from 1.
pub fn unsafe_lines(text: &str) -> Result<Vec<usize>, LexError> {
    let mut lines = Vec::new();
    collect_unsafe(lex(text)?, &mut lines);
    Ok(lines)
}

/// Types that make a thread wait for another one.
const LOCKS: [&str; 6] = ["Mutex", "RwLock", "Condvar", "Barrier", "ReentrantLock", "mpsc"];

/// Returns the lines on which code names a lock, counted from 1. Imports and tests do not count.
pub fn lock_lines(text: &str) -> Result<Vec<usize>, LexError> {
    let mut lines = Vec::new();
    collect_locks(lex(text)?, &mut lines);
    lines.dedup();
    Ok(lines)
}

/// Returns true if the file forbids `unsafe` for its whole crate by an attribute.
pub fn forbids_unsafe(text: &str) -> Result<bool, LexError> {
    let tokens: Vec<TokenTree> = lex(text)?.into_iter().collect();
    Ok(tokens.windows(3).any(|window| match window {
        [TokenTree::Punct(hash), TokenTree::Punct(bang), TokenTree::Group(group)] => {
            hash.as_char() == '#'
                && bang.as_char() == '!'
                && group.delimiter() == Delimiter::Bracket
                && is_forbid_unsafe(group.stream())
        }
        _ => false,
    }))
}

/// Returns the uses of these identifiers as code, with their lines counted from 1.
pub fn identifier_lines(text: &str, words: &[&str]) -> Result<Vec<(usize, String)>, LexError> {
    let mut found = Vec::new();
    collect_identifiers(lex(text)?, words, &mut found);
    Ok(found)
}

/// Returns the tokens of a file. The first line of a script (`#!/usr/bin/..`) is not Rust and is left out.
pub(crate) fn lex(text: &str) -> Result<TokenStream, LexError> {
    let shebang = text.starts_with("#!") && !text.starts_with("#![");
    let start = if shebang { text.find('\n').unwrap_or(text.len()) } else { 0 };
    // The line break stays, so that the lines keep their numbers.
    TokenStream::from_str(&text[start..])
}

fn collect_unsafe(tokens: TokenStream, lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_unsafe(group.stream(), lines),
            TokenTree::Ident(word) if word == "unsafe" => lines.push(word.span().start().line),
            _ => {}
        }
    }
}

fn collect_identifiers(tokens: TokenStream, words: &[&str], found: &mut Vec<(usize, String)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_identifiers(group.stream(), words, found),
            TokenTree::Ident(ident) if words.iter().any(|word| ident == word) => {
                found.push((ident.span().start().line, ident.to_string()));
            }
            _ => {}
        }
    }
}

fn collect_locks(tokens: TokenStream, lines: &mut Vec<usize>) {
    // Skipped tokens: an import up to its end, and a test item up to its braces.
    let (mut import, mut of_tests) = (false, false);
    for token in tokens {
        match token {
            TokenTree::Punct(end) if end.as_char() == ';' => (import, of_tests) = (false, false),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket && is_cfg_test(group.stream()) => {
                of_tests = true;
            }
            TokenTree::Group(group) if !import && !of_tests => collect_locks(group.stream(), lines),
            TokenTree::Group(group) => of_tests &= group.delimiter() != Delimiter::Brace,
            TokenTree::Ident(word) if word == "use" => import = true,
            TokenTree::Ident(word) if !import && !of_tests && LOCKS.iter().any(|lock| word == lock) => {
                lines.push(word.span().start().line);
            }
            _ => {}
        }
    }
}

/// Returns true if the inside of an attribute is `cfg(test)`.
pub(super) fn is_cfg_test(attribute: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = attribute.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name), TokenTree::Group(what)] if name == "cfg" => what.stream().to_string() == "test",
        _ => false,
    }
}

/// Returns true if the inside of an attribute is `forbid(.., unsafe_code, ..)`.
fn is_forbid_unsafe(attribute: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = attribute.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(level), TokenTree::Group(lints)] if level == "forbid" => {
            lints.stream().into_iter().any(|token| matches!(token, TokenTree::Ident(lint) if lint == "unsafe_code"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, `unsafe` could spread to unlisted files unnoticed.
    #[test]
    fn unsafe_is_found_wherever_it_is_code() {
        let planted = "fn f() {\n    unsafe { g() }\n}\nmacro_rules! m { () => { unsafe fn h() {} } }\n\
                       #[unsafe(no_mangle)]\nextern \"C\" fn i() {}\n";
        assert_eq!(unsafe_lines(planted).unwrap(), [2, 4, 5]);
    }

    // If this failed, a comment about `unsafe` would stop the build.
    #[test]
    fn unsafe_in_comments_and_strings_is_ignored() {
        let planted = "//! unsafe\n/* unsafe /* unsafe */ */\n/// unsafe\n#[deny(unsafe_code)]\n\
                       fn f() { g(\"unsafe {\", r#\"unsafe \"quoted\" \"#, b\"unsafe\", 'u', r#unsafe_not); }\n";
        assert_eq!(unsafe_lines(planted).unwrap(), Vec::<usize>::new());
    }

    // If this failed, a lock could enter the data path, or an import would count as one.
    #[test]
    fn locks_are_found_where_they_are_used_and_not_in_tests() {
        let planted = "use std::sync::{Mutex, RwLock};\n// Mutex\nstruct A {\n    a: Mutex<u8>,\n    b: u8,\n}\n\
                       fn f() { let _ = [RwLock::new(1), std::sync::RwLock::new(2)]; }\n\
                       #[cfg(test)]\nuse std::sync::Condvar;\nstatic B: Condvar = Condvar::new();\n\
                       #[cfg(test)]\nmod tests {\n    static C: Mutex<u8> = Mutex::new(0);\n}\n\
                       #[cfg(test)]\nfn g(lock: &Mutex<u8>) { Mutex::new(1); }\nfn h() { m!(Mutex) }\n";
        assert_eq!(lock_lines(planted).unwrap(), [4, 7, 10, 17]);
    }

    // If this failed, a comment that names the attribute would pass for the attribute.
    #[test]
    fn forbid_attribute_counts_and_comment_does_not() {
        assert!(forbids_unsafe("//! Words.\n#![forbid(missing_docs, unsafe_code)]\nfn f() {}").unwrap());
        assert!(!forbids_unsafe("// #![forbid(unsafe_code)]\nfn f() {}").unwrap());
        assert!(!forbids_unsafe("const A: &str = \"#![forbid(unsafe_code)]\";").unwrap());
        assert!(!forbids_unsafe("#![deny(unsafe_code)]\nfn f() {}").unwrap());
        assert!(!forbids_unsafe("#![forbid(missing_docs)]\nfn f() {}").unwrap());
    }
}
