//! Plans parameters by what the first run showed: variables that the script read, options of unknown names, and values.

use super::argument::Argument;
use super::knobs::{KNOBS, Knob};
use super::plan::{Planner, Today, Way};
use super::seen::{By, Seen};
use super::settings;
use super::today;
use crate::probe::adapter::{Applied, Target};

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

    /// Leaves out parameters whose variable the shell script around the command sets: its value wins.
    pub(super) fn leave_out_what_a_shell_sets(&mut self) {
        let parameters = std::mem::take(&mut self.plan.parameters);
        for planned in parameters {
            match self.set_by_shell(&planned.way) {
                Some(variable) => self.close_variable(&planned.name, &variable),
                None => self.plan.parameters.push(planned),
            }
        }
        for variable in self.found.seen.map(Seen::fixed_variables).unwrap_or_default() {
            let is_it = |knob: &&Knob| knob.names.contains(&Argument::plain(&variable).as_str());
            let knob = KNOBS.iter().find(is_it).filter(|knob| self.planned(knob.parameter).is_none());
            if let Some(knob) = knob {
                self.close_variable(knob.parameter, &variable);
            }
        }
    }

    fn close_variable(&mut self, parameter: &str, variable: &str) {
        let line = format!("export {variable}=${{{variable}:-VALUE}}");
        self.close(parameter, &format!("the shell script sets {variable}; with `{line}` there, gputune can set it"));
    }

    fn set_by_shell(&self, way: &Way) -> Option<String> {
        let Way::Target(name) = way else { return None };
        let target = Target::parse(name).ok()?;
        let applied = Applied { parameter: String::new(), name: name.clone(), target, argument: None };
        applied.variables().into_iter().find(|variable| self.found.command.sets(variable)).map(str::to_owned)
    }

    /// Returns the value that the script uses today: as its first run showed, else as its source shows.
    pub(super) fn today(&self, parameter: &str) -> Option<String> {
        let seen = self.found.seen.and_then(|seen| seen.today(parameter));
        seen.or_else(|| today::of(parameter, self.found.source))
    }
}
