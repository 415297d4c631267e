//! Finds the arguments that a script's source declares, for scripts without a help. The source declares them in calls of a parser,
//! in a function's parameters (typer, fire), or in fields of a dataclass (such as for `HfArgumentParser` and tyro).

use std::sync::LazyLock;

use regex::Regex;

use super::argument::{Argument, Kind};
use super::calls::{Call, Parameter, definitions, literal, literals};
use super::source::Source;

/// The options of `transformers.TrainingArguments` (its documentation) that a search may set, with their defaults. Boolean options
/// take no value, or `True`.
const TRAINING_ARGUMENTS: &[(&str, &str, bool)] = &[
    ("--per_device_train_batch_size", "8", false),
    ("--gradient_accumulation_steps", "1", false),
    ("--dataloader_num_workers", "0", false),
    ("--dataloader_prefetch_factor", "None", false),
    ("--dataloader_persistent_workers", "False", true),
    ("--dataloader_pin_memory", "True", true),
    ("--bf16", "False", true),
    ("--fp16", "False", true),
    ("--torch_compile", "False", true),
    ("--gradient_checkpointing", "False", true),
];

impl Source {
    /// Returns the arguments that the source declares, with their defaults if these are literals.
    pub fn arguments(&self) -> Vec<Argument> {
        let mut all: Vec<Argument> = self.calls.iter().filter_map(declared).collect();
        let mut others = self.parameters();
        others.extend(self.fields());
        others.extend(self.training_arguments());
        for argument in others {
            if all.iter().all(|known| known.names.iter().all(|name| !argument.names.contains(name))) {
                all.push(argument);
            }
        }
        all
    }

    /// Returns the parameters of functions that fire and typer turn into command lines.
    fn parameters(&self) -> Vec<Argument> {
        let (fire, typer) = (self.imports("fire"), self.imports("typer"));
        if !fire && !typer {
            return Vec::new();
        }
        let makes = |text: &str| -> Vec<String> {
            let calls = super::calls::calls(text, &["run", "Fire"]);
            let named = |call: &&Call| matches!(call.name.as_str(), "typer.run" | "fire.Fire" | "Fire");
            calls.iter().filter(named).filter_map(|call| call.positional.first().cloned()).collect()
        };
        let taken: Vec<String> = self.texts.iter().flat_map(|text| makes(text)).collect();
        let all = self.texts.iter().flat_map(|text| definitions(text));
        let is_taken = |name: &String, decorator: &str| {
            taken.contains(name) || (typer && decorator.starts_with('@') && decorator.contains(".command"))
        };
        let functions = all.filter(|definition| is_taken(&definition.name, &definition.decorator));
        let parameters = functions.flat_map(|definition| definition.parameters);
        parameters.map(|parameter| if typer { of_typer(&parameter) } else { of_fire(&parameter) }).collect()
    }

    /// Returns the fields of dataclasses that a parser takes.
    fn fields(&self) -> Vec<Argument> {
        let flavour = match () {
            () if !self.named("HfArgumentParser").is_empty() => Flavour::Transformers,
            () if self.imports("tyro") => Flavour::Tyro,
            () if ["simple_parsing", "draccus", "pyrallis"].iter().any(|module| self.imports(module)) => Flavour::Plain,
            () if self.imports("tap") => Flavour::Switches,
            () => return Vec::new(),
        };
        self.texts.iter().flat_map(|text| fields(text)).map(|field| of_field(&field, flavour)).collect()
    }

    fn training_arguments(&self) -> Vec<Argument> {
        let has = self.texts.iter().any(|text| text.contains("TrainingArguments"));
        if self.named("HfArgumentParser").is_empty() || !has {
            return Vec::new();
        }
        let argument = |(name, default, is_boolean): &(&str, &str, bool)| Argument {
            kind: if *is_boolean { Kind::MaybeValue } else { Kind::Value { choices: Vec::new() } },
            ..Argument::valued((*name).to_owned(), Some((*default).to_owned()).filter(|default| default != "None"))
        };
        TRAINING_ARGUMENTS.iter().map(argument).collect()
    }
}

/// The spelling of fields by a parser of dataclasses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavour {
    /// `--batch_size`, and `--amp` or `--amp True`.
    Transformers,
    /// `--batch-size`, and `--amp` or `--no-amp`.
    Tyro,
    /// `--batch_size`, and `--amp True`.
    Plain,
    /// `--batch_size`, and `--amp`.
    Switches,
}

