//! Translates the expressions of a space into terms that can be simplified and bounded.
//!
//! An expression becomes terms if its kinds fit (numbers, strings, booleans, not mixed) and its numbers stay in the exact
//! range. Any other expression is kept unchanged and evaluated once all of its names have values.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bounds::{Bounds, EXACT};
use super::syntax::{self, Relation, Sign, Tree};
use super::term::{Function, Id, OpaqueExpression, Term, Terms};
use crate::model::space::{Expression, Parameter, Space, Value};

/// The kind of a term's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Whole,
    Real,
    Text,
    Bool,
    Mixed,
}

/// A term with its kind, and the largest number in its computation.
#[derive(Clone, Copy)]
struct Typed {
    id: Id,
    kind: Kind,
    size: f64,
}

/// The largest whole number that may occur. Below it the order of additions and multiplications makes no difference.
const LARGEST: f64 = 1.2e30;

/// The consequence for a config that fails a constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The config is not allowed.
    Demand,
    /// This parameter is not active.
    Condition(usize),
}

/// A condition on configs.
#[derive(Debug, Clone)]
pub(super) struct Constraint {
    pub(super) meaning: Meaning,
    /// The parameters whose values the constraint uses. The constraint does not apply if any of them is inactive.
    pub(super) names: BTreeSet<usize>,
    pub(super) root: Id,
}

/// Translates all expressions of a space into terms and constraints.
pub(super) fn compile(space: &Space) -> (Terms, Vec<Constraint>) {
    let kinds: Vec<Kind> = space.parameters.iter().map(kind_of).collect();
    let mut compiler = Compiler { space, terms: Terms::default(), kinds, derived: vec![None; space.derived.len()] };
    let slots: Vec<Bounds> =
        space.parameters.iter().map(|knob| bounds_of(&mut compiler.terms, knob, 0, knob.len())).collect();
    compiler.terms.slots = slots.into();
    let mut constraints = Vec::new();
    for (at, parameter) in space.parameters.iter().enumerate() {
        if let Some(when) = parameter.condition() {
            let root = compiler.expression(when, true).id;
            constraints.push(Constraint { meaning: Meaning::Condition(at), names: compiler.names(when), root });
        }
    }
    for (at, derived) in space.derived.iter().enumerate() {
        let value = compiler.derived(at);
        let root = Term::Evaluates(value.id).simple(&mut compiler.terms);
        let names = compiler.names(&derived.expression);
        constraints.push(Constraint { meaning: Meaning::Demand, names, root });
    }
    for rule in &space.rules {
        let root = compiler.expression(rule, true).id;
        let parts = match compiler.terms.term(root) {
            Term::All(parts) => parts.to_vec(),
            _ => vec![root],
        };
        let names = compiler.names(rule);
        constraints.extend(parts.into_iter().map(|root| Constraint {
            meaning: Meaning::Demand,
            names: names.clone(),
            root,
        }));
    }
    let mut terms = compiler.terms;
    let done = terms.truth(true);
    constraints.retain(|constraint| constraint.root != done || constraint.meaning != Meaning::Demand);
    (terms, constraints)
}

fn kind_of(parameter: &Parameter) -> Kind {
    let is_small = |number: f64| number.abs() <= EXACT;
    let of = |value: &Value| match value {
        Value::Bool(_) => Kind::Bool,
        Value::Int(_) if value.as_f64().is_some_and(is_small) => Kind::Whole,
        Value::Float(number) if is_small(*number) => Kind::Real,
        Value::Text(_) => Kind::Text,
        Value::Int(_) | Value::Float(_) => Kind::Mixed,
    };
    let last = u32::try_from(parameter.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let values = match parameter.shape() {
        crate::model::space::Shape::Listed(values) => values.to_vec(),
        _ => vec![parameter.value(0), parameter.value(last)],
    };
    let join = |a: Kind, b: Kind| match (a, b) {
        (a, b) if a == b => a,
        (Kind::Whole | Kind::Real, Kind::Whole | Kind::Real) => Kind::Real,
        _ => Kind::Mixed,
    };
    values.iter().map(of).reduce(join).unwrap_or(Kind::Mixed)
}

/// Returns the range of a parameter's values over some of its levels.
pub(super) fn bounds_of(terms: &mut Terms, parameter: &Parameter, first: u64, end: u64) -> Bounds {
    let level = |level: u64| u32::try_from(level).unwrap_or(u32::MAX);
    if !matches!(parameter.shape(), crate::model::space::Shape::Listed(_)) {
        let number = |at: u64| parameter.value(level(at)).as_f64().unwrap_or(0.0);
        return Bounds::new(number(first), number(end.saturating_sub(1)));
    }
    let of = |at: u64| {
        let id = terms.constant(&parameter.value(level(at)));
        terms.bounds(id)
    };
    (first..end).map(of).reduce(Bounds::or).unwrap_or(Bounds::ANYTHING)
}

struct Compiler<'s> {
    space: &'s Space,
    terms: Terms,
    kinds: Vec<Kind>,
    derived: Vec<Option<Typed>>,
}

