//! Resolves `adapter` and `apply`: how settings reach an unmodified script.

use std::ops::Range;

use super::collected::Collected;
use super::error::{SourceFile, SpecError, suggestion};
use super::file::StepTable;
use super::located::Located;
use super::parameter::{Definition, Part, part};
use super::step::some_settings;
use crate::model::{Space, Value};
use crate::probe::Template;
use crate::probe::adapter::{Accepts, Applied, By, Needs, TARGETS, Target, TargetError};

/// Returns a warning if an option of the command keeps the adapter's hook from being loaded.
pub(super) fn warnings(step: &StepTable) -> Vec<String> {
    let Some(adapter) = &step.adapter else { return Vec::new() };
    let is_python = |word: &str| word.rsplit('/').next().is_some_and(|name| name.starts_with("python"));
    let ignores = |word: &str| {
        let letters = word.strip_prefix('-').filter(|letters| letters.chars().all(|c| c.is_ascii_alphabetic()));
        // `-m` and `-c` take the rest of the word as their argument.
        letters.is_some_and(|letters| letters.split(['m', 'c']).next().is_some_and(|flags| flags.contains(['I', 'E'])))
    };
    let words = step.command.value.iter().map(|word| word.value.as_str());
    let options = words.skip_while(|word| !is_python(word)).skip(1).take_while(|word| word.starts_with('-'));
    let option = options.into_iter().find(|word| ignores(word));
    let hook = format!("the hook of the adapter `{}`", adapter.0.name);
    let warning = |option| format!("Python leaves PYTHONPATH out with `{option}`, so {hook} cannot come in");
    option.map(warning).into_iter().collect()
}

/// Resolves the target of each parameter, and adds the conditions and rules that follow from the targets.
pub(super) fn resolve(collected: &mut Collected, step: &StepTable) -> Result<Vec<Applied>, SpecError> {
    let mut resolved: Vec<Applied> = Vec::new();
    for definition in &collected.parameters {
        let source = &collected.files[definition.file];
        let Some(text) = &definition.table.apply else {
            if let Some(argument) = &definition.table.argument {
                let hint = "say with `apply` which target changes it later, or put the option into `command`";
                let message = "`argument` without `apply`".to_owned();
                return Err(source.error(argument.span.clone(), message, hint.to_owned()));
            }
            continue;
        };
        let applied = target(source, definition, text)?;
        check_alone(source, text, &applied, &resolved, step)?;
        resolved.push(applied);
    }
    add_conditions(collected, &resolved)?;
    add_rules(collected, &resolved);
    Ok(resolved)
}

fn target(source: &SourceFile, definition: &Definition, text: &Located<String>) -> Result<Applied, SpecError> {
    let target = Target::parse(&text.value).map_err(|error| {
        let hint = match &error {
            TargetError::Unknown(name) => likely_target(name),
            TargetError::NoVariable(_) | TargetError::Variable(_) => {
                "write it like apply = \"env.OMP_NUM_THREADS\"".to_owned()
            }
            TargetError::Reserved(_) => "take another name: a probe has its config in GPUTUNE_CONFIG anyway".to_owned(),
        };
        source.error(text.span.clone(), error.to_string(), hint)
    })?;
    let argument = definition.table.argument.as_ref();
    argument.map_or(Ok(()), |argument| check_argument(source, argument, target))?;
    let argument = argument.map(|argument| argument.value.clone());
    Ok(Applied { parameter: definition.name.value.clone(), name: text.value.clone(), target, argument })
}

/// Checks that the command passes a parameter by the option in its `argument`.
fn check_option(
    source: &SourceFile,
    text: &Located<String>,
    (parameter, option): (&str, &str),
    step: &StepTable,
) -> Result<(), SpecError> {
    let placeholder = format!("{{{parameter}}}");
    let words: Vec<&str> = step.command.value.iter().map(|word| word.value.as_str()).collect();
    let one_word = [option.trim_end_matches('='), "=", &placeholder].concat();
    let passes = |at: usize| {
        words[at] == one_word || (words[at] == placeholder && at.checked_sub(1).is_some_and(|at| words[at] == option))
    };
    let has = |word: &str| Template::parse(word).names().any(|(used, _)| used == parameter);
    if (0..words.len()).filter(|&at| has(words[at])).all(passes) {
        return Ok(());
    }
    let message = format!("the command has {placeholder}, but not as the value of `{option}`, which is its `argument`");
    Err(source.error(text.span.clone(), message, "name the option that it stands behind".to_owned()))
}

