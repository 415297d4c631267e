//! Writes the best config as text for other programs.

mod deepspeed;
mod framework;
mod huggingface;
mod knob;
mod lightning;
mod route;
mod shell;

use crate::model::{Settings, Space, Value};
use crate::probe::adapter::Applied;

use framework::Framework;
pub(crate) use knob::KNOBS;
pub use route::Run;
pub use shell::{is_shell_line, shell_word};

/// The frameworks with a format of their own.
pub(crate) const FRAMEWORKS: &[(&str, Framework)] = &[
    ("huggingface", huggingface::HUGGINGFACE),
    ("deepspeed", deepspeed::DEEPSPEED),
    ("lightning", lightning::LIGHTNING),
    ("accelerate", huggingface::ACCELERATE),
];

/// A config to write.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'c> {
    /// The names and values of the config.
    pub settings: &'c Settings,
    /// The targets that the settings are applied to.
    pub apply: &'c [Applied],
    /// The space, if known; it has the roles of the parameters.
    pub space: Option<&'c Space>,
    /// The command that was tuned; `None` if an in-process step was tuned.
    pub run: Option<&'c Run<'c>>,
    /// The command to run next, as reports show it; `None` if no command was tuned.
    pub next: Option<&'c str>,
}

impl<'c> Chosen<'c> {
    /// Makes a config from names and values alone.
    pub fn of(settings: &'c Settings) -> Self {
        Self { settings, apply: &[], space: None, run: None, next: None }
    }
}

/// A config as text in some format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The text; ends with a line break unless it is empty.
    pub text: String,
    /// The settings that the text cannot contain, with the reasons.
    pub notes: Vec<String>,
}

/// The error for a config that a format cannot express, with a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unwritable {
    /// The reason.
    pub message: String,
    /// The remedy.
    pub hint: String,
}

