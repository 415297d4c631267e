//! Writes event files for TensorBoard: each trial as a run with its hyperparameters, and the search over its trials.
//!
//! A file is a sequence of records, each an `Event` (`event.proto`). A TFRecord is a length, its masked CRC-32C, the data, and the
//! masked CRC-32C of the data (`record_writer.cc` of TensorFlow). Hyperparameters are in summaries of the plugin `hparams`
//! (`plugin_data.proto` and `api.proto` of TensorBoard).

mod wire;

use std::path::PathBuf;

use super::{Output, Subject};
use crate::model::{Line, Measurement, Outcome, Parameter, Value};
use crate::search::Study;
use wire::{Message, record};

/// The name of every event file. Its time is fixed, so that a second export replaces the first.
const FILE: &str = "events.out.tfevents.0000000000.gputune";

/// Metrics of a trial besides the objective: the name with its unit, and the metric.
const NUMBERS: &[(&str, &str)] = &[
    ("throughput", "throughput"),
    ("step_time_s", "step_time"),
    ("peak_memory_bytes", "peak_memory"),
    ("memory_headroom", "memory_headroom"),
    ("host_peak_memory_bytes", "host_memory"),
];

/// Makes the event files: one for the search and one for each trial.
pub(super) fn make(subject: &Subject<'_>) -> Output {
    let study = &subject.kept.study;
    let names = metric_names(study);
    let mut times = times(&subject.kept.lines);
    times.resize(study.history.trials().len(), (0.0, 0.0));
    let start = times.first().map_or(0.0, |(start, _)| *start);

    let mut search = Events::new(start);
    search.plugin(start, "_hparams_/experiment", Message::new().message(2, &experiment(study, &names, start)));
    let mut files = Vec::new();
    let mut best: Option<f64> = None;
    for (trial, (began, ended)) in study.history.trials().iter().zip(times) {
        let step = u64::from(trial.number);
        let mut run = Events::new(began);
        let settings = study.settings(&trial.config);
        let mut info = Message::new();
        for (name, value) in settings.iter() {
            let is_text = study.space.parameters().iter().any(|p| p.name() == name && kind(p) == Kind::Text);
            info = info.message(1, &Message::new().text(1, name).message(2, &shown(value, is_text)));
        }
        let info = info.text(4, &settings.line()).double(5, began);
        run.plugin(began, "_hparams_/session_start_info", Message::new().message(3, &info));
        if let Some(measurement) = trial.outcome.measurement() {
            for (name, value) in numbers(study, measurement) {
                run.scalar(ended, step, &name, value);
                search.scalar(ended, step, &format!("search/{name}"), value);
            }
            if let Some(throughput) = measurement.throughput {
                for (name, end) in [("throughput_low", throughput.low), ("throughput_high", throughput.high)] {
                    end.into_iter().for_each(|end| search.scalar(ended, step, &format!("search/{name}"), end));
                }
            }
        }
        if let Some(score) = study.objective.score_of(&trial.outcome) {
            best = Some(best.map_or(score, |best| best.max(score)));
        }
        // `score` turns the best score back into the metric: if less is better, it changes the sign.
        if let Some(best) = best {
            let name = format!("search/best_{}", study.objective.metric());
            search.scalar(ended, step, &name, study.objective.score(best));
        }
        // api.proto, Status: 1 is success, 2 failure.
        let status = if matches!(trial.outcome, Outcome::Measured(_)) { 1 } else { 2 };
        let end = Message::new().number(1, status).double(2, ended);
        run.plugin(ended, "_hparams_/session_end_info", Message::new().message(4, &end));
        files.push((PathBuf::from(format!("trial-{:04}", trial.number)).join(FILE), run.bytes));
    }
    files.push((PathBuf::from(FILE), search.bytes));
    Output::Folder(files)
}

/// Returns when each trial began and ended, in seconds of Unix time; from time zero if the journal has no times.
pub(super) fn times(lines: &[Line]) -> Vec<(f64, f64)> {
    let mut now = 0.0;
    let each = lines.iter().map(|line| {
        let ended = line.ended_at.unwrap_or(now + line.elapsed_s);
        now = ended;
        ((ended - line.elapsed_s).max(0.0), ended)
    });
    each.collect()
}

