//! What the runs come to, as JSON and as Markdown.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::line::{self, Bundle, Line};
use crate::score::{self, AREA, Fared, GOALS, Interval, MARKS, RANDOM, Score};
use crate::table::Recorded;

/// Everything that a report tells, as it is kept.
#[derive(Serialize)]
pub(crate) struct Report {
    about: About,
    tables: Vec<TableSummary>,
    groups: Vec<Group>,
    comparisons: Vec<Comparison>,
    searchers: Vec<Searcher>,
    /// The area of each searcher on each table.
    areas: BTreeMap<String, BTreeMap<String, f64>>,
    runs: Vec<Bundle>,
}

/// How the runs came about.
#[derive(Serialize)]
pub(crate) struct About {
    pub(crate) command: String,
    pub(crate) machine: String,
    pub(crate) budget: usize,
    pub(crate) noise: bool,
}

#[derive(Serialize)]
struct TableSummary {
    name: String,
    family: &'static str,
    configs: usize,
    failing: usize,
    is_full: bool,
    /// The probe at which its area ends, if the budget does not end before.
    cutoff: usize,
    /// The expected regret of random search after each probe.
    random: Vec<f64>,
}

#[derive(Serialize)]
struct Group {
    name: &'static str,
    about: &'static str,
    tables: Vec<String>,
    scores: Vec<Score>,
}

/// gputune against the best of the peers, in hindsight, at one mark.
#[derive(Serialize)]
struct Comparison {
    group: &'static str,
    method: String,
    probes: usize,
    best_peer: String,
    peer_regret: f64,
    /// gputune's regret less the peer's: below 0 is better.
    difference: f64,
    interval: [f64; 2],
}

/// The failures, repeats and time of a searcher.
#[derive(Serialize)]
struct Searcher {
    method: String,
    version: String,
    runs: usize,
    failed_share: f64,
    repeats_per_probe: f64,
    outside_per_probe: f64,
    drawn_share: f64,
    errors: usize,
    milliseconds_per_probe: f64,
}

/// What a group's name and tables are.
type Belongs = fn(&Recorded) -> bool;

const ELEVEN: [&str; 11] = [
    "convolution-RTX_3090",
    "convolution_milo-A4000",
    "dedispersion_milo-W7800",
    "gemm-RTX_3090",
    "pnpoly-RTX_3090",
    "storm-rs6d",
    "storm-sol6d",
    "storm-wc6d",
    "zeus-a40-imagenet",
    "zeus-v100-cifar100",
    "zeus-v100-librispeech",
];

const GROUPS: &[(&str, &str, Belongs)] = &[
    ("all", "all tables", |_| true),
    ("eleven", "the tables for which figures of peers were known before", |table| ELEVEN.contains(&&*table.name)),
    ("full grids", "99 % or more of all combinations recorded, gavel-LM left out", |table| {
        table.is_full() && !table.name.starts_with("gavel")
    }),
    ("training", "throughput of training jobs", |table| table.family() == "training"),
    ("two parameters", "training: batch size and power limit alone", |table| {
        table.family() == "training" && table.space.parameters().len() == 2
    }),
    ("pipeline", "throughput of data pipelines", |table| table.family() == "pipeline"),
    ("kernels", "speed of GPU kernels", |table| table.family() == "kernels"),
    ("failures", "tables on which configs fail", Recorded::has_failures),
];

/// Names of gputune's searchers begin with this.
const OURS: &str = "gputune-";

/// The one that people use.
const PEOPLES: &str = "gputune-auto";

/// What stands in the name of a strategy that lacks a part, in runs of builds that could leave one out.
const WITHOUT: &str = " without ";

pub(crate) fn report(lines: &[Line], tables: &[Recorded], about: About) -> Report {
    let fared = score::fared(lines, tables, about.budget);
    let mut groups = Vec::new();
    let mut comparisons = Vec::new();
    for (name, meaning, belongs) in GROUPS {
        let within: Vec<&str> = tables.iter().filter(|table| belongs(table)).map(|table| table.name.as_str()).collect();
        if within.is_empty() || groups.iter().any(|group: &Group| group.tables == within) {
            continue;
        }
        let members = |method: &str| -> Option<Vec<&Fared<'_>>> {
            let members: Vec<_> =
                fared.get(method)?.iter().filter(|fared| within.contains(&&*fared.table.name)).collect();
            (members.len() == within.len()).then_some(members)
        };
        let mut scores: Vec<Score> =
            fared.keys().filter_map(|method| Some(score::score(method, &members(method)?))).collect();
        scores.sort_by(|a, b| b.area.mean.total_cmp(&a.area.mean));
        comparisons.extend(compared(name, &scores, &members));
        let tables = within.into_iter().map(str::to_owned).collect();
        groups.push(Group { name, about: meaning, tables, scores });
    }
    let summary = |table: &Recorded| TableSummary {
        name: table.name.clone(),
        family: table.family(),
        configs: table.regrets.len(),
        failing: table.regrets.iter().filter(|regret| **regret >= 1.0).count(),
        is_full: table.is_full(),
        cutoff: table.cutoff,
        random: table.random(about.budget),
    };
    let area = |fared: &Fared<'_>| {
        let sum: f64 = fared.facts.iter().map(|facts| facts[AREA]).sum();
        (fared.table.name.clone(), sum / fared.facts.len() as f64)
    };
    Report {
        tables: tables.iter().map(summary).collect(),
        groups,
        comparisons,
        searchers: searchers(&fared),
        areas: fared.iter().map(|(name, fared)| ((*name).to_owned(), fared.iter().map(area).collect())).collect(),
        runs: line::bundles(lines),
        about,
    }
}

