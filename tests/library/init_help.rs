//! The arguments that the recognisers find in real help texts. tests/help/make made the texts with the real libraries.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use gputune::init::{
    Argument, Command, Kind, Means, Source,
    draft::{self, Frame, Rate},
    help,
    plan::{self, Found},
    preset::PRESETS,
};
use gputune::machine::Hardware;
use gputune::spec::Spec;
use proptest::prelude::*;

fn arguments(fixture: &str) -> Vec<Argument> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help").join(fixture);
    let text = fs::read_to_string(&path).unwrap();
    assert!(help::is_help(&text), "{fixture}");
    help::read(&text)
}

/// Returns a short form of an argument's kind.
fn shown(kind: &Kind) -> String {
    match kind {
        Kind::Switch => "switch".to_owned(),
        Kind::Pair { off } => format!("or {off}"),
        Kind::Value { choices } => format!("value {}", choices.join("|")).trim_end().to_owned(),
        Kind::MaybeValue => "maybe".to_owned(),
        Kind::Override => "override".to_owned(),
        Kind::Assigned { .. } | Kind::Place(_) => panic!("no help tells of {kind:?}"),
    }
}

#[test]
fn what_must_be_given_is_told() {
    for (fixture, options, values) in [
        ("argparse_script.txt", "", ""),
        ("argparse_plain.txt", "", ""),
        ("click_script.txt", "", "DATA"),
        ("typer_script.txt", "", "{data}"),
        ("typer_narrow.txt", "", "{data}"),
        ("tyro_script.txt", "--data", ""),
        ("fire_script.txt", "", "DATA"),
        ("absl_script.txt", "", ""),
        ("hf_script.txt", "", ""),
        ("hydra_script.txt", "", ""),
        ("lightning_script.txt", "", "fit"),
    ] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help").join(fixture)).unwrap();
        let required = arguments(fixture).into_iter().filter(|argument| argument.is_required);
        let required: Vec<String> = required.map(|argument| argument.spelled().to_owned()).collect();
        assert_eq!(
            (required.join(" "), help::values(&text).join(" ")),
            (options.to_owned(), values.to_owned()),
            "{fixture}"
        );
    }
}

/// A help text, an argument in it, its kind, and its default.
const ROWS: &[(&str, &str, &str, Option<&str>)] = &[
    ("argparse_script.txt", "--batch-size", "value", Some("256")),
    ("argparse_script.txt", "--val-batch-size", "value", Some("512")),
    ("argparse_script.txt", "--workers", "value", Some("4")),
    ("argparse_script.txt", "--lr", "value", Some("0.1")),
    ("argparse_script.txt", "--amp-dtype", "value fp32|bf16|fp16", Some("fp32")),
    ("argparse_script.txt", "--channels-last", "switch", Some("False")),
    ("argparse_script.txt", "--no-pin-memory", "switch", Some("False")),
    ("argparse_script.txt", "--compile", "or --no-compile", Some("False")),
    ("argparse_script.txt", "--accum-steps", "value", Some("1")),
    ("argparse_narrow.txt", "--batch-size", "value", Some("256")),
    ("argparse_narrow.txt", "--workers", "value", Some("4")),
    ("argparse_narrow.txt", "--amp-dtype", "value fp32|bf16|fp16", Some("fp32")),
    ("argparse_plain.txt", "--batch-size", "value", Some("64")),
    ("argparse_plain.txt", "--num-workers", "value", None),
    ("argparse_plain.txt", "--fp16", "switch", None),
    ("click_script.txt", "--batch-size", "value", Some("32")),
    ("click_script.txt", "--num-workers", "value", Some("2")),
    ("click_script.txt", "--precision", "value fp32|bf16", Some("fp32")),
    ("click_script.txt", "--compile", "or --no-compile", Some("no-compile")),
    ("click_script.txt", "--pin-memory", "or --no-pin-memory", Some("pin-memory")),
    ("click_script.txt", "--amp", "switch", None),
    ("typer_script.txt", "--batch-size", "value", Some("32")),
    ("typer_script.txt", "--num-workers", "value", Some("2")),
    ("typer_script.txt", "--precision", "value fp32|bf16", Some("fp32")),
    ("typer_script.txt", "--amp", "or --no-amp", Some("no-amp")),
    ("typer_script.txt", "--prefetch-factor", "value", Some("2")),
    ("typer_narrow.txt", "--batch-size", "value", Some("32")),
    ("typer_narrow.txt", "--amp", "or --no-amp", Some("no-amp")),
    ("typer_narrow.txt", "--prefetch-factor", "value", Some("2")),
    ("hydra_script.txt", "data.batch_size", "override", Some("64")),
    ("hydra_script.txt", "data.num_workers", "override", Some("4")),
    ("hydra_script.txt", "data.pin_memory", "override", Some("true")),
    ("hydra_script.txt", "trainer.precision", "override", Some("32-true")),
    ("hydra_script.txt", "name", "override", Some("run: one")),
    ("hf_script.txt", "--per_device_train_batch_size", "value", Some("8")),
    ("hf_script.txt", "--per_device_eval_batch_size", "value", Some("8")),
    ("hf_script.txt", "--dataloader_num_workers", "value", Some("0")),
    ("hf_script.txt", "--dataloader_pin_memory", "maybe", Some("True")),
    ("hf_script.txt", "--bf16", "maybe", Some("False")),
    ("hf_script.txt", "--gradient_accumulation_steps", "value", Some("1")),
    ("lightning_script.txt", "--trainer.precision", "value", None),
    ("lightning_script.txt", "--trainer.benchmark", "value true|false|null", None),
    ("lightning_script.txt", "--trainer.accumulate_grad_batches", "value", Some("1")),
    ("lightning_script.txt", "--data.batch_size", "value", Some("32")),
    ("lightning_script.txt", "--data.num_workers", "value", Some("0")),
    ("absl_script.txt", "--batch_size", "value", Some("128")),
    ("absl_script.txt", "--dtype", "value float32|bfloat16", Some("float32")),
    ("absl_script.txt", "--jit", "or --nojit", Some("true")),
    ("absl_script.txt", "--num_workers", "value", Some("0")),
    ("fire_script.txt", "--batch_size", "value", Some("32")),
    ("fire_script.txt", "--num_workers", "value", Some("2")),
    ("fire_script.txt", "--amp", "value", Some("False")),
    ("tyro_script.txt", "--batch-size", "value", Some("32")),
    ("tyro_script.txt", "--precision", "value fp32|bf16", Some("fp32")),
    ("tyro_script.txt", "--compile", "or --no-compile", Some("False")),
];

