//! Simplifies terms: folds constants, orders sums and products, and replaces terms that their bounds decide.

use super::bounds;
use super::syntax::Sign;
use super::term::{Function, Id, Term, Terms};

impl Terms {
    fn number(&self, id: Id) -> Option<f64> {
        match self.term(id) {
            #[expect(clippy::cast_precision_loss, reason = "as the language converts it")]
            Term::Whole(number) => Some(*number as f64),
            Term::Real(bits) => Some(f64::from_bits(*bits)),
            _ => None,
        }
    }

    fn real(&mut self, number: f64) -> Id {
        self.intern(if number.is_finite() { Term::Real(number.to_bits()) } else { Term::Fails })
    }

    fn fails(&self, id: Id) -> bool {
        matches!(self.term(id), Term::Fails)
    }

    fn may_fail(&self, id: Id) -> bool {
        self.bounds(id).may_fail
    }

    /// Returns the term, or its truth value if its bounds decide it.
    fn decided(&mut self, term: Term) -> Id {
        let id = self.intern(term);
        let bounds = self.bounds(id);
        match (bounds.may_fail, bounds.low > 0.0, bounds.high <= 0.0) {
            (false, true, _) => self.truth(true),
            (false, _, true) => self.truth(false),
            _ => id,
        }
    }

    /// Makes the sum of a constant and multiples of whole-number terms.
    pub(super) fn sum(&mut self, constant: i128, parts: &[(i128, Id)]) -> Id {
        let mut constant = constant;
        let mut terms: Vec<(i128, Id)> = Vec::with_capacity(parts.len());
        for &(times, part) in parts {
            match self.term(part) {
                Term::Fails => return part,
                Term::Whole(number) => constant = constant.saturating_add(times.saturating_mul(*number)),
                Term::Sum(inner, parts) => {
                    constant = constant.saturating_add(times.saturating_mul(*inner));
                    terms.extend(parts.iter().map(|(factor, id)| (times.saturating_mul(*factor), *id)));
                }
                _ => terms.push((times, part)),
            }
        }
        terms.sort_unstable_by_key(|(_, id)| *id);
        terms.dedup_by(|next, kept| {
            let is_same = next.1 == kept.1;
            kept.0 = if is_same { kept.0.saturating_add(next.0) } else { kept.0 };
            is_same
        });
        terms.retain(|(times, id)| *times != 0 || self.may_fail(*id));
        match terms.as_slice() {
            [] => self.intern(Term::Whole(constant)),
            [(1, id)] if constant == 0 => *id,
            _ => self.intern(Term::Sum(constant, terms.into())),
        }
    }

    /// Makes the product of whole-number terms.
    pub(super) fn product(&mut self, parts: &[Id]) -> Id {
        let mut times = 1_i128;
        let mut factors: Vec<Id> = Vec::with_capacity(parts.len());
        for &part in parts {
            let mut single = part;
            if let Term::Sum(0, inner) = self.term(part)
                && let [(factor, id)] = inner.as_ref()
            {
                times = times.saturating_mul(*factor);
                single = *id;
            }
            match self.term(single) {
                Term::Fails => return single,
                Term::Whole(number) => times = times.saturating_mul(*number),
                Term::Product(inner) => factors.extend(inner.iter()),
                _ => factors.push(single),
            }
        }
        if times == 0 && !factors.iter().any(|factor| self.may_fail(*factor)) {
            return self.intern(Term::Whole(0));
        }
        factors.sort_unstable();
        let product = match factors.as_slice() {
            [] => return self.intern(Term::Whole(times)),
            [single] => *single,
            _ => self.intern(Term::Product(factors.into())),
        };
        self.sum(0, &[(times, product)])
    }

