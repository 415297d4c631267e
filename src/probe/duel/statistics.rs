//! The ratios of configs' speeds from interleaved blocks of steps.
//!
//! The unit is the round. For four blocks in the order A, B, B, A, the ratio of both mean rates is free of any drift that is
//! linear over the round. A drift that is not linear leaves a rest that differs from round to round, so the interval includes it.
//! The interval is Student's t over the rounds ("The probable error of a mean", Biometrika 6(1), 1908). In logarithms, the
//! interval of A over B is the interval of B over A with opposite sign.
//!
//! The progress of a training is its mean rate over time. If bursts slow only one config, the mean of the logarithms of
//! its rate is too low: by 8% for a config that alternates between 0.6 and 1.4 of its mean rate. So levels are
//! logarithms of means, and each round has the weight of its duration ([`influences`]).

use super::{Block, Side, Way};
use crate::model::Estimate;
use crate::probe::stats::{mean, student_quantile};

/// The minimum number of rounds before a narrow interval may end a duel.
///
/// With fewer rounds, t intervals are too often narrow by chance. Also, a burst of another program that lasts a few
/// seconds may be in all rounds or in none.
pub(super) const FEWEST_ROUNDS: usize = 4;

/// The error probability at each end of a 95% interval.
const TAIL: f64 = 0.025;

/// The speed of each side in each complete round. The mean of a side's numbers is the logarithm of the side's mean rate
/// over time ([`influences`]).
#[derive(Debug, Clone, PartialEq)]
pub(in crate::probe) struct Levels {
    /// One number for each round and side.
    rounds: Vec<Vec<f64>>,
    tail: f64,
}

impl Levels {
    pub(in crate::probe) fn of(blocks: &[Block], way: Way, sides: usize) -> Self {
        let rounds: Vec<&[Block]> = complete(blocks, way, sides).collect();
        let of_side = |side: Side| {
            let rate = |round: &[Block]| {
                let own: Vec<f64> = round.iter().filter(|block| block.side == side).map(|block| block.rate).collect();
                mean(&own)
            };
            influences(&rounds.iter().filter_map(|round| Some((rate(round)?, length(round)))).collect::<Vec<_>>())
        };
        let of_sides: Vec<Vec<f64>> = Side::first(sides).map(of_side).collect();
        let of_round = |round: usize| of_sides.iter().map(|levels| levels[round]).collect();
        Self::of_rounds((0..rounds.len()).map(of_round).collect())
    }

    pub(super) fn of_rounds(rounds: Vec<Vec<f64>>) -> Self {
        Self { rounds, tail: TAIL }
    }

    pub(in crate::probe) fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// Returns the speedup of one side over another, with its 95% interval if there are two rounds.
    pub(in crate::probe) fn ratio(&self, of: Side, to: Side) -> Option<Estimate> {
        let logs: Vec<f64> = self.rounds.iter().map(|round| round[of.place()] - round[to.place()]).collect();
        interval(&logs, self.tail)
    }

    /// Returns the rate of a side over its blocks in complete rounds, with its 95% interval if there are two rounds.
    pub(in crate::probe) fn rate(blocks: &[Block], way: Way, (side, sides): (Side, usize)) -> Option<Estimate> {
        let own = complete(blocks, way, sides).flat_map(|round| {
            let of_side = round.iter().filter(move |block| block.side == side);
            of_side.map(|block| (block.rate, length(round)))
        });
        interval(&influences(&own.collect::<Vec<_>>()), TAIL)
    }

    /// Returns these levels, with the wider intervals of an early end, if the duel may end now. Returns `None` if the
    /// number of rounds is not one of the [looks], or if the first side's ratio to another side is not precise enough.
    ///
    /// If an interval is checked often, it is more often narrow by chance, and then misses the truth. So an early end
    /// uses a repeated confidence interval (Jennison and Turnbull, "Interim analyses: the repeated confidence interval
    /// approach", JRSS B 51(3), 1989). All [looks] share the error probability of 5%. For example, each of two looks
    /// uses an interval of 97.5%. Then at least 93% of intervals cover the truth for any requested width, as the
    /// simulation below shows.
    pub(in crate::probe) fn precise(&self, half_width: f64, rounds: u32) -> Option<Self> {
        let looks: Vec<usize> = looks(rounds as usize).collect();
        if !looks.contains(&self.rounds.len()) {
            return None;
        }
        let early = Self { rounds: self.rounds.clone(), tail: TAIL / looks.len().max(2) as f64 };
        let sides = self.rounds.first().map_or(0, Vec::len);
        let half = |side| early.ratio(Side::A, side)?.relative_half_width();
        let is_narrow = Side::first(sides).skip(1).all(|side| half(side).is_some_and(|half| half <= half_width));
        is_narrow.then_some(early)
    }
}