/// Checks that a target can have an `argument`: the option sets the first value, and the target changes it during training.
fn check_argument(source: &SourceFile, argument: &Located<String>, target: &Target) -> Result<(), SpecError> {
    let error = |message: String, hint: String| Err(source.error(argument.span.clone(), message, hint));
    if target.needs != Needs::NewLoader || !target.name.starts_with("dataloader.") {
        let message = format!("`{}` has no `argument`: only what a loader takes can be changed later", target.name);
        return error(message, "put the option into `command`, or take `argument` out".to_owned());
    }
    let option = &argument.value;
    if option.is_empty() || option.contains(|c: char| c.is_whitespace() || c == '{' || c == '}') {
        let hint = "write the option alone, such as argument = \"--batch-size\" or argument = \"batch_size=\"";
        return error("`argument` is one word: the script's option".to_owned(), hint.to_owned());
    }
    Ok(())
}

/// Returns the target that was most likely meant: one with the same last word, or with a similar name.
fn likely_target(name: &str) -> String {
    let last = |text: &str| text.rsplit('.').next().unwrap_or_default().replace('-', "_").to_lowercase();
    match TARGETS.iter().find(|target| !last(name).is_empty() && last(target.name) == last(name)) {
        Some(target) => format!("did you mean `{}`?", target.name),
        None if name == "env" => "write it like apply = \"env.OMP_NUM_THREADS\"".to_owned(),
        None => {
            let names: Vec<String> = TARGETS.iter().map(Target::shown_name).collect();
            suggestion(name, names.iter().map(String::as_str))
        }
    }
}

/// Checks that a target has its adapter, and that nothing else sets the same thing.
fn check_alone(
    source: &SourceFile,
    text: &Located<String>,
    applied: &Applied,
    others: &[Applied],
    step: &StepTable,
) -> Result<(), SpecError> {
    let error = |message: String, hint: String| Err(source.error(text.span.clone(), message, hint));
    let Applied { parameter, name, target, .. } = applied;
    if let By::Hook { adapter, .. } = target.by
        && step.adapter.as_ref().is_none_or(|given| given.0.name != adapter)
    {
        let message = format!("`{name}` is set by the adapter `{adapter}`, which [step] does not have");
        return error(message, format!("add adapter = \"{adapter}\" to [step]"));
    }
    let is_plain = target.by == By::Argument;
    let same = |other: &&Applied| {
        let shares = |variable: &&str| other.variables().contains(variable);
        (other.name == *name && !is_plain) || applied.variables().iter().any(shares)
    };
    if let Some(other) = others.iter().find(same) {
        let message = match other.name == *name {
            true => format!("`{}` and `{parameter}` are both applied to `{name}`", other.parameter),
            false => format!("`{}` and `{parameter}` set the same environment variable", other.parameter),
        };
        return error(message, "one parameter can set it: take `apply` out of the other".to_owned());
    }
    let variables = applied.variables();
    if let Some((variable, _)) = step.env.0.iter().find(|(key, _)| variables.contains(&key.value.as_str())) {
        let message =
            format!("`{parameter}` sets the environment variable {0}, and so does [step.env]", variable.value);
        return error(message, "take it out of [step.env]".to_owned());
    }
    let is_used = |word: &Located<String>| Template::parse(&word.value).names().any(|(used, _)| used == parameter);
    if let Some(option) = applied.argument.as_ref().filter(|_| step.command.value.iter().any(is_used)) {
        return check_option(source, text, (parameter, option), step);
    }
    if applied.by() == By::Argument && step.command.value.iter().any(is_used) {
        let message = format!("`{parameter}` would be passed twice: the command has {{{parameter}}} already");
        return error(message, "take one of them out".to_owned());
    }
    Ok(())
}

/// Adds the condition `workers > 0` to loader settings that have no effect without workers.
fn add_conditions(collected: &mut Collected, applied: &[Applied]) -> Result<(), SpecError> {
    const NEED_WORKERS: [&str; 4] = [
        "dataloader.prefetch_factor",
        "dataloader.persistent_workers",
        "dataloader.in_order",
        "dataloader.multiprocessing_context",
    ];
    let Some(workers) = applied.iter().find(|applied| applied.name == "dataloader.num_workers") else { return Ok(()) };
    if always_positive(collected, &workers.parameter)? {
        return Ok(());
    }
    for definition in &mut collected.parameters {
        let table = &mut definition.table;
        let needs = table.apply.as_ref().filter(|target| NEED_WORKERS.contains(&target.value.as_str()));
        if let Some(target) = needs
            && table.when.is_none()
            && table.derive.is_none()
        {
            table.when = Some(Located { value: format!("{} > 0", workers.parameter), span: target.span.clone() });
        }
    }
    Ok(())
}