    /// Makes the test that a whole-number term is zero. It never is if all multiples in a sum share a divisor that does not
    /// divide the constant.
    pub(super) fn is_zero(&mut self, id: Id) -> Id {
        let (constant, parts, divisor) = match self.term(id) {
            Term::Fails => return id,
            Term::Whole(number) => {
                let is_zero = *number == 0;
                return self.truth(is_zero);
            }
            Term::Sum(constant, parts) => (*constant, parts.clone(), common_divisor(parts)),
            _ => return self.decided(Term::IsZero(id)),
        };
        if divisor > 1 && constant % divisor != 0 {
            return if self.may_fail(id) { self.decided(Term::IsZero(id)) } else { self.truth(false) };
        }
        let sign = if parts.first().is_some_and(|(times, _)| *times < 0) { -1 } else { 1 };
        let by = divisor.max(1) * sign;
        let parts: Vec<(i128, Id)> = parts.iter().map(|(times, part)| (times / by, *part)).collect();
        let simple = self.sum(constant / by, &parts);
        self.decided(Term::IsZero(simple))
    }

    /// Makes the test that a whole-number term is at most zero.
    pub(super) fn is_not_positive(&mut self, id: Id) -> Id {
        let (constant, parts, divisor) = match self.term(id) {
            Term::Fails => return id,
            Term::Whole(number) => {
                let is_not = *number <= 0;
                return self.truth(is_not);
            }
            Term::Sum(constant, parts) => (*constant, parts.clone(), common_divisor(parts)),
            _ => return self.decided(Term::IsNotPositive(id)),
        };
        if divisor <= 1 {
            return self.decided(Term::IsNotPositive(id));
        }
        // The constant next to multiples of a divisor can be rounded up to the next multiple.
        let rounded = constant.div_euclid(divisor) + i128::from(constant.rem_euclid(divisor) != 0);
        let parts: Vec<(i128, Id)> = parts.iter().map(|(times, part)| (times / divisor, *part)).collect();
        let simple = self.sum(rounded, &parts);
        if let Term::Whole(_) = self.term(simple) {
            return self.is_not_positive(simple);
        }
        self.decided(Term::IsNotPositive(simple))
    }

    /// Makes an operation that has no normal form.
    pub(super) fn arithmetic(&mut self, sign: Sign, a: Id, b: Id) -> Id {
        if self.fails(a) || self.fails(b) {
            return self.intern(Term::Fails);
        }
        if let (Term::Whole(a), Term::Whole(b)) = (self.term(a), self.term(b)) {
            let (a, b) = (*a, *b);
            let whole = match sign {
                Sign::Plus => a.checked_add(b),
                Sign::Minus => a.checked_sub(b),
                Sign::Times => a.checked_mul(b),
                Sign::FloorDivided => a.checked_div_euclid(b).map(|quotient| floor(quotient, a, b)),
                Sign::Modulo => a.checked_rem_euclid(b).map(|left| if left != 0 && b < 0 { left + b } else { left }),
                Sign::Power => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
                Sign::Divided if b == 0 => None,
                #[expect(clippy::cast_precision_loss, reason = "as the language divides")]
                Sign::Divided => return self.real(a as f64 / b as f64),
            };
            return self.intern(whole.map_or(Term::Fails, Term::Whole));
        }
        let (Some(x), Some(y)) = (self.number(a), self.number(b)) else {
            return self.intern(Term::Arithmetic(sign, a, b));
        };
        match sign {
            Sign::Divided | Sign::FloorDivided | Sign::Modulo if y == 0.0 => self.intern(Term::Fails),
            Sign::Plus => self.real(x + y),
            Sign::Minus => self.real(x - y),
            Sign::Times => self.real(x * y),
            Sign::Divided => self.real(x / y),
            Sign::FloorDivided => self.real(bounds::floor_divided(x, y)),
            Sign::Modulo => self.real(bounds::modulo(x, y)),
            Sign::Power => self.intern(Term::Fails),
        }
    }

    /// Makes a choice between two terms.
    pub(super) fn choice(&mut self, condition: Id, a: Id, b: Id) -> Id {
        match self.term(condition) {
            Term::Fails => condition,
            Term::Bool(true) => a,
            Term::Bool(false) => b,
            _ => self.intern(Term::If(condition, a, b)),
        }
    }

    /// Makes the test that all parts hold; evaluation stops at the first part that does not.
    pub(super) fn all(&mut self, parts: &[Id]) -> Id {
        self.chain(parts, true)
    }

