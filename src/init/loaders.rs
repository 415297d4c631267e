//! Decides if a script loads its data by a `DataLoader`; without a `DataLoader`, its settings cannot be applied.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::calls::code;
use super::source::Source;

/// Modules that make loaders themselves: a script that uses one of them need not name a loader.
const MAKERS: &[&str] = &[
    "lightning",
    "pytorch_lightning",
    "transformers.Trainer",
    "transformers.Seq2SeqTrainer",
    "transformers.trainer",
    "trl",
    "setfit",
    "sentence_transformers",
    "fastai",
    "composer",
    "timm",
    "torch_geometric.loader",
    "webdataset",
    "mmengine",
    "mmcv",
    "detectron2",
    "ultralytics",
    "monai",
    "catalyst",
    "torchtune",
    "litdata",
    "streaming",
];

/// Calls that make a loader, as returned by [`plain`]; all names with `dataloader` count as well.
const MAKING: &[&str] =
    &["createloader", "getloader", "getloaders", "buildloader", "makeloader", "neighborloader", "webloader"];

impl Source {
    /// Returns true if the script has a loader, or may get a loader from another module. The script's own classes and functions
    /// with such names do not count.
    pub fn has_loader(&self) -> bool {
        if MAKERS.iter().any(|module| self.has(module)) {
            return true;
        }
        let texts: Vec<String> = self.texts.iter().map(|text| code(text)).collect();
        let own: BTreeSet<&str> = texts.iter().flat_map(|text| names(text, &OWN)).collect();
        let called = texts.iter().flat_map(|text| names(text, &CALLED));
        let mentioned = texts.iter().flat_map(|text| names(text, &MENTIONED));
        let makes = |name: &str| {
            let plain = plain(name);
            plain.contains("dataloader") || MAKING.contains(&plain.as_str())
        };
        let mut known = called.filter(|name| makes(name)).chain(mentioned);
        known.any(|name| !own.contains(name))
    }

    /// Returns true if the script imports a module, or calls it by its full name.
    pub(super) fn has(&self, module: &str) -> bool {
        self.imports(module) || self.calls.iter().any(|call| call.name == module)
    }
}

static OWN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\b(?:class|def)\s+([A-Za-z_]\w*)").ok());
static CALLED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\b([A-Za-z_]\w*)\s*\(").ok());
/// Finds torch's own loaders, including loaders that are subclassed or passed on without a call.
static MENTIONED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\b((?:Stateful)?DataLoader)\b").ok());

fn names<'t>(text: &'t str, pattern: &'static LazyLock<Option<Regex>>) -> impl Iterator<Item = &'t str> {
    let found = pattern.as_ref().into_iter().flat_map(move |pattern| pattern.captures_iter(text));
    found.filter_map(|found| found.get(1).map(|name| name.as_str()))
}

fn plain(name: &str) -> String {
    name.replace('_', "").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_is_one_that_the_script_does_not_make_itself() {
        for (text, has) in [
            ("import torch\nloader = torch.utils.data.DataLoader(d)", true),
            ("from torch.utils.data import DataLoader as Loader\nLoader(d)", true),
            ("class Endless(DataLoader): pass", true),
            ("from data import build\ntrain = get_dataloader(x)", true),
            ("import lightning as L", true),
            ("from timm.data import create_loader\ncreate_loader(d)", true),
            ("import transformers\ntransformers.Trainer(model)", true),
            ("import torch\n# a poor man's DataLoader\ndef get_batch(): return torch.randn(3)", false),
            ("class DataLoaderLite:\n  pass\nloader = DataLoaderLite(4)", false),
            ("def data_loader(x): return x\ndata_loader(3)", false),
            ("print('DataLoader(d)')\nyaml.load(f, Loader=yaml.SafeLoader)", false),
            ("", false),
        ] {
            assert_eq!(Source::of(text).has_loader(), has, "{text}");
        }
    }
}
