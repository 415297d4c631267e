//! Each space that comes along is listed, can be imported alone, and can be overridden.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use gputune::spec::{SHIPPED_SPACES, Spec};

fn load(space: &str) -> Spec {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spec.toml");
    fs::write(&path, format!("[step]\ncommand = [\"train\"]\nadapter = \"torch\"\n[space]\n{space}\n")).unwrap();
    Spec::load(&path).unwrap()
}

#[test]
fn the_folder_and_the_list_have_the_same_spaces() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("search-spaces");
    let files: BTreeSet<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let listed: BTreeSet<String> = SHIPPED_SPACES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(files, listed);
}

#[test]
fn each_space_loads_and_has_configs() {
    for (name, _) in SHIPPED_SPACES {
        for import in [(*name).to_owned(), format!("search-spaces/{name}.toml")] {
            let spec = load(&format!("import = [\"{import}\"]"));
            assert!(spec.space.first().is_some(), "{import}");
        }
    }
}

#[test]
fn a_parameter_replaces_an_imported_one() {
    let spec = load("import = [\"dataloader\"]\nworkers = { values = [3, 5] }\n");
    let workers = &spec.space.parameters()[spec.space.parameter_index("workers").unwrap()];
    assert_eq!(workers.summary(), "3, 5");
    assert!(spec.space.parameter_index("prefetch").is_some());
}