/// Returns the complete rounds of `sides` sides in which all sides made progress.
fn complete(blocks: &[Block], way: Way, sides: usize) -> impl Iterator<Item = &[Block]> {
    let did = |block: &Block| block.rate > 0.0 && block.rate.is_finite();
    blocks.chunks_exact(way.turns(sides)).filter(move |round| round.iter().all(did))
}

fn length(round: &[Block]) -> f64 {
    let (first, last) = (round.first(), round.last());
    first.zip(last).map_or(0.0, |(first, last)| (last.end_s - first.begin_s).max(f64::MIN_POSITIVE))
}

/// Returns one number per rate. The mean of the numbers is the logarithm of the mean rate over time, and their scatter
/// gives the uncertainty of this logarithm. Each rate comes with its duration.
///
/// Let m be the mean rate, and w the duration of a rate r divided by the mean duration. To first order, the rate r
/// moves the logarithm of m by w (r / m - 1) divided by the number of rates. This is the delta method; for a ratio of
/// means: Cochran, "Sampling Techniques", 1977, chapter 6.
fn influences(rates: &[(f64, f64)]) -> Vec<f64> {
    let time: f64 = rates.iter().map(|(_, time)| time).sum();
    let average = rates.iter().map(|(rate, time)| rate * time).sum::<f64>() / time;
    let weight = |part: f64| part / time * rates.len() as f64;
    rates.iter().map(|(rate, part)| average.ln() + weight(*part) * (rate / average - 1.0)).collect()
}

/// Returns the numbers of rounds, before the last of `rounds`, at which the duel checks for an early end. Each number is 1.5 times
/// the previous number, so there are few looks for any number of rounds.
fn looks(rounds: usize) -> impl Iterator<Item = usize> {
    let looks = std::iter::successors(Some(FEWEST_ROUNDS), |&look| Some((look * 3).div_ceil(2)));
    looks.take_while(move |look| *look < rounds)
}

/// Returns the ratio from the logarithms of the rounds' ratios. The share `tail` lies beyond each end of its interval.
fn interval(logs: &[f64], tail: f64) -> Option<Estimate> {
    let middle = mean(logs)?;
    let degrees = logs.len() - 1;
    if degrees == 0 {
        return Some(Estimate::point(middle.exp()));
    }
    let (count, free) = (logs.len() as f64, degrees as f64);
    let variance = logs.iter().map(|log| (log - middle).powi(2)).sum::<f64>() / free;
    let half = student_quantile(degrees, tail) * (variance / count).sqrt();
    Some(Estimate::interval(middle.exp(), (middle - half).exp(), (middle + half).exp()))
}

#[cfg(test)]
mod tests {
    use super::super::ROUNDS;
    use super::*;
    use crate::probe::stats::simulation::Random;
    use crate::probe::stats::{MeanRate, Work};

    fn block(side: Side, rate: f64) -> Block {
        Block { side, begin_s: 0.0, end_s: 1.0, steps: 10, dropped_steps: 1, rate, rate_between_ends: None }
    }

    /// Returns rounds of two sides with these differences.
    fn levels(logs: &[f64]) -> Levels {
        Levels::of_rounds(logs.iter().map(|log| vec![*log, 0.0]).collect())
    }

    #[test]
    fn a_linear_drift_leaves_nothing_in_a_round() {
        let drifting = |turn: usize| {
            let side = Side::of_turn(turn, 2);
            let base: f64 = if side == Side::A { 1.1 } else { 1.0 };
            block(side, base * (-0.001 * turn as f64).exp())
        };
        let blocks: Vec<Block> = (0..8).map(drifting).collect();
        let levels = Levels::of(&blocks, Way::InTurn, 2);
        assert_eq!(levels.rounds(), 2);
        let ratio = levels.ratio(Side::A, Side::B).unwrap();
        assert!((ratio.value - 1.1).abs() < 1e-4 && ratio.relative_half_width().unwrap() < 1e-4, "{ratio:?}");
        assert_eq!(Levels::of(&blocks[..7], Way::InTurn, 2).rounds(), 1, "only complete rounds count");
        assert_eq!(Levels::of(&blocks[..7], Way::Processes, 2).rounds(), 3);
        let stopped = [(Side::A, 1.0), (Side::B, 0.0), (Side::B, 1.0), (Side::A, 1.0)];
        let stopped = stopped.map(|(side, rate)| block(side, rate));
        assert_eq!(Levels::of(&stopped, Way::InTurn, 2).rounds(), 0, "blocks that did nothing give no ratio");
    }