#[test]
fn arguments_are_read_as_the_libraries_print_them() {
    for (fixture, name, kind, default) in ROWS {
        let all = arguments(fixture);
        let Some(argument) = all.iter().find(|argument| argument.spelled() == *name) else {
            let names: Vec<&str> = all.iter().map(Argument::spelled).collect();
            panic!("{fixture} has no {name}: {names:?}")
        };
        assert_eq!(shown(&argument.kind), *kind, "{fixture} {name}");
        assert_eq!(argument.default.as_deref(), *default, "{fixture} {name}");
    }
}

fn means(gpus: usize) -> Means {
    let hardware = (gpus > 0).then(|| Hardware { name: "NVIDIA H100".to_owned(), compute_capability: (9, 0) });
    Means { cores: 8, gpus, hardware, cpu_has_bf16: true, threads: None }
}

fn spec(line: &[&str], all: &[Argument], source: &str, preset: &str, gpus: usize) -> String {
    let command = Command::new(line.iter().map(|&word| word.to_owned()).collect(), "python3");
    let preset = PRESETS.iter().find(|known| known.name == preset).unwrap();
    let (source, means) = (Source::of(source), means(gpus));
    let found = Found { command: &command, arguments: all, source: &source, seen: None, preset, means: &means };
    let plan = plan::plan(&found).unwrap();
    let frame = Frame {
        cwd: None,
        rate: preset.adapter.map_or(Rate::Missing, Rate::Adapter),
        time: "20m",
        machine: &means.line(),
        told_by: "Told by a test.",
        file: "gputune.toml",
        files: Vec::new(),
    };
    draft::write(&plan, &frame).unwrap()
}

/// Reads a draft as a spec, for the GPU of the tests.
fn load(text: &str) -> Spec {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gputune.toml");
    fs::write(&path, text).unwrap();
    let hardware = || Some(Hardware { name: "NVIDIA H100".to_owned(), compute_capability: (9, 0) });
    Spec::load_for(&path, &hardware).unwrap_or_else(|error| panic!("{error:?}\n{text}"))
}

