//! Finds configs that the rules of a space allow, in order or at random, and proves that a space is empty.

use super::rules::Outlook;
use super::{Advance, Config, Count, Space, Walk};

impl Space {
    /// Returns the first config in the order of the walk, or any allowed config if bounded work cannot find the first.
    ///
    /// `None` does not prove that the space is empty; [`is_empty`](Self::is_empty) does.
    pub fn first(&self) -> Option<Config> {
        self.found.first.get_or_init(|| self.find_first()).clone()
    }

    fn find_first(&self) -> Option<Config> {
        /// Settings that walks may try, and random draws after them: round numbers, as bounds on time.
        const FUEL: u64 = 100_000;
        const DRAWS: u64 = 8;
        let outlook = self.outlook();
        if outlook.is_empty() {
            return None;
        }
        let in_order = outlook.is_in_order().then(|| outlook.at_shares(self, &mut |_| 0.0)).flatten();
        if let Some(first) = in_order.and_then(|levels| self.with_levels(&levels)) {
            return Some(first);
        }
        let mut fuel = FUEL;
        match Walk::new(self).advance(&mut fuel) {
            Advance::Found(config) => return Some(config),
            Advance::End => return None,
            Advance::OutOfFuel => {}
        }
        (0..DRAWS).find_map(|seed| self.draw(seed)).or_else(|| {
            (0..4).find_map(|seed| {
                let mut fuel = FUEL / 4;
                match Walk::shuffled(self, seed).advance(&mut fuel) {
                    Advance::Found(config) => Some(config),
                    Advance::End | Advance::OutOfFuel => None,
                }
            })
        })
    }

    /// Returns true if the rules provably allow no config.
    ///
    /// ```
    /// use gputune::model::space::{Expression, Parameter, Space};
    ///
    /// let space = |rule: &str| {
    ///     let digits = (0..12).map(|at| Parameter::range(format!("d{at}"), 0, 9, 1));
    ///     let sum = (0..12).map(|at| format!("d{at}")).collect::<Vec<_>>().join(" + ");
    ///     let rule = Expression::parse(format!("{sum} {rule}"))?;
    ///     digits.fold(Space::builder(), |builder, digit| builder.parameter(digit)).rule(rule).build()
    ///         .map_err(Box::<dyn std::error::Error>::from)
    /// };
    /// assert!(!space(">= 80")?.is_empty());
    /// assert!(space(">= 109")?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        match self.found.count.get() {
            Some(count) => *count == Count::Exact(0),
            None => self.outlook().is_empty() || self.only.is_some() && self.count() == Count::Exact(0),
        }
    }

    /// Returns at most `most` random configs, as [`draw`](Self::draw) does; drawing many at once is quicker.
    pub fn draws(&self, seed: u64, most: usize) -> Vec<Config> {
        let drawn = self.outlook().draws(self, seed, most);
        drawn.iter().filter_map(|levels| self.with_levels(levels)).collect()
    }

    /// Returns true if a random index of the raw product seldom meets an allowed config.
    pub(crate) fn is_sparse(&self) -> bool {
        /// A round number: below it, a random index meets an allowed config less than once in 64 tries.
        const SPARSE: f64 = 1.0 / 64.0;
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let raw = self.raw_size().map_or(f64::INFINITY, |size| size as f64);
        match self.count() {
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            Count::Exact(count) => (count as f64) < SPARSE * raw,
            Count::About { count, .. } => count < SPARSE * raw,
            Count::Unknown => true,
        }
    }

    /// Draws a random config: uniformly if all configs can be listed, else nearly uniformly.
    ///
    /// `None` if bounded work finds no config.
    pub fn draw(&self, seed: u64) -> Option<Config> {
        self.draws(seed, 1).pop()
    }

    pub(super) fn outlook(&self) -> &Outlook {
        self.found.outlook.get_or_init(|| Outlook::of(self))
    }
}
