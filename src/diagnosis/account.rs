//! The account of a run: its wall time, divided into the leaves of a tree. The leaves add up to the wall time, and no
//! threshold decides which of them are listed.

use serde::Serialize;

use super::evidence::Evidence;
use super::lines;
use super::starvation;
use crate::model::{Estimate, Metric};

/// A top branch of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Branch {
    /// From the start of the run to the end of its first step.
    Start,
    /// Between training steps: evaluation, checkpoints, edges of epochs.
    Outside,
    /// The step waits for data.
    Data,
    /// The step waits for copies to the device.
    Copies,
    /// The device computes.
    Device,
    /// Ranks wait for each other.
    Communication,
    /// The loop's own code runs, and the device idles.
    OwnCode,
    /// A part that the script itself names, or all steps if no phase was timed.
    Told,
}

/// The description of a branch.
#[derive(Debug)]
pub struct BranchRow {
    /// The branch.
    pub branch: Branch,
    /// The name on the screen.
    pub label: &'static str,
    /// The probe that removes the branch to measure its cost, or the reason why no probe can.
    pub probe: &'static str,
}

const fn row(branch: Branch, label: &'static str, probe: &'static str) -> BranchRow {
    BranchRow { branch, label, probe }
}

/// The branches, in the order in which they are listed.
pub const BRANCHES: &[BranchRow] = &[
    row(Branch::Start, "start", "none: it is there once, however long the run"),
    row(Branch::Outside, "outside of steps", "none: its share of the wall time is its cost"),
    row(Branch::Data, "waiting for data", "replayed batches"),
    row(Branch::Copies, "copies", "pinned batches"),
    row(Branch::Device, "device busy", "twice the batch, another precision"),
    row(Branch::Communication, "waiting for other ranks", "no communication, or one rank"),
    row(Branch::OwnCode, "the loop's own code", "none: only the script can leave it out, so gputune locates it"),
    row(Branch::Told, "parts that the script names", "none"),
];

impl Branch {
    /// Returns its description.
    pub fn row(self) -> &'static BranchRow {
        BRANCHES.iter().find(|row| row.branch == self).unwrap_or(&BRANCHES[0])
    }
}

/// A part of the wall time that is not divided further.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Leaf {
    /// The branch of the leaf.
    pub branch: Branch,
    /// The name of a phase, or of a part known from the hook's facts.
    pub name: String,
    /// Seconds of this run, with the interval for another run of the same length.
    pub seconds: Estimate,
    /// The share of the wall time.
    pub share: f64,
    /// The share of the time after the start; 0 for the start itself.
    pub share_after_start: f64,
    /// The source of the seconds.
    pub source: &'static str,
}

/// The wall time of a run, divided into leaves.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Account {
    /// From the start of the run to the end of its last observed step, in seconds.
    pub wall_s: f64,
    /// From the start of the run to the end of its first step, in seconds; part of `wall_s`.
    pub start_s: f64,
    /// The parts of the wall time; their seconds add up to it.
    pub leaves: Vec<Leaf>,
}

/// The phases that gputune knows, with the branch of each.
const PHASES: &[(&str, Branch)] = &[
    ("evaluation", Branch::Outside),
    ("checkpoint", Branch::Outside),
    ("epoch_edge", Branch::Outside),
    ("data_wait", Branch::Data),
    ("host_to_device", Branch::Copies),
    ("forward", Branch::Device),
    ("backward", Branch::Device),
    ("optimizer", Branch::Device),
    ("communication", Branch::Communication),
];

/// Leaves within the time outside of phases: the name, and the fact that gives the seconds per step.
const WITHIN_REST: &[(&str, &str)] = &[("logging", "log_seconds_per_step"), ("reading", "sync_seconds_per_step")];

const CLOCK: &str = "times of steps";
const OF_HOST: &str = "hook, host's clock";
const OF_DEVICE: &str = "hook, device's events";
const IMPORTS: &str = "hook, import times";
const SAMPLED: &str = "hook, one step in eight";
const SITES: &str = "hook, calls in the script";
const STACKS: &str = "hook, looks at the stack";
const REST: &str = "the remaining time";
const BUSY: &str = "the remaining time in which the driver calls the GPU busy";

