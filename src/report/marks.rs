//! Labels each trial with a word for its rank, and lists why trials failed.

use super::escape::plain;
use super::row::shown_result;
use super::screen::Tone;
use crate::model::{Config, Judgement, Outcome, Trial};
use crate::search::Study;

/// The trials that get a mark.
pub(super) struct Marks {
    /// The number of the winner's last searched trial.
    winner: Option<u32>,
    /// The numbers of trials that tie with the winner.
    tied: Vec<u32>,
    /// The numbers of the trials on the front, if the objective is a front.
    front: Vec<u32>,
}

impl Marks {
    pub(super) fn of(study: &Study) -> Self {
        let last = |config: &Config| {
            let searched = study.history.of(config).filter(|trial| !trial.purpose.is_repeated());
            searched.last().map(|trial| trial.number)
        };
        if study.objective.is_pareto() {
            let front = study.front();
            let winner = front.iter().find(|member| member.is_recommended).and_then(|member| last(&member.config));
            let front = front.iter().filter_map(|member| last(&member.config)).collect();
            return Self { winner, tied: Vec::new(), front };
        }
        let best = study.best();
        let winner = best.as_ref().and_then(|best| last(&best.winner.config));
        let tied = best.iter().flat_map(|best| &best.ties).filter_map(|tie| last(&tie.config)).collect();
        Self { winner, tied, front: Vec::new() }
    }

    /// Returns the mark of a trial.
    pub(super) fn mark(&self, study: &Study, trial: &Trial) -> (String, Tone) {
        let number = trial.number;
        let is_baseline = study.baseline.as_ref() == Some(&trial.config);
        let (word, tone) = match &trial.outcome {
            _ if self.winner == Some(number) => ("best", Tone::Good),
            _ if is_baseline && self.tied.contains(&number) => ("baseline, tied", Tone::Note),
            _ if self.tied.contains(&number) => ("tied", Tone::Note),
            _ if self.front.contains(&number) => ("front", Tone::Note),
            Outcome::Measured(_) => match study.judge(trial) {
                Some(Judgement::Infeasible { .. }) => ("not feasible", Tone::Bad),
                _ => ("", Tone::Plain),
            },
            outcome => (outcome.name(), Tone::Bad),
        };
        let word = word.replace('_', " ");
        match (is_baseline, word.as_str()) {
            (true, "") => ("baseline".to_owned(), Tone::Note),
            (true, word) if !word.starts_with("baseline") && tone == Tone::Bad => (format!("baseline, {word}"), tone),
            _ => (word, tone),
        }
    }
}

/// The columns in front of the reasons.
pub(super) const LABEL: usize = 15;

/// Lists why trials failed or are infeasible, each reason once: `out of memory #7, #9: CUDA out of memory ...`.
pub(super) fn reasons(study: &Study, trials: &[&Trial]) -> Vec<String> {
    /// The most reasons in the list; the table of trials has the rest.
    const REASONS: usize = 6;
    /// The most trial numbers for each reason.
    const NAMED: usize = 6;
    let mut known: Vec<(&str, String, Vec<u32>)> = Vec::new();
    for trial in trials {
        let (kind, reason) = match (&trial.outcome, study.judge(trial)) {
            (_, Some(Judgement::Infeasible { reason, .. })) => ("not feasible", reason),
            (Outcome::Measured(_) | Outcome::Interrupted, _) => continue,
            (outcome, _) => {
                let whole = shown_result(&study.objective, trial);
                let name = outcome.name().replace('_', " ");
                let reason = whole.strip_prefix(&format!("{name}: ")).map(str::to_owned).unwrap_or(whole);
                (outcome.name(), reason)
            }
        };
        match known.iter_mut().find(|(other, words, _)| *other == kind && *words == reason) {
            Some((.., numbers)) => numbers.push(trial.number),
            None => known.push((kind, reason, vec![trial.number])),
        }
    }
    let more = known.len().saturating_sub(REASONS);
    let mut lines = Vec::new();
    for (kind, reason, numbers) in known.into_iter().take(REASONS) {
        let named: Vec<String> = numbers.iter().take(NAMED).map(|number| format!("#{number}")).collect();
        let others = if numbers.len() > NAMED { format!(" and {} more", numbers.len() - NAMED) } else { String::new() };
        lines.push(format!("{:LABEL$}{}{others}: {}", kind.replace('_', " "), named.join(", "), plain(&reason)));
    }
    if more > 0 {
        lines.push(format!("{:LABEL$}for {more} more reasons see trials.csv", ""));
    }
    lines
}
