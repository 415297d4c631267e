//! What the replays come to, as JSON and as Markdown.

use std::collections::BTreeMap;

use crate::replay::Fared;

/// Probes after which the regret is told.
const MARKS: [usize; 6] = [5, 10, 20, 40, 60, 100];

impl Fared {
    /// The mean regret after so many probes; a run that ended earlier keeps what it found.
    fn mean_at(&self, probes: usize) -> f64 {
        let at = |run: &Vec<f64>| run.get(probes - 1).or(run.last()).copied().unwrap_or(1.0);
        self.regret.iter().map(at).sum::<f64>() / self.regret.len().max(1) as f64
    }

    /// The median number of probes until the best is within a share of the optimum.
    fn probes_within(&self, share: f64) -> Option<usize> {
        let reached = |run: &Vec<f64>| run.iter().position(|regret| *regret <= share).map_or(usize::MAX, |at| at + 1);
        let mut probes: Vec<usize> = self.regret.iter().map(reached).collect();
        probes.sort_unstable();
        probes.get(probes.len().saturating_sub(1) / 2).copied().filter(|probes| *probes < usize::MAX)
    }

    /// What a table belongs to: the start of its name.
    fn family(&self) -> &str {
        self.table.split(['-', '_']).next().unwrap_or_default()
    }
}

pub(crate) fn line(fared: &Fared) -> String {
    let marks: Vec<String> = MARKS.iter().map(|&mark| format!("{:6.2}", 100.0 * fared.mean_at(mark))).collect();
    let time = fared.seconds_per_proposal * 1e3;
    format!("{:8} {:26} {}  {time:.2} ms", fared.strategy, fared.table, marks.join(" "))
}

pub(crate) fn json(results: &[Fared]) -> String {
    serde_json::to_string(results).unwrap() + "\n"
}

/// The regret of each strategy, over all tables, over those that are full grids, and over each family.
pub(crate) fn markdown(results: &[Fared]) -> String {
    let head: Vec<String> = MARKS.iter().map(|mark| format!("at {mark}")).collect();
    let mut text = format!(
        "| strategy | tables | {} | probes to 5 % | to 1 % | failed | ms per proposal |\n|---|---|{}---|---|---|---|\n",
        head.join(" | "),
        "---|".repeat(MARKS.len())
    );
    let mut groups: BTreeMap<(&str, String), Vec<&Fared>> = BTreeMap::new();
    for fared in results {
        let strategy = fared.strategy.as_str();
        groups.entry((strategy, " all".to_owned())).or_default().push(fared);
        if fared.is_full {
            groups.entry((strategy, " full grids".to_owned())).or_default().push(fared);
        }
        groups.entry((strategy, fared.family().to_owned())).or_default().push(fared);
    }
    for ((strategy, group), members) in &groups {
        let mean =
            |of: &dyn Fn(&Fared) -> f64| members.iter().map(|fared| of(fared)).sum::<f64>() / members.len() as f64;
        let cells: Vec<String> =
            MARKS.iter().map(|&mark| format!("{:.2} %", 100.0 * mean(&|fared| fared.mean_at(mark)))).collect();
        let within = |share: f64| {
            let probes: Option<Vec<usize>> = members.iter().map(|fared| fared.probes_within(share)).collect();
            probes.map_or_else(
                || "-".to_owned(),
                |probes| format!("{:.0}", probes.iter().sum::<usize>() as f64 / probes.len() as f64),
            )
        };
        text += &format!(
            "| {strategy} | {} ({}) | {} | {} | {} | {:.0} % | {:.1} |\n",
            group.trim(),
            members.len(),
            cells.join(" | "),
            within(0.05),
            within(0.01),
            100.0 * mean(&|fared| fared.failed),
            1e3 * mean(&|fared| fared.seconds_per_proposal)
        );
    }
    text
}
