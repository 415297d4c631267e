//! Computes the range of a term over all values of the parameters that it still depends on.
//!
//! It uses interval arithmetic on the numbers of the expression language: whole numbers exactly, all other numbers as
//! floats. Rounding is monotonic, so the computed ends are the ends of the language's results. A float beyond 2^53 no longer
//! names one whole number, so ends are moved outwards there. Booleans count as 0 and 1, strings as the numbers that
//! represent them.

use super::syntax::Sign;
use super::term::Function;

/// The smallest and the largest value that a term can have, and whether evaluating it can fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) may_fail: bool,
}

/// 2^53: beyond it a float no longer names one whole number.
pub(super) const EXACT: f64 = 9_007_199_254_740_992.0;

impl Bounds {
    pub(super) const ANYTHING: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY, may_fail: true };

    pub(super) fn new(low: f64, high: f64) -> Self {
        Self { low, high, may_fail: false }
    }

    pub(super) fn truth(can_be_false: bool, can_be_true: bool) -> Self {
        Self::new(f64::from(u8::from(!can_be_false)), f64::from(u8::from(can_be_true)))
    }

    pub(super) fn is_surely_true(self) -> bool {
        self.low > 0.0 && !self.may_fail
    }

    /// Returns true if the term is false or fails in every case.
    pub(super) fn is_never_true(self) -> bool {
        self.high <= 0.0
    }

    pub(super) fn failing(self, may_fail: bool) -> Self {
        Self { may_fail: self.may_fail || may_fail, ..self }
    }

    /// Returns the smallest range that contains both.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            may_fail: self.may_fail || other.may_fail,
        }
    }

    /// Moves the ends outwards where floats are coarser than whole numbers.
    fn outwards(self) -> Self {
        Self {
            low: if self.low.abs() >= EXACT { self.low.next_down() } else { self.low },
            high: if self.high.abs() >= EXACT { self.high.next_up() } else { self.high },
            ..self
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        let may_fail = self.may_fail || other.may_fail;
        Self { low: self.low + other.low, high: self.high + other.high, may_fail }.outwards()
    }

    pub(super) fn times(self, other: Self) -> Self {
        self.corners(other, |a, b| if a == 0.0 || b == 0.0 { 0.0 } else { a * b }).outwards()
    }

    /// Returns the hull of a function that is monotonic in each operand.
    fn corners(self, other: Self, function: impl Fn(f64, f64) -> f64) -> Self {
        let ends = [
            function(self.low, other.low),
            function(self.low, other.high),
            function(self.high, other.low),
            function(self.high, other.high),
        ];
        let low = ends.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if ends.iter().any(|end| end.is_nan()) {
            return Self::ANYTHING;
        }
        Self { low, high, may_fail: self.may_fail || other.may_fail }
    }

    fn has_zero(self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }

    fn magnitude(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Returns the range of a quotient. A divisor that may be zero is a whole number, so any other divisor is at least one
    /// in size.
    fn divided(self, other: Self, function: impl Fn(f64, f64) -> f64) -> Self {
        if !other.has_zero() {
            return self.corners(other, function);
        }
        if other.low == 0.0 && other.high >= 1.0 {
            return self.corners(Self { low: 1.0, ..other }, function).failing(true);
        }
        let most = self.magnitude() + 1.0;
        Self { low: -most, high: most, may_fail: true }
    }

    /// Returns the range of the remainder of a division that rounds down; it has the sign of the divisor.
    fn modulo(self, other: Self) -> Self {
        let may_fail = self.may_fail || other.may_fail || other.has_zero();
        let most = Self { low: other.low.min(0.0), high: other.high.max(0.0), may_fail };
        if other.low <= 0.0 {
            return most;
        }
        let (first, last) = (self.corners(other, floor_divided).low, self.corners(other, floor_divided).high);
        let ends = [self.low, self.high, other.low, other.high];
        if first != last || ends.iter().any(|end| end.fract() != 0.0 || end.abs() >= EXACT) {
            return most;
        }
        // If the quotient is constant, the remainder is the dividend minus that multiple of the divisor.
        let multiple = Self::new(-first, -first).times(other);
        let left = Self { may_fail, ..self.plus(multiple) };
        Self { low: left.low.max(most.low), high: left.high.min(most.high), may_fail }
    }
}

pub(super) fn floor_divided(a: f64, b: f64) -> f64 {
    let quotient = ((a - a % b) / b).round();
    if a % b != 0.0 && (a % b < 0.0) != (b < 0.0) { quotient - 1.0 } else { quotient }
}

pub(super) fn modulo(a: f64, b: f64) -> f64 {
    let left = a % b;
    if left != 0.0 && (left < 0.0) != (b < 0.0) { left + b } else { left }
}

/// Returns the bounds of an operation on two numbers.
pub(super) fn of_arithmetic(sign: Sign, a: Bounds, b: Bounds) -> Bounds {
    match sign {
        Sign::Plus => a.plus(b),
        Sign::Minus => a.plus(Bounds { low: -b.high, high: -b.low, ..b }),
        Sign::Times => a.times(b),
        Sign::Divided => a.divided(b, |a, b| a / b),
        Sign::FloorDivided => a.divided(b, floor_divided).outwards(),
        Sign::Modulo => a.modulo(b).outwards(),
        Sign::Power if a.low >= 1.0 && b.low >= 0.0 => {
            // The library's power may be off by one unit in the last place; the language is exact.
            let ends = a.corners(b, libm::pow);
            Bounds { low: ends.low.next_down(), high: ends.high.next_up(), ..ends }
        }
        Sign::Power => Bounds::ANYTHING,
    }
}

/// Returns the bounds of a function of one number. All functions except the absolute value are monotonic.
pub(super) fn of_function(function: Function, a: Bounds) -> Bounds {
    match function {
        Function::Absolute if a.has_zero() => Bounds { low: 0.0, high: a.magnitude(), ..a },
        Function::Absolute => Bounds { low: a.low.abs().min(a.high.abs()), high: a.magnitude(), ..a },
        Function::Negative => Bounds { low: -a.high, high: -a.low, ..a },
        _ => Bounds { low: function.of(a.low), high: function.of(a.high), ..a },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_division_is_narrow_where_the_quotient_is_the_same() {
        let of = |a: (f64, f64), b: (f64, f64)| {
            let bounds = of_arithmetic(Sign::Modulo, Bounds::new(a.0, a.1), Bounds::new(b.0, b.1));
            (bounds.low, bounds.high)
        };
        assert_eq!(of((17.0, 19.0), (8.0, 8.0)), (1.0, 3.0));
        assert_eq!(of((7.0, 9.0), (8.0, 8.0)), (0.0, 8.0));
        assert_eq!(of((100.0, 100.0), (34.0, 40.0)), (20.0, 32.0));
        assert_eq!(of((1.0, 5.0), (-3.0, 3.0)), (-3.0, 3.0));
    }

    #[test]
    fn every_result_lies_within_the_bounds() {
        let signs = [Sign::Plus, Sign::Minus, Sign::Times, Sign::Divided, Sign::FloorDivided, Sign::Modulo];
        let ends = (-4..5).flat_map(|low| (low..5).map(move |high| (low, high)));
        let ranges: Vec<(i32, i32)> = ends.collect();
        for (&(a_low, a_high), &(b_low, b_high)) in ranges.iter().flat_map(|a| ranges.iter().map(move |b| (a, b))) {
            for sign in signs {
                let a = Bounds::new(a_low.into(), a_high.into());
                let b = Bounds::new(b_low.into(), b_high.into());
                let bounds = of_arithmetic(sign, a, b);
                for (x, y) in (a_low..=a_high).flat_map(|x| (b_low..=b_high).map(move |y| (x, y))) {
                    let (x, y) = (f64::from(x), f64::from(y));
                    if y == 0.0 && matches!(sign, Sign::Divided | Sign::FloorDivided | Sign::Modulo) {
                        assert!(bounds.may_fail);
                        continue;
                    }
                    let result = match sign {
                        Sign::Plus => x + y,
                        Sign::Minus => x - y,
                        Sign::Times => x * y,
                        Sign::Divided => x / y,
                        Sign::FloorDivided => (x / y).floor(),
                        _ => x - y * (x / y).floor(),
                    };
                    assert!(bounds.low <= result && result <= bounds.high, "{x} {sign:?} {y}: {bounds:?}");
                }
            }
        }
    }
}
