//! Compares the bottlenecks and the accounts of the baseline and of the best config.

use serde::{Deserialize, Serialize};

use super::screen::{fits, fitting, labelled};
use crate::diagnosis::{self, Account, Around, Evidence, Line, Verdict};
use crate::model::{Config, Measurement, quantity::show_seconds};
use crate::search::{Ranked, Study};

/// The bottleneck of a config, according to the config's own measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldBack {
    /// The name of the cause.
    pub cause: String,
    /// The name of the cause on the screen.
    pub title: String,
    /// The confidence, from 0 to 1.
    pub sureness: f64,
    /// The largest possible speedup without this bottleneck, if known.
    pub worth: Option<f64>,
    /// The evidence.
    pub evidence: Vec<String>,
    /// The lines of the script that cause the bottleneck, if the config was observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Parameters that are worth searching.
    pub open: Vec<String>,
    /// Remedies that no parameter can apply.
    pub by_hand: Vec<String>,
}

/// The bottlenecks of a search: of the baseline and of the best config.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// The bottleneck of the baseline.
    pub was: Option<HeldBack>,
    /// The bottleneck of the best config.
    pub is: Option<HeldBack>,
    /// The time of each branch for the baseline and for the best config.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub account: Vec<Spending>,
    /// The work that the account covers: `1,000 samples`, else `1,000 steps`. Empty without an account.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub account_of: String,
}

impl HeldBack {
    fn of(evidence: &Evidence, verdict: &Verdict) -> Option<Self> {
        let top = verdict.top()?;
        Some(Self {
            cause: top.cause.name.to_owned(),
            title: top.cause.title.to_owned(),
            sureness: verdict.sureness,
            worth: top.found.worth.times,
            evidence: top.found.clues.iter().map(|clue| clue.text.clone()).collect(),
            lines: diagnosis::lines_of(top.cause, evidence).iter().map(Line::words).collect(),
            open: top.openings(evidence).into_iter().map(|opening| opening.parameter.to_owned()).collect(),
            by_hand: top.cures(evidence).into_iter().map(|cure| format!("{}; {}", cure.what, cure.why)).collect(),
        })
    }

    /// Returns the title without its kind: `a single-threaded loader` of `data starvation: a single-threaded loader`.
    fn name(&self) -> &str {
        self.title.split_once(": ").map_or(self.title.as_str(), |(_, name)| name)
    }

    fn with_confidence(&self) -> String {
        format!("{} ({})", self.name(), self.how_sure())
    }

    /// Returns the bottleneck in words, with its confidence and the speedup that its removal can bring.
    fn with_worth(&self) -> String {
        match self.worth.filter(|times| *times >= 1.05) {
            Some(times) => format!("{} ({}, worth up to {times:.1}x)", self.name(), self.how_sure()),
            None => self.with_confidence(),
        }
    }

    fn place(&self) -> Option<String> {
        self.lines.first().map(|line| format!("in {line}"))
    }

    /// Returns what helps: a remedy, or the parameters to search.
    fn help(&self) -> Option<String> {
        let search = || (!self.open.is_empty()).then(|| format!("search {}", self.open.join(", ")));
        self.by_hand.first().cloned().or_else(search)
    }

    fn how_sure(&self) -> &'static str {
        diagnosis::SURE.iter().find(|(least, _)| self.sureness >= *least).map_or("", |(_, words)| *words)
    }
}

impl Bottleneck {
    /// Returns the bottlenecks of a study; `None` if neither the baseline nor the best config shows one.
    pub fn of(study: &Study) -> Option<Self> {
        let best = study.best()?;
        let baseline = study.baseline.as_ref().and_then(|config| {
            let measured = study.history.of(config).find_map(|trial| trial.outcome.measurement())?;
            held_back(study, config, measured)
        });
        let Ranked { config, measurement, .. } = &best.winner;
        let is = held_back(study, config, measurement);
        let (account, account_of) = Spending::of(study).unwrap_or_default();
        let limit = Self { was: baseline, is, account, account_of: account_of.to_owned() };
        (limit.was.is_some() || limit.is.is_some()).then_some(limit)
    }

