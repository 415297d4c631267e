//! The content of the live view: a search's status in a few lines. Only the number of slots changes their number.

use std::time::Duration;

use console::measure_text_width;
use gputune::model::quantity::{show_bytes, show_duration, show_number};
use gputune::model::{Estimate, Metric, Purpose, Readings};
use gputune::report::{Screen, Tone, shortened, shown_estimate, shown_settings, wrap};
use gputune::search::{Ended, Running, Status};

/// The width of the labels, in columns.
const LABEL: usize = 8;
/// The rows for the reason why a config is probed.
const WHY: usize = 2;
/// The width of the bar, in columns.
const BAR: usize = 20;
/// The value of a full bar.
pub(super) const WHOLE_BAR: u64 = 1000;

/// The text of the view, and its bar.
#[derive(Debug, PartialEq)]
pub(super) struct Block {
    screen: Screen,
    /// The text before the bar.
    before: String,
    /// The filled part of the bar, out of [`WHOLE_BAR`]; `None` if the bar does not fit.
    pub(super) done: Option<u64>,
    /// The text after the bar, or after `before` if the bar does not fit.
    lines: Vec<String>,
}

/// Returns the lines of a status for a single print, without lines that have only a label.
pub(in crate::cli) fn once(status: &Status, screen: Screen) -> Vec<String> {
    let block = Block::new(screen).budget(status, Duration::ZERO).probe(status, Duration::ZERO).best(status);
    let text = block.before + &block.lines.join("\n");
    text.lines().filter(|line| measure_text_width(line.trim_end()) > LABEL).map(str::to_owned).collect()
}

impl Block {
    /// Returns the block of a running search; `since` is the age of the status, `note` the last line.
    pub(super) fn of(status: &Status, since: Duration, note: &str, screen: Screen) -> Self {
        Self::on(screen).rule().budget(status, since).probe(status, since).best(status).last(note)
    }

    pub(super) fn line(note: &str, screen: Screen) -> Self {
        Self::on(screen).last(note)
    }

    /// Returns the template for indicatif, which draws the bar.
    pub(super) fn template(&self) -> String {
        let literal = |text: &str| text.replace('{', "{{").replace('}', "}}");
        let bar = if self.done.is_some() { format!("{{bar:{BAR}}}  ") } else { String::new() };
        format!("{}{bar}{}", literal(&self.before), literal(&self.lines.join("\n")))
    }

    fn new(screen: Screen) -> Self {
        Self { screen, before: String::new(), done: None, lines: Vec::new() }
    }

    /// Leaves the last column free: some terminals break a line that fills it.
    fn on(screen: Screen) -> Self {
        Self::new(Screen { columns: screen.columns.saturating_sub(1), ..screen })
    }

    fn room(&self) -> usize {
        self.screen.columns.saturating_sub(LABEL)
    }

    fn push(&mut self, label: &str, tone: Tone, text: &str) {
        let text = shortened(&text.replace(char::is_control, " "), self.room());
        let label = self.screen.paint(Tone::Faint, &format!("{label:LABEL$}"));
        self.lines.push(format!("{label}{}", self.screen.paint(tone, &text)));
    }

    /// Adds the horizontal line between the finished lines and the running probes.
    fn rule(mut self) -> Self {
        self.lines.push(self.screen.paint(Tone::Faint, &"─".repeat(self.screen.columns)));
        self
    }

