//! Handles boolean arguments and the arguments for the number format.
//!
//! A boolean argument is a switch, a pair such as `--amp` and `--no-amp`, or a value such as `--amp True`. A script
//! takes the number format as a name, as a switch for each format, or as one switch for mixed precision.

use super::argument::{Argument, Kind};
use super::knobs::{AMP_FORMATS, AMP_SWITCHES, Knob, Names, PRECISION_SWITCHES, Settings, VOCABULARIES};
use super::plan::{Planner, Today, Way};
use super::settings;
use super::source::Source;
use super::words::{Given, truth};
use crate::model::Precision;

/// A boolean argument: its value in the command, and the values that the space derives for it.
#[derive(Debug, Default)]
struct Flag {
    is_on: bool,
    /// The words of the command that state it.
    given: Option<Given>,
    /// The names and expressions of the derived values that the flag needs.
    derived: Vec<(String, String)>,
}

impl Planner<'_> {
    /// Adds a parameter that an argument switches; returns false if the script has no such argument.
    pub(super) fn add_switch(&mut self, knob: &Knob) -> bool {
        let name = knob.parameter;
        let full = if knob.settings == Settings::RoundingSwitch { ", full_precision = false" } else { "" };
        let definition = format!("values = [false, true]{full}");
        if let Some(argument) = self.argument(knob.names) {
            let way = Way::Argument(argument.spelled().to_owned());
            let Some(flag) = self.put_flag(&argument, name, name) else { return false };
            let today = Today::told(Some(flag.is_on.to_string()), flag.given.as_ref());
            self.push(name, knob.about, definition, way, today);
            flag.derived.into_iter().filter(|(known, _)| known != name).for_each(|(known, by)| self.derive(known, by));
            return true;
        }
        let off = self.argument(knob.off).filter(|argument| argument.kind == Kind::Switch);
        let Some(off) = off else { return false };
        let not = format!("no_{name}");
        let given_off = self.plan.words.switch(&off, off.spelled(), &not);
        let today = Today::told(Some(given_off.is_none().to_string()), given_off.as_ref());
        self.push(name, knob.about, definition, Way::Argument(off.spelled().to_owned()), today);
        self.derive(not, format!("not {name}"));
        true
    }

    /// Puts a flag into the command. The flag is on if `condition` holds. Its placeholder is the boolean `name`, which
    /// is the condition itself or becomes a derived value.
    ///
    /// Returns `None` if the argument cannot be turned both on and off.
    fn put_flag(&mut self, argument: &Argument, name: &str, condition: &str) -> Option<Flag> {
        let on = argument.is_on_by_default();
        let itself = (name.to_owned(), condition.to_owned());
        match &argument.kind {
            Kind::Switch | Kind::MaybeValue if !on => {
                let given = self.plan.words.switch(argument, argument.spelled(), name);
                Some(Flag { is_on: given.as_ref().is_some_and(Given::is_on), given, derived: vec![itself] })
            }
            Kind::Pair { off } => {
                let not = format!("no_{name}");
                let off_argument = Argument { names: vec![off.clone()], kind: Kind::Switch, ..argument.clone() };
                let given = self.plan.words.switch(argument, argument.spelled(), name);
                let given_off = self.plan.words.switch(&off_argument, off, &not);
                let is_on = given.as_ref().map_or(on && given_off.is_none(), Given::is_on);
                Some(Flag { is_on, given: given.or(given_off), derived: vec![itself, (not, negated(condition))] })
            }
            Kind::Switch => None,
            Kind::MaybeValue | Kind::Override | Kind::Value { .. } | Kind::Assigned { .. } | Kind::Place(_) => {
                self.put_words(argument, name, condition)
            }
        }
    }

    /// Puts an argument into the command that takes one word for on and another word for off.
    fn put_words(&mut self, argument: &Argument, name: &str, condition: &str) -> Option<Flag> {
        let text = format!("{name}_word");
        let given = self.plan.words.clone().set(argument, &text);
        let said = given.as_ref().map(|given| given.value.as_str()).or(argument.default.as_deref());
        let [no, yes] = spelled(argument, said)?;
        let is_on = said.and_then(truth).unwrap_or(false);
        // A boolean parameter is put into the command as `false` or `true`.
        let is_itself = name == condition && [no.as_str(), yes.as_str()] == ["false", "true"];
        self.plan.words.set(argument, if is_itself { name } else { &text });
        let derived = (text, format!("'{yes}' if {condition} else '{no}'"));
        Some(Flag { is_on, given, derived: if is_itself { Vec::new() } else { vec![derived] } })
    }
}

