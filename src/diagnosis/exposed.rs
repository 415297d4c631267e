//! The cost of communication between ranks, measured by the same training without communication.

use serde::Serialize;

use super::cause::{shown_share, thresholds};
use super::evidence::{Differential, Evidence, ratio};
use crate::model::{Estimate, Exchange, Measurement};

thresholds! {
    /// From this share on, parameters that only change how ranks communicate are worth a probe.
    OPENED = 0.05 => "share of the time that training without communication saves, at least",
        "half of the 10% below which torch's noop_hook calls all-reduce no bottleneck (debugging_hooks.py); about the noise between runs";
}

/// The fact that a probe reports if its ranks did not communicate.
const SILENT: &str = "no_communication";

/// The share of the time in communication that does not overlap with computing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Exposed {
    /// The share, from 0 to 1, with the interval that both rates allow.
    pub share: Estimate,
    /// The speedup of the job without communication.
    pub times: f64,
    /// The probe that measured it.
    pub by: Differential,
}

impl Exposed {
    /// Returns the share from the rate of a job and its rate without communication.
    fn of(rate: Estimate, without: Estimate, by: Differential) -> Option<Self> {
        let share = |rate: f64, without: f64| (1.0 - rate / without).clamp(0.0, 1.0);
        let times = ratio(without.value, rate.value)?.max(1.0);
        let value = share(rate.value, without.value);
        let ends = || Some((share(rate.high?, without.low?), share(rate.low?, without.high?)));
        let share = ends().map_or(Estimate::point(value), |(low, high)| Estimate::interval(value, low, high));
        Some(Self { share, times, by })
    }

    /// Returns true if the share is too small to open a parameter for it.
    pub fn is_small(&self) -> bool {
        self.share.value < OPENED.value
    }

    /// Returns the share in words: `34 % exposed (30 % to 38 %)`.
    pub fn words(&self) -> String {
        let ends = self.share.low.zip(self.share.high);
        let ends = ends.map(|(low, high)| format!(" ({} to {})", shown_share(low), shown_share(high)));
        format!("{} exposed{}", shown_share(self.share.value), ends.unwrap_or_default())
    }
}

/// Returns how much slower the slowest rank is than rank 0, whose steps are counted. Without communication, rank 0 does not wait
/// for it.
fn lag(run: &Measurement) -> f64 {
    let times = run.facts.by_rank("step_compute_seconds");
    let slowest = times.values().copied().fold(0.0, f64::max);
    times.get(&0).and_then(|first| ratio(slowest, *first)).map_or(1.0, |lag| lag.max(1.0))
}

impl Evidence {
    /// Returns the cost of communication if a differential probe measured it; `None` in a job of one rank.
    ///
    /// Without communication each rank runs at its own pace, so the job counts as fast as its slowest rank. Waiting for a slower
    /// rank is not a cost of communication.
    pub fn exposed_communication(&self) -> Option<Exposed> {
        self.exposed_without_communication().or_else(|| self.exposed_beside_one_rank())
    }

    pub(super) fn exposed_without_communication(&self) -> Option<Exposed> {
        let run = self.run(Differential::NoCommunication).filter(|_| self.ranks() > 1)?;
        run.facts.flag(SILENT).filter(|silent| *silent)?;
        let without = self.rate_of(Differential::NoCommunication)?.times(1.0 / lag(run));
        Exposed::of(self.rate()?, without, Differential::NoCommunication)
    }

    /// Returns the cost by a probe of one rank. This rank has the machine to itself, so its gain is an upper bound of the cost.
    fn exposed_beside_one_rank(&self) -> Option<Exposed> {
        let one = self.rate_of(Differential::OneRank).filter(|_| self.ranks() > 1)?;
        Exposed::of(self.rate()?, one.times(f64::from(self.ranks())), Differential::OneRank)
    }

    /// Returns the wrapper of torch that exchanges gradients or shards weights, if any.
    pub(super) fn wrapper(&self) -> Option<&str> {
        self.text("distributed.wrapper")
    }

    /// Returns why this job cannot train without communication; `None` if it can.
    pub fn why_not_without_communication(&self) -> Option<&'static str> {
        match self.wrapper() {
            _ if self.ranks() < 2 => Some("there is one rank"),
            Some("DistributedDataParallel" | "fully_shard") => None,
            Some(_) => Some("FullyShardedDataParallel (FSDP1) cannot be kept from communicating"),
            None => Some("neither DistributedDataParallel nor fully_shard trains"),
        }
    }
}

/// The wrapper or library that a parameter configures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Ddp,
    FullyShard,
    Fsdp1,
    Nccl,
}

impl Family {
    fn of(target: &str) -> Option<Self> {
        match target {
            "fsdp.sharding_strategy" => Some(Self::Fsdp1),
            _ if target.starts_with("ddp.") => Some(Self::Ddp),
            _ if target.starts_with("fsdp.") => Some(Self::FullyShard),
            _ if target.starts_with("nccl.") || target.starts_with("env.NCCL_") => Some(Self::Nccl),
            _ => None,
        }
    }

    fn why_not(self, evidence: &Evidence) -> Option<String> {
        let is_by = |wrapper: &str| evidence.wrapper().is_none_or(|known| known == wrapper);
        let fits = match self {
            Self::Ddp => is_by("DistributedDataParallel"),
            Self::FullyShard => is_by("fully_shard"),
            Self::Fsdp1 => is_by("FullyShardedDataParallel"),
            Self::Nccl => {
                let backend = evidence.text("distributed.backend").filter(|backend| !backend.contains("nccl"));
                return backend.map(|backend| format!("the ranks talk by {backend}"));
            }
        };
        let wrapper = evidence.wrapper().unwrap_or_default();
        (!fits).then(|| format!("the script trains with {wrapper}"))
    }
}

