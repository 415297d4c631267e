//! The user's TOML file: read, checked, and turned into the parts of a search. No other wing sees the format of the file.
//!
//! Start with [`Spec`] and `keys`, the table of keys; `docs/spec.md` describes the file. Every mistake is a [`SpecError`] with its
//! place.

mod apply;
mod baseline;
mod collected;
mod error;
mod file;
mod hardware;
mod keys;
mod located;
mod machine;
mod objective;
mod parameter;
mod reading;
mod step;
mod template;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use collected::SHIPPED_SPACES;
pub use error::{SpecError, suggestion};
pub use hardware::LeftOut;
pub use machine::Engine;
pub use step::StepSpec;

use crate::machine::{Device, Hardware, NoGpu, Shares, VISIBLE_GPUS, nvml::Visible};
use crate::model::{Objective, Settings, Space, Value, outcome::with_causes};
use crate::probe::adapter::{Applied, Apply, Numerics};
use crate::probe::{Limits, Template};
use crate::search::{Budget, EarlierError, EarlierStudy, Fingerprint, FullPrecision, STRATEGIES, strategy::LEARNING};
use collected::Collected;
use error::SourceFile;
use file::{LimitsTable, RuleTable, SearchTable, SpaceTable, SpecFile, StepTable};
use located::Located;
use values::Valid;

/// The contents of a spec, as parts of a search.
#[derive(Debug)]
pub struct Spec {
    /// The file.
    pub path: PathBuf,
    /// Its text, as it was read.
    pub text: String,
    /// The space to search.
    pub space: Space,
    /// The step to run.
    pub step: StepSpec,
    /// The stated baseline, if there is one.
    pub baseline: Option<Settings>,
    /// True if the baseline is the unmodified job, with nothing set.
    pub is_baseline_as_it_is: bool,
    /// The limits of a probe.
    pub limits: Limits,
    /// The objective.
    pub objective: Objective,
    /// The limits on the cost of the search.
    pub budget: Budget,
    /// The share of the machine for each probe.
    pub machine: Shares,
    /// The places of probes that do not run on this machine.
    pub engine: Engine,
    /// True if the search first measures how much slots disturb each other.
    pub compares_slots: bool,
    /// The name of the strategy, one of [`STRATEGIES`].
    pub strategy: &'static str,
    /// The seed of all random choices.
    pub seed: u64,
    /// The places of earlier studies to learn from.
    warm_start: Vec<Located<PathBuf>>,
    /// Precisions that are not searched because the GPU lacks them.
    pub left_out: Vec<LeftOut>,
    /// Warnings about things that are allowed but probably not meant.
    pub warnings: Vec<String>,
}

