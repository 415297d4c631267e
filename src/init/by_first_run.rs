//! Plans parameters by what the first run showed: variables that the script read, options of unknown names, and values.

use super::argument::Argument;
use super::knobs::Knob;
use super::plan::{Planner, Today, Way};
use super::seen::By;
use super::settings;
use super::today;

impl Planner<'_> {
    /// Returns the option that a second run found to set a parameter.
    pub(super) fn matched(&self, parameter: &str) -> Option<Argument> {
        let By::Argument(name) = self.found.seen?.matched(parameter)? else { return None };
        self.found.arguments.iter().find(|argument| argument.spelled() == name).cloned()
    }

    /// Adds a number that the script reads from an environment variable.
    pub(super) fn add_variable(&mut self, knob: &Knob) -> bool {
        let Some(seen) = self.found.seen else { return false };
        let used = seen.number(knob.parameter);
        let is_known = |name: &str| knob.names.contains(&Argument::plain(name).as_str());
        let is_it = |name: &str, value: i64| is_known(name) && used.is_none_or(|used| used == value);
        let named = seen.variables().find(|variable| is_it(&variable.name, variable.value));
        let tried = || match seen.matched(knob.parameter) {
            Some(By::Variable(name)) => seen.variables().find(|variable| variable.name == *name),
            _ => None,
        };
        let Some(variable) = named.or_else(tried) else { return false };
        let ranks = self.found.command.ranks();
        let definition = settings::numbers(knob.settings, Some(variable.value), &[], self.found.means, ranks);
        let Some(definition) = definition else { return false };
        let target = format!("env.{}", variable.name);
        let definition = format!("{definition}, apply = \"{target}\"");
        let today = Today::seen(Some(variable.value.to_string()));
        self.push(knob.parameter, knob.about, definition, Way::Target(target), today);
        true
    }

    /// Returns the value that the script uses today: as its first run showed, else as its source shows.
    pub(super) fn today(&self, parameter: &str) -> Option<String> {
        let seen = self.found.seen.and_then(|seen| seen.today(parameter));
        seen.or_else(|| today::of(parameter, self.found.source))
    }
}