    /// Adds the spent part of the budget, as a bar and in words.
    fn budget(mut self, status: &Status, since: Duration) -> Self {
        let elapsed = status.elapsed_s + since.as_secs_f64();
        let words = match status.rounds {
            0 => format!("{} of {} probes", status.searched, status.probes),
            1 => format!("{} of {} probes, 1 round", status.searched, status.probes),
            rounds => format!("{} of {} probes, {rounds} rounds", status.searched, status.probes),
        };
        let left = left(status, elapsed).map(|left| format!(", about {left} left")).unwrap_or_default();
        let words = format!("{words}, {} of {}{left}", duration(elapsed), duration(status.time_s));
        let gpu_time =
            status.gpu_time_s.map(|(spent, all)| format!(", {} of {} of GPU time", duration(spent), duration(all)));
        let words = words + &gpu_time.unwrap_or_default();
        let share = f64::from(status.searched) / f64::from(status.probes.max(1));
        let is_wide = self.room() >= BAR + 2 + words.chars().count();
        let of_gpus = status.gpu_time_s.map_or(0.0, |(spent, all)| spent / all.max(1e-9));
        let share = share.max(elapsed / status.time_s.max(1e-9)).max(of_gpus).clamp(0.0, 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "small"
        )]
        let done = (share * WHOLE_BAR as f64) as u64;
        self.done = is_wide.then_some(done);
        self.push("search", Tone::Plain, "");
        self.before = std::mem::take(&mut self.lines).join("\n");
        self.lines.push(shortened(&words, self.room()));
        self
    }

    /// Adds the running probe: its config, progress, rate, reason, and the devices' readings.
    fn probe(self, status: &Status, since: Duration) -> Self {
        if status.slots.is_empty() { self.one_probe(status, since) } else { self.slots(status, since) }
    }

    /// Adds a line for each slot: its probe and rate.
    fn slots(mut self, status: &Status, since: Duration) -> Self {
        for (at, slot) in status.slots.iter().enumerate() {
            let label = format!("slot {}", at + 1);
            let Some(probe) = slot else {
                self.push(&label, Tone::Faint, "free");
                continue;
            };
            let speed = speed(probe, probe.elapsed_s + since.as_secs_f64(), status);
            let room = self.room().saturating_sub(speed.chars().count() + 9);
            let config = shortened(&config(probe, status, room), room);
            self.push(&label, Tone::Plain, &format!("#{} {config}  {speed}", probe.number));
        }
        self
    }

    fn one_probe(mut self, status: &Status, since: Duration) -> Self {
        let Some(probe) = &status.probe else {
            let what = match &status.ended {
                Some(Ended::Stopped(reason)) => format!("ended: {reason}"),
                Some(Ended::Failed(reason)) => format!("failed: {reason}"),
                None => match status.in_round {
                    Some(configs) => {
                        format!("round {}: measures {configs} configs next to each other", status.rounds + 1)
                    }
                    None => "chooses what to probe next".to_owned(),
                },
            };
            let tone = if matches!(status.ended, Some(Ended::Failed(_))) { Tone::Bad } else { Tone::Plain };
            self.push("", tone, &what);
            (0..3 + WHY).for_each(|_| self.lines.push(String::new()));
            return self;
        };
        let room = self.room();
        let words = format!("#{} {}", probe.number, config(probe, status, room.saturating_sub(5)));
        self.push("probe", Tone::Plain, &words);
        let elapsed = probe.elapsed_s + since.as_secs_f64();
        self.push("speed", Tone::Plain, &speed(probe, elapsed, status));
        let scale = scale(probe.throughput, rival(status), room.min(60));
        self.push("", Tone::Note, &scale);
        let why = match (probe.purpose, &probe.why) {
            (Purpose::Baseline, _) => "the baseline: today's settings, which the gain is measured against".to_owned(),
            (Purpose::Round, _) => "measures configs next to each other, seconds apart".to_owned(),
            (_, Some(why)) => why.clone(),
            (_, None) => String::new(),
        };
        let mut lines = wrap(&why.replace(char::is_control, " "), room);
        if lines.len() > WHY {
            let rest = lines.split_off(WHY - 1).join(" ");
            let cut: String = rest.chars().take(room.saturating_sub(1)).collect();
            lines.push(format!("{}…", cut.trim_end()));
        }
        lines.resize(WHY, String::new());
        for (at, line) in lines.iter().enumerate() {
            self.push(if at == 0 { "why" } else { "" }, Tone::Plain, line);
        }
        self.push("devices", Tone::Plain, &devices(probe, room));
        self
    }

    fn best(mut self, status: &Status) -> Self {
        let Some(best) = &status.best else {
            self.push("best", Tone::Faint, "nothing yet");
            self.lines.push(String::new());
            return self;
        };
        let number = match best.throughput {
            Some(throughput) if throughput == best.estimate => shown_estimate(throughput, &best.unit),
            _ => shown_estimate(best.estimate, ""),
        };
        let times = best.times_better.map(|times| format!(", {times:.2}x the baseline")).unwrap_or_default();
        self.push("best", Tone::Good, &format!("#{} {}", best.number, best.config.line()));
        self.push("", Tone::Plain, &format!("{number}{times}"));
        self
    }

    fn last(mut self, note: &str) -> Self {
        let note = shortened(note, self.screen.columns);
        self.lines.push(self.screen.paint(Tone::Faint, &note));
        self
    }
}

/// Formats a duration in whole seconds, so that it changes once a second.
fn duration(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX).as_secs();
    match whole {
        0..60 => format!("{whole} s"),
        _ => show_duration(Duration::from_secs(whole)),
    }
}

/// Returns the remaining time that the search expects.
fn left(status: &Status, elapsed: f64) -> Option<String> {
    Some(duration(status.expected_s? - elapsed)).filter(|_| status.expected_s > Some(elapsed))
}

/// Returns the settings in a line; if they do not fit, only the settings that differ from the best config.
fn config(probe: &Running, status: &Status, room: usize) -> String {
    let best = status.best.as_ref().map_or(&probe.config, |best| &best.config);
    shown_settings(&probe.config, best, room)
}

