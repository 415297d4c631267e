//! The files of `src` and their uses of each other, read from their text: a `use`, or a path in the code. A re-export (`pub use`)
//! is no use: code that names a re-exported item uses the file that defines the item.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A file of `src` by its module's path, such as `["probe", "measuring", "window"]`.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    /// The file's text without comments and without the tests at its end.
    code: String,
    /// The re-exported names, with the path of each.
    handed_on: BTreeMap<String, Vec<String>>,
}

/// All files of `src`.
pub(crate) struct House {
    pub(crate) files: BTreeMap<Vec<String>, File>,
}

pub(crate) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files.extend(rust_files(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
    files.sort();
    files
}

impl House {
    pub(crate) fn read() -> Self {
        let mut files = BTreeMap::new();
        for path in rust_files(&source()) {
            let code = code_of(&fs::read_to_string(&path).unwrap());
            files.insert(module_of(&path), File { path, code, handed_on: BTreeMap::new() });
        }
        let mut house = Self { files };
        let modules: Vec<Vec<String>> = house.files.keys().cloned().collect();
        for module in modules {
            let file = &house.files[&module];
            let mut handed_on = BTreeMap::new();
            for (visible, path) in imports(&file.code) {
                if let (true, Some(path)) = (visible, house.absolute(&module, &path)) {
                    handed_on.insert(path.last().unwrap().clone(), path);
                }
            }
            house.files.get_mut(&module).unwrap().handed_on = handed_on;
        }
        house
    }

    /// Returns the path from the root for a path as a file writes it; `None` if it leads out of this package.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let mut at = match path.first()?.as_str() {
            "crate" | "gputune" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            child => {
                let child = [module, &[child.to_owned()]].concat();
                return self.files.contains_key(&child).then(|| [&child, &path[1..]].concat());
            }
        };
        for step in &path[1..] {
            match step.as_str() {
                "super" => drop(at.pop()?),
                "self" => {}
                _ => at.push(step.clone()),
            }
        }
        Some(at)
    }

    /// Returns the module that defines the item at a path from the root.
    fn home(&self, path: &[String]) -> Option<Vec<String>> {
        let known = (1..=path.len()).rev().find(|&length| self.files.contains_key(&path[..length]))?;
        let (module, rest) = path.split_at(known);
        match rest.first().and_then(|name| self.files[module].handed_on.get(name)) {
            Some(target) => self.home(&[target, &rest[1..]].concat()),
            None => Some(module.to_vec()),
        }
    }

    /// Returns every path from the root that a file names.
    pub(crate) fn named(&self, module: &[String]) -> BTreeSet<Vec<String>> {
        let code = &self.files[module].code;
        let imported = imports(code).into_iter().filter(|(visible, _)| !visible).map(|(_, path)| path);
        imported.chain(paths(code)).filter_map(|path| self.found(module, &path)).collect()
    }

    /// Returns the path from the root that a module knows. In a module within a file, the first `super` is the file itself.
    fn found(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        [path, &path[1..]].into_iter().find_map(|path| {
            let path = self.absolute(module, path)?;
            self.home(&path).map(|_| path)
        })
    }

    /// The modules that each module uses.
    pub(crate) fn uses(&self) -> BTreeMap<&[String], BTreeSet<Vec<String>>> {
        let of = |module: &Vec<String>| {
            let mut homes: BTreeSet<_> = self.named(module).iter().filter_map(|path| self.home(path)).collect();
            // The files below a file may use its items: they are one idea in several files.
            homes.retain(|home| !module.starts_with(home));
            homes
        };
        self.files.keys().map(|module| (module.as_slice(), of(module))).collect()
    }

    /// Returns the files that use one another in a circle, each circle once.
    pub(crate) fn circles(&self) -> BTreeSet<Vec<Vec<String>>> {
        let uses = self.uses();
        let reached: BTreeMap<&[String], BTreeSet<&[String]>> =
            uses.keys().map(|module| (*module, reachable(module, &uses))).collect();
        let circle = |module: &&[String]| -> Vec<Vec<String>> {
            let back = reached[module].iter().filter(|other| reached[*other].contains(module));
            back.map(|module| module.to_vec()).collect()
        };
        uses.keys().map(circle).filter(|circle| !circle.is_empty()).collect()
    }
}

fn reachable<'u>(from: &[String], uses: &'u BTreeMap<&'u [String], BTreeSet<Vec<String>>>) -> BTreeSet<&'u [String]> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&[String]> = uses[from].iter().map(Vec::as_slice).collect();
    while let Some(module) = next.pop() {
        if seen.insert(module) {
            next.extend(uses[module].iter().map(Vec::as_slice));
        }
    }
    seen
}

/// Returns the path of a file's module, without `crate`.
fn module_of(file: &Path) -> Vec<String> {
    let inside = file.strip_prefix(source()).unwrap().with_extension("");
    let mut path: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| last == "mod") {
        path.pop();
    }
    path
}

/// Returns a file's text without comments and without the tests at its end.
pub(crate) fn code_of(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.fold(String::new(), |code, line| code + line + "\n")
}

/// Returns the imports of `use`: true if it is a re-export, and the path.
fn imports(code: &str) -> Vec<(bool, Vec<String>)> {
    let mut found = Vec::new();
    let statements = code.split_inclusive(';').filter_map(|statement| {
        let at = statement.find("use ").filter(|&at| {
            let before = statement[..at].rsplit('\n').next().unwrap_or_default().trim();
            before.is_empty() || before.starts_with("pub")
        })?;
        Some((statement[..at].trim_end().ends_with([')', 'b']), statement[at + 4..].trim_end_matches(';')))
    });
    for (visible, tree) in statements {
        for path in branches(tree) {
            let path = path.split(" as ").next().unwrap_or_default();
            found.push((visible, path.split("::").map(|part| part.trim().to_owned()).collect()));
        }
    }
    found
}

/// The paths of a tree such as `a::{b, c::{d, e}}`.
fn branches(tree: &str) -> Vec<String> {
    let Some((stem, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let inside = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for character in inside.chars() {
        depth += i32::from(character == '{') - i32::from(character == '}');
        match character {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(character),
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| branches(part)).map(|branch| stem.trim().to_owned() + &branch).collect()
}

/// Paths in the code itself, such as `super::shown(...)` and `child::shown(...)`.
fn paths(code: &str) -> Vec<Vec<String>> {
    let code: Vec<&str> =
        code.split_inclusive(';').filter(|statement| !statement.trim_start().starts_with("use ")).collect();
    let code = code.concat();
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let words = words.filter(|word| word.contains("::") && !word.starts_with("::"));
    words.map(|word| word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()).collect()
}