/// Returns true if a target only changes how ranks communicate.
pub fn is_about_exchange(target: &str) -> bool {
    Family::of(target).is_some()
}

/// Decides which communication parameters are not searched. `parameters` are their names, each with its target. `failure` is the
/// reason why an attempt to measure training without communication failed.
pub fn exchange(evidence: &Evidence, failure: Option<&str>, parameters: &[(String, String)]) -> Exchange {
    let (mut closes, mut words) = (Vec::new(), Vec::new());
    if evidence.ranks() < 2 {
        closes.extend(parameters.iter().map(|(name, _)| name.clone()));
        return Exchange { exposed: None, words: format!("there is one rank: {} closed", closes.join(", ")), closes };
    }
    let mut open: Vec<String> = Vec::new();
    for (name, target) in parameters {
        match Family::of(target).and_then(|family| family.why_not(evidence)) {
            Some(reason) => {
                words.push(format!("{reason}: {name} closed"));
                closes.push(name.clone());
            }
            None => open.push(name.clone()),
        }
    }
    let exposed = evidence.exposed_communication();
    let names = open.join(", ");
    match exposed {
        _ if open.is_empty() => {}
        Some(exposed) if exposed.is_small() => {
            words.push(format!("communication is {}: {names} closed", exposed.words()));
            closes.append(&mut open);
        }
        Some(exposed) => words.push(format!("communication is {}: {names} opened", exposed.words())),
        None => {
            let reason = failure.or_else(|| evidence.why_not_without_communication()).unwrap_or("it was not tried");
            words.push(format!("what communication costs was not measured ({reason}): {names} opened"));
        }
    }
    Exchange { exposed: exposed.map(|exposed| exposed.share), closes, words: words.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::sample::Job;

    fn parameters() -> Vec<(String, String)> {
        let both = |(name, target): (&str, &str)| (name.to_owned(), target.to_owned());
        [("bucket", "ddp.bucket_cap_mb"), ("reshard", "fsdp.reshard_after_forward"), ("channels", "nccl.channels")]
            .map(both)
            .into()
    }

    fn two_ranks() -> Job {
        Job::gpu().ranks(2).text("distributed.wrapper", "DistributedDataParallel").text("distributed.backend", "nccl")
    }

    #[test]
    fn the_share_is_what_training_without_communication_saves() {
        let exposed = two_ranks().without_communication(150.0, &[]).evidence().exposed_communication().unwrap();
        assert!((exposed.share.value - 1.0 / 3.0).abs() < 1e-9 && (exposed.times - 1.5).abs() < 1e-9);
        // 1 - 101 / 148.5 and 1 - 99 / 151.5, as both rates have intervals of 1 %.
        let ends = (exposed.share.low.unwrap(), exposed.share.high.unwrap());
        assert!((ends.0 - 0.3199).abs() < 1e-3 && (ends.1 - 0.3465).abs() < 1e-3, "{ends:?}");
        assert_eq!(exposed.words(), "33 % exposed (32 % to 35 %)");
        let faster = two_ranks().without_communication(90.0, &[]).evidence().exposed_communication().unwrap();
        assert_eq!((faster.share.value, faster.times), (0.0, 1.0));
    }

    #[test]
    fn waiting_for_a_slower_rank_is_no_communication() {
        let job = two_ranks().without_communication(150.0, &[(0, 0.1), (1, 0.15)]);
        let exposed = job.evidence().exposed_communication().unwrap();
        assert!(exposed.is_small() && exposed.share.value < 1e-9, "{exposed:?}");
        let job = two_ranks().without_communication(150.0, &[(0, 0.15), (1, 0.1)]);
        assert!(!job.evidence().exposed_communication().unwrap().is_small(), "the slowest is counted already");
    }

    #[test]
    fn one_rank_has_nothing_to_exchange() {
        let alone = Job::gpu().without_communication(150.0, &[]).evidence();
        assert_eq!(alone.exposed_communication(), None);
        let exchange = exchange(&alone, None, &parameters());
        assert_eq!(exchange.closes, ["bucket", "reshard", "channels"]);
        assert_eq!(exchange.words, "there is one rank: bucket, reshard, channels closed");
    }

    #[test]
    fn what_is_about_the_exchange_is_opened_from_five_percent_on() {
        let dear = exchange(&two_ranks().without_communication(150.0, &[]).evidence(), None, &parameters());
        assert_eq!(dear.closes, ["reshard"], "the script does not shard");
        assert!(
            dear.words.ends_with("communication is 33 % exposed (32 % to 35 %): bucket, channels opened"),
            "{}",
            dear.words
        );
        let cheap = exchange(&two_ranks().without_communication(102.0, &[]).evidence(), None, &parameters());
        assert_eq!(cheap.closes, ["reshard", "bucket", "channels"]);
        assert!(cheap.words.contains("communication is 2 % exposed"), "{}", cheap.words);
        let unknown = exchange(&two_ranks().evidence(), Some("no memory"), &parameters());
        assert_eq!(unknown.closes, ["reshard"]);
        assert!(unknown.words.contains("was not measured (no memory): bucket, channels opened"), "{}", unknown.words);
        let gloo = exchange(&two_ranks().text("distributed.backend", "gloo").evidence(), None, &parameters());
        assert!(gloo.words.contains("the ranks talk by gloo: channels closed"), "{}", gloo.words);
    }

    #[test]
    fn a_probe_that_talked_all_the_same_tells_nothing() {
        let job = two_ranks().ran(Differential::NoCommunication, 150.0);
        assert_eq!(job.evidence().exposed_communication(), None);
    }
}
