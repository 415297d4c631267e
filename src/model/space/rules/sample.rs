//! Draws configs if there are too many states to list, each with the number of configs that it represents.
//!
//! A config is put together level by level. The product of the inverse probabilities is an unbiased estimate of the number
//! of configs (Knuth, "Estimating the efficiency of backtrack programs", Mathematics of Computation 1975). The probability
//! of a level is proportional to the room that it leaves to the parameter that a rule ties to it (importance sampling). A
//! small rest is counted instead of drawn.

use std::collections::{HashMap, HashSet};

use super::course::{Course, Fuel, State, level};
use super::diagram::Diagram;
use super::term::Terms;
use crate::model::space::{INACTIVE, Space, permutation::mix};

/// A stream of pseudorandom numbers that a seed determines.
#[derive(Debug, Clone)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x5851_F42D_4C95_7F2D))
    }

    /// Returns a number from 0 to below 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
    pub(super) fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        (mix(self.0) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// An estimate of the number of configs, from draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub(super) count: f64,
    /// Its standard error, as a share of the count.
    pub(super) error: f64,
    /// The share of draws that came to a dead end. If it is large, the draws may have missed rare configs.
    pub(super) dead: f64,
}

/// A run of levels, with an estimate of the configs that they leave.
#[derive(Debug, Clone, Copy)]
struct Piece {
    first: u64,
    end: u64,
    room: f64,
    /// True if its levels may leave different constraints.
    can_vary: bool,
}

impl Piece {
    /// Draws one of its levels; also returns the number of levels.
    fn level(&self, draws: &mut Draws) -> (u32, f64) {
        #[expect(clippy::cast_precision_loss, reason = "a number of levels")]
        let len = (self.end - self.first) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the length")]
        let offset = ((draws.share() * len) as u64).min(self.end - self.first - 1);
        (level(self.first + offset), len)
    }
}

/// The result of draws from some levels of the first parameter.
#[derive(Debug)]
struct Stratum {
    piece: Piece,
    number: f64,
    dead: f64,
    mean: f64,
    squares: f64,
}

impl Stratum {
    fn of(piece: Piece) -> Self {
        Self { piece, number: 0.0, dead: 0.0, mean: 0.0, squares: 0.0 }
    }

    fn add(&mut self, weight: f64) {
        self.number += 1.0;
        let before = weight - self.mean;
        self.mean += before / self.number;
        self.squares += before * (weight - self.mean);
    }

    /// Returns the variance of the mean.
    fn variance(&self) -> f64 {
        if self.number < 2.0 { f64::INFINITY } else { self.squares / (self.number - 1.0) / self.number }
    }

    /// Returns how much the stratum may still hide, per draw from it.
    fn hidden(&self) -> f64 {
        self.piece.room / self.number.max(1.0)
    }

    fn all(strata: &[Self]) -> Option<Estimate> {
        let count: f64 = strata.iter().map(|stratum| stratum.mean).sum();
        let variance: f64 = strata.iter().map(Self::variance).filter(|variance| variance.is_finite()).sum();
        let number: f64 = strata.iter().map(|stratum| stratum.number).sum();
        let dead = strata.iter().map(|stratum| stratum.dead).sum::<f64>() / number.max(1.0);
        // If draws reach dead ends, their spread does not show the missed configs.
        let is_whole = strata.iter().all(|stratum| stratum.number >= 2.0);
        let least = if is_whole && dead <= MOST_DEAD { 0.0 } else { 1.0 };
        (count > 0.0).then(|| Estimate { count, error: (variance.sqrt() / count).max(least), dead })
    }
}

/// The share of dead ends up to which the spread of the draws is taken as the error of the estimate. A round number,
/// not measured.
const MOST_DEAD: f64 = 0.02;

/// Steps that an estimate may take: a round number. At about a third of a microsecond per step, it is a third of a
/// second.
const FUEL: u64 = 1_000_000;

/// A sampler that draws configs of some parameters.
pub(super) struct Sampler<'s> {
    space: &'s Space,
    course: &'s Course,
    terms: Terms,
    diagram: Diagram,
    too_many: HashSet<(usize, State)>,
    pieces: HashMap<(usize, State), Vec<Piece>>,
}

impl<'s> Sampler<'s> {
    pub(super) fn new(space: &'s Space, course: &'s Course, terms: Terms) -> Self {
        let diagram = Diagram::new(course);
        Self { space, course, terms, diagram, too_many: HashSet::new(), pieces: HashMap::new() }
    }