fn of_field(field: &Parameter, flavour: Flavour) -> Argument {
    let spelled = if flavour == Flavour::Tyro { field.name.replace('_', "-") } else { field.name.clone() };
    let default = field.default.as_deref().and_then(|text| literal(text).or_else(|| field_default(text)));
    let kind = match (field.annotation.as_str(), flavour) {
        ("bool", Flavour::Transformers) => Kind::MaybeValue,
        ("bool", Flavour::Tyro) => Kind::Pair { off: format!("--no-{spelled}") },
        ("bool", Flavour::Switches) => Kind::Switch,
        (annotation, _) => Kind::Value { choices: choices_of(annotation) },
    };
    let is_required = field.default.is_none();
    let default = default.filter(|value| value != "None");
    Argument { names: vec![format!("--{spelled}")], kind, default, is_required }
}

/// Returns the default in `field(default=32, metadata=...)`.
fn field_default(text: &str) -> Option<String> {
    super::calls::calls(text, &["field"]).first()?.literal("default")
}

/// Returns the choices in `Literal["fp32", "bf16"]`.
fn choices_of(annotation: &str) -> Vec<String> {
    let list = annotation.split_once("Literal[").and_then(|(_, list)| list.split_once(']'));
    list.map(|(list, _)| literals(list)).unwrap_or_default()
}

fn of_fire(parameter: &Parameter) -> Argument {
    let default = parameter.default.as_deref().and_then(literal).filter(|value| value != "None");
    let is_required = parameter.default.is_none();
    Argument { is_required, ..Argument::valued(format!("--{}", parameter.name), default) }
}

fn of_typer(parameter: &Parameter) -> Argument {
    let option = |text: &str| super::calls::calls(text, &["Option"]).into_iter().next();
    let call = parameter.default.as_deref().and_then(option).or_else(|| option(&parameter.annotation));
    let flags = call.iter().flat_map(|call| call.positional.iter().filter_map(|text| literal(text)));
    let mut names: Vec<String> = flags.filter(|name| name.starts_with('-')).collect();
    if names.is_empty() {
        names.push(format!("--{}", parameter.name.replace('_', "-")));
    }
    let first = call.as_ref().and_then(|call| literal(call.positional.first()?));
    let default = parameter.default.as_deref().and_then(literal).or(first).filter(|value| !value.starts_with('-'));
    let is_boolean = parameter.annotation == "bool" || matches!(default.as_deref(), Some("True" | "False"));
    let kind = match names.first().filter(|_| is_boolean).and_then(|name| name.strip_prefix("--")) {
        Some(name) => Kind::Pair { off: format!("--no-{name}") },
        None => Kind::Value { choices: Vec::new() },
    };
    Argument { names, kind, default: default.filter(|value| value != "None"), is_required: false }
}

