//! Terms: the parts of an expression that remain once some of its parameters have values.
//!
//! Equal terms are kept once and named by a number. So two partial configs are recognised as equal if the rules demand the
//! same of the remaining parameters. Whole numbers have a normal form (a constant and multiples of products, in order). So
//! `a + b + c <= 9` is the same term after `a = 1, b = 2` and after `a = 2, b = 1`.

use std::collections::HashMap;
use std::sync::Arc;

use super::bounds::{self, Bounds};
use super::syntax::Sign;
use crate::model::space::{Expression, Value};

/// The number of a term.
pub(super) type Id = u32;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Term {
    /// A term whose evaluation is an error.
    Fails,
    Bool(bool),
    Whole(i128),
    /// The bits of a float.
    Real(u64),
    /// The number of a string.
    Text(u32),
    /// The value of a parameter.
    Slot(u32),
    /// A whole constant and multiples of whole-number terms, in order.
    Sum(i128, Arc<[(i128, Id)]>),
    /// Whole-number terms, in order.
    Product(Arc<[Id]>),
    /// An operation without a normal form.
    Arithmetic(Sign, Id, Id),
    Larger(Id, Id),
    Smaller(Id, Id),
    Of(Function, Id),
    /// Tests if the whole-number term is zero (`IsZero`) or at most zero (`IsNotPositive`).
    IsZero(Id),
    IsNotPositive(Id),
    Equal(Id, Id),
    Less(Id, Id),
    LessOrEqual(Id, Id),
    Not(Id),
    /// A conjunction, evaluated from the left until one part decides.
    All(Arc<[Id]>),
    Any(Arc<[Id]>),
    If(Id, Id, Id),
    /// Tests if the term can be evaluated.
    Evaluates(Id),
    /// An expression that is only evaluated, once all of its names have values.
    Opaque(u32, Arc<[Id]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Function {
    Absolute,
    Ceiling,
    Floor,
    Truncated,
    Rounded,
    BinaryLogarithm,
    Negative,
}

impl Function {
    pub(super) fn of(self, number: f64) -> f64 {
        match self {
            Self::Absolute => number.abs(),
            Self::Ceiling => number.ceil(),
            Self::Floor => number.floor(),
            Self::Truncated => number.trunc(),
            Self::Rounded => number.round(),
            Self::BinaryLogarithm => number.log2(),
            Self::Negative => -number,
        }
    }
}

/// Computed properties of a term.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) bounds: Bounds,
    /// The set of parameters that it depends on, with one bit for each parameter's number modulo 64.
    slots: u64,
}

/// An expression that is only evaluated.
#[derive(Debug)]
pub(super) struct OpaqueExpression {
    pub(super) expression: Expression,
    /// For each name, true if it is a derived value; whole numbers of derived values become integers.
    pub(super) is_derived: Vec<bool>,
    /// True if its value must be true or false.
    pub(super) is_condition: bool,
}

/// All created terms.
#[derive(Debug, Clone, Default)]
pub(super) struct Terms {
    terms: Vec<(Term, Known)>,
    ids: HashMap<Term, Id, std::hash::BuildHasherDefault<super::hash::Mixer>>,
    texts: Vec<String>,
    /// The range of each parameter's values.
    pub(super) slots: Arc<[Bounds]>,
    pub(super) opaque: Arc<Vec<OpaqueExpression>>,
}

impl Terms {
    pub(super) fn len(&self) -> usize {
        self.terms.len()
    }

    pub(super) fn term(&self, id: Id) -> &Term {
        &self.terms[id as usize].0
    }

    pub(super) fn bounds(&self, id: Id) -> Bounds {
        self.terms[id as usize].1.bounds
    }

    pub(super) fn mentions(&self, id: Id, slot: u32) -> bool {
        self.terms[id as usize].1.slots & bit(slot) != 0
    }

    pub(super) fn is_constant(&self, id: Id) -> bool {
        self.terms[id as usize].1.slots == 0
    }

    /// Returns the number of a term that is already in its simplest form.
    pub(super) fn intern(&mut self, term: Term) -> Id {
        if let Some(&id) = self.ids.get(&term) {
            return id;
        }
        let id = u32::try_from(self.terms.len()).unwrap_or(Id::MAX);
        let bounds = self.bounds_of(&term, &|part| self.bounds(part));
        let mut slots = if let Term::Slot(slot) = term { bit(slot) } else { 0 };
        self.for_parts(&term, |part| slots |= self.terms[part as usize].1.slots);
        self.ids.insert(term.clone(), id);
        self.terms.push((term, Known { bounds, slots }));
        id
    }

    pub(super) fn truth(&mut self, is_true: bool) -> Id {
        self.intern(Term::Bool(is_true))
    }

    pub(super) fn text(&mut self, text: &str) -> Id {
        let known = self.texts.iter().position(|known| known == text).unwrap_or_else(|| {
            self.texts.push(text.to_owned());
            self.texts.len() - 1
        });
        self.intern(Term::Text(u32::try_from(known).unwrap_or(u32::MAX)))
    }

    pub(super) fn constant(&mut self, value: &Value) -> Id {
        match value {
            Value::Bool(is_true) => self.truth(*is_true),
            Value::Int(number) => self.intern(Term::Whole((*number).into())),
            Value::Float(number) => self.intern(Term::Real(number.to_bits())),
            Value::Text(text) => self.text(text),
        }
    }

    /// Returns the value of a constant, if it has one.
    fn value(&self, id: Id, is_derived: bool) -> Option<Value> {
        let whole = |number: f64| -> Option<Value> {
            #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
            (is_derived && number.fract() == 0.0 && number.abs() <= bounds::EXACT).then_some(Value::Int(number as i64))
        };
        Some(match self.term(id) {
            Term::Bool(is_true) => Value::Bool(*is_true),
            Term::Whole(number) => Value::Int(i64::try_from(*number).ok()?),
            Term::Real(bits) => whole(f64::from_bits(*bits)).unwrap_or(Value::Float(f64::from_bits(*bits))),
            Term::Text(text) => Value::Text(self.texts.get(*text as usize)?.clone()),
            _ => return None,
        })
    }

    fn for_parts(&self, term: &Term, mut visit: impl FnMut(Id)) {
        match term {
            Term::Sum(_, parts) => parts.iter().for_each(|(_, part)| visit(*part)),
            Term::Product(parts) | Term::All(parts) | Term::Any(parts) | Term::Opaque(_, parts) => {
                parts.iter().for_each(|part| visit(*part));
            }
            Term::Arithmetic(_, a, b)
            | Term::Larger(a, b)
            | Term::Smaller(a, b)
            | Term::Equal(a, b)
            | Term::Less(a, b)
            | Term::LessOrEqual(a, b) => [*a, *b].into_iter().for_each(visit),
            Term::Of(_, a) | Term::IsZero(a) | Term::IsNotPositive(a) | Term::Not(a) | Term::Evaluates(a) => visit(*a),
            Term::If(a, b, c) => [*a, *b, *c].into_iter().for_each(visit),
            Term::Fails | Term::Bool(_) | Term::Whole(_) | Term::Real(_) | Term::Text(_) | Term::Slot(_) => {}
        }
    }

    /// Returns the bounds of a term while some parameters have narrower bounds.
    pub(super) fn bounds_within(&self, id: Id, within: &[(u32, Bounds)]) -> Bounds {
        if !within.iter().any(|(slot, _)| self.mentions(id, *slot)) {
            return self.bounds(id);
        }
        match self.term(id) {
            Term::Slot(slot) => {
                let narrow = within.iter().find(|(narrow, _)| narrow == slot);
                narrow.map_or_else(|| self.bounds(id), |(_, bounds)| *bounds)
            }
            term => self.bounds_of(term, &|part| self.bounds_within(part, within)),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "moved outwards where it is lost")]
    fn bounds_of(&self, term: &Term, part: &dyn Fn(Id) -> Bounds) -> Bounds {
        let number = |number: i128| Bounds::new(number as f64, number as f64);
        match term {
            Term::Fails => Bounds { low: 0.0, high: 0.0, may_fail: true },
            Term::Bool(is_true) => Bounds::truth(!is_true, *is_true),
            Term::Whole(whole) => number(*whole).plus(Bounds::new(0.0, 0.0)),
            Term::Real(bits) => Bounds::new(f64::from_bits(*bits), f64::from_bits(*bits)),
            Term::Text(text) => number((*text).into()),
            Term::Slot(slot) => self.slots.get(*slot as usize).copied().unwrap_or(Bounds::ANYTHING),
            Term::Sum(constant, parts) => {
                parts.iter().fold(number(*constant), |sum, (times, id)| sum.plus(part(*id).times(number(*times))))
            }
            Term::Product(parts) => parts.iter().fold(number(1), |product, id| product.times(part(*id))),
            Term::Arithmetic(sign, a, b) => bounds::of_arithmetic(*sign, part(*a), part(*b)),
            Term::Larger(a, b) => {
                let (a, b) = (part(*a), part(*b));
                Bounds { low: a.low.max(b.low), high: a.high.max(b.high), may_fail: a.may_fail || b.may_fail }
            }
            Term::Smaller(a, b) => {
                let (a, b) = (part(*a), part(*b));
                Bounds { low: a.low.min(b.low), high: a.high.min(b.high), may_fail: a.may_fail || b.may_fail }
            }
            Term::Of(function, a) => bounds::of_function(*function, part(*a)),
            Term::If(condition, a, b) => {
                let condition = part(*condition);
                match (condition.is_surely_true(), condition.is_never_true()) {
                    (true, _) => part(*a),
                    (_, true) => part(*b).failing(condition.may_fail),
                    _ => part(*a).or(part(*b)).failing(condition.may_fail),
                }
            }
            Term::Evaluates(a) => Bounds::truth(part(*a).may_fail, true),
            Term::Opaque(..) => Bounds::ANYTHING,
            _ => Self::truth_of(term, part),
        }
    }

    fn truth_of(term: &Term, part: &dyn Fn(Id) -> Bounds) -> Bounds {
        match term {
            Term::IsZero(a) => {
                let a = part(*a);
                Bounds::truth(a.low != 0.0 || a.high != 0.0, a.low <= 0.0 && a.high >= 0.0).failing(a.may_fail)
            }
            Term::IsNotPositive(a) => {
                let a = part(*a);
                Bounds::truth(a.high > 0.0, a.low <= 0.0).failing(a.may_fail)
            }
            Term::Equal(a, b) => {
                let (a, b) = (part(*a), part(*b));
                let is_one = a.low == a.high && b.low == b.high && a.low == b.low;
                Bounds::truth(!is_one, a.low <= b.high && b.low <= a.high).failing(a.may_fail || b.may_fail)
            }
            Term::Less(a, b) => {
                let (a, b) = (part(*a), part(*b));
                Bounds::truth(a.high >= b.low, a.low < b.high).failing(a.may_fail || b.may_fail)
            }
            Term::LessOrEqual(a, b) => {
                let (a, b) = (part(*a), part(*b));
                Bounds::truth(a.high > b.low, a.low <= b.high).failing(a.may_fail || b.may_fail)
            }
            Term::Not(a) => {
                let a = part(*a);
                Bounds { low: 1.0 - a.high.min(1.0), high: 1.0 - a.low.max(0.0), ..a }
            }
            Term::All(parts) => parts.iter().map(|id| part(*id)).fold(Bounds::new(1.0, 1.0), |all, one| Bounds {
                low: all.low.min(one.low),
                high: all.high.min(one.high),
                may_fail: all.may_fail || one.may_fail,
            }),
            Term::Any(parts) => parts.iter().map(|id| part(*id)).fold(Bounds::new(0.0, 0.0), |any, one| Bounds {
                low: any.low.max(one.low),
                high: any.high.max(one.high),
                may_fail: any.may_fail || one.may_fail,
            }),
            _ => Bounds::ANYTHING,
        }
    }

    /// Returns the remainder of a term once a parameter has a value.
    pub(super) fn put(&mut self, id: Id, slot: u32, value: Id) -> Id {
        if !self.mentions(id, slot) {
            return id;
        }
        match self.term(id).clone() {
            Term::Slot(other) if other == slot => value,
            Term::Sum(constant, parts) => {
                let parts: Vec<(i128, Id)> =
                    parts.iter().map(|(times, part)| (*times, self.put(*part, slot, value))).collect();
                self.sum(constant, &parts)
            }
            Term::Product(parts) => {
                let parts: Vec<Id> = parts.iter().map(|part| self.put(*part, slot, value)).collect();
                self.product(&parts)
            }
            Term::All(parts) => {
                let parts: Vec<Id> = parts.iter().map(|part| self.put(*part, slot, value)).collect();
                self.all(&parts)
            }
            Term::Any(parts) => {
                let parts: Vec<Id> = parts.iter().map(|part| self.put(*part, slot, value)).collect();
                self.any(&parts)
            }
            Term::Opaque(expression, parts) => {
                let parts: Vec<Id> = parts.iter().map(|part| self.put(*part, slot, value)).collect();
                self.opaque(expression, &parts)
            }
            Term::If(condition, a, b) => {
                let condition = self.put(condition, slot, value);
                let (a, b) = (self.put(a, slot, value), self.put(b, slot, value));
                self.choice(condition, a, b)
            }
            term => self.put_into_pair(term, slot, value),
        }
    }

    fn put_into_pair(&mut self, term: Term, slot: u32, value: Id) -> Id {
        let mut put = |part: Id| self.put(part, slot, value);
        match term {
            Term::Arithmetic(sign, a, b) => {
                let (a, b) = (put(a), put(b));
                self.arithmetic(sign, a, b)
            }
            Term::Larger(a, b) => Term::Larger(put(a), put(b)).simple(self),
            Term::Smaller(a, b) => Term::Smaller(put(a), put(b)).simple(self),
            Term::Equal(a, b) => Term::Equal(put(a), put(b)).simple(self),
            Term::Less(a, b) => Term::Less(put(a), put(b)).simple(self),
            Term::LessOrEqual(a, b) => Term::LessOrEqual(put(a), put(b)).simple(self),
            Term::Of(function, a) => Term::Of(function, put(a)).simple(self),
            Term::Not(a) => Term::Not(put(a)).simple(self),
            Term::Evaluates(a) => Term::Evaluates(put(a)).simple(self),
            Term::IsZero(a) => {
                let a = put(a);
                self.is_zero(a)
            }
            Term::IsNotPositive(a) => {
                let a = put(a);
                self.is_not_positive(a)
            }
            other => self.intern(other),
        }
    }

    /// Returns the value of an expression that is only evaluated, once all of its names have values.
    pub(super) fn opaque(&mut self, number: u32, parts: &[Id]) -> Id {
        if parts.iter().any(|part| matches!(self.term(*part), Term::Fails)) {
            return self.intern(Term::Fails);
        }
        if !parts.iter().all(|part| self.is_constant(*part)) {
            return self.intern(Term::Opaque(number, parts.into()));
        }
        let all = Arc::clone(&self.opaque);
        let Some(opaque) = all.get(number as usize) else { return self.intern(Term::Fails) };
        let named = opaque.expression.names().iter().zip(&opaque.is_derived).zip(parts);
        let values: HashMap<&str, Value> =
            named.filter_map(|((name, derived), part)| Some((name.as_str(), self.value(*part, *derived)?))).collect();
        let lookup = |name: &str| values.get(name);
        let result = if opaque.is_condition {
            opaque.expression.holds(lookup).map(Value::Bool)
        } else {
            opaque.expression.value(lookup)
        };
        match result {
            Ok(value) => self.constant(&value),
            Err(_) => self.intern(Term::Fails),
        }
    }
}

fn bit(slot: u32) -> u64 {
    1 << (slot % 64)
}