fn speed(probe: &Running, elapsed: f64, status: &Status) -> String {
    let time = duration(elapsed);
    let Some(rate) = probe.throughput else {
        return match probe.steps {
            0 => format!("{time}, no step yet"),
            steps => format!("{time}, {steps} steps, too few to tell"),
        };
    };
    let ratio = rival(status).map(|best| format!(", {:.2}x the best", rate.value / best)).unwrap_or_default();
    format!("{}{ratio} ({time}, {} steps)", shown_estimate(rate, &probe.unit), probe.steps)
}

/// Returns the throughput of the best config so far, if throughput is the objective.
fn rival(status: &Status) -> Option<f64> {
    let best = status.best.as_ref()?;
    best.throughput.filter(|throughput| *throughput == best.estimate).map(|throughput| throughput.value)
}

/// Draws a throughput with its interval on an axis from 0, with `│` at the best: `──────[━━●━━]─────│────`.
fn scale(rate: Option<Estimate>, best: Option<f64>, columns: usize) -> String {
    /// The end of the axis, as a multiple of the larger throughput. A round number that leaves some room.
    const BEYOND: f64 = 1.15;
    let Some(rate) = rate.filter(|_| columns >= 20) else { return String::new() };
    let (low, high) = (rate.low.unwrap_or(rate.value).max(0.0), rate.high.unwrap_or(rate.value));
    let most = best.unwrap_or(0.0).max(rate.value) * BEYOND;
    if !(most.is_finite() && most > 0.0) {
        return String::new();
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "columns")]
    let at = |value: f64| ((value / most).clamp(0.0, 1.0) * (columns - 1) as f64).round() as usize;
    let mut signs = vec!['─'; columns];
    for (value, sign) in [(low, '['), (high, ']')] {
        signs[at(value)] = sign;
    }
    for sign in &mut signs[at(low) + 1..at(high).max(at(low) + 1)] {
        *sign = '━';
    }
    if let Some(best) = best {
        signs[at(best)] = '│';
    }
    signs[at(rate.value)] = '●';
    signs.into_iter().collect()
}

