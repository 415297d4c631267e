//! How a script is told the number format: by a name, by a switch for each format, or by one for mixed precision.

use super::argument::{Argument, Kind};
use super::knobs::{AMP_SWITCHES, Knob, PRECISION_SWITCHES, VOCABULARIES};
use super::plan::{Planner, Way};
use super::preset::Preset;
use super::settings;
use super::source::Source;
use crate::precision::Precision;

impl Planner<'_> {
    /// Adds the number format, by whatever arguments the script has for it; whether it has any.
    pub(super) fn add_precision(&mut self, knob: &Knob) -> bool {
        self.add_precision_value(knob) || self.add_precision_switches(knob) || self.add_amp(knob)
    }

    /// One argument that takes the name of a number format.
    fn add_precision_value(&mut self, knob: &Knob) -> bool {
        let argument =
            self.argument(knob.names).filter(|argument| matches!(argument.kind, Kind::Value { .. } | Kind::Override));
        let Some(argument) = argument else { return false };
        let names: Vec<String> = match &argument.kind {
            Kind::Value { choices } if !choices.is_empty() => choices.clone(),
            _ => self.vocabulary(&argument),
        };
        let Some(offered) = settings::precisions(&names, self.found.means) else { return false };
        let given = self.plan.words.set(&argument, knob.parameter);
        let is_told = |value: &String| names.contains(value);
        let today = given.or_else(|| argument.default.clone()).filter(is_told);
        let today = today.or_else(|| {
            (argument.default.is_none() && is_lightning(&argument, self.found.source))
                .then(|| offered.full.clone())
                .flatten()
        });
        let definition = offered.definition(today.as_deref());
        self.push(
            knob.parameter,
            knob.about,
            definition,
            Way::Argument(argument.spelled().to_owned()),
            today.map(|today| settings::text(&today)),
        );
        true
    }

    /// The names that an argument takes which lists none: those of the library that it is from, or the family of its default.
    fn vocabulary(&self, argument: &Argument) -> Vec<String> {
        if is_lightning(argument, self.found.source) {
            return VOCABULARIES[2].iter().map(|&name| name.to_owned()).collect();
        }
        family(argument.default.as_deref().unwrap_or_default(), self.found.preset)
    }

    /// `--bf16` and `--fp16`, of which at most one may be there.
    fn add_precision_switches(&mut self, knob: &Knob) -> bool {
        let mut switches: Vec<(Argument, &str)> = Vec::new();
        for (name, precision) in PRECISION_SWITCHES {
            let taken = switches.iter().any(|(_, known)| known == precision);
            let is_switch =
                |argument: &Argument| matches!(argument.kind, Kind::Switch | Kind::MaybeValue | Kind::Pair { .. });
            let offered = Precision::named(precision).is_some_and(|precision| self.found.means.has(precision));
            let argument = self.argument(&[name]).filter(|argument| !taken && is_switch(argument));
            if let Some(argument) = argument.filter(|argument| offered || self.plan.words.has(argument)) {
                switches.push((argument, precision));
            }
        }
        if switches.is_empty() {
            return false;
        }
        let mut today = "fp32";
        let mut derived = Vec::new();
        for (argument, precision) in &switches {
            if argument.is_on_by_default() {
                return false;
            }
            let name = format!("is_{precision}");
            if self.plan.words.switch(&argument.names, argument.spelled(), &name) {
                today = precision;
            }
            derived.push((name, format!("precision == '{precision}'")));
        }
        let values: Vec<String> = std::iter::once("fp32")
            .chain(switches.iter().map(|(_, precision)| *precision))
            .map(settings::text)
            .collect();
        let spelled: Vec<&str> = switches.iter().map(|(argument, _)| argument.spelled()).collect();
        let definition = format!("values = [{}], full_precision = \"fp32\"", values.join(", "));
        self.push(
            knob.parameter,
            knob.about,
            definition,
            Way::Argument(spelled.join(" and ")),
            Some(settings::text(today)),
        );
        for (name, expression) in derived {
            self.derive(name, expression);
        }
        true
    }

    /// `--amp`, where no adapter knows more than on and off.
    fn add_amp(&mut self, knob: &Knob) -> bool {
        let switch = self.argument(AMP_SWITCHES).filter(|argument| argument.kind == Kind::Switch);
        let Some(argument) = switch.filter(|_| self.line(knob.parameter).is_none()) else { return false };
        let today = self.plan.words.switch(&argument.names, argument.spelled(), "amp");
        let definition = "values = [false, true], full_precision = false".to_owned();
        self.push(
            "amp",
            "mixed precision, of the kind that the script has",
            definition,
            Way::Argument(argument.spelled().to_owned()),
            Some(today.to_string()),
        );
        true
    }
}

/// The family of names that a name of full precision belongs to.
pub(super) fn family(default: &str, preset: &Preset) -> Vec<String> {
    let has = |family: &&[&str; 3]| family.contains(&default);
    let keras = |family: &&[&str; 3]| preset.name == "keras" && family[1].starts_with("mixed_");
    let found = VOCABULARIES.iter().filter(has).find(keras).or_else(|| VOCABULARIES.iter().find(has));
    found.map(|family| family.iter().map(|&name| name.to_owned()).collect()).unwrap_or_default()
}

/// Whether an argument is the Trainer's of a LightningCLI, or of a config made for it.
fn is_lightning(argument: &Argument, source: &Source) -> bool {
    let of_trainer = argument.names.iter().any(|name| name.trim_start_matches('-') == "trainer.precision");
    let imports = source.imports("lightning") || source.imports("pytorch_lightning");
    of_trainer && (imports || argument.kind != Kind::Override)
}
