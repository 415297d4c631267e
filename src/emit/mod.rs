//! The best config as text for other programs.

mod accelerate;
mod args;
mod deepspeed;
mod env;
mod framework;
mod huggingface;
mod json;
mod knob;
mod lightning;
mod toml;
mod yaml;

use crate::adapter::Applied;
use crate::space::{Settings, Space};

pub use framework::{Framework, Key, Pairs};
pub use knob::{KNOBS, Knob, KnobFacts};
pub use yaml::yaml_scalar;

/// The frameworks that have forms of their own.
pub const FRAMEWORKS: &[(&str, Framework)] = &[
    ("huggingface", huggingface::HUGGINGFACE),
    ("deepspeed", deepspeed::DEEPSPEED),
    ("lightning", lightning::LIGHTNING),
    ("accelerate", accelerate::ACCELERATE),
];

/// A config that is to be written.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'c> {
    /// Its names and values.
    pub settings: &'c Settings,
    /// What they are applied to.
    pub apply: &'c [Applied],
    /// The space, where it is known: what a parameter is, its role there tells.
    pub space: Option<&'c Space>,
}

impl<'c> Chosen<'c> {
    /// A config of which only names and values are known.
    pub fn of(settings: &'c Settings) -> Self {
        Self { settings, apply: &[], space: None }
    }
}

/// A config as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The text; ends with a line break unless it is empty.
    pub text: String,
    /// What the text has no place for, and why.
    pub notes: Vec<String>,
}

/// A form in which a config can be written.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it looks like, in a few words.
    pub about: &'static str,
    /// Writes a config.
    pub write: fn(&Chosen<'_>) -> Written,
}

/// All names and values, for a form that has a place for every one.
fn whole(text: String) -> Written {
    Written { text, notes: Vec::new() }
}

/// All forms, the default first. `docs/emit.md` describes each.
pub const FORMATS: &[Format] = &[
    Format { name: "toml", about: "batch_size = 64", write: |chosen| whole(toml::write(chosen.settings)) },
    Format { name: "json", about: "{\"batch_size\": 64}", write: |chosen| whole(json::write(chosen.settings)) },
    Format { name: "yaml", about: "batch_size: 64", write: |chosen| whole(yaml::write(chosen.settings)) },
    Format {
        name: "env",
        about: "BATCH_SIZE=64, quoted for a shell",
        write: |chosen| whole(env::write(chosen.settings)),
    },
    Format {
        name: "args",
        about: "--batch-size 64, quoted for a shell",
        write: |chosen| whole(args::write(chosen.settings)),
    },
    Format {
        name: "huggingface",
        about: "TrainingArguments of Hugging Face's Trainer, as JSON",
        write: huggingface::write,
    },
    Format { name: "deepspeed", about: "a DeepSpeed configuration, as JSON", write: deepspeed::write },
    Format { name: "lightning", about: "a configuration of LightningCLI, as YAML", write: lightning::write },
    Format { name: "accelerate", about: "a configuration of accelerate launch, as YAML", write: accelerate::write },
    Format { name: "none", about: "nothing", write: |_| whole(String::new()) },
];

