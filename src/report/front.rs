//! Writes the front as a table, and lines that compare the best config with the baseline and the rest of the front.

use std::fmt::Write as _;

use super::escape::plain;
use super::layout::{Column, lay_out};
use super::row::{shown_metric, shown_together, sure_ratio};
use super::screen::{Screen, Tone, wrap};
use crate::model::Parameter;
use crate::search::{Best, OnFront, Part, Study};

/// The most rows of a front's table.
const ROWS: usize = 20;

/// Writes a table of the configs of the front, with their value of each metric. The best config in the first metric
/// comes first. Parameters that are equal in all configs are listed below the table. If there are too many rows, an
/// even selection is shown. Returns an empty string if the objective is no front.
pub fn front_table(study: &Study, screen: impl Into<Screen>) -> String {
    if !study.objective.is_pareto() {
        return String::new();
    }
    let screen = screen.into();
    let front = study.front();
    let Rows { names, header, rows } = Rows::of(study, &front);
    let columns = header.into_iter().enumerate().map(|(at, header)| {
        // A narrow table leaves out parameters, but no metrics.
        let dispensable = if (1..=names).contains(&at) { 1 } else { 0 };
        let mut column = Column::new(plain(&header), at > 0, dispensable);
        let texts = spread(rows.len(), ROWS).into_iter().filter_map(|row| rows.get(row)?.get(at));
        let tone = |text: &str| if text == "best" { Tone::Good } else { Tone::Plain };
        column.cells = texts.map(|text| (plain(text), tone(text))).collect();
        column
    });
    let laid_out = lay_out(columns.collect(), screen);
    let mut text = laid_out.text;
    let mut below = Vec::new();
    below.extend(same_in_all(study, &front).map(|same| format!("in all: {}", plain(&same))));
    if !laid_out.left_out.is_empty() {
        below.push(format!("no room for {}: see best.json", laid_out.left_out.join(", ")));
    }
    if front.len() > ROWS {
        below.push(format!("... and {} more in best.json", front.len() - ROWS));
    }
    for line in below.iter().flat_map(|line| wrap(line, screen.columns)) {
        let _ = write!(text, "\n{line}");
    }
    text
}

pub(super) struct Rows {
    /// The number of parameters that differ.
    pub(super) names: usize,
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Rows {
    pub(super) fn of(study: &Study, front: &[OnFront]) -> Self {
        let differing = differing(study, front);
        let mut header = vec!["front".to_owned()];
        header.extend(differing.iter().map(|name| (*name).to_owned()));
        header.extend(study.objective.goals().iter().map(|goal| goal.metric.clone()));
        let rows = front.iter().map(|member| {
            let settings = study.settings(&member.config);
            let mut row = vec![mark(study, member).to_owned()];
            row.extend(differing.iter().map(|it| settings.get(it).map_or_else(|| "-".to_owned(), ToString::to_string)));
            let numbers = study.objective.goals().iter().zip(&member.numbers);
            row.extend(numbers.map(|(goal, number)| shown_metric(&goal.metric, *number, &member.measurement)));
            row
        });
        Self { names: differing.len(), rows: rows.collect(), header }
    }
}

fn mark(study: &Study, member: &OnFront) -> &'static str {
    match (member.is_recommended, study.baseline.as_ref() == Some(&member.config)) {
        (true, _) => "best",
        (false, true) => "baseline",
        (false, false) => "",
    }
}

/// Returns the parameters that differ between configs of the front.
fn differing<'s>(study: &'s Study, front: &[OnFront]) -> Vec<&'s str> {
    let differs = |at: usize| {
        let mut levels = front.iter().map(|member| member.config.level(at));
        let first = levels.next();
        levels.any(|level| Some(level) != first)
    };
    let parameters = study.space.parameters().iter().map(Parameter::name).enumerate();
    parameters.filter(|(at, _)| differs(*at)).map(|(_, name)| name).collect()
}

/// Returns the settings that are equal in all configs of the front; `None` if every parameter differs.
pub(super) fn same_in_all(study: &Study, front: &[OnFront]) -> Option<String> {
    let settings = study.settings(&front.first()?.config);
    let differing = differing(study, front);
    let is_same = |name: &str| study.space.parameter_index(name).is_some() && !differing.contains(&name);
    let same = settings.iter().filter(|(name, _)| is_same(name));
    let words: Vec<String> = same.map(|(name, value)| format!("{name}={value}")).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Selects at most `most` indices of a list of `count` items, spread evenly and including both ends.
fn spread(count: usize, most: usize) -> Vec<usize> {
    if count <= most {
        return (0..count).collect();
    }
    (0..most).map(|at| at * (count - 1) / (most - 1)).collect()
}

/// Returns lines that compare the best config with the baseline and show the front's ends; empty with a single goal.
pub(super) fn front_lines(study: &Study, best: &Best) -> Vec<String> {
    let mut lines = Vec::new();
    if study.objective.goals().len() < 2 {
        return lines;
    }
    let is_baseline = study.baseline.as_ref() == Some(&best.winner.config);
    let times = |part: Part| Some(format!("{} {}", part.goal.metric, sure_ratio(part.times_better?)));
    let times: Vec<String> = study.parts(&best.winner.config).into_iter().filter_map(times).collect();
    if !times.is_empty() && !is_baseline {
        lines.push(format!("better    {}", times.join(", ")));
    }
    if !study.objective.is_pareto() {
        return lines;
    }
    let front = study.front();
    let end = |member: &OnFront| {
        let numbers: Vec<_> = member.numbers.iter().map(|number| Some(*number)).collect();
        shown_together(&study.objective, None, &numbers, &member.measurement)
    };
    match front.as_slice() {
        [first, .., last] => {
            lines.push(format!("front     {} configs, from {}", front.len(), end(first)));
            lines.push(format!("          to {}", end(last)));
            lines.push("          the best named is the nearest to the best of each metric".to_owned());
        }
        _ => lines.push("front     one config is the best in every metric".to_owned()),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn rows_that_are_shown_have_both_ends() {
        assert_eq!(spread(3, 5), [0, 1, 2]);
        assert_eq!(spread(11, 5), [0, 2, 5, 7, 10]);
        assert_eq!(spread(0, 5), Vec::<usize>::new());
    }
}