    /// Makes the test that any part holds; evaluation stops at the first part that does.
    pub(super) fn any(&mut self, parts: &[Id]) -> Id {
        self.chain(parts, false)
    }

    /// Makes a chain of `and` or `or`, which continues while its parts equal `neutral`.
    fn chain(&mut self, parts: &[Id], neutral: bool) -> Id {
        let mut kept: Vec<Id> = Vec::with_capacity(parts.len());
        for &part in parts {
            match self.term(part) {
                Term::Bool(truth) if *truth == neutral => {}
                Term::Bool(_) if !kept.iter().any(|kept| self.may_fail(*kept)) => return part,
                Term::Fails if kept.is_empty() => return part,
                Term::Bool(_) | Term::Fails => {
                    kept.push(part);
                    break;
                }
                Term::All(inner) if neutral => kept.extend(inner.iter()),
                Term::Any(inner) if !neutral => kept.extend(inner.iter()),
                _ => kept.push(part),
            }
        }
        match kept.as_slice() {
            [] => self.truth(neutral),
            [single] => *single,
            _ if neutral => self.decided(Term::All(kept.into())),
            _ => self.decided(Term::Any(kept.into())),
        }
    }
}

impl Term {
    /// Returns the number of the simplest form of a term with one or two parts.
    pub(super) fn simple(self, terms: &mut Terms) -> Id {
        let (a, b) = match self {
            Self::Larger(a, b)
            | Self::Smaller(a, b)
            | Self::Equal(a, b)
            | Self::Less(a, b)
            | Self::LessOrEqual(a, b) => (a, b),
            Self::Of(_, a) | Self::Not(a) | Self::Evaluates(a) => (a, a),
            other => return terms.intern(other),
        };
        if terms.fails(a) || terms.fails(b) {
            return terms.intern(Self::Fails);
        }
        match (self, terms.number(a), terms.number(b)) {
            (Self::Larger(..), Some(x), Some(y)) => {
                if x >= y {
                    a
                } else {
                    b
                }
            }
            (Self::Smaller(..), Some(x), Some(y)) => {
                if x <= y {
                    a
                } else {
                    b
                }
            }
            (Self::Less(..), Some(x), Some(y)) => terms.truth(x < y),
            (Self::LessOrEqual(..), Some(x), Some(y)) => terms.truth(x <= y),
            (Self::Equal(..), Some(x), Some(y)) => terms.truth(x == y),
            (Self::Of(function, _), Some(x), _) => function_of(terms, function, a, x),
            (Self::Equal(..), ..) if terms.is_constant(a) && terms.is_constant(b) => terms.truth(a == b),
            (Self::Evaluates(_), ..) if !terms.may_fail(a) => terms.truth(true),
            (Self::Not(_), ..) => match terms.term(a) {
                Self::Bool(truth) => {
                    let opposite = !*truth;
                    terms.truth(opposite)
                }
                _ => terms.decided(Self::Not(a)),
            },
            (term @ (Self::Equal(..) | Self::Less(..) | Self::LessOrEqual(..)), ..) => terms.decided(term),
            (term, ..) => terms.intern(term),
        }
    }
}

/// Applies a function to a constant. The result is a whole number if it has no fraction and the function rounds or the
/// constant is whole.
fn function_of(terms: &mut Terms, function: Function, argument: Id, number: f64) -> Id {
    let is_whole = matches!(terms.term(argument), Term::Whole(_));
    let result = function.of(number);
    let rounds = matches!(function, Function::Ceiling | Function::Floor | Function::Truncated | Function::Rounded);
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
    if (rounds || is_whole) && result.fract() == 0.0 && result.abs() <= bounds::EXACT {
        return terms.intern(Term::Whole(result as i128));
    }
    terms.real(result)
}

/// Converts a quotient whose remainder is not negative to the quotient rounded down.
fn floor(euclidean: i128, a: i128, b: i128) -> i128 {
    if b < 0 && a.rem_euclid(b) != 0 { euclidean - 1 } else { euclidean }
}

fn common_divisor(parts: &[(i128, Id)]) -> i128 {
    parts.iter().fold(0_i128, |divisor, (times, _)| {
        let (mut a, mut b) = (divisor, times.saturating_abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    })
}
