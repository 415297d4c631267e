//! A prober that answers from a recorded table instead of running anything.
//!
//! A table is a CSV file. The columns before `status` are parameters, `status` is `ok` or a failure, and `value` is the
//! objective. Numbers in columns whose names begin with `x_` are further metrics. `x_step_s`, `x_data_wait_s` (seconds
//! per step), `x_peak_memory_bytes` and `x_memory_capacity_bytes` also fill the measurement's own fields. Configs that
//! are not in the table are not in its space.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

use super::measuring::window::DATA_WAIT;
use super::{Job, ProbeError, Prober, Watch, stats};
use crate::model::{
    Config, Estimate, Failure, Line, Measurement, Memory, MemoryRole, Objective, Outcome, Parameter, Settings, Space,
    SpaceError, Timing, Value,
};

/// A table of configs with their outcomes.
#[derive(Debug, Clone, Default)]
pub struct Table {
    names: Vec<String>,
    /// For each row, its values by column (`None` for an empty cell) and its outcome.
    rows: Vec<(Vec<Option<Value>>, Outcome)>,
}

/// The reason why a file is not a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The file cannot be read as CSV.
    #[error("the table cannot be read")]
    Csv(#[from] csv::Error),
    /// A column is missing.
    #[error("the table has no column `{0}`; its columns are {1}")]
    NoColumn(&'static str, String),
    /// No column comes before `status`.
    #[error("the table has no parameters: no column stands in front of `status`")]
    NoParameters,
    /// The table has no row.
    #[error("the table has no rows")]
    Empty,
    /// A successful row has no number. Rows count from 1 after the header, without empty rows.
    #[error("row {0}: {1:?} in the column `value` is no finite number")]
    NotANumber(usize, String),
    /// A row ends before its status, or has cells after the last column.
    #[error("row {row} has {found} cells, and the header has {expected}")]
    Cells {
        /// The row, counted from 1 after the header. Empty rows do not count.
        row: usize,
        /// The number of cells in the row.
        found: usize,
        /// The number of columns.
        expected: usize,
    },
    /// The columns do not make a space.
    #[error("the table's columns make no space")]
    Space(#[from] SpaceError),
}

impl TableError {
    /// Returns a remedy.
    pub fn cure(&self) -> &'static str {
        match self {
            Self::Csv(_) | Self::Cells { .. } => {
                "a table is a CSV file in UTF-8: a header, then one row for each config with a cell for each column"
            }
            Self::NoColumn { .. } | Self::NoParameters => {
                "columns up to `status` are parameters, `status` is `ok` or a failure, and `value` is the number: \
                 batch_size,workers,status,value"
            }
            Self::Empty => "record at least one config: one row of a CSV table, or one probe of a journal",
            Self::NotANumber { .. } => "give a finite number, or another status such as `runtime_fail`",
            Self::Space(_) => "give every column in front of `status` a name of its own",
        }
    }
}

impl Table {
    /// Reads a CSV table.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn from_csv(text: impl Read) -> Result<Self, TableError> {
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(text);
        let headers = reader.headers()?.clone();
        let column = |column: &'static str| {
            let place = headers.iter().position(|header| header == column);
            place.ok_or_else(|| TableError::NoColumn(column, summary(&headers)))
        };
        let (status, value) = (column("status")?, column("value")?);
        if status == 0 {
            return Err(TableError::NoParameters);
        }
        let mut table = Self { names: headers.iter().take(status).map(str::to_owned).collect(), rows: Vec::new() };
        for record in reader.records() {
            let record = record?;
            if record.iter().all(str::is_empty) {
                continue;
            }
            let row = table.rows.len() + 1;
            let Some(recorded) = record.get(status).filter(|_| record.len() <= headers.len()) else {
                return Err(TableError::Cells { row, found: record.len(), expected: headers.len() });
            };
            let values =
                record.iter().take(status).map(|text| (!text.is_empty()).then(|| Value::parse(text))).collect();
            let outcome = match recorded.to_ascii_lowercase().as_str() {
                "ok" => {
                    let text = record.get(value).unwrap_or_default();
                    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
                    let number = number.ok_or_else(|| TableError::NotANumber(row, text.to_owned()))?;
                    Outcome::Measured(beside(measurement(number), &headers, &record))
                }
                "oom_fail" | "out_of_memory" | "oom" => {
                    Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new("as recorded") }
                }
                "" => Outcome::Crashed(Failure::new("recorded without a status")),
                _ => Outcome::Crashed(Failure::new(format!("recorded as {recorded}"))),
            };
            table.rows.push((values, outcome));
        }
        if table.rows.is_empty() { Err(TableError::Empty) } else { Ok(table) }
    }

    /// Makes a table from the searched configs of a journal, without derived values. Leaves out rounds, because they only repeat
    /// configs.
    ///
    /// # Errors
    /// The journal has no trial.
    pub fn from_journal(lines: &[Line], derived: &[String], objective: &Objective) -> Result<Self, TableError> {
        let mut table = Self::default();
        // A trial of the unmodified script is not a config of the table.
        let lines = || lines.iter().filter(|line| line.as_it_is.is_none());
        for name in lines().flat_map(|line| line.config.iter().map(|(name, _)| name)) {
            if !table.names.iter().any(|known| known == name) && !derived.iter().any(|known| known == name) {
                table.names.push(name.to_owned());
            }
        }
        let searched = lines().filter(|line| !line.purpose.is_repeated());
        for line in searched {
            let values = table.names.iter().map(|name| line.config.get(name).cloned()).collect();
            let estimate = line.outcome.measurement().and_then(|measurement| objective.estimate(measurement));
            let outcome = match (&line.outcome, estimate) {
                (Outcome::Measured(_), Some(estimate)) if objective.score_of(&line.outcome).is_some() => {
                    let measured = line.outcome.measurement().cloned().unwrap_or_default();
                    // The value of a single metric is recorded as the throughput.
                    let is_one = !objective.is_pareto() && objective.weights().is_none();
                    let throughput =
                        if is_one { Some(estimate.value) } else { measured.throughput.map(|measured| measured.value) };
                    let mut kept = measurement(estimate.value);
                    kept.throughput = throughput.map(Estimate::point);
                    kept.phase_seconds = measured.phase_seconds;
                    kept.ranks = measured.ranks;
                    kept.metrics = measured.metrics;
                    kept.timing.step_seconds = measured.timing.step_seconds;
                    kept.memory.peak_bytes = measured.memory.peak_bytes;
                    kept.memory.capacity_bytes = measured.memory.capacity_bytes;
                    kept.machine.host_peak_bytes = measured.machine.host_peak_bytes;
                    kept.machine.gpus = measured.machine.gpus;
                    kept.machine.host = measured.machine.host;
                    Outcome::Measured(kept)
                }
                (Outcome::Measured(_), _) => Outcome::Crashed(Failure::new("recorded as infeasible")),
                (outcome, _) => outcome.clone(),
            };
            table.rows.push((values, outcome));
        }
        if table.rows.is_empty() { Err(TableError::Empty) } else { Ok(table) }
    }

    /// Returns the space of the table's configs, and a prober that answers from the table.
    ///
    /// `grows_memory` lists the parameters for which a lack of memory rules out larger values. A name such as
    /// `batch_size` does not imply this rule, because a table need not follow it.
    ///
    /// # Errors
    /// The columns do not make a space.
    pub fn into_replay(self, grows_memory: &[String]) -> Result<(Space, Replay), TableError> {
        let absent = |column: usize| self.rows.iter().any(|(values, _)| values[column].is_none());
        let parameters: Vec<Parameter> = self
            .names
            .iter()
            .enumerate()
            .map(|(column, name)| {
                let mut settings = distinct(self.rows.iter().filter_map(|(values, _)| values[column].clone()));
                if absent(column) {
                    settings.push(Value::from(""));
                }
                let role = if grows_memory.contains(name) { MemoryRole::Grows } else { MemoryRole::Unknown };
                Parameter::values(usable_name(name, column), of_one_kind(settings)).memory(role)
            })
            .collect();
        let open = Space::new(parameters)?;
        let mut answers: HashMap<Config, Vec<Outcome>> = HashMap::new();
        for (values, outcome) in self.rows {
            let settings: Settings = open
                .parameters()
                .iter()
                .zip(values)
                .map(|(parameter, value)| {
                    let value = value.unwrap_or_else(|| Value::from(""));
                    let as_text = Value::Text(value.to_string());
                    (parameter.name(), if parameter.level(&value).is_some() { value } else { as_text })
                })
                .collect();
            if let Ok(config) = open.locate(&settings) {
                answers.entry(config).or_default().push(outcome);
            }
        }
        let answers: Arc<HashMap<Config, Outcome>> =
            Arc::new(answers.into_iter().map(|(config, outcomes)| (config, together(outcomes))).collect());
        let known = Arc::clone(&answers);
        let space = open.restricted(move |config| known.contains_key(config));
        Ok((space, Replay { answers }))
    }
}