    /// Returns the lines for the terminal. Each line begins with a label or spaces, ten characters wide.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.limit_lines();
        lines.extend(Spending::lines(&self.account, &self.account_of));
        lines
    }

    /// Returns the lines of [`lines`](Self::lines) without the account.
    pub(super) fn limit_lines(&self) -> Vec<String> {
        let place = |held: &Option<HeldBack>| held.as_ref().and_then(HeldBack::place);
        let mut texts: Vec<String> = Vec::new();
        match (&self.was, &self.is) {
            (Some(was), Some(is)) if was.cause == is.cause => {
                texts.push(format!("before and now: {}", is.with_worth()));
                texts.extend(is.place().or_else(|| was.place()));
            }
            (was, is) => {
                texts.extend(was.as_ref().map(|was| format!("before: {}", was.with_confidence())));
                texts.extend(place(was));
                texts.extend(is.as_ref().map(|is| format!("now: {}", is.with_worth())));
                texts.extend(place(is));
            }
        }
        let help = self.is.as_ref().and_then(HeldBack::help);
        texts.extend(help.map(|help| format!("to go faster: {help}")));
        labelled("limit", texts)
    }

    /// Returns the two most important lines: one about bottlenecks, and one about the place in the script and remedies.
    pub(super) fn brief_lines(&self) -> Vec<String> {
        let limit = match (&self.was, &self.is) {
            (Some(was), Some(is)) if was.cause == is.cause => format!("before and now: {}", is.with_worth()),
            (Some(was), Some(is)) => {
                let both = |was: &str, is: String| format!("before: {was}; now: {is}");
                let forms = [
                    both(&was.with_confidence(), is.with_worth()),
                    both(&was.with_confidence(), is.with_confidence()),
                    both(was.name(), is.with_confidence()),
                ];
                forms.into_iter().find(|form| fits(form)).unwrap_or_else(|| format!("now: {}", is.with_confidence()))
            }
            (Some(was), None) => format!("before: {}", was.with_confidence()),
            (None, Some(is)) => format!("now: {}", is.with_worth()),
            (None, None) => return Vec::new(),
        };
        let is = self.is.as_ref();
        let help = is.and_then(HeldBack::help).map(|help| format!("to go faster: {}", short(&help)));
        // If the best config's run has no place in the script, the baseline's run may, if the cause is the same.
        let was = self.was.as_ref().filter(|was| is.is_none_or(|is| is.cause == was.cause));
        let second = match (is.and_then(HeldBack::place).or_else(|| was?.place()), help) {
            (Some(place), help) => Some(fitting(place, help.map(|help| format!("; {help}")))),
            (None, help) => help,
        };
        labelled("limit", std::iter::once(limit).chain(second))
    }
}

/// Returns a remedy that fits into a line: the whole text, or its longest start up to a comma, colon, semicolon or bracket.
fn short(text: &str) -> &str {
    /// The columns left after the label and `to go faster: `, on a screen of 100 columns.
    const MOST: usize = 76;
    let is_whole = |part: &&str| part.len() <= MOST && part.matches('(').count() == part.matches(')').count();
    let ends = text.char_indices().rev().filter(|(_, sign)| ",:;(".contains(*sign));
    let mut parts = std::iter::once(text).chain(ends.map(|(at, _)| text[..at].trim_end()));
    parts.find(is_whole).unwrap_or(text)
}

fn held_back(study: &Study, config: &Config, measurement: &Measurement) -> Option<HeldBack> {
    let settings = study.settings(config);
    let evidence = diagnosis::evidence_of(&study.space, &settings, measurement, Around::default());
    let held_back = HeldBack::of(&evidence, &diagnosis::diagnose(&evidence))?;
    // Leave out the parameters that the search already covered.
    let open = held_back.open.into_iter().filter(|name| !diagnosis::opens(&study.space, name)).collect();
    Some(HeldBack { open, ..held_back })
}

/// A branch of the account, for the baseline and for the best config.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spending {
    /// The label of the branch in [`BRANCHES`](crate::diagnosis::BRANCHES).
    pub branch: String,
    /// Seconds per thousand samples with the baseline; per thousand steps if samples are not counted.
    pub was_s: f64,
    /// The same seconds with the best config.
    pub is_s: f64,
}