/// Returns the numbers of a measurement: the table's metrics, the goals, the phases, and the numbers that the step reports.
fn numbers(study: &Study, measurement: &Measurement) -> Vec<(String, f64)> {
    let mut found: Vec<(String, f64)> = Vec::new();
    let table = NUMBERS.iter().filter_map(|(name, metric)| Some(((*name).to_owned(), measurement.metric(metric)?)));
    found.extend(table);
    for name in metric_names(study) {
        let number = match study.objective.metric() {
            "score" if name == "score" => study.objective.estimate(measurement),
            _ => study.objective.estimate_of(&name, measurement),
        };
        if let Some(number) = number.filter(|_| !found.iter().any(|(known, _)| *known == name)) {
            found.push((name, number.value));
        }
    }
    let phases = measurement.phase_seconds.iter().map(|(name, seconds)| (format!("phase/{name}_s"), *seconds));
    found.extend(phases);
    let metrics = measurement.metrics.iter().map(|(name, number)| (format!("metric/{name}"), *number));
    found.extend(metrics);
    found.retain(|(_, number)| number.is_finite());
    found
}

/// Returns the metrics of the hyperparameter table: the first metrics of [`NUMBERS`], and the goals.
fn metric_names(study: &Study) -> Vec<String> {
    let mut names: Vec<String> = NUMBERS.iter().take(3).map(|(name, _)| (*name).to_owned()).collect();
    let is_known = |metric: &str| NUMBERS.iter().any(|(_, known)| *known == metric);
    let goals = study.objective.goals().iter().map(|goal| goal.metric.clone()).filter(|metric| !is_known(metric));
    names.extend(goals);
    names.extend(study.objective.weights().map(|_| "score".to_owned()));
    names
}

/// Makes `Experiment` of api.proto: the list of hyperparameters and metrics.
fn experiment(study: &Study, metrics: &[String], start: f64) -> Message {
    let mut experiment = Message::new().double(3, start);
    for parameter in study.space.parameters() {
        let kind = kind(parameter);
        let info = Message::new().text(1, parameter.name()).number(4, kind as u64);
        experiment = experiment.message(4, &domain(parameter, kind, info));
    }
    for metric in metrics {
        let name = Message::new().text(2, metric);
        experiment = experiment.message(5, &Message::new().message(1, &name).text(3, metric));
    }
    experiment
}

/// `DataType` of api.proto.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text = 1,
    Bool = 2,
    Number = 3,
}

fn kind(parameter: &Parameter) -> Kind {
    if parameter.is_ordinal() {
        return Kind::Number;
    }
    let levels = 0..u32::try_from(parameter.len()).unwrap_or(0);
    let is_bool = levels.into_iter().all(|level| matches!(parameter.value(level), Value::Bool(_)));
    if is_bool { Kind::Bool } else { Kind::Text }
}

/// Adds the settings of a parameter: a list, or only the bounds if a numeric parameter has many settings.
fn domain(parameter: &Parameter, kind: Kind, info: Message) -> Message {
    const LISTED: u64 = 64;
    let last = u32::try_from(parameter.len().saturating_sub(1)).unwrap_or(u32::MAX);
    if parameter.len() > LISTED && kind == Kind::Number {
        let bound = |level| parameter.value(level).as_f64().unwrap_or(0.0);
        return info.message(6, &Message::new().double(1, bound(0)).double(2, bound(last)));
    }
    let value = |list: Message, level| list.message(1, &shown(&parameter.value(level), kind == Kind::Text));
    info.message(5, &(0..=last).fold(Message::new(), value))
}

/// Makes a `Value` of Google's struct.proto.
fn shown(value: &Value, is_text: bool) -> Message {
    match (value, value.as_f64()) {
        (value, _) if is_text => Message::new().text(3, &value.to_string()),
        (Value::Bool(is), _) => Message::new().number(4, u64::from(*is)),
        (_, Some(number)) => Message::new().double(2, number),
        (value, None) => Message::new().text(3, &value.to_string()),
    }
}

/// The contents of an event file.
struct Events {
    bytes: Vec<u8>,
}

impl Events {
    fn new(time: f64) -> Self {
        let version = Message::new().double(1, time).text(3, "brain.Event:2");
        Self { bytes: record(version.bytes()) }
    }

    fn summary(&mut self, time: f64, step: u64, value: &Message) {
        let event = Message::new().double(1, time).number(2, step).message(5, &Message::new().message(1, value));
        self.bytes.extend(record(event.bytes()));
    }

    fn scalar(&mut self, time: f64, step: u64, tag: &str, value: f64) {
        self.summary(time, step, &Message::new().text(1, tag).float(2, value));
    }

    /// Adds data of the plugin for hyperparameters.
    fn plugin(&mut self, time: f64, tag: &str, content: Message) {
        // The version of the data is 0, which is also the default.
        let plugin = Message::new().text(1, "hparams").message(2, &content);
        let metadata = Message::new().message(1, &plugin);
        self.summary(time, 0, &Message::new().text(1, tag).message(9, &metadata));
    }
}