impl Unwritable {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

fn no_command() -> Unwritable {
    Unwritable::new(
        "the results here name no command, so the arguments of the command are unknown",
        "give the folder of a search (study.json next to journal.jsonl), or choose `--format toml`, json or yaml for names and values alone",
    )
}

/// A format for a config.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// A short description of the format.
    pub about: &'static str,
    /// Writes a config.
    pub write: fn(&Chosen<'_>) -> Result<Written, Unwritable>,
}

/// Returns a text without notes, since it contains all names and values.
fn whole(text: String) -> Result<Written, Unwritable> {
    Ok(Written { text, notes: Vec::new() })
}

/// Writes the command to run next, as reports show it.
fn next(chosen: &Chosen<'_>) -> Result<Written, Unwritable> {
    chosen.next.map_or_else(|| Err(no_command()), |next| whole(format!("{next}\n")))
}

type Write = fn(&Chosen<'_>) -> Result<Written, Unwritable>;

const fn row(name: &'static str, about: &'static str, write: Write) -> Format {
    Format { name, about, write }
}

/// All formats, the default first. `docs/emit.md` describes each.
pub const FORMATS: &[Format] = &[
    row("toml", "batch_size = 64", |chosen| whole(toml(chosen.settings))),
    row("json", "{\"batch_size\": 64}", |chosen| whole(json(chosen.settings))),
    row("yaml", "batch_size: 64", |chosen| whole(yaml(chosen.settings))),
    row("args", "the arguments of the command that carry settings, quoted for a shell", route::arguments),
    row("env", "the variables of the command that carry settings, NAME=value, quoted for a shell", route::variables),
    row("command", "the whole command, and the lines to write into the script", next),
    row("huggingface", "TrainingArguments of Hugging Face's Trainer, as JSON", |chosen| Ok(huggingface::write(chosen))),
    row("deepspeed", "a DeepSpeed configuration, as JSON", |chosen| Ok(deepspeed::DEEPSPEED.write_json(chosen))),
    row("lightning", "a configuration of LightningCLI, as YAML", |chosen| Ok(lightning::write(chosen))),
    row("accelerate", "a configuration of accelerate launch, as YAML", |chosen| {
        Ok(huggingface::write_accelerate(chosen))
    }),
];

/// Returns the format of this name.
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// Writes one JSON object, with names in order.
fn json(settings: &Settings) -> String {
    // Settings are names and scalars, which can always be serialised.
    serde_json::to_string_pretty(settings).unwrap_or_default() + "\n"
}

/// Writes one `name = value` line for each setting.
fn toml(settings: &Settings) -> String {
    settings.iter().map(|(name, value)| format!("{name} = {}\n", toml_scalar(value))).collect()
}

/// Formats a value in TOML.
pub fn toml_scalar(value: &Value) -> String {
    match value {
        Value::Float(number) => ::toml::Value::from(*number).to_string(),
        Value::Text(text) => ::toml::Value::from(text.as_str()).to_string(),
        other => other.to_string(),
    }
}

/// Writes one `name: value` line for each setting; strings are quoted, so that `no` stays a string.
fn yaml(settings: &Settings) -> String {
    settings.iter().map(|(name, value)| format!("{}: {}\n", yaml_key(name), yaml_scalar(value))).collect()
}

/// Returns true if readers of every YAML version take the text for a string without quotes.
pub fn is_plain_yaml(text: &str) -> bool {
    const WORDS: &[&str] = &["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_sign = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(is_sign)
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

/// Returns a key that every YAML reader reads as a string. Keys such as `on` are quoted.
pub fn yaml_key(name: &str) -> String {
    if is_plain_yaml(name) { name.to_owned() } else { serde_json::Value::from(name).to_string() }
}

/// Returns a value that every YAML reader reads alike. Strings are quoted. Numbers have a dot and a signed exponent:
/// YAML 1.1 reads `1e-5` as a string (<https://yaml.org/type/float.html>).
pub fn yaml_scalar(value: &Value) -> String {
    match value {
        // A JSON string is a YAML double-quoted scalar.
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Value::Float(number) => yaml_float(*number),
        other => other.to_string(),
    }
}

/// Formats a number with a dot, and with a sign in its exponent.
fn yaml_float(number: f64) -> String {
    let text = format!("{number:?}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let dot = if digits.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with('-') { "" } else { "+" };
    format!("{digits}{dot}e{sign}{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Parameter;
    use crate::probe::{StepTemplate, Template, adapter::Apply};

    fn settings() -> Settings {
        Settings::from_iter([
            ("batch_size", Value::from(64)),
            ("ratio", Value::from(0.5)),
            ("whole", Value::from(2.0)),
            ("pin_memory", Value::from(true)),
            ("precision", Value::from("bf16")),
            ("odd", Value::from("it's \"odd\": #1\n$HOME")),
            ("looks_like_a_number", Value::from("12")),
            ("looks_like_a_boolean", Value::from("yes")),
            ("empty", Value::from("")),
        ])
    }

    fn write(name: &str, chosen: &Chosen<'_>) -> Written {
        (format(name).unwrap().write)(chosen).unwrap()
    }

    fn written(name: &str) -> String {
        write(name, &Chosen::of(&settings())).text
    }

    #[test]
    fn json_and_toml_read_back_as_the_same_settings() {
        assert_eq!(serde_json::from_str::<Settings>(&written("json")).unwrap(), settings());
        let table: std::collections::BTreeMap<String, Value> = ::toml::from_str(&written("toml")).unwrap();
        for (name, value) in settings().iter() {
            assert_eq!(table.get(name), Some(value), "{name}");
        }
    }

    fn applied(parameter: &str, name: &str) -> Applied {
        let target = crate::probe::adapter::Target::parse(name).unwrap();
        Applied { parameter: parameter.to_owned(), name: name.to_owned(), target, argument: None }
    }

    #[test]
    fn what_an_adapter_sets_has_the_frameworks_names_and_nothing_is_dropped_in_silence() {
        // The names of these settings carry no meaning.
        let adapted = [
            ("a", "dataloader.batch_size", Value::from(256)),
            ("b", "torch.grad_accumulation", Value::from(4)),
            ("c", "dataloader.num_workers", Value::from(8)),
            ("d", "torch.precision", Value::from("bf16")),
            ("e", "torch.compile", Value::from("reduce-overhead")),
            ("f", "torch.fused_optimizer", Value::from(true)),
            ("g", "torch.sdpa", Value::from("flash")),
            ("h", "dataloader.pin_memory", Value::from(true)),
            ("i", "torch.checkpoint", Value::from(false)),
            ("lr", "arg", Value::from(0.001)),
        ];
        let apply: Vec<Applied> = adapted.iter().map(|(parameter, name, _)| applied(parameter, name)).collect();
        let settings: Settings = adapted.into_iter().map(|(name, _, value)| (name, value)).collect();
        let all = FRAMEWORKS.iter().map(|(name, _)| {
            let Written { text, notes } = write(name, &Chosen { apply: &apply, ..Chosen::of(&settings) });
            let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
            format!("# {name}\n{text}{notes}")
        });
        insta::assert_snapshot!(all.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn every_setting_is_in_the_text_or_in_a_note() {
        let all = settings();
        let all = all.iter().map(|(name, value)| (name, value.clone()));
        let settings: Settings = all.chain([("num_gpus", Value::from(3))]).collect();
        for (name, _) in FRAMEWORKS {
            let Written { text, notes } = write(name, &Chosen::of(&settings));
            let all = format!("{text}{}", notes.join("\n"));
            for (setting, value) in settings.iter().filter(|(setting, _)| *setting != "precision") {
                let is_there = all.contains(&format!("`{setting}`")) || all.contains(&format!(": {value}"));
                assert!(is_there, "{name} says nothing of {setting}:\n{all}");
            }
        }
    }

    fn of_command(words: &[&str], env: &[(&str, &str)], settings: &Settings, apply: &[Applied], form: &str) -> String {
        let step = StepTemplate {
            command: words.iter().map(|word| Template::parse(word)).collect(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), Template::parse(value))).collect(),
            cwd: "/project".into(),
            files: vec![("run.json".into(), Template::parse("{seed}"))],
            apply: Apply { applied: apply.to_vec(), ..Apply::default() },
        };
        let parameters = settings.iter().map(|(name, value)| Parameter::values(name, [value.clone()]));
        let space = parameters.fold(Space::builder(), crate::model::SpaceBuilder::parameter).build().unwrap();
        let (gputune, probe_dir) = ("/bin/gputune".into(), "/out/probes/3".into());
        let run = Run { step: &step, space: Some(&space), gputune, probe_dir };
        let next = run.command_line(settings);
        let chosen = Chosen { apply, space: Some(&space), run: Some(&run), next: Some(&next), ..Chosen::of(settings) };
        match (format(form).unwrap().write)(&chosen) {
            Ok(Written { text, notes }) => text + &notes.iter().map(|it| format!("note: {it}\n")).collect::<String>(),
            Err(Unwritable { message, hint }) => format!("error: {message}\nhint: {hint}\n"),
        }
    }

    #[test]
    fn arguments_have_the_commands_own_form() {
        let settings = Settings::from_iter([
            ("batch", Value::from(64)),
            ("lr", Value::from(0.5)),
            ("amp", Value::from(true)),
            ("fast", Value::from(false)),
            ("seed", Value::from(7)),
            ("threads", Value::from(4)),
            ("name", Value::from("it's $HOME")),
        ]);
        let env = [("OMP_NUM_THREADS", "{threads}"), ("FIXED", "1")];
        let commands = [
            "python3 train.py --data imgs --batch-size {batch} --lr={lr} {amp?--amp} {fast?--fast}",
            "python3 -m package.train model=resnet trainer.batch={batch} +optim.lr={lr} name={name}",
            "torchrun --nproc-per-node {batch} train.py -v {amp?--amp} --config {probe_dir}/run.json",
            "python3 -m torch.distributed.run --nproc-per-node 2 train.py {batch} -- {name}",
            "{gputune} demo-step --batch-size {batch} --note {{batch}}",
            "sh -c ./train --batch {batch}",
            "torchrun --nproc-per-node 2 --no-python ./train {batch}",
            "python3 train.py --epochs 3",
        ];
        let all = commands.map(|line| {
            // A shell takes its command line as one word.
            let most = if line.starts_with("sh -c ") { 3 } else { usize::MAX };
            let words: Vec<&str> = line.splitn(most, ' ').collect();
            let [args, env, command] =
                ["args", "env", "command"].map(|form| of_command(&words, &env, &settings, &[], form));
            format!("$ {line}\n{args}--- env\n{env}--- command\n{command}")
        });
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn what_apply_puts_behind_the_command_or_into_variables_is_there() {
        let settings = Settings::from_iter([
            ("lr", Value::from(0.1)),
            ("threads", 2.into()),
            ("memory", "expandable-segments".into()),
            ("workers", 4.into()),
        ]);
        let (allocator, loader) = (applied("memory", "torch.allocator"), applied("workers", "dataloader.num_workers"));
        let apply = [applied("lr", "arg"), applied("threads", "env.OMP_NUM_THREADS"), allocator, loader];
        let env = [("OMP_NUM_THREADS", "1"), ("path", "{lr}"), ("odd-name", "{lr}"), ("Path", "{threads}")];
        let [args, variables, command] =
            ["args", "env", "command"].map(|form| of_command(&["python3", "train.py"], &env, &settings, &apply, form));
        insta::assert_snapshot!(format!("{args}---\n{variables}---\n{command}"));
    }

    #[test]
    fn a_setting_keeps_its_type_in_each_format() {
        for (form, name, value, expected) in [
            ("yaml", "workers", Value::from(1), "workers: 1\n"),
            ("yaml", "on", Value::from(1), "\"on\": 1\n"),
            ("yaml", "_12", Value::from(1), "\"_12\": 1\n"),
            ("yaml", "lr", Value::from(1e-5), "lr: 1.0e-5\n"),
            ("yaml", "lr", Value::from(1.5e-7), "lr: 1.5e-7\n"),
            ("yaml", "lr", Value::from(1e20), "lr: 1.0e+20\n"),
            ("yaml", "lr", Value::from(0.5), "lr: 0.5\n"),
            ("lightning", "lr", Value::from(1e20), "  lr: 1.0e+20\n"),
            ("huggingface", "precision", Value::from("tf32"), "\"tf32\": true"),
            ("huggingface", "bf16", Value::from(true), "\"bf16\": true"),
            ("huggingface", "fp16", Value::from(false), "\"fp16\": false"),
            ("huggingface", "dtype", Value::from("float16"), "\"fp16\": true"),
            ("huggingface", "precision", Value::from("int3"), "{}\n"),
        ] {
            let settings: Settings = [(name, value)].into_iter().collect();
            let Written { text, notes } = write(form, &Chosen::of(&settings));
            assert!(text.contains(expected), "{form}: {text}");
            assert!(expected != "{}\n" || notes.len() == 1, "{notes:?}");
        }
    }

    #[test]
    fn docs_name_every_form_and_every_key() {
        let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/emit.md")).unwrap();
        for format in FORMATS {
            assert!(docs.contains(&format!("`{}`", format.name)), "docs/emit.md does not say `{}`", format.name);
        }
        for key in FRAMEWORKS.iter().flat_map(|(_, framework)| framework.keys) {
            let name = (key.write)(&Value::from("bf16")).unwrap()[0].0;
            assert!(docs.contains(&format!("`{name}`")), "docs/emit.md does not say `{name}`");
        }
    }

    #[test]
    fn every_format_is_readable() {
        let all = FORMATS.iter().map(|format| match (format.write)(&Chosen::of(&settings())) {
            Ok(written) => format!("# {}\n{}", format.name, written.text),
            Err(Unwritable { message, hint }) => format!("# {}\nerror: {message}\nhint: {hint}\n", format.name),
        });
        let all: Vec<String> = all.collect();
        insta::assert_snapshot!(all.join("\n"));
    }
}
