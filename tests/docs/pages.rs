//! The pages of the documentation, parsed as Markdown.

use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page of Markdown.
pub(crate) struct Page {
    /// The path relative to the root of the source.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A code block of a page.
pub(crate) struct Block {
    /// The page, and the first line of the block.
    pub(crate) place: String,
    /// The text after the fence, up to the first comma.
    pub(crate) language: String,
    /// The text after the comma.
    pub(crate) mark: String,
    pub(crate) text: String,
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns all pages for readers: the pages at the root, and those in folders with documentation.
pub(crate) fn pages() -> Vec<Page> {
    let mut found = Vec::new();
    for (folder, depth) in
        [(".", 1), ("docs", 3), ("examples", 3), ("gpu", 2), ("benches", 4), ("search-spaces", 2), ("tests", 2)]
    {
        collect(&root().join(folder), depth, &mut found);
    }
    found.sort();
    found.dedup();
    found
        .into_iter()
        .map(|file| {
            let path = file.strip_prefix(root()).unwrap_or(&file).to_string_lossy().replace("./", "");
            Page { text: read(&path), path }
        })
        .collect()
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for entry in entries {
        if entry.is_dir() && depth > 1 {
            collect(&entry, depth - 1, found);
        } else if entry.extension().is_some_and(|extension| extension == "md") {
            found.push(root().join(entry.strip_prefix(root().join(".")).unwrap_or(&entry)));
        }
    }
}

fn events(text: &str) -> impl Iterator<Item = (Event<'_>, std::ops::Range<usize>)> {
    Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter()
}

impl Page {
    /// Returns the fenced code blocks.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut is_open = false;
        for (event, range) in events(&self.text) {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    let line = self.text[..range.start].lines().count() + 1;
                    let (language, mark) = info.split_once(',').unwrap_or((&info, ""));
                    blocks.push(Block {
                        place: format!("{}:{line}", self.path),
                        language: language.trim().to_owned(),
                        mark: mark.trim().to_owned(),
                        text: String::new(),
                    });
                    is_open = true;
                }
                Event::End(TagEnd::CodeBlock) => is_open = false,
                Event::Text(text) if is_open => {
                    if let Some(block) = blocks.last_mut() {
                        block.text.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        blocks
    }

    /// Returns code within lines, with the number of its line.
    pub(crate) fn inline_code(&self) -> Vec<(usize, String)> {
        let codes = events(&self.text).filter_map(|(event, range)| match event {
            Event::Code(text) => Some((self.text[..range.start].lines().count(), text.to_string())),
            _ => None,
        });
        codes.collect()
    }

    /// Returns the targets of links and pictures.
    pub(crate) fn targets(&self) -> Vec<String> {
        let targets = events(&self.text).filter_map(|(event, _)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
            _ => None,
        });
        targets.collect()
    }

    /// Returns the anchors of the headings: lower case, blanks as hyphens, other signs left out, as GitHub and mdBook do.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        let mut title: Option<String> = None;
        for (event, _) in events(&self.text) {
            match event {
                Event::Start(Tag::Heading { .. }) => title = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(title) = &mut title {
                        title.push_str(&text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    let name = anchor(&title.take().unwrap_or_default());
                    let same = anchors.iter().filter(|known| **known == name).count();
                    anchors.push(if same == 0 { name } else { format!("{name}-{same}") });
                }
                _ => {}
            }
        }
        anchors
    }
}

fn anchor(title: &str) -> String {
    let kept = title
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .collect::<String>();
    kept.replace(' ', "-")
}