/// Returns the fields of the dataclasses in a text: `batch_size: int = 32`.
fn fields(text: &str) -> Vec<Parameter> {
    static FIELD: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^\s+([A-Za-z_]\w*)\s*:\s*([^=#]+?)\s*(?:=\s*(.+?))?\s*(?:#.*)?$").ok());
    let Some(pattern) = FIELD.as_ref() else { return Vec::new() };
    let mut found = Vec::new();
    let (mut decorated, mut inside, mut open) = (false, false, String::new());
    for line in text.lines() {
        let is_top = line.starts_with(|c: char| !c.is_whitespace());
        if is_top {
            inside = line.starts_with("class ") && (decorated || line.contains("(Tap)"));
            decorated = line.starts_with('@') && line.contains("dataclass") || (decorated && line.starts_with('@'));
            continue;
        }
        if !inside || line.trim_start().starts_with("def ") {
            inside &= !line.trim_start().starts_with("def ");
            continue;
        }
        // A field's default may continue over several lines, until its bracket is closed.
        open.push_str(if open.is_empty() { line } else { line.trim() });
        let depth = |c: char| open.matches(c).count();
        if depth('(') > depth(')') && open.len() < LONGEST_FIELD {
            continue;
        }
        let field = std::mem::take(&mut open);
        let Some(parts) = pattern.captures(&field) else { continue };
        let part = |at: usize| parts.get(at).map(|part| part.as_str().to_owned());
        let (name, annotation) = (part(1).unwrap_or_default(), part(2).unwrap_or_default());
        found.push(Parameter { name, annotation, default: part(3) });
    }
    found
}

/// The most characters of a field: a round number.
const LONGEST_FIELD: usize = 4_000;

/// Returns the argument that a call declares.
fn declared(call: &Call) -> Option<Argument> {
    let flags = || -> Vec<String> {
        let names = call.positional.iter().filter_map(|text| literal(text));
        names
            .flat_map(|text| text.split('/').map(str::to_owned).collect::<Vec<_>>())
            .filter(|name| name.starts_with('-'))
            .collect()
    };
    let default = call.literal("default");
    let (mut names, kind, default) = match call.last() {
        "add_argument" => {
            let kind = match call.get("action").and_then(literal).as_deref() {
                Some("store_true" | "store_false") => Kind::Switch,
                Some(_) => return None,
                None if call.get("action").is_some_and(|action| action.contains("BooleanOptionalAction")) => {
                    let off =
                        flags().into_iter().find_map(|name| Some(format!("--no-{}", name.strip_prefix("--")?)))?;
                    Kind::Pair { off }
                }
                None => Kind::Value { choices: call.get("choices").map(literals).unwrap_or_default() },
            };
            (flags(), kind, default)
        }
        "option" => {
            let names = flags();
            let off = names.iter().find(|name| name.starts_with("--no-")).cloned();
            let kind = match off {
                Some(off) => Kind::Pair { off },
                None if call.get("is_flag").is_some_and(|is| is == "True") => Kind::Switch,
                None => {
                    let choices = call
                        .get("type")
                        .and_then(|text| text.split_once("Choice("))
                        .map(|(_, list)| list.split_once(')').map_or(list, |(list, _)| list));
                    Kind::Value { choices: choices.map(literals).unwrap_or_default() }
                }
            };
            (names, kind, default)
        }
        "DEFINE_bool" | "DEFINE_boolean" => {
            let name = literal(call.positional.first()?)?;
            (
                vec![format!("--{name}")],
                Kind::Pair { off: format!("--no{name}") },
                call.positional.get(1).and_then(|text| literal(text)),
            )
        }
        "DEFINE_integer" | "DEFINE_enum" | "DEFINE_string" => {
            let name = literal(call.positional.first()?)?;
            let choices =
                if call.last() == "DEFINE_enum" { call.positional.get(2).map(|list| literals(list)) } else { None };
            (
                vec![format!("--{name}")],
                Kind::Value { choices: choices.unwrap_or_default() },
                call.positional.get(1).and_then(|text| literal(text)),
            )
        }
        _ => return None,
    };
    if let Kind::Pair { off } = &kind {
        names.retain(|name| name != off);
    }
    let is_required = call.get("required").is_some_and(|is| is == "True");
    let default = default.filter(|value| value != "None");
    (!names.is_empty()).then_some(Argument { names, kind, default, is_required })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let kind = |argument: &Argument| match &argument.kind {
            Kind::Pair { off } => format!("/{off}"),
            Kind::MaybeValue => "?".to_owned(),
            Kind::Switch => "!".to_owned(),
            kind => kind.choices().join("|"),
        };
        let all = Source::of(text).arguments();
        let one = |argument: &Argument| {
            format!("{}{} {}", argument.names.join(","), kind(argument), argument.default.as_deref().unwrap_or("-"))
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn what_a_function_or_a_dataclass_takes_is_an_argument() {
        for (text, expected) in [
            (
                "import typer\ndef main(batch_size: int = 32, amp: bool = False, data: str = typer.Option('x', '--data')):\n  pass\ntyper.run(main)",
                vec!["--batch-size 32", "--amp/--no-amp False", "--data x"],
            ),
            (
                "import typer\napp = typer.Typer()\n@app.command()\ndef fit(bs: int = typer.Option(16, help='size')): ...\ndef other(x=1): ...",
                vec!["--bs 16"],
            ),
            (
                "import fire\ndef train(batch_size=8, *, amp=False): ...\nfire.Fire(train)",
                vec!["--batch_size 8", "--amp False"],
            ),
            (
                "import tyro\n@dataclass\nclass Args:\n    batch_size: int = 4  # per rank\n    dtype: Literal['fp32', 'bf16'] = 'fp32'\n    amp: bool = False\n\n    def run(self):\n        x: int = 3\n",
                vec!["--batch-size 4", "--dtypefp32|bf16 fp32", "--amp/--no-amp False"],
            ),
            (
                "from tap import Tap\nclass Args(Tap):\n    batch_size: int = 4\n    amp: bool = False\n",
                vec!["--batch_size 4", "--amp! False"],
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn a_parser_of_transformers_takes_its_training_arguments() {
        let text = "from transformers import HfArgumentParser, TrainingArguments\n@dataclass\nclass A:\n    path: str = field(\n        default='x', metadata={'help': 'a (b)'}\n    )\nHfArgumentParser((A, TrainingArguments))";
        let all = shown(text);
        for line in ["--path x", "--per_device_train_batch_size 8", "--bf16? False", "--dataloader_num_workers 0"] {
            assert!(all.iter().any(|known| known == line), "{line}: {all:?}");
        }
    }
}