/// Returns the names of the columns for a message, escaped and shortened in case the file is not a table.
fn summary(headers: &csv::StringRecord) -> String {
    const SHOWN: usize = 12;
    const LONGEST: usize = 30;
    let shown = |header: &str| format!("`{}`", header.chars().take(LONGEST).collect::<String>().escape_debug());
    let mut names: Vec<String> = headers.iter().take(SHOWN).map(shown).collect();
    if headers.len() > SHOWN {
        names.push(format!("and {} more", headers.len() - SHOWN));
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Makes all values numbers of one kind if all are numbers, else strings: `0` next to `auto` is a string.
fn of_one_kind(values: Vec<Value>) -> Vec<Value> {
    let numbers: Option<Vec<f64>> = values.iter().map(Value::as_f64).collect();
    let is_whole = values.iter().all(|value| value.as_i64().is_some());
    let is_switch = values.iter().all(|value| matches!(value, Value::Bool(_)));
    match numbers {
        _ if is_whole || is_switch => values,
        // The sum turns -0.0 into 0.0.
        Some(numbers) => distinct(numbers.into_iter().map(|number| Value::Float(number + 0.0))),
        None => distinct(values.iter().map(|value| Value::Text(value.to_string()))),
    }
}

fn distinct(values: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    values.into_iter().filter(|value| seen.insert(value.clone())).collect()
}

/// Returns a column's name without the characters that a parameter's name cannot have.
fn usable_name(name: &str, column: usize) -> String {
    let usable: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let is_usable = usable == name && Space::new([Parameter::values(name, [0])]).is_ok();
    if is_usable { usable } else { format!("column{column}_{usable}") }
}

fn measurement(value: f64) -> Measurement {
    Measurement {
        throughput: Some(Estimate::point(value)),
        unit: "recorded".to_owned(),
        timing: Timing { steps: 1, ..Default::default() },
        ..Measurement::default()
    }
}

/// Combines the rows of one config. If rows succeeded, returns their means, with the other data of the first of them.
/// Otherwise returns the first failure.
fn together(outcomes: Vec<Outcome>) -> Outcome {
    let values: Vec<f64> = outcomes.iter().filter_map(|o| o.measurement()?.metric("throughput")).collect();
    let first = outcomes.iter().find_map(|outcome| outcome.measurement()).cloned();
    match first {
        Some(first) => Outcome::Measured(Measurement {
            throughput: stats::mean(&values).map(Estimate::point),
            metrics: means(outcomes.iter().filter_map(Outcome::measurement)),
            ..first
        }),
        None => outcomes.into_iter().next().unwrap_or(Outcome::Interrupted),
    }
}

/// A prober that answers from a table.
#[derive(Debug, Clone)]
pub struct Replay {
    answers: Arc<HashMap<Config, Outcome>>,
}

impl Replay {
    /// Returns the best score in the table under an objective.
    pub fn optimum(&self, objective: &Objective) -> Option<f64> {
        self.answers.values().filter_map(|outcome| objective.score_of(outcome)).max_by(f64::total_cmp)
    }

    /// Returns the scores of each goal for all feasible configs, in a fixed order.
    pub fn scores(&self, objective: &Objective) -> Vec<Vec<f64>> {
        let mut rows: Vec<Vec<f64>> =
            self.answers.values().filter_map(|outcome| objective.scores_of(outcome)).collect();
        rows.sort_by(|a, b| a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).fold(Ordering::Equal, Ordering::then));
        rows
    }

    /// Returns the table's outcome of a config.
    pub fn answer(&self, config: &Config) -> Option<&Outcome> {
        self.answers.get(config)
    }
}

impl Prober for Replay {
    fn probe(&mut self, job: &Job, _watch: Watch<'_>) -> Result<Outcome, ProbeError> {
        let absent = || Outcome::Rejected(Failure::new("not in the table"));
        Ok(self.answer(&job.config).cloned().unwrap_or_else(absent))
    }
}

/// Columns with the same meaning as a metric.
const SAME: &[(&str, &str)] = &[("x_power_w", "power"), ("x_avg_power_w", "power")];

/// Returns the numbers of `x_` columns as metrics, under the column's name and its other names in [`SAME`].
fn metrics(headers: &csv::StringRecord, record: &csv::StringRecord) -> BTreeMap<String, f64> {
    let cells = headers.iter().zip(record).filter(|(name, _)| name.starts_with("x_"));
    let numbers = cells.filter_map(|(name, text)| Some((name, text.parse::<f64>().ok().filter(|n| n.is_finite())?)));
    let named = numbers.flat_map(|(name, number)| {
        let same = SAME.iter().filter(move |(column, _)| *column == name).map(|(_, same)| *same);
        [name].into_iter().chain(same).map(move |name| (name.to_owned(), number))
    });
    named.collect()
}

/// Adds the numbers of further columns to a measurement, if the row has them.
fn beside(mut measurement: Measurement, headers: &csv::StringRecord, record: &csv::StringRecord) -> Measurement {
    let number = |column: &str| -> Option<f64> {
        let place = headers.iter().position(|header| header == column)?;
        record.get(place)?.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
    };
    let bytes = |column: &str| number(column).map(|bytes| bytes as u64);
    measurement.timing.step_seconds = number("x_step_s");
    measurement.phase_seconds.extend(number("x_data_wait_s").map(|wait| (DATA_WAIT.to_owned(), wait)));
    measurement.memory.peak_bytes = bytes("x_peak_memory_bytes");
    measurement.memory.capacity_bytes = bytes("x_memory_capacity_bytes");
    measurement.metrics = metrics(headers, record);
    measurement
}

/// Returns the mean of each metric over the rows of one config that have the metric.
fn means<'m>(measurements: impl Iterator<Item = &'m Measurement>) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, number) in measurements.flat_map(|measurement| &measurement.metrics) {
        all.entry(name).or_default().push(*number);
    }
    all.into_iter().filter_map(|(name, numbers)| Some((name.to_owned(), stats::mean(&numbers)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Direction, Goal, MachineUse, Purpose, Walk};

    fn read(text: &str) -> (Space, Replay) {
        Table::from_csv(text.as_bytes()).unwrap().into_replay(&[]).unwrap()
    }

    #[test]
    fn columns_up_to_status_are_parameters_and_rows_are_the_space() {
        let text = "batch,mode,status,value,value_std\n8,a,ok,10,1\n16,a,ok,20,\n16,b,oom_fail,,\n8,b,compile_fail,,\n";
        let (space, replay) = read(text);
        assert_eq!(space.parameters().iter().map(Parameter::name).collect::<Vec<_>>(), ["batch", "mode"]);
        assert_eq!((Walk::new(&space).count(), replay.optimum(&Objective::default())), (4, Some(20.0)));
        let (space, _) = read("x,y,status,value\n1,1,ok,1\n2,2,ok,2\n");
        assert_eq!((space.raw_size(), Walk::new(&space).count()), (Some(4), 2), "others are not in the space");
    }

    #[test]
    fn further_columns_with_known_names_are_reported() {
        let text = "batch,status,value,x_step_s,x_data_wait_s,x_peak_memory_bytes,x_memory_capacity_bytes,x_load\n\
                    8,ok,80,0.1,0.04,700,1000,3\n16,ok,100,,,,,\n32,ok,90,-1,x,inf,,\n";
        let (space, replay) = read(text);
        let told = Walk::new(&space).map(|config| replay.answer(&config).unwrap().measurement().unwrap());
        let told: Vec<&Measurement> = told.collect();
        assert_eq!((told[0].timing.step_seconds, told[0].phase_seconds["data_wait"]), (Some(0.1), 0.04));
        assert_eq!((told[0].memory.peak_bytes, told[0].memory.capacity_bytes), (Some(700), Some(1000)));
        for silent in &told[1..] {
            assert_eq!((silent.timing.step_seconds, silent.memory.peak_bytes), (None, None));
            assert!(silent.phase_seconds.is_empty());
        }
        let (space, replay) = read("a,status,value,x_avg_power_w,x_note\n1,ok,10,100,\"q\"\n1,ok,30,300,\n2,ok,5,,\n");
        let metric = |level: i64, name: &str| {
            let config = space.locate(&[("a", Value::from(level))].into_iter().collect()).unwrap();
            replay.answer(&config).unwrap().measurement().unwrap().metric(name)
        };
        assert_eq!(metric(1, "x_avg_power_w"), Some(200.0));
        assert_eq!(metric(1, "energy_per_sample"), Some(10.0), "power tells the energy of a sample");
        assert_eq!(metric(2, "energy_per_sample"), None);
        assert_eq!(metric(1, "x_note"), None);
    }

    #[test]
    fn a_journal_keeps_each_metric_of_a_front() {
        let measured = Measurement {
            throughput: Some(Estimate::interval(500.0, 490.0, 510.0)),
            ranks: Some(2),
            metrics: [("loss".to_owned(), 0.5)].into_iter().collect(),
            machine: MachineUse { host_peak_bytes: Some(3), ..Default::default() },
            ..Measurement::default()
        };
        let line = Line {
            trial: 1,
            purpose: Purpose::Search,
            as_it_is: None,
            config: [("x".to_owned(), Value::from(1))].into_iter().collect(),
            why: None,
            expected_gain: None,
            ended_at: None,
            slot: None,
            elapsed_s: 1.0,
            outcome: Outcome::Measured(measured),
        };
        let goals = ["loss", "throughput"].map(|metric| Goal::known(metric).unwrap());
        let front = Objective::pareto(goals).unwrap();
        let loss = Objective::new("loss", Direction::Minimize);
        for (objective, throughput) in [(&front, 500.0), (&loss, 0.5)] {
            let table = Table::from_journal(std::slice::from_ref(&line), &[], objective).unwrap();
            let (space, replay) = table.into_replay(&[]).unwrap();
            let told = replay.answer(&space.first().unwrap()).unwrap().measurement().unwrap();
            assert_eq!(told.throughput.unwrap().value, throughput);
            assert_eq!((told.metrics["loss"], told.machine.host_peak_bytes, told.ranks), (0.5, Some(3), Some(2)));
        }
    }
}
