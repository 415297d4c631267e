//! Plans the order in which a config gets its settings and derived values, so that each rule is checked as soon as
//! possible.

use std::collections::BTreeSet;

use super::{Config, Expression, ExpressionError, INACTIVE, Space, Value};

/// The parameters that each expression depends on, directly or through derived values and conditions.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) conditions: Vec<Vec<usize>>,
    pub(super) derived: Vec<Vec<usize>>,
    /// The derived values, each after the values that it depends on.
    pub(super) derived_order: Vec<usize>,
    pub(super) rules: Vec<Vec<usize>>,
}

impl Graph {
    pub(super) fn has_expressions(&self, parameter: usize) -> bool {
        let mentions = |needs: &Vec<usize>| needs.contains(&parameter);
        !self.conditions[parameter].is_empty() || self.derived.iter().any(mentions) || self.rules.iter().any(mentions)
    }

    /// Splits the parameters into groups so that no expression uses parameters of two groups.
    pub(super) fn groups(&self) -> Vec<Vec<usize>> {
        let mut group_of: Vec<usize> = (0..self.conditions.len()).collect();
        let conditions = self.conditions.iter().enumerate();
        let conditions = conditions.map(|(parameter, needs)| [needs.as_slice(), &[parameter]].concat());
        for members in conditions.chain(self.derived.iter().cloned()).chain(self.rules.iter().cloned()) {
            let merged: Vec<usize> = members.iter().map(|&member| group_of[member]).collect();
            let Some(&target) = merged.iter().min() else { continue };
            for group in &mut group_of {
                if merged.contains(group) {
                    *group = target;
                }
            }
        }
        let ids: BTreeSet<usize> = group_of.iter().copied().collect();
        ids.iter().map(|id| (0..group_of.len()).filter(|&member| group_of[member] == *id).collect()).collect()
    }
}

/// The order in which parameters get their levels, and the expressions that become computable at each place. A
/// parameter comes after all parameters that its condition uses.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) order: Vec<usize>,
    ready: Vec<Ready>,
}

#[derive(Debug, Default)]
struct Ready {
    derived: Vec<usize>,
    rules: Vec<usize>,
    /// The number of parameters that these expressions use.
    needs: usize,
}

/// A config that is being put together. `levels` has an entry for each parameter, and `values` an entry for each
/// parameter and then for each derived value.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) levels: Vec<u32>,
    pub(super) values: Vec<Option<Value>>,
}

impl Slots {
    pub(super) fn new(space: &Space) -> Self {
        Self {
            levels: vec![INACTIVE; space.parameters.len()],
            values: vec![None; space.parameters.len() + space.derived.len()],
        }
    }

    pub(super) fn into_config(self) -> Config {
        Config { levels: self.levels.into() }
    }

    pub(super) fn config(&self) -> Config {
        Config { levels: self.levels.clone().into() }
    }
}

impl Plan {
    /// Makes a plan for the parameters in `wanted`, in that order as far as conditions allow.
    ///
    /// An expression is included only if all of its parameters are in `wanted`.
    pub(super) fn new(graph: &Graph, wanted: &[usize]) -> Self {
        let mut order: Vec<usize> = Vec::with_capacity(wanted.len());
        for &parameter in wanted {
            push_after_conditions(graph, wanted, parameter, &mut order);
        }
        let mut plan = Self { ready: order.iter().map(|_| Ready::default()).collect(), order };
        for &derived in &graph.derived_order {
            let needs = &graph.derived[derived];
            if let Some(depth) = plan.depth_of(needs) {
                plan.ready[depth].derived.push(derived);
                plan.ready[depth].needs += needs.len();
            }
        }
        for (rule, needs) in graph.rules.iter().enumerate() {
            if let Some(depth) = plan.depth_of(needs) {
                plan.ready[depth].rules.push(rule);
                plan.ready[depth].needs += needs.len();
            }
        }
        plan
    }

    /// Returns the first place in the order at which all of these parameters have a level; `None` if the order lacks
    /// one of them.
    fn depth_of(&self, needs: &[usize]) -> Option<usize> {
        let depths: Option<Vec<usize>> =
            needs.iter().map(|need| self.order.iter().position(|parameter| parameter == need)).collect();
        Some(depths?.into_iter().max().unwrap_or(0)).filter(|&depth| depth < self.order.len())
    }

    /// Returns the work of assigning a level at this place, in a unit of very roughly a third of a microsecond.
    pub(super) fn cost(&self, depth: usize) -> u64 {
        1 + self.ready[depth].needs as u64
    }

    /// Returns true if the parameter at this place is active, given the earlier parameters.
    pub(super) fn is_active(&self, space: &Space, slots: &Slots, depth: usize) -> bool {
        let condition = space.parameters[self.order[depth]].condition();
        condition.is_none_or(|when| matches!(holds(space, slots, when), Some(Ok(true))))
    }

    /// Sets the level of the parameter at this place, and computes the expressions that then become computable. The
    /// error is the text of the first expression that fails: a rule, or a derived value.
    pub(super) fn assign(&self, space: &Space, slots: &mut Slots, depth: usize, level: u32) -> Result<(), String> {
        let parameter = self.order[depth];
        slots.levels[parameter] = level;
        slots.values[parameter] = (level != INACTIVE).then(|| space.parameters[parameter].value(level));
        for &derived in &self.ready[depth].derived {
            let expression = &space.derived[derived].expression;
            let value = (!is_absent(space, slots, expression))
                .then(|| expression.value(|name| lookup(space, slots, name)))
                .transpose();
            let value = value.map_err(|_| expression.text().to_owned())?;
            slots.values[space.parameters.len() + derived] = value;
        }
        for &rule in &self.ready[depth].rules {
            if matches!(holds(space, slots, &space.rules[rule]), Some(Ok(false) | Err(_))) {
                return Err(space.rules[rule].text().to_owned());
            }
        }
        Ok(())
    }

    /// Assigns all levels, and returns the first rule or derived value that fails. An inactive parameter gets no level,
    /// and an active parameter without a level gets its first.
    pub(super) fn run(&self, space: &Space, slots: &mut Slots, levels: &[u32]) -> Option<String> {
        let mut failed = None;
        for depth in 0..self.order.len() {
            let wanted = levels[self.order[depth]];
            let level = if self.is_active(space, slots, depth) {
                if wanted == INACTIVE { 0 } else { wanted }
            } else {
                INACTIVE
            };
            if let Err(rule) = self.assign(space, slots, depth, level) {
                failed.get_or_insert(rule);
            }
        }
        failed
    }
}

fn push_after_conditions(graph: &Graph, wanted: &[usize], parameter: usize, order: &mut Vec<usize>) {
    if order.contains(&parameter) {
        return;
    }
    for &need in graph.conditions[parameter].iter().filter(|need| wanted.contains(need)) {
        push_after_conditions(graph, wanted, need, order);
    }
    order.push(parameter);
}

/// Evaluates a condition or a rule; `None` if it depends on an inactive parameter.
fn holds(space: &Space, slots: &Slots, condition: &Expression) -> Option<Result<bool, ExpressionError>> {
    (!is_absent(space, slots, condition)).then(|| condition.holds(|name| lookup(space, slots, name)))
}

pub(super) fn is_absent(space: &Space, slots: &Slots, expression: &Expression) -> bool {
    expression.names().iter().any(|name| lookup(space, slots, name).is_none())
}

pub(super) fn lookup<'s>(space: &Space, slots: &'s Slots, name: &str) -> Option<&'s Value> {
    slots.values[*space.slots.get(name)?].as_ref()
}
