//! A few steps of a config as the framework's profiler saw them.

use serde::{Deserialize, Serialize};

use super::escape::plain;
use super::screen::{labelled, shortened};
use crate::model::fact::{TRACE_FILE, TRACE_STEPS};
use crate::model::{Config, Facts};
use crate::search::Study;

/// The most kernels in a line, and the most columns of a name: C++ template names are long. Round numbers.
const NAMED: usize = 3;
const COLUMNS: usize = 40;

/// A summary of the recorded steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The number of steps.
    pub steps: f64,
    /// Wall time of a step in seconds, with the profiler's own work.
    pub step_seconds: Option<f64>,
    /// `kernels` of a GPU, or `operators` on the CPU.
    pub kind: String,
    /// The kernels or operators with the most time, each with its share of their time.
    pub top: Vec<(String, f64)>,
    /// The share of the time in which no kernel ran.
    pub idle_share: Option<f64>,
    /// The share of copy time in which a kernel ran.
    pub copy_overlap: Option<f64>,
    /// An estimate from the grids of kernels: the share of multiprocessors with a block, over the recorded time.
    pub estimated_sm_efficiency: Option<f64>,
    /// An estimate of the occupancy of the multiprocessors, mean over kernels.
    pub estimated_occupancy: Option<f64>,
    /// The file for Perfetto and TensorBoard, relative to the folder of the search. Absent if another node has it.
    pub file: Option<String>,
}

impl Trace {
    /// Returns the last recorded steps of a config, if any.
    pub fn of(study: &Study, config: &Config) -> Option<Self> {
        study.history.of(config).filter_map(|trial| Self::from_facts(&trial.outcome.measurement()?.facts)).last()
    }

    fn from_facts(facts: &Facts) -> Option<Self> {
        Some(Self {
            steps: facts.number(TRACE_STEPS)?,
            step_seconds: facts.number("trace.step_seconds"),
            kind: facts.text("trace.kind")?.to_owned(),
            top: serde_json::from_str(facts.text("trace.top")?).ok()?,
            idle_share: facts.number("trace.idle_share"),
            copy_overlap: facts.number("trace.copy_overlap"),
            estimated_sm_efficiency: facts.number("trace.sm_efficiency"),
            estimated_occupancy: facts.number("trace.occupancy"),
            file: facts.text(TRACE_FILE).map(str::to_owned),
        })
    }

    /// Returns the lines about the best config and the baseline.
    pub fn lines(best: Option<&Self>, baseline: Option<&Self>) -> Vec<String> {
        let named = [(best, ""), (baseline, "baseline: ")];
        let words = named.into_iter().filter_map(|(trace, name)| Some(format!("{name}{}", trace?.words())));
        labelled("trace", words)
    }

    fn words(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let name = |name: &str| shortened(&plain(name), COLUMNS);
        let top = self.top.iter().take(NAMED).map(|(kernel, share)| format!("{} {}", name(kernel), percent(*share)));
        let mut parts =
            vec![format!("{} of {} steps: {}", plain(&self.kind), self.steps, top.collect::<Vec<_>>().join(", "))];
        parts.extend(self.idle_share.map(|share| format!("no kernel ran for {} of the time", percent(share))));
        parts.extend(self.copy_overlap.map(|share| format!("{} of copies beside kernels", percent(share))));
        let occupancy = self.estimated_occupancy.map(|share| format!(", occupancy {}", percent(share)));
        parts.extend(
            self.estimated_sm_efficiency
                .map(|share| format!("estimated SM efficiency {}{}", percent(share), occupancy.unwrap_or_default())),
        );
        parts.extend(self.file.as_ref().map(|file| plain(file)));
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Fact;

    fn facts(numbers: &[(&str, f64)], texts: &[(&str, &str)]) -> Facts {
        let numbers = numbers.iter().map(|(name, number)| (format!("trace.{name}"), Fact::Number(*number)));
        let texts = texts.iter().map(|(name, text)| (format!("trace.{name}"), Fact::Text((*text).to_owned())));
        numbers.chain(texts).collect()
    }

    #[test]
    fn the_lines_name_the_kernels_the_gaps_and_the_file() {
        let numbers =
            [("steps", 4.0), ("idle_share", 0.31), ("copy_overlap", 0.5), ("sm_efficiency", 0.42), ("occupancy", 0.3)];
        let top = r#"[["gemm", 0.5], ["copy", 0.25]]"#;
        let texts = [("kind", "kernels"), ("top", top), ("file", "logs/0002.pt.trace.json.gz")];
        let best = Trace::from_facts(&facts(&numbers, &texts)).unwrap();
        let texts = [("kind", "operators"), ("top", r#"[["aten::mm", 0.9]]"#)];
        let baseline = Trace::from_facts(&facts(&[("steps", 4.0)], &texts)).unwrap();
        assert_eq!(
            Trace::lines(Some(&best), Some(&baseline)),
            [
                "trace     kernels of 4 steps: gemm 50 %, copy 25 %; no kernel ran for 31 % of the time; 50 % of copies \
                 beside kernels; estimated SM efficiency 42 %, occupancy 30 %; logs/0002.pt.trace.json.gz",
                "          baseline: operators of 4 steps: aten::mm 90 %",
            ]
        );
        assert_eq!(Trace::from_facts(&facts(&[("steps", 4.0)], &[("kind", "kernels"), ("top", "no JSON")])), None);
    }
}
