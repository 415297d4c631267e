//! Each bundled space is listed, and can be imported alone and overridden.

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

#[test]
fn parallel_degrees_make_up_the_gpus_and_fit() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["deepspeed-parallel", "megatron", "torchtitan"] {
        let large = "heads = { values = [12] }\nbillions = { values = [16] }\ngpus = { values = [16] }\n";
        let spec = load(&format!("import = [\"{name}\"]\n{large}"));
        let configs: Vec<_> = (0..200).filter_map(|at| spec.space.config(at)).collect();
        assert!(configs.len() > 5, "{name}: {}", configs.len());
        for settings in configs.iter().map(|config| spec.space.settings(config)) {
            let number = |name: &str| settings.get(name).and_then(|value| value.as_f64()).unwrap();
            let (tensor, pipeline, data) =
                (number("tensor_parallel"), number("pipeline_parallel"), number("data_parallel"));
            assert_eq!(tensor * pipeline * data, 16.0, "{name}: {}", settings.line());
            assert!([1.0, 2.0, 4.0].contains(&tensor), "{name}: eight parts of twelve heads: {}", settings.line());
            assert!(number("state_gib") + number("activations_gib") <= 80.0, "{name}: {}", settings.line());
            if name == "deepspeed-parallel" {
                let (micro, stage) = (number("micro_batch_size"), number("zero_stage"));
                assert_eq!(number("accumulation") * micro * data, 256.0, "{}", settings.line());
                assert!(tensor == 1.0 || pipeline == 1.0, "{}", settings.line());
                assert!(pipeline == 1.0 || stage < 2.0, "{}", settings.line());
                let bytes =
                    [16.0, 4.0 + 12.0 / data, 2.0 + 14.0 / data][usize::from(stage > 0.5) + usize::from(stage > 1.5)];
                let gib = 16e9 * bytes / (tensor * pipeline) / 1_073_741_824.0;
                assert!((number("state_gib") - gib).abs() < 0.01, "{gib}: {}", settings.line());
            }
            if name == "megatron" {
                assert_eq!(256.0 % (number("micro_batch_size") * data), 0.0, "{}", settings.line());
                // 16e9 parameters with 6 + 12 / d bytes each, over the GPUs of one copy.
                let bytes = 16e9 * (6.0 + 12.0 / data) / (tensor * pipeline);
                assert!((number("state_gib") - bytes / 1_073_741_824.0).abs() < 0.01, "{}", settings.line());
            }
        }
        let path = folder.path().join("too-large.toml");
        let space = format!("import = [\"{name}\"]\nbillions = {{ values = [2000] }}");
        fs::write(&path, format!("[step]\ncommand = [\"train\"]\n[space]\n{space}\n")).unwrap();
        assert_eq!(Spec::load(&path).unwrap_err().message, "this rule excludes every config", "{name}");
    }
}