fn always_positive(collected: &Collected, name: &str) -> Result<bool, SpecError> {
    let Some((source, definition)) = collected.definition(name) else { return Ok(false) };
    Ok(match part(source, definition)? {
        Part::Parameter(parameter) => parameter.value(0).as_f64().is_some_and(|least| least > 0.0),
        Part::Derived(..) => false,
    })
}

/// Adds the rule that the number of pieces of gradient accumulation divides the batch size.
fn add_rules(collected: &mut Collected, applied: &[Applied]) {
    let parameter = |name: &str| applied.iter().find(|applied| applied.name == name);
    let both = parameter("dataloader.batch_size").zip(parameter("torch.grad_accumulation"));
    let Some((batch, pieces)) = both else { return };
    let definition = collected.parameters.iter().find(|definition| definition.name.value == pieces.parameter);
    let place = definition.and_then(|it| Some((it.file, it.table.apply.as_ref()?.span.clone())));
    if let Some((file, span)) = place {
        let value = format!("{} % {} == 0", batch.parameter, pieces.parameter);
        collected.rules.push((file, Located { value, span }));
        collected.implied_rules += 1;
    }
}

/// Checks that each target accepts all settings of its parameter.
pub(super) fn check_settings(collected: &Collected, space: &Space, applied: &[Applied]) -> Result<(), SpecError> {
    for applied in applied {
        let Some((source, definition)) = collected.definition(&applied.parameter) else { continue };
        let full = definition.table.full_precision.iter().map(|full| (full.value.clone(), full.span.clone()));
        let settings: Vec<_> = some_of(definition, space).into_iter().chain(full).collect();
        if let Some((value, span)) = settings.iter().find(|(value, _)| !applied.target.accepts.takes(value)) {
            let message = format!("`{}` does not take {}", applied.name, shown(value));
            return Err(source.error(span.clone(), message, cure(applied, value)));
        }
        let booleans = settings.iter().filter(|(value, _)| matches!(value, Value::Bool(_))).count();
        if applied.target.by == By::Argument && (1..settings.len()).contains(&booleans) {
            let message = format!("`{}` is a switch or has a value, and here it is both", applied.parameter);
            let hint = "give it booleans only (the argument comes and goes), or none";
            return Err(source.error(definition.name.span.clone(), message, hint));
        }
    }
    Ok(())
}

/// Returns settings of a parameter with their places: all listed settings, the ends of a range, or some derived values.
fn some_of(definition: &Definition, space: &Space) -> Vec<(Value, Range<usize>)> {
    let Definition { name, table, .. } = definition;
    if let Some(values) = &table.values {
        return values.value.iter().map(|entry| (entry.value.clone(), entry.span.clone())).collect();
    }
    if let Some(derive) = &table.derive {
        let values = some_settings(space).filter_map(|settings| settings.get(&name.value).cloned());
        return values.map(|value| (value, derive.span.clone())).collect();
    }
    let range = table.range.as_ref().map(|range| range.span.clone());
    let span = range.or_else(|| table.powers_of_two.as_ref().map(|powers| powers.span.clone()));
    let ends = space.parameter_index(&name.value).map(|at| &space.parameters()[at]).map(|parameter| {
        let last = u32::try_from(parameter.len()).unwrap_or(u32::MAX).saturating_sub(1);
        [parameter.value(0), parameter.value(last)]
    });
    ends.into_iter().flatten().zip(std::iter::repeat(span.unwrap_or_else(|| name.span.clone()))).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("\"{}\"", text.escape_debug()),
        other => other.to_string(),
    }
}

/// Suggests what to write instead of a setting that a target does not accept.
fn cure(applied: &Applied, value: &Value) -> String {
    let accepts = applied.target.accepts;
    let takes = format!("it takes {}", accepts.words());
    match (accepts, value) {
        (Accepts::Names(_) | Accepts::AllocatorConfig(_), Value::Text(text)) => {
            let plain = |text: &str| text.replace('_', "-").to_lowercase();
            let meant = accepts.names().iter().find(|name| plain(name) == plain(text));
            meant.map_or(takes, |name| format!("did you mean \"{name}\"?"))
        }
        (Accepts::Booleans, Value::Text(text)) if matches!(text.as_str(), "true" | "false") => {
            format!("write {text} without quotes")
        }
        (Accepts::Integers { .. }, Value::Text(text)) if accepts.takes(&Value::parse(text)) => {
            format!("write {text} without quotes")
        }
        (Accepts::Integers { .. }, Value::Float(_)) => format!("{takes}, without a fraction"),
        _ => takes,
    }
}