/// The strategy that people use against the peer that is best at each mark.
fn compared<'a>(
    group: &'static str,
    scores: &[Score],
    members: &dyn Fn(&str) -> Option<Vec<&'a Fared<'a>>>,
) -> Vec<Comparison> {
    let peers: Vec<&Score> = scores.iter().filter(|score| !score.method.starts_with(OURS)).collect();
    let mut comparisons = Vec::new();
    for ours in scores.iter().filter(|score| score.method == PEOPLES) {
        for (at, probes) in MARKS.into_iter().enumerate() {
            let best = peers.iter().min_by(|a, b| a.regret[at].mean.total_cmp(&b.regret[at].mean));
            let Some(best) = best else { continue };
            let (Some(own), Some(other)) = (members(&ours.method), members(&best.method)) else { continue };
            let (difference, interval) = score::differences(&own, &other)[at];
            comparisons.push(Comparison {
                group,
                method: ours.method.clone(),
                probes,
                best_peer: best.method.clone(),
                peer_regret: best.regret[at].mean,
                difference,
                interval,
            });
        }
    }
    comparisons
}

fn searchers(fared: &BTreeMap<&str, Vec<Fared<'_>>>) -> Vec<Searcher> {
    let of_method = |(method, fared): (&&str, &Vec<Fared<'_>>)| {
        let runs: Vec<&Line> = fared.iter().flat_map(|fared| fared.runs.iter().copied()).collect();
        let last = runs.last()?;
        let probes = runs.iter().map(|run| run.probes).sum::<usize>().max(1) as f64;
        let per_probe = |count: fn(&Line) -> usize| runs.iter().map(|run| count(run)).sum::<usize>() as f64 / probes;
        Some(Searcher {
            method: (*method).to_owned(),
            version: last.version.clone(),
            runs: runs.len(),
            failed_share: per_probe(|run| run.failed),
            repeats_per_probe: per_probe(|run| run.repeats),
            outside_per_probe: per_probe(|run| run.outside),
            drawn_share: per_probe(|run| run.drawn),
            errors: runs.iter().filter(|run| run.error.is_some()).count(),
            milliseconds_per_probe: 1e3 * runs.iter().map(|run| run.seconds).sum::<f64>() / probes,
        })
    };
    fared.iter().filter_map(of_method).collect()
}

impl Report {
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap() + "\n"
    }

    /// With the pictures of a folder beside it, if there are any.
    pub(crate) fn markdown(&self, pictures: Option<&str>) -> String {
        let about = &self.about;
        let noise = if about.noise {
            "Each probe varied as the recorded repeats of its config did, where there were any; the regret is that of the \
             recorded mean of what seemed best. `random` knows no noise."
        } else {
            "Each probe gave the recorded mean, without noise."
        };
        let mut text = format!(
            "`{}`, on {}. Up to {} unique probes. {noise}\n\n{LEGEND}\n\n{SEARCHERS}",
            about.command, about.machine, about.budget
        );
        for searcher in &self.searchers {
            text += &format!(
                "| {} | {} | {} | {:.1} % | {:.2} | {:.2} | {:.1} % | {} | {:.2} |\n",
                searcher.method,
                searcher.version,
                searcher.runs,
                100.0 * searcher.failed_share,
                searcher.repeats_per_probe,
                searcher.outside_per_probe,
                100.0 * searcher.drawn_share,
                searcher.errors,
                searcher.milliseconds_per_probe
            );
        }
        for group in &self.groups {
            let place = self.comparisons.iter().filter(|comparison| comparison.group == group.name);
            text += &group.markdown(&place.collect::<Vec<_>>(), pictures);
        }
        text
    }
}