impl Spec {
    /// Reads and checks a spec, for the GPUs of this machine.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn load(path: &Path) -> Result<Self, SpecError> {
        Self::load_for(path, &Hardware::detect)
    }

    /// Reads and checks a spec for the GPU that `detect` finds. Calls `detect` only if the spec depends on the GPU.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn load_for(path: &Path, detect: &dyn Fn() -> Option<Hardware>) -> Result<Self, SpecError> {
        let source = SourceFile::read(path)?;
        let file: SpecFile = reading::read(&source)?;
        let adapter = file.step.value.adapter.as_ref().map(|adapter| adapter.0);
        let engine = machine::engine(&source, &file.machine)?;
        let (space, applied, left_out) = space(&source, &file.space, &file.rules, &file.step.value, detect)?;
        let stated = file.baseline.as_ref().map(|it| baseline::build(&source, it, &space, &left_out)).transpose()?;
        let (strategy, seed) =
            (Valid::or(file.search.strategy.as_ref(), STRATEGIES[0].name), file.search.seed.unwrap_or(0));
        let apply = Apply { adapter, applied, seed };
        let step = step::build(&source, &file.step.value, &space, apply, engine.span.clone())?;
        let objective = objective::build(&source, &file)?;
        let warm_start = warm_start(&source, &file.search, strategy, &objective)?;
        let mut warnings = apply::warnings(&file.step.value);
        warnings.extend(objective::warnings(&file.objective, &objective, &space));
        warnings.extend(step.unused(&space));
        let (baseline, is_partial) = stated.map_or((None, false), |stated| (Some(stated.settings), stated.is_partial));
        let wants_as_it_is = baseline.is_none() && file.search.as_it_is.unwrap_or(true) || is_partial;
        let set = baseline.clone().unwrap_or_default();
        let needs = step.as_it_is_needs(&set).filter(|_| wants_as_it_is);
        let baseline = match (&needs, baseline) {
            (Some(_), Some(partial)) => Some(baseline::completed(&partial, &space)),
            (_, baseline) => baseline,
        };
        warnings.extend(needs.as_ref().filter(|_| baseline.is_none()).map(|needs| {
            format!("the unmodified job cannot run, so the search has no baseline: {needs}. State today's settings in [baseline]")
        }));
        Ok(Self {
            path: path.to_owned(),
            text: source.text.clone(),
            limits: limits(&file.limits),
            budget: budget(&file.search),
            machine: machine::build(&source, &file.machine, &file.step.value)?,
            engine,
            compares_slots: file.machine.compare_slots.unwrap_or(true),
            space,
            step,
            baseline,
            is_baseline_as_it_is: wants_as_it_is && needs.is_none(),
            objective,
            strategy,
            seed,
            warm_start,
            left_out,
            warnings,
        })
    }

    /// Reads the earlier studies to learn from, for a search with the folder `own`.
    ///
    /// # Errors
    /// A study cannot be read, says nothing about the search, or is the search itself. The error points at the study in the spec.
    pub fn earlier_studies(&self, own: &Path) -> Result<Vec<EarlierStudy>, SpecError> {
        let source = SourceFile { path: self.path.clone(), text: self.text.clone() };
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let read = |place: &Located<PathBuf>| {
            let study = EarlierStudy::read_for(&folder.join(&place.value), own)
                .and_then(|study| study.seen_from(&self.space, &self.objective).map(|_| study));
            study.map_err(|error| refused(&source, place, &error))
        };
        self.warm_start.iter().map(read).collect()
    }

    /// Returns the parameters whose targets change numerical results; others state this in the space.
    pub fn full_precision(&self) -> FullPrecision {
        let applied = || self.step.template().apply.applied.iter();
        // The parameter's own statement takes precedence over the statement of its target.
        let states = |name: &str| {
            let parameter = self.space.parameter_index(name).map(|at| &self.space.parameters()[at]);
            parameter.is_some_and(|parameter| parameter.in_full_precision().is_some())
        };
        let reference = applied().filter_map(|applied| match applied.target.numerics {
            Numerics::Changed(_) if states(&applied.parameter) => None,
            Numerics::Changed(full) => Some((applied.parameter.clone(), Value::parse(full))),
            Numerics::Same | Numerics::Other => None,
        });
        let neutral = applied().filter(|applied| applied.target.numerics == Numerics::Same);
        FullPrecision::new(reference).neutral(neutral.map(|applied| applied.parameter.clone()))
    }

    /// Returns the device of this machine that the spec asks for.
    ///
    /// # Errors
    /// The spec asks for a GPU, but this machine has no GPU.
    pub fn device(&self) -> Result<Device, NoGpu> {
        Device::choose(self.step.device(), &self.visible())
    }

    /// Returns the number of GPUs that the step sees.
    pub fn count_gpus(&self) -> u32 {
        Device::count_gpus(self.step.device(), &self.visible())
    }

    /// Returns the GPUs that the step sees; all of them if settings decide which.
    fn visible(&self) -> Visible {
        let template = self.step.template();
        let written = template.env.iter().filter(|(_, value)| value.names().next().is_none());
        let mut visible = Visible::of(&written.map(|(name, value)| (name.clone(), value.text().to_owned())).collect());
        let is_template = |(name, value): &(String, Template)| name == VISIBLE_GPUS && value.names().next().is_some();
        let is_applied = |applied: &Applied| applied.variables().contains(&VISIBLE_GPUS);
        if template.env.iter().any(is_template) || template.apply.applied.iter().any(is_applied) {
            visible.devices = None;
        }
        visible
    }

    /// Returns what must stay the same for this spec's trials to be comparable.
    pub fn fingerprint(&self, device: &Device) -> Fingerprint {
        let searched = self.space.parameters().iter().map(|parameter| (parameter.name(), parameter.definition()));
        let derived = self.space.derived().iter().map(|d| (d.name(), format!("derive {}", d.expression().text())));
        let parameters: BTreeMap<&str, String> = searched.chain(derived).collect();
        let rules: Vec<&str> = self.space.rules().iter().map(crate::model::Expression::text).collect();
        let (device, driver, command) = (device.name.clone(), device.driver.clone(), self.step.fingerprint());
        let space = serde_json::json!({ "parameters": parameters, "rules": rules });
        Fingerprint { device, driver, command, space }
    }
}