impl Spending {
    /// Returns the rows of the account, and the work that they cover. The first row is the largest of the best config.
    ///
    /// Returns `None` if the baseline is the best config, one of the two has no account, or only one counts samples.
    pub(super) fn of(study: &Study) -> Option<(Vec<Self>, &'static str)> {
        let (best, baseline) = (study.best()?, study.baseline.as_ref()?);
        if best.winner.config == *baseline {
            return None;
        }
        let (was, work) =
            study.history.of(baseline).find_map(|it| spent(study, baseline, it.outcome.measurement()?))?;
        let (is, work_now) = spent(study, &best.winner.config, &best.winner.measurement)?;
        if work != work_now {
            return None;
        }
        let of =
            |all: &[(String, f64)], name: &str| all.iter().find(|(known, _)| known == name).map_or(0.0, |(_, s)| *s);
        let mut names: Vec<&String> = was.iter().chain(&is).map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        let row = |name: &&String| Self { branch: (*name).clone(), was_s: of(&was, name), is_s: of(&is, name) };
        let mut rows: Vec<Self> = names.iter().map(row).collect();
        rows.sort_by(|a, b| b.is_s.total_cmp(&a.is_s));
        Some((rows, work))
    }

    /// Returns the rows that are large enough to be shown.
    pub(super) fn shown(rows: &[Self]) -> Vec<&Self> {
        let (was, is): (f64, f64) = rows.iter().fold((0.0, 0.0), |(was, is), row| (was + row.was_s, is + row.is_s));
        rows.iter().filter(|row| row.was_s >= LEAST * was || row.is_s >= LEAST * is).collect()
    }

    /// Returns the sentence on the largest remaining branch.
    pub(super) fn next(rows: &[Self]) -> Option<String> {
        let next = rows.first()?;
        let is: f64 = rows.iter().map(|row| row.is_s).sum();
        let share = next.is_s / is.max(f64::MIN_POSITIVE) * 100.0;
        Some(format!("the next factor is in {}: {share:.0} % of the remaining time", next.branch))
    }

    /// Returns lines for the terminal, each with a label or spaces of ten characters; `work` is the work of the rows.
    pub(super) fn lines(rows: &[Self], work: &str) -> Vec<String> {
        let Some(next) = Self::next(rows) else { return Vec::new() };
        let title = format!("of {work}");
        let width = rows.iter().map(|row| row.branch.len()).max().unwrap_or(0).max(title.len());
        let line = |branch: &str, was: &str, is: &str| format!("{branch:<width$}  {was:>8}  {is:>8}");
        let shown = Self::shown(rows).into_iter();
        let shown = shown.map(|row| line(&row.branch, &show_seconds(row.was_s), &show_seconds(row.is_s)));
        labelled("account", std::iter::once(line(&title, "was", "is")).chain(shown).chain([next]))
    }
}

/// The smallest share of an account that is shown: 0.5%.
const LEAST: f64 = 0.005;