    /// Estimates the number of configs; `None` if no draw reached a config.
    ///
    /// The first parameter's levels are strata. Strata with the most varied draws are drawn from more often, and are split
    /// (Neyman's allocation, Journal of the Royal Statistical Society 1934, estimated along the way).
    pub(super) fn estimate(&mut self, draws: &mut Draws) -> Option<Estimate> {
        /// Round numbers: bounds on the work, and a relative standard error below 1% that is good enough.
        const ROUNDS: usize = 4_000;
        const MOST_STRATA: usize = 300;
        const ENOUGH: f64 = 0.008;
        let mut fuel = Fuel(FUEL);
        let start = self.course.start(&mut self.terms)?;
        let mut strata: Vec<Stratum> = self.split(0, &start, &mut fuel).into_iter().map(Stratum::of).collect();
        strata.iter_mut().for_each(|stratum| self.look_into(stratum, &start, draws, &mut fuel));
        for round in 0..ROUNDS {
            let estimate = Stratum::all(&strata);
            if fuel.0 < FUEL / 100 || (round > 50 && estimate.is_some_and(|estimate| estimate.error < ENOUGH)) {
                break;
            }
            // Every fourth round takes a rarely drawn stratum, since its hidden configs are not known.
            let rank = |stratum: &Stratum| if round % 4 == 0 { stratum.hidden() } else { stratum.variance() };
            let order = |a: &&mut Stratum, b: &&mut Stratum| rank(a).total_cmp(&rank(b));
            let is_full = strata.len() >= MOST_STRATA;
            let widest = strata.iter_mut().max_by(order)?;
            // Splitting forgets earlier draws, and with them rare configs. So split only if every draw reaches a config.
            if is_full || widest.number < 32.0 || widest.dead > 0.0 || widest.piece.end - widest.piece.first < 2 {
                self.look_into(widest, &start, draws, &mut fuel);
                continue;
            }
            let Piece { first, end, room, .. } = widest.piece;
            let middle = first.midpoint(end);
            let half = |first, end| Stratum::of(Piece { first, end, room: room / 2.0, can_vary: true });
            let (mut lower, mut upper) = (half(first, middle), half(middle, end));
            self.look_into(&mut lower, &start, draws, &mut fuel);
            self.look_into(&mut upper, &start, draws, &mut fuel);
            *widest = lower;
            strata.push(upper);
        }
        Stratum::all(&strata)
    }

    fn look_into(&mut self, stratum: &mut Stratum, start: &State, draws: &mut Draws, fuel: &mut Fuel) {
        /// Draws for each look into a stratum: a round number.
        const LOOKS: u32 = 4;
        for _ in 0..LOOKS {
            match self.draw(start, Some(&stratum.piece), draws, fuel) {
                Some(Some((weight, _))) => stratum.add(weight),
                Some(None) => return,
                None => {
                    stratum.add(0.0);
                    stratum.dead += 1.0;
                }
            }
        }
    }

    /// Draws one config. It is chosen among several draws, weighted by the configs that each represents, so the choice is
    /// nearly uniform.
    pub(super) fn one(&mut self, draws: &mut Draws, fuel: &mut Fuel) -> Option<Vec<u32>> {
        /// The configs to choose from, and the most draws for them: round numbers.
        const DRAWS: usize = 8;
        const TRIES: usize = 400;
        let start = self.course.start(&mut self.terms)?;
        let mut found: Vec<(f64, Vec<u32>)> = Vec::new();
        for _ in 0..TRIES {
            match self.draw(&start, None, draws, fuel) {
                Some(Some(drawn)) => found.push(drawn),
                Some(None) => break,
                None => {}
            }
            if found.len() == DRAWS {
                break;
            }
        }
        let all: f64 = found.iter().map(|(weight, _)| weight).sum();
        let mut left = draws.share() * all;
        let place = found.iter().position(|(weight, _)| {
            left -= weight;
            left < 0.0
        });
        let last = found.len().checked_sub(1)?;
        Some(found.swap_remove(place.unwrap_or(last)).1)
    }

    /// Draws a config with the number of configs it represents. The outer `None` means a dead end, the inner `None` spent
    /// fuel.
    #[expect(clippy::option_option, reason = "dead ends are draws, too")]
    fn draw(
        &mut self,
        start: &State,
        piece: Option<&Piece>,
        draws: &mut Draws,
        fuel: &mut Fuel,
    ) -> Option<Option<(f64, Vec<u32>)>> {
        let mut state = start.clone();
        let mut weight = 1.0;
        let mut levels = Vec::with_capacity(self.course.len());
        for depth in 0..self.course.len() {
            if fuel.burn(1 + self.course.len()).is_err() {
                return Some(None);
            }
            let piece = piece.filter(|_| depth == 0);
            if piece.is_none()
                && let Some((count, rest)) = self.rest(depth, &state, draws, fuel)?
            {
                levels.extend(rest);
                return Some(Some((weight * count, levels)));
            }
            let (chosen, times) = match piece {
                Some(piece) => piece.level(draws),
                None => self.choose(depth, &state, draws, fuel)?,
            };
            weight *= times;
            state = self.course.enter(self.space, &mut self.terms, &state, depth, chosen)?;
            levels.push(chosen);
        }
        Some(Some((weight, levels)))
    }