/// Returns the JSON Schema of the spec, from the types that read it.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(SpecFile).to_value()
}

/// Builds the space, with the targets of its parameters and the settings that the hardware lacks.
fn space(
    file: &SourceFile,
    table: &Located<SpaceTable>,
    rules: &[RuleTable],
    step: &StepTable,
    detect: &dyn Fn() -> Option<Hardware>,
) -> Result<(Space, Vec<Applied>, Vec<LeftOut>), SpecError> {
    let mut collected = Collected::default();
    collected.add(file, &table.value, rules)?;
    let applied = apply::resolve(&mut collected, step)?;
    let left_out = hardware::fit(&mut collected, &applied, step, detect)?;
    let mistake = |error| collected::mistake(&collected, file, &table.span, &error);
    let space = collected.builder(&(0..collected.rules.len()).collect::<Vec<_>>())?.build().map_err(mistake)?;
    space.try_expressions().map_err(mistake)?;
    if space.is_empty() {
        return Err(collected.nothing_allowed(file, table, &space));
    }
    apply::check_settings(&collected, &space, &applied)?;
    Ok((space, applied, left_out))
}

/// Returns the places of the studies to learn from, if the search can learn from any.
fn warm_start(
    source: &SourceFile,
    table: &SearchTable,
    strategy: &str,
    objective: &Objective,
) -> Result<Vec<Located<PathBuf>>, SpecError> {
    let places = table.warm_start.as_deref().unwrap_or_default();
    let Some(first) = places.first() else { return Ok(Vec::new()) };
    if !LEARNING.contains(&strategy) {
        let message = format!("`{strategy}` does not learn from earlier studies");
        let hint = format!("take `warm_start` out, or choose the strategy {}", LEARNING.join(" or "));
        return Err(source.error(first.span.clone(), message, hint));
    }
    if objective.is_pareto() {
        return Err(refused(source, first, &EarlierError::Front));
    }
    if let Some(place) = places.get(EarlierStudy::MOST) {
        let message = format!("a search learns from at most {} earlier studies", EarlierStudy::MOST);
        return Err(source.error(place.span.clone(), message, "keep the studies of the most similar jobs"));
    }
    Ok(places.to_vec())
}

fn refused(source: &SourceFile, place: &Located<PathBuf>, error: &EarlierError) -> SpecError {
    source.error(place.span.clone(), with_causes(error), error.hint())
}

fn limits(table: &LimitsTable) -> Limits {
    let usual = Limits::default();
    Limits {
        probe_time: Valid::or(table.probe_time.as_ref(), usual.probe_time),
        stall_time: Valid::or(table.stall_time.as_ref(), usual.stall_time),
        measure_time: Valid::or(table.measure_time.as_ref(), usual.measure_time),
        grace_time: Valid::or(table.grace_time.as_ref(), usual.grace_time),
        precision: table.precision.as_ref().map(|precision| precision.0),
        loss_tolerance: Valid::or(table.loss_tolerance.as_ref(), usual.loss_tolerance),
        host_memory_headroom: Valid::or(table.host_memory_headroom.as_ref(), usual.host_memory_headroom),
        log_size: table.log_size.as_ref().map(|size| size.0),
    }
}

fn budget(table: &SearchTable) -> Budget {
    let usual = Budget::default();
    Budget {
        probes: Valid::or(table.probes.as_ref(), usual.probes),
        time: Valid::or(table.time.as_ref(), usual.time),
        gpu_time: table.gpu_time.as_ref().map(|time| time.0),
        rounds: Valid::or(table.rounds.as_ref(), usual.rounds),
        least_gain: Valid::or(table.least_gain.as_ref(), usual.least_gain),
    }
}