impl Account {
    /// Returns the account of an observed run; `None` if its steps were not timed.
    pub fn of(evidence: &Evidence) -> Option<Self> {
        let told = evidence.observed.account.as_ref().filter(|told| told.wall_s() > 0.0 && told.steps_s > 0.0)?;
        let mut account = Self { wall_s: told.wall_s(), start_s: told.start_s, leaves: Vec::new() };
        let importing = evidence.number("import_seconds").unwrap_or(0.0).min(told.start_s);
        account.add(Branch::Start, "importing", Estimate::point(importing), IMPORTS);
        account.add(Branch::Start, "starting", Estimate::point(told.start_s - importing), CLOCK);
        let known = |name: &str| PHASES.iter().any(|(phase, _)| *phase == name);
        let computing: f64 = ["forward", "backward", "optimizer"]
            .iter()
            .filter_map(|name| told.phases.get(*name))
            .map(|seconds| seconds.value)
            .sum();
        let python = lines::python_in_computing(evidence) * computing;
        let mut left = python;
        for (name, branch) in PHASES {
            if let Some(seconds) = told.phases.get(*name) {
                // Subtract Python time from the forward pass first: most layers and hooks run there.
                let taken = if *branch == Branch::Device { left.min(seconds.value) } else { 0.0 };
                left -= taken;
                let seconds = &less(*seconds, taken);
                let is_of_device = evidence.is_gpu() && *branch != Branch::Outside;
                account.add(*branch, name, *seconds, if is_of_device { OF_DEVICE } else { OF_HOST });
            }
        }
        account.add(Branch::OwnCode, "python", Estimate::point(python - left), STACKS);
        for (name, seconds) in told.phases.iter().filter(|(name, _)| !known(name)) {
            account.add(Branch::Told, name, *seconds, "the script");
        }
        account.add_rest(evidence, told.rest, told.phases.is_empty());
        Some(account)
    }

    fn add(&mut self, branch: Branch, name: &str, seconds: Estimate, source: &'static str) {
        if seconds.value <= 0.0 {
            return;
        }
        let after_start = self.wall_s - self.start_s;
        self.leaves.push(Leaf {
            branch,
            name: name.to_owned(),
            seconds,
            share: seconds.value / self.wall_s,
            share_after_start: if branch == Branch::Start { 0.0 } else { seconds.value / after_start },
            source,
        });
    }

    /// Divides the time outside of phases into device work, known calls and the loop's own code. If no phase was timed,
    /// adds it as a single leaf.
    fn add_rest(&mut self, evidence: &Evidence, rest: Estimate, has_no_phases: bool) {
        if has_no_phases {
            self.add(Branch::Told, "steps", rest, CLOCK);
            return;
        }
        let (steps, mut left) = (steps_after_first(evidence), rest.value);
        let mut take = |seconds: f64| {
            let taken = seconds.clamp(0.0, left);
            left -= taken;
            taken
        };
        let busy = take(busy_rest(evidence, rest.value));
        let operations = take(evidence.number("operation_seconds_per_step").unwrap_or(0.0) * steps);
        let within: Vec<(&str, f64)> = WITHIN_REST
            .iter()
            .map(|(leaf, fact)| (*leaf, take(evidence.number(fact).unwrap_or(0.0) * steps)))
            .collect();
        self.add(Branch::Device, "operations", Estimate::point(operations), SAMPLED);
        self.add(Branch::Device, "other", Estimate::point(busy), BUSY);
        for (leaf, seconds) in within {
            self.add(Branch::OwnCode, leaf, Estimate::point(seconds), SITES);
        }
        self.add(Branch::OwnCode, "own_code", less(rest, rest.value - left), REST);
    }

    /// Returns the share of the time after the start that a branch takes.
    pub fn share(&self, branch: Branch) -> f64 {
        self.leaves.iter().filter(|leaf| leaf.branch == branch).map(|leaf| leaf.share_after_start).sum()
    }

    /// Returns a leaf by its name.
    pub fn leaf(&self, name: &str) -> Option<&Leaf> {
        self.leaves.iter().find(|leaf| leaf.name == name)
    }

    /// Returns the branches that have a leaf, each with its share of the time after the start, the largest first.
    pub fn branches(&self) -> Vec<(Branch, f64)> {
        let mut shares: Vec<(Branch, f64)> = BRANCHES
            .iter()
            .filter(|row| row.branch != Branch::Start)
            .map(|row| (row.branch, self.share(row.branch)))
            .filter(|(_, share)| *share > 0.0)
            .collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares
    }
}