/// Returns the seconds of each branch, and the work that takes them: a thousand samples, or else a thousand steps.
fn spent(study: &Study, config: &Config, measurement: &Measurement) -> Option<(Vec<(String, f64)>, &'static str)> {
    let settings = study.settings(config);
    let evidence = diagnosis::evidence_of(&study.space, &settings, measurement, Around::default());
    let account = Account::of(&evidence)?;
    let step = evidence.step()?;
    let samples = measurement.timing.samples_per_step.filter(|samples| *samples > 0.0);
    let work = if samples.is_some() { "1,000 samples" } else { "1,000 steps" };
    // The account also covers the time outside of steps, so `all` is the time of the steps plus the time outside.
    let outside = account.share(diagnosis::Branch::Outside).min(0.99);
    let all = step / samples.unwrap_or(1.0) * 1000.0 / (1.0 - outside);
    let of_branch = |(branch, share): (diagnosis::Branch, f64)| (branch.row().label.to_owned(), share * all);
    Some((account.branches().into_iter().map(of_branch).collect(), work))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(cause: &str, by_hand: &[&str]) -> HeldBack {
        HeldBack {
            cause: cause.to_owned(),
            title: format!("the {cause}"),
            sureness: 0.9,
            worth: Some(1.8),
            evidence: Vec::new(),
            lines: Vec::new(),
            open: vec!["batch_size".to_owned()],
            by_hand: by_hand.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn bottlenecks_of_baseline_and_best_config_are_shown() {
        let limit = Bottleneck {
            was: Some(held("loader", &[])),
            is: Some(held("device", &["buy one"])),
            ..Bottleneck::default()
        };
        let expected = [
            "limit     before: the loader (high confidence)",
            "          now: the device (high confidence, worth up to 1.8x)",
            "          to go faster: buy one",
        ];
        assert_eq!(limit.lines(), expected);
        let same =
            Bottleneck { was: Some(held("loader", &[])), is: Some(held("loader", &[])), ..Bottleneck::default() };
        assert_eq!(same.lines()[0], "limit     before and now: the loader (high confidence, worth up to 1.8x)");
        assert_eq!(same.lines()[1], "          to go faster: search batch_size");
        let seen = HeldBack { lines: vec!["train.py:31 `burn(15)`: 78 % of a step".to_owned()], ..held("loop", &[]) };
        let limit = Bottleneck { is: Some(seen), ..Bottleneck::default() };
        assert_eq!(limit.lines()[1], "          in train.py:31 `burn(15)`: 78 % of a step");
        assert!(Bottleneck::default().lines().is_empty());
    }

    #[test]
    fn a_brief_limit_has_at_most_two_lines_of_a_hundred_columns() {
        let titled = |title: &str, by_hand: &[&str]| HeldBack { title: title.to_owned(), ..held(title, by_hand) };
        let loader = titled("data starvation: a single-threaded loader", &[]);
        let compute = titled("compute", &["use a faster device, or more devices; settings alone will not help much"]);
        let unknown = titled("data starvation for an unknown reason", &["look at the lines of the dataset; they wait"]);
        let limit = |was: &HeldBack, is: &HeldBack| {
            Bottleneck { was: Some(was.clone()), is: Some(is.clone()), ..Bottleneck::default() }.brief_lines()
        };
        let expected = [
            "limit     before: a single-threaded loader (high confidence); now: compute (high confidence)",
            "          to go faster: use a faster device, or more devices; settings alone will not help much",
        ];
        assert_eq!(limit(&loader, &compute), expected);
        let expected = "limit     now: data starvation for an unknown reason (high confidence)";
        assert_eq!(limit(&loader, &unknown)[0], expected);
        let tenant = titled("another tenant: other programs on the same cores", &[]);
        let tenant = HeldBack { worth: None, sureness: 0.1, ..tenant };
        let expected = "limit     before and now: other programs on the same cores (low confidence)";
        assert_eq!(limit(&tenant, &tenant)[0], expected);
        let known = HeldBack { lines: vec!["train.py:31 `burn(15)`: 78 % of a step".to_owned()], ..compute.clone() };
        assert_eq!(limit(&loader, &known)[1], "          in train.py:31 `burn(15)`: 78 % of a step");
        for (was, is) in [(&loader, &unknown), (&unknown, &loader), (&compute, &known)] {
            let lines = limit(was, is);
            assert!(lines.len() <= 2 && lines.iter().all(|line| line.len() <= 100), "{lines:#?}");
        }
    }

    #[test]
    fn a_remedy_that_is_too_long_ends_at_a_comma_or_a_bracket() {
        let long =
            "give each worker its own files, archives and connections: open them in `worker_init_fn` or at the first";
        assert_eq!(short(long), "give each worker its own files, archives and connections");
        let decode = "decode and augment on the GPU (NVIDIA DALI, torchvision.io.decode_jpeg on CUDA, torchvision.transforms.v2)";
        assert_eq!(short(decode), "decode and augment on the GPU");
        assert_eq!(short("evaluate less often, or on a part"), "evaluate less often, or on a part");
    }

    #[test]
    fn account_shows_both_times_of_each_branch() {
        let row = |branch: &str, was_s: f64, is_s: f64| Spending { branch: branch.to_owned(), was_s, is_s };
        let rows = [row("device busy", 2.0, 1.9), row("waiting for data", 6.0, 0.1), row("copies", 0.001, 0.001)];
        let lines = Spending::lines(&rows, "1,000 steps");
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[0].starts_with("account   of 1,000 steps "), "{lines:#?}");
        assert!(lines[2].contains("waiting for data") && lines[2].contains("6.00 s"), "{lines:#?}");
        assert_eq!(lines[3], "          the next factor is in device busy: 95 % of the remaining time");
        assert!(Spending::lines(&[], "1,000 samples").is_empty());
    }
}
