//! Handles boolean arguments: switches, pairs such as `--amp` and `--no-amp`, and values such as `--amp True`.

use super::argument::{Argument, Kind};
use super::knobs::{Knob, Settings};
use super::plan::{Planner, Today, Way};
use super::words::{Given, truth};

/// A boolean argument: its value in the command, and the values that the space derives for it.
#[derive(Debug, Default)]
pub(super) struct Flag {
    /// True if the flag is on today.
    pub(super) is_on: bool,
    /// The words of the command that state it.
    pub(super) given: Option<Given>,
    /// Derived values that it needs, with their expressions.
    pub(super) derived: Vec<(String, String)>,
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
        let refused = self.plan.words.switch(&off, off.spelled(), &not);
        let today = Today::told(Some(refused.is_none().to_string()), refused.as_ref());
        self.push(name, knob.about, definition, Way::Argument(off.spelled().to_owned()), today);
        self.derive(not, format!("not {name}"));
        true
    }

    /// Puts a flag into the command that is on if `condition` holds. `name` is the name of the boolean: the condition itself, or a
    /// value derived from it. Returns `None` if the argument cannot be switched both ways.
    pub(super) fn put_flag(&mut self, argument: &Argument, name: &str, condition: &str) -> Option<Flag> {
        let on = argument.is_on_by_default();
        let itself = (name.to_owned(), condition.to_owned());
        match &argument.kind {
            Kind::Switch | Kind::MaybeValue if !on => {
                let given = self.plan.words.switch(argument, argument.spelled(), name);
                Some(Flag { is_on: given.as_ref().is_some_and(Given::is_on), given, derived: vec![itself] })
            }
            Kind::Pair { off } => {
                let not = format!("no_{name}");
                let refusing = Argument { names: vec![off.clone()], kind: Kind::Switch, ..argument.clone() };
                let given = self.plan.words.switch(argument, argument.spelled(), name);
                let refused = self.plan.words.switch(&refusing, off, &not);
                let is_on = given.as_ref().map_or(on && refused.is_none(), Given::is_on);
                Some(Flag { is_on, given: given.or(refused), derived: vec![itself, (not, negated(condition))] })
            }
            Kind::Switch => None,
            Kind::MaybeValue | Kind::Override | Kind::Value { .. } | Kind::Assigned { .. } | Kind::Place(_) => {
                self.put_words(argument, name, condition)
            }
        }
    }

    /// Puts an argument into the command that takes one of two words.
    fn put_words(&mut self, argument: &Argument, name: &str, condition: &str) -> Option<Flag> {
        let mut words = self.plan.words.clone();
        let text = format!("{name}_word");
        let given = words.set(argument, &text);
        let said = given.as_ref().map(|given| given.value.as_str()).or(argument.default.as_deref());
        let [no, yes] = spelled(argument, said)?;
        let is_on = said.and_then(truth).unwrap_or(false);
        self.plan.words = words;
        let derived = (text, format!("'{yes}' if {condition} else '{no}'"));
        Some(Flag { is_on, given, derived: vec![derived] })
    }
}

/// Returns the words that an argument uses for no and yes; `None` if it is not boolean.
fn spelled(argument: &Argument, said: Option<&str>) -> Option<[String; 2]> {
    let choices = argument.kind.choices();
    if !choices.is_empty() {
        let of = |is: bool| choices.iter().find(|choice| truth(choice) == Some(is) && !is_digit(choice)).cloned();
        return Some([of(false)?, of(true)?]);
    }
    let said = match (said, &argument.kind) {
        (Some(said), _) => said,
        (None, Kind::MaybeValue | Kind::Override) => "false",
        (None, _) => return None,
    };
    truth(said).filter(|_| !is_digit(said))?;
    let pairs = [["False", "True"], ["false", "true"], ["no", "yes"], ["off", "on"]];
    let pair = pairs.into_iter().find(|pair| pair.contains(&said))?;
    Some(pair.map(str::to_owned))
}

fn negated(condition: &str) -> String {
    if condition.contains(' ') { format!("not ({condition})") } else { format!("not {condition}") }
}

/// Returns true if a string has only digits; it is then a number and no boolean.
fn is_digit(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}
