//! Maps configs to points, with one coordinate for each parameter.

use crate::model::{Config, Parameter, Space};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Axis {
    /// From 0 to 1 by level.
    Level {
        /// The last level.
        last: f64,
    },
    /// Placed from 0 to 1 by the logarithm of the value.
    Logarithm {
        /// The logarithm of the smallest value.
        from: f64,
        /// The distance from there to the logarithm of the largest value.
        width: f64,
    },
    /// All at the same distance from each other.
    Category,
}

impl Axis {
    /// Chooses the axis of a parameter. Ordered settings are placed by their level. Settings of a long even range are placed by
    /// their logarithm, since the effect of a size on a training step depends on ratios.
    fn of(parameter: &Parameter) -> Self {
        /// The fewest settings of a long range: a round number. A shorter range is likely written by hand, with a spacing that its
        /// author chose.
        const LONG: u64 = 40;
        /// The least ratio of the last to the first value of a wide range: a round number.
        const WIDE: f64 = 16.0;
        if !parameter.is_ordinal() {
            return Self::Category;
        }
        let end = u32::try_from(parameter.len().saturating_sub(1)).unwrap_or(u32::MAX - 1);
        let (first, middle, last) = (number(parameter, 0), number(parameter, end / 2), number(parameter, end));
        let is_even = middle > 2.0 * (first * last).sqrt();
        if parameter.len() >= LONG && first > 0.0 && last >= WIDE * first && is_even {
            let from = libm::log(first);
            return Self::Logarithm { from, width: libm::log(last) - from };
        }
        Self::Level { last: f64::from(end.max(1)) }
    }

    /// Returns the place of a level; not a number if the parameter is not active.
    pub(super) fn place(self, parameter: &Parameter, level: Option<u32>) -> f64 {
        match (self, level) {
            (_, None) => f64::NAN,
            (Self::Level { last }, Some(level)) => f64::from(level) / last,
            (Self::Logarithm { from, width }, Some(level)) => (libm::log(number(parameter, level)) - from) / width,
            (Self::Category, Some(level)) => f64::from(level),
        }
    }

    /// Returns the distance of two places.
    ///
    /// An inactive parameter lies off its axis, about a whole width from every place, like the tip of a triangle above its base. So
    /// all distances on an axis are distances of points in a plane. With other distances, a kernel need not be positive definite.
    #[inline]
    pub(super) fn distance(self, a: f64, b: f64) -> f64 {
        let to_inactive = |place: f64| match self {
            Self::Category => 1.0,
            Self::Level { .. } | Self::Logarithm { .. } => (0.75 + (place - 0.5) * (place - 0.5)).sqrt(),
        };
        match (a.is_nan(), b.is_nan(), self) {
            (true, true, _) => 0.0,
            (true, false, _) => to_inactive(b),
            (false, true, _) => to_inactive(a),
            (false, false, Self::Category) => f64::from(u8::from(a.to_bits() != b.to_bits())),
            (false, false, _) => (a - b).abs(),
        }
    }
}

fn number(parameter: &Parameter, level: u32) -> f64 {
    parameter.value(level).as_f64().unwrap_or(0.0)
}

pub(super) fn axes(space: &Space) -> Vec<Axis> {
    space.parameters().iter().map(Axis::of).collect()
}

/// Some configs as points, with the places that occur on each axis stored once.
#[derive(Debug, Clone)]
pub(super) struct Points {
    /// The places that occur, for each axis.
    pub(super) places: Vec<Vec<f64>>,
    /// For each point the indices of its places, axis by axis.
    numbers: Vec<u32>,
    len: usize,
}

impl Points {
    pub(super) fn of<'c>(space: &Space, axes: &[Axis], configs: impl IntoIterator<Item = &'c Config>) -> Self {
        let mut levels: Vec<Option<u32>> = Vec::new();
        let mut len = 0;
        for config in configs {
            levels.extend(config.levels());
            len += 1;
        }
        let mut numbers = vec![0; levels.len()];
        let places = axes.iter().zip(space.parameters()).enumerate().map(|(at, (axis, parameter))| {
            let own = || levels.iter().skip(at).step_by(axes.len().max(1));
            let mut found: Vec<Option<u32>> = own().copied().collect();
            found.sort_unstable();
            found.dedup();
            for (number, level) in numbers.iter_mut().skip(at).step_by(axes.len()).zip(own()) {
                *number = found.binary_search(level).map_or(0, |place| u32::try_from(place).unwrap_or(0));
            }
            found.into_iter().map(|level| axis.place(parameter, level)).collect()
        });
        Self { places: places.collect(), numbers, len }
    }

    /// Makes points from their places, axis by axis; each row is a point.
    pub(super) fn at(axes: usize, rows: &[Vec<f64>]) -> Self {
        let mut numbers = vec![0; rows.len() * axes];
        let places = (0..axes).map(|axis| {
            let mut found: Vec<f64> = rows.iter().map(|row| row[axis]).collect();
            found.sort_by(f64::total_cmp);
            found.dedup_by(|a, b| a.to_bits() == b.to_bits());
            for (row, number) in rows.iter().zip(numbers.iter_mut().skip(axis).step_by(axes)) {
                let place = found.binary_search_by(|known| known.total_cmp(&row[axis]));
                *number = place.map_or(0, |place| u32::try_from(place).unwrap_or(0));
            }
            found
        });
        Self { places: places.collect(), numbers, len: rows.len() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn point(&self, at: usize) -> &[u32] {
        let axes = self.places.len();
        &self.numbers[at * axes..(at + 1) * axes]
    }

    /// The number of every point's place on one axis.
    #[inline]
    pub(super) fn numbers_on(&self, axis: usize) -> impl Iterator<Item = u32> + '_ {
        self.numbers.iter().skip(axis).step_by(self.places.len().max(1)).copied()
    }

    /// The squared distance of two points, summed over the axes.
    pub(super) fn distances(&self, axes: &[Axis], a: usize, b: usize) -> f64 {
        let square = |axis: usize| {
            let place = |point: usize| self.places[axis][self.point(point)[axis] as usize];
            let distance = axes[axis].distance(place(a), place(b));
            distance * distance
        };
        (0..axes.len()).map(square).sum()
    }
}
