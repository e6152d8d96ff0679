//! The asynchronous form: the documentation of public items becomes a summary and a link.

use crate::tokens::{is_mark, is_word, regrouped};
use proc_macro::{Delimiter, TokenStream, TokenTree};

pub(crate) fn with_links(item: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = item.into_iter().collect();
    let Some(name) = implementing_type(&tokens) else { return linked(tokens, "") };
    let with_links = |tree| match tree {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
            regrouped(&group, linked(group.stream().into_iter().collect(), &format!("{name}::")))
        }
        other => other,
    };
    tokens.into_iter().map(with_links).collect()
}

/// Returns the type of an `impl` block: the last name in front of its generics or its body.
fn implementing_type(tokens: &[TokenTree]) -> Option<String> {
    let mut rest = tokens.iter().skip_while(|tree| !matches!(tree, TokenTree::Ident(_)));
    if !is_word(rest.next(), "impl") {
        return None;
    }
    let (mut depth, mut name) = (0, None);
    for tree in rest {
        match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            _ if is_word(Some(tree), "where") => break,
            _ if is_mark(Some(tree), '<') => depth += 1,
            // The arrow of a function type closes nothing.
            _ if is_mark(Some(tree), '>') && depth > 0 => depth -= 1,
            TokenTree::Ident(found) if depth == 0 => name = Some(found.to_string()),
            _ => {}
        }
    }
    name
}

/// Shortens the documentation of each item in a sequence, and adds the link to the item behind `prefix`.
fn linked(tokens: Vec<TokenTree>, prefix: &str) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    let mut all = TokenStream::new();
    let (mut docs, mut item) = (Vec::new(), Vec::new());
    while let Some(tree) = tokens.next() {
        if is_mark(Some(&tree), '#')
            && let Some(TokenTree::Group(attribute)) = tokens.peek()
            && is_word(attribute.stream().into_iter().next().as_ref(), "doc")
        {
            docs.extend([tree].into_iter().chain(tokens.next()));
            continue;
        }
        let is_body = matches!(&tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        let is_end = is_body || is_mark(Some(&tree), ';');
        item.push(tree);
        if is_end || tokens.peek().is_none() {
            all.extend(summary(std::mem::take(&mut docs), &item, prefix));
            all.extend(item.drain(..));
        }
    }
    all
}

/// Returns the documentation up to its first empty line and, for a public item, the link.
fn summary(docs: Vec<TokenTree>, item: &[TokenTree], prefix: &str) -> TokenStream {
    let is_public = item
        .iter()
        .zip(item.iter().skip(1))
        .any(|(word, next)| is_word(Some(word), "pub") && !matches!(next, TokenTree::Group(_)));
    if !is_public {
        return docs.into_iter().collect();
    }
    let is_named =
        |word: &TokenTree| ["fn", "struct", "enum", "type", "const"].iter().any(|kind| is_word(Some(word), kind));
    let name = item.iter().skip_while(|word| !is_named(word)).filter(|word| !is_named(word));
    let name = name.map(ToString::to_string).next().unwrap_or_default();
    let is_empty = |line: &[TokenTree]| line[1].to_string().split('"').nth(1).is_none_or(|text| text.trim().is_empty());
    let first = docs.chunks(2).take_while(|line| !is_empty(line)).flatten().cloned();
    let link = format!("#[doc = \"\"] #[doc = \"See the blocking [`{prefix}{name}`](crate::{prefix}{name}).\"]");
    first.chain(link.parse::<TokenStream>().expect("an attribute is valid")).collect()
}
