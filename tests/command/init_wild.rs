//! `gputune init` on common shapes of scripts (`tests/wild/init`). `check` accepts the spec. The spec has no parameter that the
//! script lacks, and claims no baseline that the command does not state.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{self, python::python_with_new_torch};
use crate::support::{stderr, stdout};
use gputune::init::{
    Means, Source,
    draft::{self, Frame, Rate},
    plan::{self, Found},
    preset::preset,
};
use gputune::machine::Hardware;
use gputune::spec::Spec;

const LOADER_KNOBS: &[&str] = &["workers", "prefetch", "persistent_workers", "pin_memory"];

/// A folder with a script of `tests/wild/init`, and the files around it.
fn wild(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wild/init").join(name), folder.path());
    folder
}

fn copy(from: &Path, into: &Path) {
    if from.is_file() {
        fs::copy(from, into.join(from.file_name().unwrap())).unwrap();
        return;
    }
    fs::create_dir_all(into).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let below = into.join(entry.file_name().unwrap());
        copy(&entry, if entry.is_dir() { &below } else { into });
    }
}

fn gputune(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(support::gputune());
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env("OMP_NUM_THREADS", "1").env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE").output().unwrap()
}

/// Returns the spec that `init` writes for a command, after `check` has accepted it, and the output of `init`.
fn written(folder: &Path, words: &[&str]) -> (String, String) {
    let output = gputune(folder, &[&["init", "--no-run", "--fresh", "--"], words].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let check = gputune(folder, &["check", "gputune.toml"]);
    assert_eq!(check.status.code(), Some(0), "{}", stderr(&check));
    (fs::read_to_string(folder.join("gputune.toml")).unwrap(), stderr(&output))
}

fn parameters(folder: &Path) -> BTreeSet<String> {
    let spec = Spec::load(&folder.join("gputune.toml")).unwrap();
    spec.space.parameters().iter().map(|parameter| parameter.name().to_owned()).collect()
}

fn assert_no_loader_knobs(folder: &Path, text: &str) {
    let all = parameters(folder);
    assert!(LOADER_KNOBS.iter().all(|knob| !all.contains(*knob)), "{text}");
    assert!(!text.contains("dataloader."), "{text}");
    assert!(text.contains("# Not searched: workers, since the script's source has no DataLoader."), "{text}");
}

#[test]
fn a_configurator_is_told_in_its_own_form() {
    let folder = wild("configurator");
    let (text, _) = written(folder.path(), &["python3", "train.py", "config/small.py", "--batch_size=12"]);
    // A machine with bf16 adds `--dtype={precision}`.
    assert!(text.contains(r#"["python3", "train.py", "config/small.py", "--batch_size={batch_size}""#), "{text}");
    assert!(text.contains("batch_size = { values = [3, 6, 12, 24, 48, 96, 192] }"), "{text}");
    assert!(text.contains("[baseline]\nbatch_size = 12 # --batch_size=12\n\n"), "nothing else is stated: {text}");
    assert!(text.contains("samples_per_step = \"batch_size\""), "the file of settings says one batch a step: {text}");
    assert!(text.contains("preset pytorch"), "it is no job of torchrun: {text}");
    assert_no_loader_knobs(folder.path(), &text);
}

#[test]
fn a_file_of_settings_says_what_the_script_would_else_do() {
    let folder = wild("configurator");
    let (text, _) = written(folder.path(), &["python3", "train.py", "config/small.py"]);
    assert!(text.contains("by its argument --batch_size, by default 24"), "{text}");
    // The command does not say it, but the samples of a step follow from it.
    assert!(
        text.contains("[baseline]\nbatch_size = 24 # the script's own value\n\n"),
        "nothing else is stated: {text}"
    );
    let (text, _) = written(folder.path(), &["python3", "train.py"]);
    assert!(text.contains("--batch_size, by default 16") && text.contains("\"batch_size * 4\""), "{text}");
    // Without settings, the command is the user's own.
    let spec = Spec::load(&folder.path().join("gputune.toml")).unwrap();
    let nothing = gputune::model::Settings::default();
    let rendered = spec.step.template().render(&nothing, Path::new("g"), Path::new("p"));
    assert_eq!(rendered.command, ["python3", "train.py"]);
}

#[test]
fn under_its_launcher_it_is_a_job_of_ranks() {
    let folder = wild("configurator");
    let (text, _) = written(folder.path(), &["torchrun", "--nproc_per_node", "2", "train.py", "--batch_size=4"]);
    assert!(text.contains("preset torchrun") && text.contains("batch_size = 4 # --batch_size=4"), "{text}");
    assert!(text.contains("samples_per_step = \"batch_size * 4\""), "its ranks share what is accumulated: {text}");
    assert_no_loader_knobs(folder.path(), &text);
}

#[test]
fn a_config_of_attributes_is_set_by_its_paths() {
    let folder = wild("nodes");
    let (text, _) = written(folder.path(), &["python3", "train.py", "--trainer.batch_size=32"]);
    for line in [
        "\"--trainer.batch_size={batch_size}\"",
        "\"--trainer.num_workers={workers}\"",
        "by its argument --trainer.num_workers, by default 2",
        "[baseline]\nbatch_size = 32 # --trainer.batch_size=32\n\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_dictionary_at_the_top_is_what_the_adapter_starts_around() {
    let folder = wild("dictionary.py");
    let (text, _) = written(folder.path(), &["python3", "dictionary.py"]);
    assert!(text.contains("{ values = [12, 24, 48, 96, 192, 384, 768], apply = \"dataloader.batch_size\" }"), "{text}");
    let workers = text.lines().find(|line| line.starts_with("workers ")).unwrap();
    assert!(workers.contains(", 3"), "{workers}");
    assert!(!text.contains("[baseline]\n"), "{text}");
}

#[test]
fn a_script_without_a_loader_gets_no_knobs_of_one() {
    let folder = wild("bare.py");
    let (text, said) = written(folder.path(), &["python3", "bare.py"]);
    assert_no_loader_knobs(folder.path(), &text);
    assert!(!said.contains("asking"), "it takes no arguments, and would have trained: {said}");
}

#[test]
fn a_help_that_fails_leaves_the_source_and_the_command() {
    let folder = wild("lacking.py");
    let (text, said) = written(folder.path(), &["python3", "lacking.py", "pictures", "-b32", "--amp-dtype=bfloat16"]);
    assert!(said.contains("ended with exit code 1; its arguments are read from its source"), "{said}");
    assert!(text.contains("\"-b{batch_size}\"") && text.contains("batch_size = 32 # -b32"), "{text}");
    assert!(text.contains("by its argument --workers, by default 2"), "{text}");
    let folder = wild("lacking.py");
    let unknown = fs::read_to_string(folder.path().join("lacking.py")).unwrap().replace("parser.add_argument", "add");
    fs::write(folder.path().join("lacking.py"), unknown).unwrap();
    let (text, _) = written(folder.path(), &["python3", "lacking.py", "--bs=4", "--num_workers", "3"]);
    assert!(text.contains("\"--bs={batch_size}\"") && text.contains("\"--num_workers\", \"{workers}\""), "{text}");
    assert!(text.contains("[baseline]\nbatch_size = 4 # --bs=4\nworkers = 3 # --num_workers 3\n"), "{text}");
}

#[test]
fn a_script_that_heeds_no_help_changes_no_file() {
    let folder = wild("heedless.py");
    fs::write(folder.path().join("kept.pt"), "weights").unwrap();
    fs::create_dir(folder.path().join("results")).unwrap();
    let (text, said) = written(folder.path(), &["python3", "heedless.py"]);
    assert!(said.contains("was ended"), "{said}");
    assert!(text.contains("--batch-size, by default 20"), "{text}");
    let left: BTreeSet<String> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left, ["gputune.toml", "heedless.py", "kept.pt", "results"].map(str::to_owned).into());
    assert_eq!(fs::read_to_string(folder.path().join("kept.pt")).unwrap(), "weights");
}

#[test]
fn what_only_a_launcher_sets_is_warned_of() {
    let folder = wild("ranked.py");
    let (text, said) = written(folder.path(), &["python3", "ranked.py"]);
    assert!(said.contains("ranked.py reads RANK, which a launcher sets"), "{said}");
    assert!(said.contains("gputune init -- torchrun --nproc-per-node 2 ranked.py"), "{said}");
    assert_no_loader_knobs(folder.path(), &text);
    let (text, said) = written(folder.path(), &["torchrun", "--nproc-per-node", "2", "ranked.py"]);
    assert!(!said.contains("launcher") && text.contains("preset torchrun"), "{said}{text}");
}

#[test]
fn a_shell_script_is_looked_into() {
    let folder = wild("lacking.py");
    fs::write(folder.path().join("run.sh"), "#!/bin/bash\nset -e\npython3 lacking.py data --batch-size 64 \"$@\"\n")
        .unwrap();
    let (text, said) = written(folder.path(), &["bash", "run.sh"]);
    assert!(text.contains("preset pytorch"), "{text}{said}");
    assert!(text.contains("[\"bash\", \"run.sh\", \"--batch-size\", \"{batch_size}\""), "{text}");
    assert!(text.contains("by default 64") && !text.contains("[baseline]\n"), "{text}");
    fs::write(folder.path().join("run.sh"), "python3 lacking.py data --batch-size 64\n").unwrap();
    let (text, said) = written(folder.path(), &["bash", "run.sh"]);
    assert!(text.contains("command = [\"bash\", \"run.sh\"]") && !said.contains("asking"), "{text}{said}");
    assert!(text.contains("{ powers_of_two = [16, 1024], apply = \"dataloader.batch_size\" }"), "{text}");
}

/// Returns the spec that `init` writes for a command without help, on a machine with these GPUs.
fn on_gpus(source: &str, line: &[&str], gpus: usize) -> String {
    let command = gputune::init::Command::new(line.iter().map(|&word| word.to_owned()).collect(), "python3");
    let source = Source::of(source);
    let arguments = source.arguments();
    let hardware = (gpus > 0).then(|| Hardware { name: "NVIDIA H100".to_owned(), compute_capability: (9, 0) });
    let means = Means { cores: 8, gpus, hardware, cpu_has_bf16: gpus == 0, threads: None };
    let preset = preset("pytorch").unwrap();
    let found = Found { command: &command, arguments: &arguments, source: &source, seen: None, preset, means: &means };
    let plan = plan::plan(&found).unwrap();
    let frame = Frame {
        cwd: None,
        rate: Rate::Adapter("torch"),
        time: "20m",
        machine: "a test",
        told_by: "",
        file: "gputune.toml",
        files: Vec::new(),
    };
    let text = draft::write(&plan, &frame).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gputune.toml"), &text).unwrap();
    let has = || Some(Hardware { name: "NVIDIA H100".to_owned(), compute_capability: (9, 0) });
    Spec::load_for(&folder.path().join("gputune.toml"), &has).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    text
}

#[test]
fn a_flag_for_mixed_precision_is_a_precision() {
    let script = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wild/init/amp.py")).unwrap();
    for (gpus, format) in [(1, "fp16"), (0, "bf16")] {
        let text = on_gpus(&script, &["amp.py"], gpus);
        let values = format!("values = [\"fp32\", \"{format}\"], full_precision = \"fp32\"");
        assert!(text.contains(&values) && text.contains("\"{is_mixed?--amp}\""), "{text}");
        assert!(text.contains(&format!("derive = \"precision == '{format}'\"")), "{text}");
        assert!(!text.contains("torch.precision") && !text.contains("[baseline]\n"), "{text}");
        let text = on_gpus(&script, &["amp.py", "--amp", "-b", "4"], gpus);
        assert!(text.contains(&format!("precision  = \"{format}\" # --amp\n").replace("  =", " =")), "{text}");
        assert!(text.contains("batch_size = 4 # -b 4\n"), "{text}");
    }
    let on_cuda = script.replace("torch.autocast(device,", "torch.autocast('cuda',");
    let text = on_gpus(&on_cuda, &["amp.py", "--amp"], 0);
    assert!(text.contains("\"--amp\"") && text.contains("# Not searched: --amp"), "{text}");
    assert!(!text.contains("fp16"), "a processor has no such format: {text}");
    for (script, word) in [
        ("p.add_argument('--amp', action='store_true')\np.add_argument('--amp-dtype', default='float16')", "--amp"),
        ("p.add_argument('--fp16', action='store_true')\np.add_argument('--bf16', action='store_true')", "--fp16"),
        ("p.add_argument('--precision', default='32')", "--precision=16"),
    ] {
        let text = on_gpus(&format!("import torch\nDataLoader(d)\n{script}"), &["t.py", word], 0);
        assert!(text.contains(&format!("\"{word}\"")) && text.contains("# Not searched: --"), "{text}");
        assert!(!text.contains("[baseline]\n") && !text.contains("\nprecision"), "{text}");
    }
}

#[test]
fn a_flag_and_its_format_go_together() {
    let script = "import argparse, torch\nfrom timm.data import create_loader\n\
        p.add_argument('--amp', action='store_true')\np.add_argument('--amp-dtype', default='float16', type=str)\n";
    let text = on_gpus(script, &["t.py"], 1);
    assert!(text.contains("precision          = { values = [\"fp32\", \"bf16\", \"fp16\"]"), "{text}");
    assert!(text.contains("\"{is_mixed?--amp}\"") && text.contains("\"--amp-dtype\", \"{mixed_format}\""), "{text}");
    let text = on_gpus(script, &["t.py", "--amp", "--amp-dtype", "bfloat16"], 1);
    assert!(text.contains("precision = \"bf16\" # --amp --amp-dtype bfloat16"), "{text}");
}

#[test]
fn booleans_are_spelled_as_the_script_reads_them() {
    for (script, words) in [
        (
            "import fire\nimport torch\ndef main(bf16=False): DataLoader(d)\nfire.Fire(main)",
            "\"--bf16\", \"{is_bf16_word}\"",
        ),
        (
            "import torch\np.add_argument('--bf16', action=argparse.BooleanOptionalAction)\nDataLoader(d)",
            "\"{is_bf16?--bf16}\", \"{no_is_bf16?--no-bf16}\"",
        ),
    ] {
        let text = on_gpus(script, &["t.py"], 1);
        assert!(text.contains(words), "{words}: {text}");
    }
    let script = "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments)";
    let text = on_gpus(script, &["t.py", "--bf16", "True", "--out", "x"], 1);
    assert!(
        text.contains("\"{is_bf16?--bf16}\", \"--out\"") || text.contains("\"{is_bf16?--bf16}\",\n    \"--out\""),
        "{text}"
    );
    assert!(text.contains("precision = \"bf16\" # --bf16 True"), "{text}");
}

#[test]
fn what_is_written_is_searched() {
    if !support::is_thorough() {
        return;
    }
    let Some(python) = python_with_new_torch() else { return };
    let folder = wild("configurator");
    let python = python.to_str().unwrap();
    let (text, _) = written(folder.path(), &[python, "train.py", "config/small.py", "--batch_size=12"]);
    // On a busy machine, importing a framework takes a minute.
    let limits = "[limits]\nprobe_time = \"4m\"\nstall_time = \"3m\"\nmeasure_time = \"1s\"\n";
    let short = format!("{}{limits}[search]\ntime = \"9m\"\nprobes = 2\n", text.split("[limits]").next().unwrap());
    fs::write(folder.path().join("gputune.toml"), short).unwrap();
    let search = gputune(folder.path(), &["search", "gputune.toml"]);
    assert_eq!(search.status.code(), Some(0), "{}", stderr(&search));
    assert!(stdout(&search).contains("batch_size = "), "{}", stdout(&search));
    assert!(!stderr(&search).contains("rejected"), "{}", stderr(&search));
}
