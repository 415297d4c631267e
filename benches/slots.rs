//! What a search with many slots costs the driver: ten thousand probes of a step of a millisecond in 64 slots.
//!
//! `cargo bench --bench slots [-- SLOTS PROBES STRATEGY]` prints how long slots waited for their next config, the processor time of the
//! driver beside the wall time, and its memory; `benches/results/slots.md` keeps a run.

use std::error::Error;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gputune::probe::{Step, StepError, TrainingStep};
use gputune::search::{Budget, Tuner};
use gputune::{Parameter, Settings, Space};

/// Waits between two probes in a slot, in milliseconds.
static WAITS: Mutex<Vec<f64>> = Mutex::new(Vec::new());

/// A step that sleeps, and notes how long its slot had nothing to do.
struct Sleeping {
    over: Option<Instant>,
}

impl TrainingStep for Sleeping {
    fn prepare(&mut self, _settings: &Settings) -> Result<(), StepError> {
        if let (Some(over), Ok(mut waits)) = (self.over.take(), WAITS.lock()) {
            waits.push(over.elapsed().as_secs_f64() * 1e3);
        }
        Ok(())
    }

    fn step(&mut self, settings: &Settings) -> Result<Step, StepError> {
        std::thread::sleep(Duration::from_millis(1));
        Ok(Step::new(settings.integer("batch").unwrap_or(1).unsigned_abs()))
    }

    fn release(&mut self) {
        self.over = Some(Instant::now());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let slots: u32 = words.next().map_or(Ok(64), |word| word.parse())?;
    let probes: u32 = words.next().map_or(Ok(10_000), |word| word.parse())?;
    let strategy = words.next().unwrap_or_else(|| "random".to_owned());
    let space = Space::new([
        Parameter::range("batch", 1, 64, 1),
        Parameter::range("workers", 0, 31, 1),
        Parameter::range("prefetch", 1, 16, 1),
    ])?;
    let budget =
        Budget { probes, rounds: 0, least_gain: 0.0, time: Duration::from_secs(24 * 3600), ..Budget::default() };
    let begin = Instant::now();
    let study = Tuner::slots(space, slots, |_| Sleeping { over: None })
        .budget(budget)
        .strategy(&strategy)?
        // Threads that sleep disturb each other on few cores; here they are to run side by side all the same.
        .compare_slots(false)
        .measure_time(Duration::from_millis(300))
        .run(|_| ())?;
    let (wall, used) = (begin.elapsed().as_secs_f64(), processor_seconds());
    let mut waits = WAITS.lock().map(|waits| waits.clone()).unwrap_or_default();
    waits.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let at = |share: f64| waits.get((share * (waits.len().max(1) - 1) as f64) as usize).copied().unwrap_or(f64::NAN);
    println!("{}", study.side_by_side.as_deref().unwrap_or_default());
    println!("{slots} slots, {} probes, `{strategy}`: {wall:.1} s", study.history.trials().len());
    let quantiles = (at(0.5), at(0.99), at(0.999), at(1.0));
    let (median, most_of_100, most_of_1000, most) = quantiles;
    println!(
        "waits for a config in ms: median {median:.2}, 99 % {most_of_100:.2}, 99.9 % {most_of_1000:.2}, most {most:.2}"
    );
    println!("processor time: {used:.1} s, {:.2} of a core, that of the steps included", used / wall);
    println!("most memory: {}", most_memory().unwrap_or_default());
    Ok(())
}

/// The processor time of this process (getrusage(2) by way of /proc/self/stat, in clock ticks of 10 ms).
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn most_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().to_owned())
}
