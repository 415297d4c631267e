//! Reads the config of a Hydra script from its files, for scripts without a help.

use std::fs;
use std::io::Read;
use std::path::Path;

use super::argument::Argument;
use super::help;
use super::source::{Source, literal};

const MOST_BYTES: u64 = 256 * 1024;
const MOST_GROUPS: usize = 50;

/// Returns the settings in the files named by `@hydra.main(config_path=..., config_name=...)`, and in the files of their groups.
pub fn arguments(source: &Source, script: &Path) -> Vec<Argument> {
    let Some(call) = source.calls().find(|call| call.name == "hydra.main") else { return Vec::new() };
    let path = call.get("config_path").and_then(literal).unwrap_or_default();
    let Some(name) = call.get("config_name").and_then(literal) else { return Vec::new() };
    let folder = script.parent().unwrap_or(Path::new(".")).join(path);
    let Some(text) = read(&folder, &name) else { return Vec::new() };
    let groups = groups(&text);
    let mut all = help::config(&text);
    all.retain(|argument| !argument.spelled().starts_with("defaults"));
    for (group, name) in groups.into_iter().take(MOST_GROUPS) {
        let below = read(&folder.join(&group), &name).map(|text| help::config(&text)).unwrap_or_default();
        let front = group.replace('/', ".");
        all.extend(below.into_iter().map(|argument| {
            let names = argument.names.iter().map(|name| format!("{front}.{name}")).collect();
            Argument { names, ..argument }
        }));
    }
    all
}

fn read(folder: &Path, name: &str) -> Option<String> {
    let name = name.trim_end_matches(".yaml").trim_end_matches(".yml");
    let file = ["yaml", "yml"].iter().map(|end| folder.join(format!("{name}.{end}"))).find(|file| file.is_file())?;
    let mut text = String::new();
    fs::File::open(file).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the groups in the list of defaults: `- data: cifar`.
fn groups(text: &str) -> Vec<(String, String)> {
    let list = text.lines().skip_while(|line| !line.starts_with("defaults:")).skip(1);
    let items = list.take_while(|line| line.trim_start().starts_with('-') || line.trim().is_empty());
    let group = |line: &str| {
        let (group, name) = line.trim().strip_prefix('-')?.split_once(':')?;
        let group =
            group.trim().trim_start_matches("override ").trim_start_matches("optional ").trim_start_matches('/');
        Some((group.to_owned(), name.trim().trim_matches(['\'', '"']).to_owned()))
    };
    items.filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_is_read_with_its_groups() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("conf/data")).unwrap();
        fs::write(
            folder.path().join("conf/main.yaml"),
            "defaults:\n  - data: small\n  - _self_\n\nlr: 0.1\ntrainer:\n  precision: 32\n",
        )
        .unwrap();
        fs::write(folder.path().join("conf/data/small.yaml"), "batch_size: 32\nnum_workers: 4\n").unwrap();
        let source = Source::of(
            "import hydra\n@hydra.main(config_path='conf', config_name='main', version_base=None)\ndef main(c): ...",
        );
        let all = arguments(&source, &folder.path().join("train.py"));
        let line = |argument: &Argument| format!("{} {}", argument.spelled(), argument.default.as_deref().unwrap());
        let shown: Vec<String> = all.iter().map(line).collect();
        assert_eq!(shown, ["lr 0.1", "trainer.precision 32", "data.batch_size 32", "data.num_workers 4"]);
        assert!(arguments(&source, Path::new("/nowhere/train.py")).is_empty());
    }
}