const LEGEND: &str = "\
Mean regret: how far the best found is below the table's best, in percent (of kernel times: of their inverse), mean over the \
group's tables; ± half the 95 % bootstrap interval over seeds. A run that found the best ended there. Probes to within 5 % and \
1 %: the median over tables and seeds, and the share of runs that got there. Area: the mean over probes of how far a run is on \
the way from the expected best of random search (0) to the best (1), up to where random search is expected to have come 96 % of \
the way from the median config, or to the budget; its interval is over tables and seeds. `random` is random search without \
replacement in closed form. Failing configs cost a probe.";

const SEARCHERS: &str = "\
## What searched

| searcher | version | runs | probes that failed | repeats per probe | outside the space per probe | probes drawn by the harness \
| errors | CPU ms per probe |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n";

impl Group {
    fn markdown(&self, comparisons: &[&Comparison], pictures: Option<&str>) -> String {
        let heads: Vec<String> = MARKS.iter().map(|mark| format!("at {mark}")).collect();
        let goals: Vec<String> = GOALS.iter().map(|goal| format!("to {:.0} %", 100.0 * goal)).collect();
        let picture = |folder| format!("![{}]({folder}/{}.svg)\n\n", self.name, self.name.replace(' ', "-"));
        let picture = pictures.map(picture).unwrap_or_default();
        let mut text = format!(
            "\n## {}\n\n{}, {}: {}.\n\n{picture}| searcher | seeds | {} | {} | area |\n|---|--:|{}--:|\n",
            self.name,
            self.about,
            self.tables.len(),
            self.tables.join(", "),
            heads.join(" | "),
            goals.join(" | "),
            "--:|".repeat(heads.len() + goals.len())
        );
        for score in self.scores.iter().filter(|score| !score.method.contains(WITHOUT)) {
            text += &score.row();
        }
        text += &self.ablation();
        if !comparisons.is_empty() {
            text += "\nAgainst the best peer at each mark (difference in points, below 0 is better; interval over seeds):\n\n";
            text += "| | probes | best peer | its regret | difference | |\n|---|--:|---|--:|--:|---|\n";
        }
        for comparison in comparisons {
            let [low, high] = comparison.interval;
            let verdict = match () {
                () if high < 0.0 => "better",
                () if low > 0.0 => "**worse**",
                () => "",
            };
            text += &format!(
                "| {} | {} | {} | {:.2} | {:+.2} ({:+.2} to {:+.2}) | {verdict} |\n",
                comparison.method,
                comparison.probes,
                comparison.best_peer,
                100.0 * comparison.peer_regret,
                100.0 * comparison.difference,
                100.0 * low,
                100.0 * high
            );
        }
        text
    }

    /// What each part brought: the strategies that lack one, below the whole.
    fn ablation(&self) -> String {
        let lacking: Vec<&Score> = self.scores.iter().filter(|score| score.method.contains(WITHOUT)).collect();
        if lacking.is_empty() {
            return String::new();
        }
        let heads: Vec<String> = MARKS.iter().map(|mark| format!("at {mark}")).collect();
        let mut text = format!(
            "\nWithout one of its parts:\n\n| searcher | seeds | {} | to 5 % | to 1 % | area |\n|---|--:|{}--:|\n",
            heads.join(" | "),
            "--:|".repeat(heads.len() + GOALS.len())
        );
        let wholes: Vec<&str> = lacking.iter().filter_map(|score| score.method.split(WITHOUT).next()).collect();
        for score in &self.scores {
            if lacking.iter().any(|other| other.method == score.method) || wholes.contains(&score.method.as_str()) {
                text += &score.row();
            }
        }
        text
    }
}

impl Score {
    fn row(&self) -> String {
        let regret = |interval: &Interval| {
            let half = 50.0 * (interval.seeds[1] - interval.seeds[0]);
            if half > 0.0 {
                format!("{:.2} ± {half:.2}", 100.0 * interval.mean)
            } else {
                format!("{:.2}", 100.0 * interval.mean)
            }
        };
        let goal = |(probes, reached): (&Option<f64>, &f64)| {
            let probes = probes.map_or_else(|| "-".to_owned(), |probes| format!("{probes}"));
            format!("{probes} ({:.0} %)", 100.0 * reached)
        };
        let regrets: Vec<String> = self.regret.iter().map(regret).collect();
        let goals: Vec<String> = self.probes_to.iter().zip(&self.reached).map(goal).collect();
        format!(
            "| {} | {} | {} | {} | {:.3} ({:.3} to {:.3}) |\n",
            self.method,
            if self.method == RANDOM { "all".to_owned() } else { self.seeds.to_string() },
            regrets.join(" | "),
            goals.join(" | "),
            self.area.mean,
            self.area.tables[0],
            self.area.tables[1]
        )
    }
}