/// Describes the GPUs, then the CPU, with as many numbers as fit into `room` columns.
fn devices(probe: &Running, room: usize) -> String {
    let gpus: Vec<&Readings> = probe.devices.gpus.iter().map(|gpu| &gpu.readings).collect();
    let mut words = Vec::new();
    if gpus.len() > 1 {
        words.push(format!("{} GPUs", gpus.len()));
    }
    let share = |share: f64| format!("{:.0} %", share * 100.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes, never negative")]
    let size = |bytes: f64| show_bytes(bytes.max(0.0) as u64);
    for metric in [Metric::GpuBusy, Metric::SmActive, Metric::TensorActive, Metric::DramActive] {
        words.extend(mean(&gpus, metric).map(|value| format!("{} {}", metric.label(), share(value))));
    }
    words.extend(mean(&gpus, Metric::Power).map(|watts| format!("{} W", show_number(watts))));
    words.extend(most(&gpus, Metric::MemoryOwn).map(|bytes| format!("GPU memory {}", size(bytes))));
    let host = &probe.devices.host;
    let value = |metric: Metric| host.get(&metric).map(|reading| reading.value);
    words.extend(value(Metric::CpuCores).map(|cores| format!("CPU {cores:.1} cores")));
    words.extend(value(Metric::HostMemory).map(|bytes| format!("memory {}", size(bytes))));
    words.extend(value(Metric::ReadRate).filter(|rate| *rate >= 1e6).map(|rate| format!("reads {}/s", size(rate))));
    for metric in [Metric::CpuPressure, Metric::IoPressure, Metric::MemoryPressure] {
        let pressing = value(metric).filter(|value| *value >= 0.05);
        words.extend(pressing.map(|value| format!("{} {}", metric.label(), share(value))));
    }
    let mut line = String::new();
    for word in words {
        let joined = if line.is_empty() { word } else { format!("{line}, {word}") };
        if joined.chars().count() > room {
            break;
        }
        line = joined;
    }
    line
}

fn values(gpus: &[&Readings], metric: Metric) -> Vec<f64> {
    gpus.iter().filter_map(|readings| readings.get(&metric)).map(|reading| reading.value).collect()
}

fn mean(gpus: &[&Readings], metric: Metric) -> Option<f64> {
    let values = values(gpus, metric);
    #[expect(clippy::cast_precision_loss, reason = "a few GPUs")]
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn most(gpus: &[&Readings], metric: Metric) -> Option<f64> {
    values(gpus, metric).into_iter().max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use gputune::model::{DeviceReadings, GpuUse, Reading, Settings, Source};
    use gputune::search::BestSoFar;

    use super::*;

    fn settings(batch: i64) -> Settings {
        [("batch_size", batch), ("workers", 4)].into_iter().collect()
    }

    fn status() -> Status {
        let reading = |value| Reading { value, source: Source::Gpm };
        let gpu =
            [(Metric::GpuBusy, 0.87), (Metric::SmActive, 0.61), (Metric::Power, 412.0), (Metric::MemoryOwn, 33e9)];
        let readings = gpu.map(|(metric, value)| (metric, reading(value))).into();
        let estimate = Estimate::interval(3214.0, 3185.0, 3243.0);
        let (config, throughput, unit) = (settings(64), Some(estimate), "samples/s".to_owned());
        Status {
            format: 1,
            gputune_version: "0".to_owned(),
            name: "train.toml".to_owned(),
            pid: 1,
            machine: String::new(),
            written_ms: 0,
            elapsed_s: 130.4,
            time_s: 1200.0,
            expected_s: Some(446.0),
            gpu_time_s: None,
            searched: 7,
            probes: 24,
            rounds: 0,
            in_round: None,
            slots: Vec::new(),
            probe: Some(Running {
                number: 8,
                purpose: Purpose::Search,
                config: settings(128),
                why: Some("expected to be 12 % faster than the best: a step waits for the loader for 30 % of its time, and two more workers would make that 4 %, which the memory allows for by far and the processors as well".to_owned()),
                elapsed_s: 12.4,
                steps: 320,
                throughput: Some(Estimate::interval(3120.0, 2800.0, 3440.0)),
                unit: "samples/s".to_owned(),
                devices: DeviceReadings {
                    host: [(Metric::CpuCores, reading(3.2)), (Metric::HostMemory, reading(4e9))].into(),
                    gpus: vec![GpuUse { readings, ..GpuUse::default() }],
                },
            }),
            best: Some(BestSoFar { number: 5, config, estimate, throughput, unit, times_better: Some(1.53) }),
            ended: None,
        }
    }

    const NOTE: &str = "q or Ctrl-C stops and keeps everything";

    fn at(columns: usize) -> String {
        Block::of(&status(), Duration::ZERO, NOTE, Screen { columns, colours: false, is_verbose: false }).template()
    }

    #[test]
    fn the_view_at_40_80_and_120_columns() {
        insta::assert_snapshot!("view_40", at(40));
        insta::assert_snapshot!("view_80", at(80));
        insta::assert_snapshot!("view_120", at(120));
    }

    #[test]
    fn a_line_for_each_slot() {
        let mut status = status();
        let probe = status.probe.take();
        status.slots = vec![probe, None];
        let screen = Screen { columns: 120, colours: false, is_verbose: false };
        let text = Block::of(&status, Duration::ZERO, NOTE, screen).template();
        insta::assert_snapshot!("view_slots", text);
        assert!(text.lines().all(|line| measure_text_width(line) < 120));
    }

    #[test]
    fn it_has_always_as_many_lines_and_none_is_too_long() {
        let mut bare = status();
        (bare.probe, bare.best) = (None, None);
        let mut early = status();
        let probe = early.probe.as_mut().unwrap();
        (probe.throughput, probe.steps, probe.why, probe.devices) = (None, 0, None, DeviceReadings::default());
        let mut long = status();
        let many = (0..30).map(|at| (format!("parameter_{at}"), format!("学習 value {at}")));
        long.probe.as_mut().unwrap().config = many.collect();
        let mut extreme = status();
        extreme.probe.as_mut().unwrap().throughput = Some(Estimate::interval(1e-9, 0.0, f64::MAX));
        let mut in_rounds = status();
        in_rounds.rounds = 26;
        let height = at(80).lines().count();
        for status in [status(), bare, early, long, extreme, in_rounds] {
            for columns in [40, 60, 80, 200] {
                let screen = Screen { columns, colours: true, is_verbose: false };
                let block = Block::of(&status, Duration::from_secs(1), NOTE, screen);
                let text = block.template().replace("{bar:20}", &"━".repeat(BAR));
                assert_eq!(text.lines().count(), height);
                for line in text.lines() {
                    assert!(measure_text_width(line) < columns, "{columns}: {line}");
                }
            }
        }
    }

    #[test]
    fn the_interval_narrows_on_the_scale() {
        let wide = scale(Some(Estimate::interval(100.0, 50.0, 150.0)), Some(120.0), 47);
        let narrow = scale(Some(Estimate::interval(100.0, 95.0, 105.0)), Some(120.0), 47);
        assert_eq!(wide, "─────────────────[━━━━━━━━━━━━━━━●━━━━━━│━━━━━]");
        assert!(narrow.chars().filter(|sign| *sign == '━').count() < 4, "{narrow}");
        assert_eq!(scale(None, None, 47), "");
    }
}