/// Returns the words that an argument uses for no and yes; `None` if it is not boolean.
fn spelled(argument: &Argument, said: Option<&str>) -> Option<[String; 2]> {
    let choices = argument.kind.choices();
    if !choices.is_empty() {
        let of = |is: bool| choices.iter().find(|choice| truth(choice) == Some(is) && !is_number(choice)).cloned();
        return Some([of(false)?, of(true)?]);
    }
    let said = match (said, &argument.kind) {
        (Some(said), _) => said,
        (None, Kind::MaybeValue | Kind::Override) => "false",
        (None, _) => return None,
    };
    truth(said).filter(|_| !is_number(said))?;
    let pairs = [["False", "True"], ["false", "true"], ["no", "yes"], ["off", "on"]];
    let pair = pairs.into_iter().find(|pair| pair.contains(&said))?;
    Some(pair.map(str::to_owned))
}

fn negated(condition: &str) -> String {
    if condition.contains(' ') { format!("not ({condition})") } else { format!("not {condition}") }
}

fn is_number(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}

impl Planner<'_> {
    /// Adds the number format by any of the script's arguments for it; returns false if the script has none.
    pub(super) fn add_precision(&mut self, knob: &Knob) -> bool {
        self.add_amp_with_format(knob)
            || self.add_precision_value(knob)
            || self.add_precision_switches(knob)
            || self.add_amp(knob)
    }

    fn add_precision_value(&mut self, knob: &Knob) -> bool {
        let argument = self.argument(knob.names).filter(|argument| argument.kind.takes_value());
        let Some(argument) = argument else { return false };
        let names = self.names_of(&argument);
        let Some(offered) = settings::precisions(&names, self.found.means) else { return false };
        let mut words = self.plan.words.clone();
        let given = words.set(&argument, knob.parameter);
        let is_fit = |name: &String| {
            names.contains(name) && settings::named(name).is_none_or(|precision| self.found.means.has(precision))
        };
        if let Some(given) = given.as_ref().filter(|given| !is_fit(&given.value)) {
            let reason =
                format!("the command gives it as `{}`, which is no format that this machine is known for", given.value);
            self.close(argument.spelled(), &reason);
            return true;
        }
        self.plan.words = words;
        let is_accepted = |value: &String| names.contains(value);
        let said = given.as_ref().map(|given| given.value.clone()).or_else(|| argument.default.clone());
        let is_lightnings = argument.default.is_none() && is_lightning(&argument, self.found.source);
        let today = said.filter(is_accepted).or_else(|| offered.full.clone().filter(|_| is_lightnings));
        let definition = offered.definition(given.as_ref().and(today.as_deref()));
        let today = Today::told(today.map(|today| settings::text(&today)), given.as_ref());
        self.push(knob.parameter, knob.about, definition, Way::Argument(argument.spelled().to_owned()), today);
        true
    }

    /// Returns the format names that an argument accepts: its listed choices, else Lightning's names for an argument of
    /// Lightning, else the family in [`VOCABULARIES`] that has today's name.
    fn names_of(&self, argument: &Argument) -> Vec<String> {
        if !argument.kind.choices().is_empty() {
            return argument.kind.choices().to_vec();
        }
        if is_lightning(argument, self.found.source) {
            // The third family has Lightning's names.
            return VOCABULARIES[2].iter().map(|&name| name.to_owned()).collect();
        }
        // Reads the command's value with a copy, so that the command stays unchanged.
        let said = self.plan.words.clone().set(argument, "x").map(|given| given.value);
        let today = said.or_else(|| argument.default.clone());
        settings::family(today.as_deref().unwrap_or_default(), self.found.preset)
    }

    /// Adds `--bf16` and `--fp16`; a command may have at most one of them.
    fn add_precision_switches(&mut self, knob: &Knob) -> bool {
        let mut switches: Vec<(Argument, Precision)> = Vec::new();
        for name in PRECISION_SWITCHES.all() {
            let Some(precision) = Precision::named(name.trim_start_matches("use-")) else { continue };
            let taken = switches.iter().any(|(_, known)| *known == precision);
            let argument = self.argument(Names(name)).filter(|argument| !taken && is_flag(argument));
            let Some(argument) = argument else { continue };
            if self.found.means.has(precision) {
                switches.push((argument, precision));
            } else if self.plan.words.has(&argument) {
                return self.leave_amp(&argument);
            }
        }
        if switches.is_empty() || switches.iter().any(|(argument, _)| argument.is_on_by_default()) {
            return false;
        }
        let (mut today, mut given, mut derived) = ("fp32", None, Vec::new());
        for (argument, precision) in &switches {
            let condition = format!("precision == '{precision}'");
            let Some(flag) = self.put_flag(argument, &format!("is_{precision}"), &condition) else { continue };
            if flag.is_on {
                today = precision.name();
            }
            given = if flag.is_on { flag.given } else { given.or(flag.given) };
            derived.extend(flag.derived);
        }
        let formats: Vec<&str> = switches.iter().map(|(_, precision)| precision.name()).collect();
        let spelled: Vec<&str> = switches.iter().map(|(argument, _)| argument.spelled()).collect();
        let today = Today::told(Some(settings::text(today)), given.as_ref());
        self.push(knob.parameter, knob.about, formats_of(&formats), Way::Argument(spelled.join(" and ")), today);
        derived.into_iter().for_each(|(name, by)| self.derive(name, by));
        true
    }

    /// Adds a flag for mixed precision with an argument for its format: `--amp --amp-dtype bfloat16`.
    fn add_amp_with_format(&mut self, knob: &Knob) -> bool {
        let flag = self.argument(AMP_SWITCHES).filter(is_flag);
        let format = self.argument(AMP_FORMATS).filter(|argument| argument.kind.takes_value());
        let (Some(flag), Some(format)) = (flag, format) else { return false };
        let mut known: Vec<(Precision, String)> = Vec::new();
        for name in self.names_of(&format) {
            let precision = settings::named(&name).filter(|precision| *precision != Precision::Fp32);
            if let Some(precision) = precision.filter(|precision| known.iter().all(|(other, _)| other != precision)) {
                known.push((precision, name));
            }
        }
        let said = self.plan.words.clone().set(&format, "x").map(|given| given.value).or(format.default.clone());
        let today = said.and_then(|said| settings::named(&said));
        known.retain(|(precision, _)| self.found.means.has(*precision));
        if self.plan.words.has(&flag) && today.is_some_and(|today| !self.found.means.has(today)) {
            return self.leave_amp(&flag);
        }
        let Some((_, first)) = known.first().cloned() else { return self.leave_amp(&flag) };
        let Some(put) = self.put_flag(&flag, "is_mixed", "precision != 'fp32'") else { return false };
        let given = self.plan.words.set(&format, "mixed_format");
        let others = known.iter().skip(1).rev();
        let expression = others.fold(format!("'{first}'"), |otherwise, (precision, name)| {
            format!("'{name}' if precision == '{}' else {otherwise}", precision.name())
        });
        let today = if put.is_on { today } else { Some(Precision::Fp32) };
        let words: Vec<String> = put.given.iter().chain(&given).map(|given| given.words.clone()).collect();
        let stated = put.given.map(|given| Given { words: words.join(" "), ..given });
        let today = Today::told(today.map(|today| settings::text(today.name())), stated.as_ref());
        let formats: Vec<&str> = known.iter().map(|(precision, _)| precision.name()).collect();
        let way = Way::Argument(format!("{} and {}", flag.spelled(), format.spelled()));
        self.push(knob.parameter, knob.about, formats_of(&formats), way, today);
        put.derived.into_iter().for_each(|(name, by)| self.derive(name, by));
        self.derive("mixed_format".to_owned(), expression);
        true
    }

    /// Adds a flag for mixed precision, such as `--amp`, without an argument for its format, which the script chooses.
    fn add_amp(&mut self, knob: &Knob) -> bool {
        let Some(argument) = self.argument(AMP_SWITCHES).filter(is_flag) else { return false };
        let format = mixed_format(self.found.source, self.found.means.gpus > 0);
        let format = format.filter(|format| self.found.means.has(*format));
        let Some(format) = format else { return self.leave_amp(&argument) };
        let condition = format!("precision == '{}'", format.name());
        let Some(flag) = self.put_flag(&argument, "is_mixed", &condition) else { return false };
        let today = if flag.is_on { format } else { Precision::Fp32 };
        let today = Today::told(Some(settings::text(today.name())), flag.given.as_ref());
        let about = "fp32, or mixed precision in the format that the script has for it";
        let way = Way::Argument(argument.spelled().to_owned());
        self.push(knob.parameter, about, formats_of(&[format.name()]), way, today);
        flag.derived.into_iter().for_each(|(name, by)| self.derive(name, by));
        true
    }

    /// Leaves a flag for mixed precision unchanged. Returns true if the command has the flag: then nothing else may set
    /// the precision, because the adapter's setting would contradict the flag.
    fn leave_amp(&mut self, argument: &Argument) -> bool {
        let reason = "this machine does not compute faster in its mixed precision";
        self.close(argument.spelled(), reason);
        self.plan.words.has(argument)
    }
}

