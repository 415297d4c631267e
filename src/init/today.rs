//! Finds out which settings a script uses today, from its first run or its source, and plans parameters from that.

use super::argument::Argument;
use super::knobs::{Knob, Names};
use super::plan::{Planner, Today, Way};
use super::seen::{By, Seen};
use super::settings;
use super::source::{Call, Source, literal};
use crate::probe::adapter::{Applied, Target};

/// Returns the value that a script uses today for a parameter of the torch adapter; `None` if the source does not show it.
///
/// If a call omits an argument, the library's default counts. Defaults are from the documentation of `torch.utils.data.DataLoader`
/// and `transformers.TrainingArguments`.
pub(super) fn of(parameter: &str, source: &Source) -> Option<String> {
    if parameter == "precision" {
        return precision(source).map(str::to_owned);
    }
    let (name, in_trainer, in_loader) = match parameter {
        "batch_size" => ("batch_size", ("per_device_train_batch_size", "8"), "1"),
        "workers" => ("num_workers", ("dataloader_num_workers", "0"), "0"),
        "prefetch" => ("prefetch_factor", ("dataloader_prefetch_factor", "2"), "2"),
        "persistent_workers" => ("persistent_workers", ("dataloader_persistent_workers", "False"), "False"),
        "pin_memory" => ("pin_memory", ("dataloader_pin_memory", "True"), "False"),
        _ => return None,
    };
    if let Some(arguments) = training_arguments(source) {
        return given(source, arguments, in_trainer.0, in_trainer.1);
    }
    let loader = source.loader()?;
    if parameter == "batch_size" {
        // The batch size is the second argument; a batch sampler has its own batch size.
        if loader.get("batch_sampler").is_some() {
            return None;
        }
        if let Some(second) = loader.positional.get(1) {
            return source.value(second);
        }
    }
    given(source, loader, name, in_loader)
}

/// Returns an argument of a call, or its default; `None` if the argument is computed or may be passed by `**`.
fn given(source: &Source, call: &Call, name: &str, default: &str) -> Option<String> {
    match call.get(name) {
        Some(text) => source.value(text).map(|value| if value == "None" { default.to_owned() } else { value }),
        None if call.positional.iter().any(|text| text.starts_with('*')) => None,
        None => Some(default.to_owned()),
    }
}

fn training_arguments(source: &Source) -> Option<&Call> {
    let names = ["TrainingArguments", "Seq2SeqTrainingArguments"];
    names.iter().find_map(|name| source.named(name).into_iter().find(|call| !call.named.is_empty()))
}

fn precision(source: &Source) -> Option<&'static str> {
    let is = |call: &Call, argument: &str| call.get(argument).map(|text| text == "True");
    if let Some(arguments) = training_arguments(source) {
        return match (is(arguments, "bf16"), is(arguments, "fp16"), is(arguments, "tf32")) {
            (Some(true), _, _) => Some("bf16"),
            (_, Some(true), _) => Some("fp16"),
            (_, _, Some(true)) => Some("tf32"),
            _ if arguments.positional.iter().any(|text| text.starts_with('*')) => None,
            _ => Some("fp32"),
        };
    }
    let takers = [("Trainer", "precision"), ("Fabric", "precision"), ("Accelerator", "mixed_precision")];
    for (call, argument) in takers {
        if let Some(text) = source.named(call).into_iter().find_map(|call| call.get(argument)) {
            let value = literal(text)?;
            return match value.as_str() {
                "no" | "32" | "32-true" => Some("fp32"),
                "bf16" | "bf16-mixed" => Some("bf16"),
                "fp16" | "16" | "16-mixed" => Some("fp16"),
                _ => None,
            };
        }
    }
    if let Some(region) = source.named("autocast").first() {
        let text = region.get("dtype").unwrap_or_default();
        // With any other value of `enabled`, the precision is unknown.
        let is_fixed = region.get("enabled").is_none_or(|enabled| enabled == "True");
        let on_cpu = region.positional.first().is_some_and(|device| device.contains("cpu"));
        return match text {
            _ if !is_fixed => None,
            _ if text.contains("bfloat16") => Some("bf16"),
            _ if text.contains("float16") || text.contains("half") => Some("fp16"),
            // torch's default ("Automatic Mixed Precision package"): float16 on CUDA, bfloat16 on a CPU.
            "" => Some(if on_cpu { "bf16" } else { "fp16" }),
            _ => None,
        };
    }
    let matmul = source.named("set_float32_matmul_precision").first().and_then(|it| literal(it.positional.first()?));
    Some(if matmul.is_some_and(|value| value != "highest") { "tf32" } else { "fp32" })
}

