//! Shows a running `gputune compare` as a line, and prints its result.

use std::fmt::Write as _;

use gputune::model::{Estimate, Outcome, Settings};
use gputune::probe::duel::{Block, DuelEnd, DuelProgress, Duelled, Side, Stage, Way};
use gputune::report::{self, Tone};
use serde::Serialize;

use super::Contender;
use crate::cli::progress::Show;

/// Shows a running comparison. Without a terminal, each new stage prints a line.
pub(super) struct Line {
    show: Show,
    /// The number of fallbacks that were printed.
    fallbacks: usize,
    /// The state that was printed last.
    told: Option<(Way, Stage, Side)>,
}

impl Line {
    pub(super) fn new(show: Show) -> Self {
        Self { show, fallbacks: 0, told: None }
    }

    pub(super) fn hear(&mut self, progress: &DuelProgress<'_>) {
        progress.fallbacks.iter().skip(self.fallbacks).for_each(|fallback| self.show.say(fallback, Tone::Plain));
        self.fallbacks = progress.fallbacks.len();
        self.show.note(&words(progress));
        // Without a terminal, a change of side alone prints no line, except in the warm-up.
        let side = if progress.stage == Stage::Warming { progress.side } else { Side::A };
        let now = (progress.way, progress.stage, side);
        if matches!(self.show, Show::Lines) && progress.stage != Stage::Ending && self.told != Some(now) {
            self.told = Some(now);
            self.show.say(&words(progress), Tone::Plain);
        }
    }
}

fn words(progress: &DuelProgress<'_>) -> String {
    let DuelProgress { way, stage, side, rounds, ratio, elapsed, .. } = progress;
    let doing = match stage {
        Stage::Warming => format!("{side} warms up"),
        Stage::Measuring => format!("measures {side}, {way}"),
        Stage::Ending => "ends its processes".to_owned(),
    };
    let so_far = ratio.map(|ratio| format!(": A is {} as fast as B", shown_ratio(ratio))).unwrap_or_default();
    let rounds = match rounds {
        0 => String::new(),
        1 => ", 1 round".to_owned(),
        rounds => format!(", {rounds} rounds"),
    };
    format!("{:>4.0} s  {doing}{rounds}{so_far}", elapsed.as_secs_f64())
}

fn shown_ratio(ratio: Estimate) -> String {
    match ratio.low.zip(ratio.high) {
        Some((low, high)) => format!("{:.3}x ({low:.3} to {high:.3})", ratio.value),
        None => format!("{:.3}x", ratio.value),
    }
}

pub(super) fn text(contenders: &[Contender; 2], duelled: &Duelled) -> String {
    let mut text = String::new();
    for (side, contender) in [Side::A, Side::B].into_iter().zip(contenders) {
        let settings =
            if contender.settings.is_empty() { "the unmodified job".to_owned() } else { contender.settings.line() };
        let rate = duelled.side(side).and_then(Outcome::measurement).and_then(|run| {
            run.throughput.map(|throughput| format!("  {}", report::shown_estimate(throughput, &run.unit)))
        });
        let _ = writeln!(text, "{side}         {settings}{}", rate.unwrap_or_default());
    }
    if let Some(ratio) = super::ratio(duelled) {
        let _ = writeln!(text, "result    A is {} as fast as B: {}", shown_ratio(ratio), verdict(duelled, ratio));
    }
    let seconds = duelled.elapsed.as_secs_f64();
    let blocks = counted(duelled.blocks.len(), if duelled.way == Way::Processes { "process" } else { "block" });
    let rounds = counted(duelled.rounds as usize, "round");
    let _ = writeln!(text, "measured  {}: {blocks} in {rounds}, {seconds:.0} s; {}", duelled.way, ended(duelled.end));
    text
}

fn counted(count: usize, what: &str) -> String {
    let ending = match what {
        _ if count == 1 => "",
        "process" => "es",
        _ => "s",
    };
    format!("{count} {what}{ending}")
}

fn verdict(duelled: &Duelled, ratio: Estimate) -> String {
    match (duelled.faster(), ratio.low.zip(ratio.high)) {
        (Some(side), _) => format!("{side} is faster"),
        (None, Some((low, high))) => {
            // The most that either side can be ahead, in percent.
            let most = (high - 1.0).max(1.0 / low - 1.0) * 100.0;
            format!("they are tied within +-{most:.1} %")
        }
        (None, None) => {
            "one round gives no interval, so the faster config is unknown; allow more time with --time".to_owned()
        }
    }
}

fn ended(end: DuelEnd) -> &'static str {
    match end {
        DuelEnd::Precise => "precise enough",
        DuelEnd::AllRounds => "all rounds are done",
        DuelEnd::TimeIsUp => "the time is up",
        DuelEnd::TrainingOver => "the training came to its end",
        DuelEnd::Failed => "one could not be measured",
        DuelEnd::Interrupted => "interrupted",
    }
}

#[derive(Serialize)]
pub(super) struct Report<'r> {
    format: u32,
    a: One<'r>,
    b: One<'r>,
    ratio: Option<Estimate>,
    faster: Option<Side>,
    way: Way,
    ended_because: DuelEnd,
    rounds: u32,
    elapsed_s: f64,
    blocks: &'r [Block],
    fallbacks: &'r [String],
    disturbances: &'r [String],
    device: &'r str,
    gputune_version: &'static str,
}

#[derive(Serialize)]
struct One<'r> {
    named: &'r str,
    config: &'r Settings,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'r Outcome>,
}

pub(super) fn json<'r>(contenders: &'r [Contender; 2], duelled: &'r Duelled, device: &'r str) -> Report<'r> {
    let one = |it: &'r Contender, side| One { named: &it.text, config: &it.settings, outcome: duelled.side(side) };
    Report {
        format: 1,
        a: one(&contenders[0], Side::A),
        b: one(&contenders[1], Side::B),
        ratio: super::ratio(duelled),
        faster: duelled.faster(),
        way: duelled.way,
        ended_because: duelled.end,
        rounds: duelled.rounds,
        elapsed_s: duelled.elapsed.as_secs_f64(),
        blocks: &duelled.blocks,
        fallbacks: &duelled.fallbacks,
        disturbances: &duelled.disturbances,
        device,
        gputune_version: env!("CARGO_PKG_VERSION"),
    }
}