fn is_flag(argument: &Argument) -> bool {
    let is_boolean = |text: &String| matches!(text.as_str(), "True" | "False" | "true" | "false");
    match &argument.kind {
        Kind::Switch | Kind::MaybeValue | Kind::Pair { .. } => true,
        kind if kind.choices().is_empty() => argument.default.as_ref().is_some_and(is_boolean),
        kind => kind.choices().iter().filter(|choice| is_boolean(choice)).count() > 1,
    }
}

/// Returns the definition of a precision parameter with fp32 and these formats.
fn formats_of(formats: &[&str]) -> String {
    let values: Vec<String> = std::iter::once("fp32").chain(formats.iter().copied()).map(settings::text).collect();
    format!("values = [{}], full_precision = \"fp32\"", values.join(", "))
}

/// Returns the format of a script's mixed precision; `None` if it has no effect on this device.
///
/// If the script names no format, torch's default counts: float16 on CUDA, bfloat16 on a CPU ("torch.amp").
fn mixed_format(source: &Source, has_gpu: bool) -> Option<Precision> {
    let usual = if has_gpu { Precision::Fp16 } else { Precision::Bf16 };
    let regions = source.named("autocast");
    let Some(region) = regions.first() else {
        // NVIDIA's apex and loss scaling are for float16 on GPUs.
        let of_gpus =
            source.imports("apex") || source.imports("torch.cuda.amp") || !source.named("GradScaler").is_empty();
        return (has_gpu || !of_gpus).then_some(usual);
    };
    let device = region.get("device_type").or(region.positional.first().map(String::as_str)).unwrap_or_default();
    let is_named = |name: &str| device.trim_matches(['\'', '"']) == name;
    let of_cuda = region.name.contains("cuda.amp") || source.imports("torch.cuda.amp.autocast") || is_named("cuda");
    let dtype = region.get("dtype").unwrap_or_default();
    match dtype {
        _ if of_cuda && !has_gpu => None,
        _ if dtype.contains("bfloat16") => Some(Precision::Bf16),
        _ if dtype.contains("float16") || dtype.contains("half") => Some(Precision::Fp16),
        _ if region.name.contains("cpu.amp") || is_named("cpu") => Some(Precision::Bf16),
        _ => Some(usual),
    }
}

/// Returns true if an argument is the precision of Lightning's Trainer; for an override, the script imports Lightning.
fn is_lightning(argument: &Argument, source: &Source) -> bool {
    let of_trainer = argument.names.iter().any(|name| name.trim_start_matches('-') == "trainer.precision");
    let imports = source.imports("lightning") || source.imports("pytorch_lightning");
    of_trainer && (imports || argument.kind != Kind::Override)
}