/// Returns a draft without its comments, for comparisons.
fn bare(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n")
        .split("[limits]")
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn a_draft_for_transformers_arguments() {
    let text = spec(
        &["run_clm.py", "--bf16", "--per_device_train_batch_size=16"],
        &arguments("hf_script.txt"),
        "",
        "huggingface",
        2,
    );
    load(&text);
    insta::assert_snapshot!(bare(&text));
}

#[test]
fn a_draft_for_a_lightning_cli() {
    let text = spec(
        &["main.py", "fit", "--config", "x.yaml"],
        &arguments("lightning_script.txt"),
        "import lightning",
        "lightning",
        1,
    );
    load(&text);
    insta::assert_snapshot!(bare(&text));
}

#[test]
fn a_draft_for_hydra() {
    let text =
        spec(&["train.py", "data.batch_size=100"], &arguments("hydra_script.txt"), "import lightning", "lightning", 0);
    load(&text);
    insta::assert_snapshot!(bare(&text));
}

#[test]
fn a_draft_for_argparse() {
    let text = spec(
        &["train.py", "imgs", "-b", "100", "-j", "3"],
        &arguments("argparse_script.txt"),
        "import torch",
        "pytorch",
        1,
    );
    load(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_draft_for_a_job_of_ranks() {
    let line = ["torchrun", "--nproc-per-node", "4", "train.py"];
    let text = spec(&line, &[], "DataLoader(d, 32, shuffle=True, num_workers=4)", "torchrun", 4);
    load(&text);
    insta::assert_snapshot!(bare(&text));
}

#[test]
fn each_preset_writes_what_is_accepted_whatever_the_help() {
    for preset in PRESETS {
        for fixture in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help")).unwrap() {
            let name = fixture.unwrap().file_name().into_string().unwrap();
            if !name.ends_with(".txt") {
                continue;
            }
            for gpus in [0, 1, 8] {
                let all = arguments(&name);
                let text = spec(
                    &["train.py"],
                    &all,
                    "config = gputune.config(batch_size=3, kind='x', on=True)",
                    preset.name,
                    gpus,
                );
                let loaded = load(&text);
                // Requests of the script to gputune are no arguments.
                let unused = loaded.warnings.iter().find(|warning| !warning.contains("`on`"));
                assert_eq!(unused, None, "{} {name} {gpus}\n{text}", preset.name);
                assert!(loaded.space.first().is_some());
            }
        }
    }
}

#[test]
fn on_a_processor_alone_no_setting_needs_a_gpu() {
    let text = spec(&["train.py"], &[], "DataLoader(d)", "torchrun", 0);
    for word in ["tf32", "fp16", "NCCL_", "pin_memory"] {
        assert!(!bare(&text).contains(word), "{word}\n{text}");
    }
}

/// Generates lines that look like a help text.
fn help_line() -> impl Strategy<Value = String> {
    prop_oneof![
        "  -{0,3}[a-zA-Z_.\\[\\]-]{0,12}[ =:/,]{0,2}[A-Z{}<|>,\\[\\]a-z]{0,12} {0,4}[ -~]{0,30}",
        "[│ ]{0,3}--[a-z-]{1,10} {1,4}(INTEGER|<int>|\\[a\\|b\\]|\\{x,y\\})? {1,3}\\[default: [^\\n]{0,8}\\]? *│?",
        "  (--batch-size|--workers|--precision|--bf16|--amp|--pin-memory, --no-pin-memory|data.batch_size)[ =]?[^\\n]{0,20}\\(default: [^\\n]{0,10}\\)",
        "[a-z_]{1,8}: [^\\n]{0,12}",
        "(usage: |== Config ==|flags:|Options:|\\x1b\\[1m)?[^\\n]{0,40}",
    ]
}

/// Sources of scripts, read once.
static SOURCES: LazyLock<[Source; 3]> = LazyLock::new(|| {
    [
        "",
        "DataLoader(d, batch_size=args.batch_size, shuffle=True)",
        "from lightning import Trainer\nTrainer(precision=16)",
    ]
    .map(Source::of)
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_help_leads_to_a_spec_that_is_accepted(
        lines in proptest::collection::vec(help_line(), 0..30),
        words in proptest::collection::vec("[^\\x00]{0,12}", 0..5),
        source in 0..3_usize,
        preset in 0..PRESETS.len(),
        gpus in 0..3_usize,
    ) {
        let all = help::read(&lines.join("\n"));
        let line: Vec<String> = std::iter::once("train.py".to_owned()).chain(words).collect();
        let command = Command::new(line, "python3");
        let (source, means) = (&SOURCES[source], means(gpus));
        let found = Found { command: &command, arguments: &all, source, seen: None, preset: &PRESETS[preset], means: &means };
        // A setting that a template cannot express is an error of its own, and a plan without parameters is no spec.
        if let Some(plan) = plan::plan(&found).ok().filter(|plan| !plan.parameters.is_empty()) {
            let frame = Frame {
                cwd: None,
                rate: PRESETS[preset].adapter.map_or(Rate::Missing, Rate::Adapter),
                time: "20m",
                machine: "a test",
                told_by: "",
                file: "gputune.toml",
                files: Vec::new(),
            };
            load(&draft::write(&plan, &frame).unwrap());
        }
    }

    #[test]
    fn any_text_is_read(text in any::<String>()) {
        help::read(&text);
    }
}