/// Subtracts the taken seconds from an estimate and from both ends of its interval.
fn less(of: Estimate, taken: f64) -> Estimate {
    let moved = |end: f64| (end - taken).max(0.0);
    Estimate { value: of.value - taken, low: of.low.map(moved), high: of.high.map(moved) }
}

fn steps_after_first(evidence: &Evidence) -> f64 {
    let timing = &evidence.observed.timing;
    let outliers: u64 = timing.outliers.values().map(|outliers| outliers.steps).sum();
    ((timing.steps + timing.warmup_steps + outliers) as f64).max(1.0)
}

/// Returns the seconds of `rest` in which the GPU computes. The host's own code costs time only while the GPU idles.
fn busy_rest(evidence: &Evidence, rest: f64) -> f64 {
    let Some(busy) = evidence.gpu(Metric::GpuBusy).filter(|_| evidence.is_gpu()) else { return 0.0 };
    let told = evidence.observed.account.as_ref();
    let steps_s = told.map_or(0.0, |told| told.steps_s);
    let idle = (1.0 - busy).max(0.0) - starvation::exposed_wait(evidence);
    (rest - idle.max(0.0) * steps_s).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::sample::Job;

    fn adds_up(account: &Account) {
        let sum: f64 = account.leaves.iter().map(|leaf| leaf.seconds.value).sum();
        assert!((sum - account.wall_s).abs() < 1e-9 * account.wall_s, "{account:#?}");
        let shares: f64 = account.leaves.iter().map(|leaf| leaf.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{account:#?}");
        let after_start: f64 = account.branches().iter().map(|(_, share)| share).sum();
        assert!((after_start - 1.0).abs() < 1e-9, "{account:#?}");
    }

    #[test]
    fn the_leaves_add_up_to_the_wall_time() {
        for job in [
            Job::cpu(),
            Job::cpu().spent("evaluation", 0.48),
            Job::cpu().spent("data_wait", 0.9).number("log_seconds_per_step", 9.0),
            Job::cpu().spent("mine", 0.3).number("operation_seconds_per_step", 0.001),
            Job::gpu().spent("host_to_device", 0.2),
        ] {
            let account = Account::of(&job.evidence()).unwrap();
            adds_up(&account);
            assert!(account.leaf("starting").is_some());
        }
        assert_eq!(Account::of(&Evidence::default()), None);
    }

    #[test]
    fn what_the_loop_computes_is_no_python() {
        let job = Job::cpu().spent("forward", 0.3).spent("backward", 0.3).spent("optimizer", 0.0);
        let step = job.evidence().step().unwrap();
        let own = Account::of(&job.evidence()).unwrap().share(Branch::OwnCode);
        let told = job.number("operation_seconds_per_step", 0.3 * step).evidence();
        let account = Account::of(&told).unwrap();
        assert!(own > 0.35 && account.share(Branch::OwnCode) < 0.15, "{own} {account:#?}");
        adds_up(&account);
    }

    #[test]
    fn python_within_the_model_is_the_scripts_own() {
        let job = Job::cpu().spent("forward", 0.6).spent("backward", 0.3).spent("optimizer", 0.05);
        let before = Account::of(&job.evidence()).unwrap();
        let kinds = r#"{"samples": 100, "seconds": 2.0, "kinds": {"python": 0.45, "forward": 0.3, "backward": 0.15}, "lines": []}"#;
        let account = Account::of(&job.text("lines.main", kinds).evidence()).unwrap();
        adds_up(&account);
        let device = before.share(Branch::Device);
        assert!((account.leaf("python").unwrap().share_after_start - device / 2.0).abs() < 1e-9, "{account:#?}");
        assert!((account.share(Branch::Device) - device / 2.0).abs() < 1e-9, "{account:#?}");
        let of_gpu = Job::gpu().spent("forward", 0.6).text("lines.main", kinds).evidence();
        assert!(Account::of(&of_gpu).unwrap().leaf("python").is_none());
    }

    #[test]
    fn a_gpu_that_computes_is_not_idle() {
        let job = Job::gpu().spent("forward", 0.3).spent("backward", 0.3).spent("optimizer", 0.0);
        let own = |busy: f64| {
            let job = job.clone().gpu_reading(Metric::GpuBusy, busy);
            Account::of(&job.evidence()).unwrap().share(Branch::OwnCode)
        };
        assert!(own(0.99) < 0.02 && own(0.5) > 0.3, "{} {}", own(0.99), own(0.5));
    }
}