impl Compiler<'_> {
    /// Returns the parameters whose values an expression uses, including the parameters behind derived values.
    fn names(&self, expression: &Expression) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = vec![expression];
        while let Some(expression) = open.pop() {
            for slot in expression.names().iter().filter_map(|name| self.space.slots.get(name)) {
                match slot.checked_sub(self.kinds.len()) {
                    None => drop(found.insert(*slot)),
                    Some(derived) => open.push(&self.space.derived[derived].expression),
                }
            }
        }
        found
    }

    fn derived(&mut self, at: usize) -> Typed {
        if let Some(known) = self.derived[at] {
            return known;
        }
        let space = self.space;
        let compiled = self.expression(&space.derived[at].expression, false);
        self.derived[at] = Some(compiled);
        compiled
    }

    fn name(&mut self, name: &str) -> Option<Typed> {
        let slot = *self.space.slots.get(name)?;
        if let Some(derived) = slot.checked_sub(self.kinds.len()) {
            return Some(self.derived(derived));
        }
        let id = self.terms.intern(Term::Slot(u32::try_from(slot).ok()?));
        let bounds = self.terms.bounds(id);
        Some(Typed { id, kind: self.kinds[slot], size: bounds.low.abs().max(bounds.high.abs()) })
    }

    fn expression(&mut self, expression: &Expression, is_condition: bool) -> Typed {
        let understood = syntax::read(expression.text()).and_then(|tree| self.tree(&tree));
        match understood {
            Some(typed) if (typed.kind == Kind::Bool || !is_condition) && typed.kind != Kind::Mixed => typed,
            _ => self.opaque(expression, is_condition),
        }
    }

    fn opaque(&mut self, expression: &Expression, is_condition: bool) -> Typed {
        let names: Vec<&String> = expression.names().iter().collect();
        let parts: Vec<Id> = names.iter().filter_map(|name| Some(self.name(name)?.id)).collect();
        let is_derived = |name: &&String| self.space.slots.get(*name).is_some_and(|slot| *slot >= self.kinds.len());
        let is_derived = names.iter().map(is_derived).collect();
        let copy = Expression::parse(expression.text());
        let known = Arc::get_mut(&mut self.terms.opaque);
        let (Ok(expression), Some(known)) = (copy, known) else {
            return Typed { id: self.terms.intern(Term::Fails), kind: Kind::Mixed, size: 0.0 };
        };
        let number = u32::try_from(known.len()).unwrap_or(u32::MAX);
        known.push(OpaqueExpression { expression, is_derived, is_condition });
        Typed { id: self.terms.opaque(number, &parts), kind: Kind::Mixed, size: 0.0 }
    }

    fn tree(&mut self, tree: &Tree) -> Option<Typed> {
        let bool = |id: Id| Typed { id, kind: Kind::Bool, size: 1.0 };
        match tree {
            #[expect(clippy::cast_precision_loss, reason = "a size")]
            Tree::Whole(number) => {
                let id = self.terms.intern(Term::Whole((*number).into()));
                let typed = Typed { id, kind: Kind::Whole, size: (*number as f64).abs() };
                (typed.size <= EXACT).then_some(typed)
            }
            Tree::Real(number) => {
                let id = self.terms.intern(Term::Real(number.to_bits()));
                (number.abs() <= EXACT).then_some(Typed { id, kind: Kind::Real, size: number.abs() })
            }
            Tree::Text(text) => Some(Typed { id: self.terms.text(text), kind: Kind::Text, size: 0.0 }),
            Tree::Bool(truth) => Some(bool(self.terms.truth(*truth))),
            Tree::Name(name) => self.name(name).filter(|typed| typed.kind != Kind::Mixed),
            Tree::Negative(of) => {
                let of = self.tree(of)?;
                self.negative(of)
            }
            Tree::Not(of) => {
                let of = self.truth(of)?;
                Some(bool(Term::Not(of).simple(&mut self.terms)))
            }
            Tree::All(a, b) => {
                let parts = [self.truth(a)?, self.truth(b)?];
                Some(bool(self.terms.all(&parts)))
            }
            Tree::Any(a, b) => {
                let parts = [self.truth(a)?, self.truth(b)?];
                Some(bool(self.terms.any(&parts)))
            }
            Tree::Arithmetic(sign, a, b) => {
                let (a, b) = (self.tree(a)?, self.tree(b)?);
                self.arithmetic(*sign, a, b)
            }
            Tree::Compare(first, chain) => self.comparison(first, chain).map(bool),
            Tree::In(one, list) => self.membership(one, list).map(bool),
            Tree::If(condition, a, b) => {
                let (condition, a, b) = (self.truth(condition)?, self.tree(a)?, self.tree(b)?);
                let id = self.terms.choice(condition, a.id, b.id);
                let kind = match (a.kind, b.kind) {
                    (a, b) if a == b => a,
                    (Kind::Whole | Kind::Real, Kind::Whole | Kind::Real) => Kind::Real,
                    _ => return None,
                };
                Some(Typed { id, kind, size: a.size.max(b.size) })
            }
            Tree::Call(function, arguments) => self.call(function, arguments),
        }
    }

    fn truth(&mut self, tree: &Tree) -> Option<Id> {
        self.tree(tree).filter(|typed| typed.kind == Kind::Bool).map(|typed| typed.id)
    }

    fn negative(&mut self, of: Typed) -> Option<Typed> {
        let id = match of.kind {
            Kind::Whole => self.terms.sum(0, &[(-1, of.id)]),
            Kind::Real => Term::Of(Function::Negative, of.id).simple(&mut self.terms),
            _ => return None,
        };
        Some(Typed { id, ..of })
    }

    fn arithmetic(&mut self, sign: Sign, a: Typed, b: Typed) -> Option<Typed> {
        let both_whole = (a.kind, b.kind) == (Kind::Whole, Kind::Whole);
        let numbers = [a, b].iter().all(|typed| matches!(typed.kind, Kind::Whole | Kind::Real));
        let divides = matches!(sign, Sign::Divided | Sign::FloorDivided | Sign::Modulo);
        let divisor = self.terms.bounds(b.id);
        let least = divisor.low.abs().min(divisor.high.abs());
        let may_be_zero = divisor.low <= 0.0 && divisor.high >= 0.0;
        let size = match sign {
            Sign::Plus | Sign::Minus => a.size + b.size,
            Sign::Times => a.size * b.size,
            // A divisor that may be zero must be a whole number: any non-zero divisor is then at least one in size.
            _ if divides && may_be_zero && b.kind != Kind::Whole => return None,
            Sign::Divided | Sign::FloorDivided => a.size.max(a.size / if may_be_zero { 1.0 } else { least }) + 1.0,
            Sign::Modulo => a.size.max(b.size),
            Sign::Power if both_whole && self.terms.bounds(a.id).low >= 1.0 && divisor.low >= 0.0 => {
                libm::pow(a.size, divisor.high)
            }
            Sign::Power => return None,
        };
        let is_whole = both_whole && sign != Sign::Divided;
        let operands_fit = is_whole || a.size.max(b.size) <= EXACT;
        if !numbers || !operands_fit || size.is_nan() || size > if is_whole { LARGEST } else { EXACT } {
            return None;
        }
        let id = match sign {
            Sign::Plus if is_whole => self.terms.sum(0, &[(1, a.id), (1, b.id)]),
            Sign::Minus if is_whole => self.terms.sum(0, &[(1, a.id), (-1, b.id)]),
            Sign::Times if is_whole => self.terms.product(&[a.id, b.id]),
            _ => self.terms.arithmetic(sign, a.id, b.id),
        };
        Some(Typed { id, kind: if is_whole { Kind::Whole } else { Kind::Real }, size })
    }

    fn comparison(&mut self, first: &Tree, chain: &[(Relation, Tree)]) -> Option<Id> {
        let mut left = self.tree(first)?;
        let mut parts = Vec::new();
        for (relation, right) in chain {
            let right = self.tree(right)?;
            parts.push(self.relation(*relation, left, right)?);
            left = right;
        }
        Some(self.terms.all(&parts))
    }

    fn relation(&mut self, relation: Relation, a: Typed, b: Typed) -> Option<Id> {
        let (a, b, relation) = match relation {
            Relation::Greater => (b, a, Relation::Less),
            Relation::GreaterOrEqual => (b, a, Relation::LessOrEqual),
            other => (a, b, other),
        };
        let terms = &mut self.terms;
        let is_equality = matches!(relation, Relation::Equal | Relation::Unequal);
        let id = match (a.kind, b.kind) {
            (Kind::Whole, Kind::Whole) => {
                let difference = terms.sum(i128::from(relation == Relation::Less), &[(1, a.id), (-1, b.id)]);
                if is_equality { terms.is_zero(difference) } else { terms.is_not_positive(difference) }
            }
            (Kind::Whole | Kind::Real, Kind::Whole | Kind::Real) if a.size.max(b.size) <= EXACT => match relation {
                Relation::Less => Term::Less(a.id, b.id).simple(terms),
                Relation::LessOrEqual => Term::LessOrEqual(a.id, b.id).simple(terms),
                _ => Term::Equal(a.id, b.id).simple(terms),
            },
            (Kind::Text, Kind::Text) | (Kind::Bool, Kind::Bool) if is_equality => Term::Equal(a.id, b.id).simple(terms),
            _ => return None,
        };
        Some(if relation == Relation::Unequal { Term::Not(id).simple(terms) } else { id })
    }

    fn membership(&mut self, one: &Tree, list: &[Tree]) -> Option<Id> {
        let one = self.tree(one)?;
        let mut parts = Vec::new();
        for item in list {
            let item = self.tree(item)?;
            if self.terms.bounds(item.id).may_fail {
                return None;
            }
            parts.push(self.relation(Relation::Equal, one, item)?);
        }
        (!parts.is_empty()).then(|| self.terms.any(&parts))
    }

    fn call(&mut self, function: &str, arguments: &[Tree]) -> Option<Typed> {
        let arguments: Vec<Typed> = arguments.iter().map(|argument| self.tree(argument)).collect::<Option<_>>()?;
        let is_number = |typed: &Typed| matches!(typed.kind, Kind::Whole | Kind::Real) && typed.size <= EXACT;
        if !arguments.iter().all(is_number) {
            return None;
        }
        let terms = &mut self.terms;
        match (function, arguments.as_slice()) {
            ("max" | "min", [a, b]) => {
                let term = if function == "max" { Term::Larger(a.id, b.id) } else { Term::Smaller(a.id, b.id) };
                let kind = if a.kind == b.kind { a.kind } else { Kind::Real };
                Some(Typed { id: term.simple(terms), kind, size: a.size.max(b.size) })
            }
            ("ceil" | "floor" | "int" | "round", [a]) if a.kind == Kind::Whole => Some(*a),
            ("log2", [a]) if terms.bounds(a.id).low > 0.0 => {
                let id = Term::Of(Function::BinaryLogarithm, a.id).simple(terms);
                Some(Typed { id, kind: Kind::Real, size: 1100.0 })
            }
            (_, [a]) => {
                let (function, kind) = match function {
                    "abs" => (Function::Absolute, a.kind),
                    "ceil" => (Function::Ceiling, Kind::Whole),
                    "floor" => (Function::Floor, Kind::Whole),
                    "int" => (Function::Truncated, Kind::Whole),
                    "round" => (Function::Rounded, Kind::Whole),
                    _ => return None,
                };
                let id = Term::Of(function, a.id).simple(terms);
                (a.size < EXACT).then_some(Typed { id, kind, size: a.size + 1.0 })
            }
            _ => None,
        }
    }
}