/// The form of this name.
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// A word as a POSIX shell reads it: bare where that is safe, else in single quotes.
pub fn shell_word(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Value;

    fn settings() -> Settings {
        [
            ("batch_size", Value::from(64)),
            ("ratio", Value::from(0.5)),
            ("whole", Value::from(2.0)),
            ("pin_memory", Value::from(true)),
            ("precision", Value::from("bf16")),
            ("odd", Value::from("it's \"odd\": #1\n$HOME")),
            ("looks_like_a_number", Value::from("12")),
            ("looks_like_a_boolean", Value::from("yes")),
            ("empty", Value::from("")),
        ]
        .into_iter()
        .collect()
    }

    fn written(name: &str) -> String {
        (format(name).unwrap().write)(&Chosen::of(&settings())).text
    }

    #[test]
    fn json_and_toml_read_back_as_the_same_settings() {
        assert_eq!(serde_json::from_str::<Settings>(&written("json")).unwrap(), settings());
        let table: std::collections::BTreeMap<String, Value> = ::toml::from_str(&written("toml")).unwrap();
        for (name, value) in settings().iter() {
            assert_eq!(table.get(name), Some(value), "{name}");
        }
    }

    #[test]
    fn a_shell_reads_back_env_and_args() {
        let output = std::process::Command::new("sh")
            .args(["-ec", &format!("{}printf '%s|' \"$ODD\" \"$RATIO\" \"$EMPTY\"", written("env"))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's \"odd\": #1\n$HOME|0.5||");
        let output = std::process::Command::new("sh")
            .args(["-ec", &format!("set -- {}\nprintf '%s|' \"$@\"", written("args").trim_end())])
            .output()
            .unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        assert!(words.starts_with("--batch-size|64|--ratio|0.5|"), "{words}");
        assert!(words.contains("|--odd|it's \"odd\": #1\n$HOME|"), "{words}");
    }

    /// As an adapter's script has them, with names that say nothing.
    fn applied() -> (Settings, Vec<Applied>) {
        let all = [
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
        let applied = all.iter().map(|(parameter, name, _)| Applied {
            parameter: (*parameter).to_owned(),
            name: (*name).to_owned(),
            target: crate::adapter::Target::parse(name).unwrap(),
        });
        (all.iter().map(|(name, _, value)| (*name, value.clone())).collect(), applied.collect())
    }

    #[test]
    fn what_an_adapter_sets_has_the_frameworks_names_and_nothing_is_dropped_in_silence() {
        let (settings, apply) = applied();
        let all = FRAMEWORKS.iter().map(|(name, _)| {
            let Written { text, notes } =
                (format(name).unwrap().write)(&Chosen { settings: &settings, apply: &apply, space: None });
            let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
            format!("# {name}\n{text}{notes}")
        });
        insta::assert_snapshot!(all.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn every_setting_is_in_the_text_or_in_a_note() {
        let mut settings = settings();
        settings = settings
            .iter()
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .chain([("num_gpus".to_owned(), Value::from(3))])
            .collect();
        for (name, _) in FRAMEWORKS {
            let Written { text, notes } = (format(name).unwrap().write)(&Chosen::of(&settings));
            let all = format!("{text}{}", notes.join("\n"));
            for (setting, value) in settings.iter().filter(|(setting, _)| *setting != "precision") {
                let is_there = all.contains(&format!("`{setting}`")) || all.contains(&format!(": {value}"));
                assert!(is_there, "{name} says nothing of {setting}:\n{all}");
            }
        }
    }

    #[test]
    fn numbers_with_an_exponent_are_numbers_in_yaml() {
        for (number, expected) in [(1e-5, "1.0e-5"), (1.5e-7, "1.5e-7"), (1e20, "1.0e+20"), (0.5, "0.5")] {
            let settings: Settings = [("lr", Value::from(number))].into_iter().collect();
            assert_eq!((format("yaml").unwrap().write)(&Chosen::of(&settings)).text, format!("lr: {expected}\n"));
            let lightning = (format("lightning").unwrap().write)(&Chosen::of(&settings)).text;
            assert!(lightning.ends_with(&format!("  lr: {expected}\n")), "{lightning}");
        }
    }

    #[test]
    fn precisions_and_switches_of_every_kind_are_flags() {
        let flags = |name: &str, value: Value| {
            let settings: Settings = [(name, value)].into_iter().collect();
            (format("huggingface").unwrap().write)(&Chosen::of(&settings))
        };
        assert!(flags("precision", "tf32".into()).text.contains("\"tf32\": true"));
        assert!(flags("bf16", true.into()).text.contains("\"bf16\": true"));
        assert!(flags("fp16", false.into()).text.contains("\"fp16\": false"));
        assert!(flags("dtype", "float16".into()).text.contains("\"fp16\": true"));
        let odd = flags("precision", "int3".into());
        assert_eq!((odd.text.as_str(), odd.notes.len()), ("{}\n", 1));
    }

    #[test]
    fn docs_name_every_form_and_every_key() {
        let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/emit.md")).unwrap();
        for format in FORMATS {
            assert!(docs.contains(&format!("`{}`", format.name)), "docs/emit.md does not say `{}`", format.name);
        }
        for (name, framework) in FRAMEWORKS {
            assert!(docs.contains(framework.source), "docs/emit.md has no link for {name}");
            for key in framework.keys {
                assert!(docs.contains(&format!("`{}`", key.key)), "docs/emit.md does not say `{}`", key.key);
            }
        }
    }

    #[test]
    fn every_format_is_readable() {
        let all: Vec<String> =
            FORMATS.iter().map(|format| format!("# {}\n{}", format.name, written(format.name))).collect();
        insta::assert_snapshot!(all.join("\n"));
    }
}
