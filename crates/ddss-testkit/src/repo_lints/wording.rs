//! Finds words that have a meaning on one machine only.

use toml::{Table, Value};

use super::Source;

/// Permitted source of dependencies.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Returns the lines of `source` that contain one of `words`.
pub fn machine_words(source: &Source, words: &[&str]) -> Vec<String> {
    let lines = source.text.lines().enumerate();
    let found = lines.filter_map(|(index, line)| {
        let word = words.iter().find(|word| line.contains(**word))?;
        Some(format!("{}:{} says {word}", source.path, index + 1))
    });
    found.collect()
}

/// Returns the packages of a `Cargo.lock` that come neither from this workspace nor from crates.io.
pub fn foreign_sources(lock: &str) -> Result<Vec<String>, toml::de::Error> {
    let lock: Table = toml::from_str(lock)?;
    let packages = lock.get("package").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let word = |package: &Value, key: &str| package.get(key).and_then(Value::as_str).map(str::to_owned);
    let foreign = packages.iter().filter_map(|package| {
        let source = word(package, "source")?;
        (source != REGISTRY).then(|| format!("{} comes from {source}", word(package, "name").unwrap_or_default()))
    });
    Ok(foreign.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a path of the author's machine could enter the repository.
    #[test]
    fn machine_path_is_reported_with_its_line() {
        let source = Source { path: "a.md".into(), text: "one\nsee /some/where/b\n".into() };
        assert_eq!(machine_words(&source, &["/else/", "/some/"]), ["a.md:2 says /some/"]);
        assert_eq!(machine_words(&source, &["/else/"]), Vec::<String>::new());
    }

    // If this failed, a build would depend on a server that only its author can reach.
    #[test]
    fn only_crates_io_sources_are_accepted_in_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\n[[package]]\nname = \"b\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\n\
                    [[package]]\nname = \"c\"\nsource = \"git+https://example.org/c\"\n\
                    [[package]]\nname = \"d\"\nsource = \"registry+https://example.org/index\"\n";
        let foreign = foreign_sources(lock).unwrap();
        assert_eq!(
            foreign,
            ["c comes from git+https://example.org/c", "d comes from registry+https://example.org/index"]
        );
    }
}