    /// Counts all configs that follow and draws one of them, if they are quickly listed. The outer `None` means that no
    /// config follows; the inner `None` means that there are too many to list.
    #[expect(clippy::option_option, reason = "none that follow, and too many to know")]
    fn rest(
        &mut self,
        depth: usize,
        state: &State,
        draws: &mut Draws,
        fuel: &mut Fuel,
    ) -> Option<Option<(f64, Vec<u32>)>> {
        /// Steps after which a rest is not quickly listed: a round number, about 0.2 ms.
        const QUICK: u64 = 600;
        if self.too_many.contains(&(depth, state.clone())) {
            return Some(None);
        }
        let mut quick = Fuel(QUICK);
        let node = self.diagram.node(self.space, self.course, &mut self.terms, (depth, state), &mut quick);
        fuel.0 = fuel.0.saturating_sub(QUICK - quick.0);
        let Ok(node) = node else {
            self.too_many.insert((depth, state.clone()));
            return Some(None);
        };
        let node = node?;
        let rest = self.diagram.at_shares(node, &self.course.order[depth..], &mut |_| draws.share());
        #[expect(clippy::cast_precision_loss, reason = "a weight")]
        let count = self.diagram.count(node) as f64;
        Some(Some((count, rest)))
    }

    /// Chooses a level; also returns the inverse of its probability.
    fn choose(&mut self, depth: usize, state: &State, draws: &mut Draws, fuel: &mut Fuel) -> Option<(u32, f64)> {
        if !self.course.is_open_to_choice(&self.terms, state, depth) {
            return Some((INACTIVE, 1.0));
        }
        let key = (depth, state.clone());
        if !self.pieces.contains_key(&key) {
            let pieces = self.split(depth, state, fuel);
            self.pieces.insert(key.clone(), pieces);
        }
        let pieces = self.pieces.get(&key)?;
        let all: f64 = pieces.iter().map(|piece| piece.room).sum();
        let mut left = draws.share() * all;
        let chosen = pieces.iter().find(|piece| {
            left -= piece.room;
            left < 0.0
        });
        let chosen = chosen.or_else(|| pieces.last())?;
        let (level, len) = chosen.level(draws);
        Some((level, all / chosen.room * len))
    }

    /// Splits the levels into pieces that leave about equally many configs. Omits pieces that leave no config.
    fn split(&mut self, depth: usize, state: &State, fuel: &mut Fuel) -> Vec<Piece> {
        let splits = if depth == 0 { 32 } else { 24 };
        let partner = self.course.partner(&self.terms, state, depth);
        let mut pieces: Vec<Piece> = Vec::new();
        let mut open = vec![(0, self.course.levels(depth))];
        for _ in 0..splits {
            for (first, end) in open.drain(..) {
                fuel.0 = fuel.0.saturating_sub(if partner.is_some() { 36 } else { 2 });
                pieces.extend(self.piece(depth, state, partner, (first, end)));
            }
            let widest = pieces.iter().enumerate().filter(|(_, piece)| piece.can_vary);
            let Some((at, _)) = widest.max_by(|(_, a), (_, b)| a.room.total_cmp(&b.room)) else { break };
            let Piece { first, end, .. } = pieces.swap_remove(at);
            let middle = first.midpoint(end);
            open.extend([(first, middle), (middle, end)]);
        }
        for (first, end) in open {
            pieces.extend(self.piece(depth, state, partner, (first, end)));
        }
        pieces.sort_unstable_by_key(|piece| piece.first);
        pieces
    }

    fn piece(
        &mut self,
        depth: usize,
        state: &State,
        partner: Option<usize>,
        (first, end): (u64, u64),
    ) -> Option<Piece> {
        let within = self.course.within(self.space, &mut self.terms, state, depth, (first, end));
        if matches!(within, Some(None)) {
            return None;
        }
        let room = partner.map_or(1.0, |partner| {
            self.course.room(self.space, &mut self.terms, state, (depth, (first, end)), partner)
        });
        #[expect(clippy::cast_precision_loss, reason = "a number of levels")]
        let len = (end - first) as f64;
        Some(Piece {
            first,
            end,
            room: len * room,
            can_vary: end - first > 1 && (within.is_none() || partner.is_some()),
        })
    }
}