    /// A trains at half of its speed for half of the time, and B at constant speed. Rounds with a slow A take twice as long, so
    /// there are half as many of them.
    #[test]
    fn the_ratio_compares_the_work_over_time() {
        let in_round = |at: usize| {
            let (side, is_slow) = (Side::of_turn(at % 4, 2), (at / 4).is_multiple_of(3));
            let rate = if is_slow && side == Side::A { 0.5 } else { 1.0 };
            Block { end_s: if is_slow { 2.0 } else { 1.0 }, ..block(side, rate) }
        };
        let blocks: Vec<Block> = (0..48).map(in_round).collect();
        let ratio = Levels::of(&blocks, Way::InTurn, 2).ratio(Side::A, Side::B).unwrap();
        assert!((ratio.value - 0.75).abs() < 1e-9, "{ratio:?}");
        assert!(ratio.low.unwrap() < 0.65 && ratio.high.unwrap() > 0.85, "{ratio:?}");
        let rate = Levels::rate(&blocks, Way::InTurn, (Side::A, 2)).unwrap();
        assert!((rate.value - 0.75).abs() < 1e-9, "{rate:?}");
    }

    #[test]
    fn one_round_has_no_interval_and_the_other_way_round_it_is_the_same() {
        let ratio = |logs| levels(logs).ratio(Side::A, Side::B);
        assert_eq!(ratio(&[]), None);
        assert_eq!(ratio(&[0.0]), Some(Estimate::point(1.0)));
        let there = ratio(&[0.1, 0.2, 0.4]).unwrap();
        let back = levels(&[0.1, 0.2, 0.4]).ratio(Side::B, Side::A).unwrap();
        assert!((there.value * back.value - 1.0).abs() < 1e-12);
        assert!((there.low.unwrap() * back.high.unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_narrow_interval_counts_only_at_a_look() {
        let is_precise = |logs: &[f64]| levels(logs).precise(0.02, ROUNDS).is_some();
        assert!(!is_precise(&[0.1; 3]));
        assert!(is_precise(&[0.1; 4]));
        assert!(!is_precise(&[0.1; 5]), "it is not looked then");
        assert!(!is_precise(&[0.1, 0.2, 0.1, 0.2]));
        assert_eq!(looks(40).collect::<Vec<_>>(), [4, 6, 9, 14, 21, 32]);
    }

    /// The differences of the rounds scatter by 3%.
    #[test]
    fn ended_early_the_interval_covers_the_truth_whatever_width_was_asked_for() {
        let mut random = Random(6);
        for half_width in [0.02, 0.03, 0.05, 0.08] {
            let mut covers = || {
                let mut levels = levels(&[]);
                let ended = loop {
                    levels.rounds.push(vec![0.03 * random.normal(), 0.0]);
                    let early = levels.precise(half_width, ROUNDS);
                    if early.is_some() || levels.rounds() >= ROUNDS as usize {
                        break early.unwrap_or(levels);
                    }
                };
                let ratio = ended.ratio(Side::A, Side::B).unwrap();
                ratio.low.unwrap() <= 1.0 && 1.0 <= ratio.high.unwrap()
            };
            let covered = (0..1000).filter(|_| covers()).count();
            assert!(covered >= 930, "+-{half_width}: {covered} of 1000");
        }
    }

    /// The steps in a second, and the duration of each way in seconds.
    const STEPS: usize = 50;
    const SECONDS: usize = 27;
    /// How much a machine's speed changes while two configs are compared.
    const AMOUNT: f64 = 0.08;
    /// The speed of A over B.
    const TRUTH: f64 = 1.05;
    /// The counted steps of a block, a quarter of a second, and the steps before them that do not count.
    const COUNTED: usize = STEPS / 4;
    const DROPPED: usize = 2;

    /// The kinds of change: a steady change; a random walk, whose standard deviation at the end is [`AMOUNT`]; and
    /// another program. That program takes [`AMOUNT`] of the machine's time in total, in bursts of half a second on
    /// average. A burst takes a third of the machine.
    type Drift = [bool; 3];

    /// Returns the machine's speed at each step.
    fn speeds([is_linear, walks, bursts]: Drift, random: &mut Random) -> Vec<f64> {
        let length = STEPS * SECONDS;
        let (mut walk, mut burst) = (0.0, 0_usize);
        let speed = |at: usize| {
            walk += AMOUNT / (length as f64).sqrt() * random.normal();
            let depth = 1.0 / 3.0;
            let mean_steps = STEPS as f64 / 2.0;
            if burst == 0 && random.uniform() < AMOUNT / depth / mean_steps {
                burst = (-mean_steps * random.uniform().ln()).ceil() as usize;
            }
            burst = burst.saturating_sub(1);
            let linear = if is_linear { 1.0 - AMOUNT * at as f64 / length as f64 } else { 1.0 };
            let burst = if bursts && burst > 0 { 1.0 - depth } else { 1.0 };
            let walked = if walks { walk.exp() } else { 1.0 };
            linear * walked * burst
        };
        (0..length).map(speed).collect()
    }

    /// The work of a step in 1 / [`STEPS`] of a second; step times scatter by 5%.
    fn work(speed: f64, side: Side, random: &mut Random) -> Work {
        let base = if side == Side::A { TRUTH } else { 1.0 };
        Work { amount: speed * base * (1.0 + 0.05 * random.normal()), seconds: 1.0 / STEPS as f64 }
    }

    fn duel(drift: Drift, half_width: f64, random: &mut Random) -> Estimate {
        let speeds = speeds(drift, random);
        let mut blocks: Vec<Block> = Vec::new();
        for (turn, steps) in speeds.chunks_exact(DROPPED + COUNTED).enumerate() {
            let side = Side::of_turn(turn, 2);
            let amount = steps[DROPPED..].iter().map(|speed| work(*speed, side, random).amount).sum();
            blocks.push(block(side, amount));
            let levels = Levels::of(&blocks, Way::InTurn, 2);
            if blocks.len().is_multiple_of(4) {
                if levels.rounds() >= ROUNDS as usize {
                    break;
                }
                if let Some(early) = levels.precise(half_width, ROUNDS) {
                    return early.ratio(Side::A, Side::B).unwrap();
                }
            }
        }
        Levels::of(&blocks, Way::InTurn, 2).ratio(Side::A, Side::B).unwrap()
    }

    /// Measures one config after the other, each for half of the time. The start of a probe takes most of its time, so
    /// only the last two seconds count. Both intervals are from a single run, and their errors are independent.
    fn one_after_the_other(drift: Drift, random: &mut Random) -> Estimate {
        let speeds = speeds(drift, random);
        let [a, b] = [(0, Side::A), (1, Side::B)].map(|(half, side)| {
            let end = speeds.len() / 2 * (half + 1);
            let works: Vec<Work> =
                speeds[end - 2 * STEPS..end].iter().map(|speed| work(*speed, side, random)).collect();
            let mean = MeanRate::of(&works).unwrap();
            let (low, high) = mean.interval(0.95).unwrap();
            Estimate::interval(mean.rate, low, high)
        });
        let half = a.relative_half_width().unwrap().hypot(b.relative_half_width().unwrap());
        let ratio = a.value / b.value;
        Estimate::interval(ratio, ratio * (1.0 - half), ratio * (1.0 + half))
    }

    /// Returns the share of intervals that cover the truth, and their mean half width, each of a number of duels.
    fn coverage(mut one: impl FnMut(&mut Random) -> Estimate) -> (f64, f64) {
        const DUELS: u64 = 400;
        let mut random = Random(1908);
        let (mut covered, mut half) = (0.0, 0.0);
        for _ in 0..DUELS {
            let ratio = one(&mut random);
            covered += f64::from(u8::from(ratio.low.unwrap() <= TRUTH && TRUTH <= ratio.high.unwrap()));
            half += ratio.relative_half_width().unwrap();
        }
        (covered / DUELS as f64, half / DUELS as f64)
    }

    /// See the figures with `cargo test --lib duel::statistics -- --nocapture`.
    #[test]
    #[expect(clippy::print_stdout, reason = "figures for the documentation")]
    fn under_a_drift_a_duel_covers_the_truth_and_one_after_the_other_does_not() {
        for (name, drift) in [
            ("Linear", [true, false, false]),
            ("Walk", [false, true, false]),
            ("Bursts", [false, false, true]),
            ("All", [true; 3]),
        ] {
            let (whole, whole_half) = coverage(|random| duel(drift, 0.0, random));
            // An early end costs coverage if an interval is about as wide as requested: then it is narrow by chance.
            let early =
                [0.5, 0.75, 1.0, 1.5, 2.0].map(|factor| coverage(|random| duel(drift, factor * whole_half, random)).0);
            let early = early.into_iter().fold(f64::INFINITY, f64::min);
            let (apart, apart_half) = coverage(|random| one_after_the_other(drift, random));
            let [shown, shown_half, shown_early, shown_apart, shown_apart_half] =
                [whole, whole_half, early, apart, apart_half].map(|share| format!("{:.1} %", share * 100.0));
            println!(
                "{name}: {ROUNDS} rounds cover {shown} at +-{shown_half}, ended early at least {shown_early}, one after the \
                 other {shown_apart} at +-{shown_apart_half}"
            );
            assert!(whole >= 0.93 && early >= 0.93, "{name}: {whole} {early}");
            // Bursts show within two seconds. The interval includes them, and is too wide to be useful.
            assert!(apart < 0.8 || apart_half > 3.0 * whole_half, "{name}: {apart} {apart_half}");
        }
    }
}