impl Planner<'_> {
    /// Returns the option that sets a parameter, as a second run showed.
    pub(super) fn matched(&self, parameter: &str) -> Option<Argument> {
        let By::Argument(name) = self.found.seen?.matched(parameter)? else { return None };
        self.found.arguments.iter().find(|argument| argument.spelled() == name).cloned()
    }

    /// Adds a number that the script reads from an environment variable.
    pub(super) fn add_variable(&mut self, knob: &Knob) -> bool {
        let Some(seen) = self.found.seen else { return false };
        let used = seen.number(knob.parameter);
        let is_known = |name: &str| knob.names.has(&Argument::plain(name));
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
            let knob = Knob::named(&variable).filter(|knob| self.planned(knob.parameter).is_none());
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

    /// Returns the value that the script uses today: from its first run, else from its source.
    pub(super) fn today(&self, parameter: &str) -> Option<String> {
        let seen = self.found.seen.and_then(|seen| seen.today(parameter));
        seen.or_else(|| of(parameter, self.found.source))
    }

    /// Sets the samples of a step from the command's batch and accumulation, if the adapter's hook counts steps but no samples.
    pub(super) fn count_samples(&mut self) {
        let is_known = |way: &Way| match way {
            Way::Argument(_) => true,
            Way::Target(target) => target.starts_with("env."),
            Way::File(_) | Way::Config => false,
        };
        let Some(planned) = self.planned("batch_size").filter(|planned| is_known(&planned.way)) else { return };
        let batches = self.batches_of_a_step();
        let is_counted = self.has_loader
            || self.found.seen.is_some_and(|seen| seen.counts_samples(planned.today.as_deref(), batches));
        if is_counted || self.found.preset.adapter.is_none() {
            return;
        }
        let samples = samples_of(batches);
        let calls = if self.planned("steps_per_execution").is_some() { " * steps_per_execution" } else { "" };
        self.plan.samples_per_step = Some(samples + calls);
    }

    /// Returns the number of batches that all ranks together accumulate in a step.
    fn batches_of_a_step(&self) -> i64 {
        let names = Knob::of("grad_accumulation").map_or(Names(""), |knob| knob.names);
        let argument = self.argument(names).filter(|argument| argument.kind.takes_value());
        let said = |argument: &Argument| {
            let given = self.plan.words.clone().set(argument, "x").map(|given| given.value);
            given.or_else(|| argument.default.clone())?.trim().parse::<i64>().ok()
        };
        let accumulated = argument.as_ref().and_then(said).filter(|&count| count > 0).unwrap_or(1);
        let ranks = i64::try_from(self.found.command.ranks()).unwrap_or(1);
        if self.found.source.shares_accumulation { accumulated } else { accumulated.saturating_mul(ranks) }
    }
}

/// Returns the expression for the samples of a step with this many batches.
pub(super) fn samples_of(batches: i64) -> String {
    if batches > 1 { format!("batch_size * {batches}") } else { "batch_size".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_tells_what_is_used_today() {
        let all = ["batch_size", "workers", "pin_memory", "precision"];
        for (text, expected) in [
            ("DataLoader(d, batch_size=100)\nDataLoader(t, 32, shuffle=True, num_workers=4)", "32 4 False fp32"),
            ("DataLoader(d, batch_size=args.b, **more)", "- - - fp32"),
            ("TrainingArguments('o', bf16=True, dataloader_num_workers=2)", "8 2 True bf16"),
            ("L.Trainer(precision='16-mixed')\nDataLoader(d)", "1 0 False fp16"),
            ("with torch.autocast('cuda', dtype=torch.bfloat16): pass", "- - - bf16"),
            ("with torch.autocast('cuda', enabled=amp): pass", "- - - -"),
            ("torch.set_float32_matmul_precision('high')", "- - - tf32"),
            ("BATCH = 24\nDataLoader(d, BATCH, num_workers=n)\nn = 1\nn = 2", "24 - False fp32"),
            ("def f(d, batch_size: int = 48):\n  DataLoader(d, batch_size=batch_size)", "48 0 False fp32"),
            ("DataLoader(d, batch_sampler=s)", "- 0 False fp32"),
        ] {
            let source = Source::of(text);
            let today = all.map(|name| of(name, &source).unwrap_or("-".to_owned()));
            assert_eq!(today.join(" "), expected, "{text}");
        }
    }
}
