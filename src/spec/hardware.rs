//! Leaves precisions out of the space that the GPU's hardware lacks.
//!
//! A parameter is known to be a precision by its target `torch.precision`. Any other of that name stays unchanged.

use super::collected::Collected;
use super::error::SpecError;
use super::file::StepTable;
use super::located::Located;
use crate::machine::{DeviceChoice, Hardware, VISIBLE_GPUS};
use crate::model::{Precision, Value};
use crate::probe::adapter::Applied;

/// Settings of a parameter that were left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The parameter.
    pub parameter: String,
    /// The settings, each with its precision.
    pub settings: Vec<(String, Precision)>,
    /// The least capable GPU.
    pub hardware: Hardware,
}

impl LeftOut {
    /// Returns the line about the missing settings.
    pub fn line(&self) -> String {
        let settings: Vec<&str> = self.settings.iter().map(|(setting, _)| setting.as_str()).collect();
        let reasons: Vec<String> = self.settings.iter().map(|(_, precision)| since(*precision)).collect();
        let (major, minor) = self.hardware.compute_capability;
        let (name, settings, reasons) = (&self.parameter, settings.join(", "), reasons.join(", "));
        let has = format!("{} has compute capability {major}.{minor}", self.hardware.name);
        format!("`{name}` is searched without {settings}: {has}, and {reasons}")
    }
}

fn since(precision: Precision) -> String {
    let (major, minor) = precision.since();
    format!("{precision} begins with {major}.{minor}")
}

/// Leaves out the settings that the hardware lacks. Calls `detect` only if some hardware lacks one of the settings.
pub(super) fn fit(
    collected: &mut Collected,
    applied: &[Applied],
    step: &StepTable,
    detect: &dyn Fn() -> Option<Hardware>,
) -> Result<Vec<LeftOut>, SpecError> {
    let on_cpu = step.device.as_ref().is_some_and(|device| device.value == DeviceChoice::Cpu);
    // This process can detect only the GPUs that it sees itself.
    let chooses = step.env.0.iter().any(|(name, _)| name.value == VISIBLE_GPUS);
    let is_precision = |name: &str| applied.iter().any(|it| it.name == "torch.precision" && it.parameter == name);
    // Any precision above fp32 may be missing in the hardware.
    let is_newer = |value: &Value| precision(value).is_some_and(|precision| precision > Precision::Fp32);
    let precisions = collected.parameters.iter().filter(|known| is_precision(&known.name.value));
    let mut settings = precisions.flat_map(|known| known.table.values.iter().flat_map(|values| &values.value));
    if on_cpu || chooses || !settings.any(|entry| is_newer(&entry.value)) {
        return Ok(Vec::new());
    }
    let Some(hardware) = detect() else { return Ok(Vec::new()) };
    let mut left_out = Vec::new();
    for at in 0..collected.parameters.len() {
        let definition = &mut collected.parameters[at];
        let values = definition.table.values.as_mut().filter(|_| is_precision(&definition.name.value));
        let Some(values) = values else { continue };
        let settings = take(values, &hardware);
        if settings.is_empty() {
            continue;
        }
        let (file, parameter) = (definition.file, definition.name.value.clone());
        let (is_empty, span) = (values.value.is_empty(), values.span.clone());
        if is_empty {
            let lacks = hardware.lacks(settings[0].1);
            let message = format!("no setting of `{parameter}` is in this GPU's hardware: {lacks}");
            return Err(collected.files[file].error(span, message, CURE));
        }
        left_out.push(LeftOut { parameter, settings, hardware: hardware.clone() });
    }
    Ok(left_out)
}

/// The hint for a setting that the hardware lacks.
pub(super) const CURE: &str = "take \"fp32\", another GPU, or device = \"cpu\" in [step]";

/// Removes the settings that the hardware lacks.
fn take(values: &mut Located<Vec<Located<Value>>>, hardware: &Hardware) -> Vec<(String, Precision)> {
    let lacking = |value: &Value| precision(value).filter(|&precision| !hardware.has(precision));
    let found = values.value.iter().filter_map(|it| Some((it.value.to_string(), lacking(&it.value)?))).collect();
    values.value.retain(|entry| lacking(&entry.value).is_none());
    found
}

fn precision(value: &Value) -> Option<Precision> {
    value.as_text().and_then(Precision::named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Device;
    use crate::spec::Spec;

    const SPEC: &str = r#"
        [step]
        command = ["python3", "train.py"]
        adapter = "torch"
        [space]
        precision = { values = ["fp32", "bf16"], apply = "torch.precision" }
    "#;

    fn load(text: &str, compute_capability: (i32, i32)) -> Result<Spec, SpecError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spec.toml");
        std::fs::write(&path, text).unwrap();
        Spec::load_for(&path, &|| Some(Hardware { name: "Test".to_owned(), compute_capability }))
    }

    #[test]
    fn the_signature_of_a_search_tells_what_was_left_out() {
        let device = Device { name: "Test".to_owned(), driver: "1".to_owned(), is_gpu: true };
        let fingerprint = |capability| load(SPEC, capability).unwrap().fingerprint(&device).space.to_string();
        assert_eq!(fingerprint((7, 0)), fingerprint((7, 5)), "it goes on where it was");
        assert_ne!(fingerprint((7, 0)), fingerprint((8, 0)));
    }

    #[test]
    fn who_needs_no_answer_does_not_ask() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spec.toml");
        for text in [
            SPEC.replace("\"bf16\"", "\"fp32\"").replace("\"fp32\", \"fp32\"", "\"fp32\""),
            SPEC.replace("adapter =", "device = \"cpu\"\nadapter ="),
            SPEC.replace("adapter =", "env = { CUDA_VISIBLE_DEVICES = \"1\" }\nadapter ="),
        ] {
            std::fs::write(&path, text).unwrap();
            let spec = Spec::load_for(&path, &|| panic!("nobody asks")).unwrap();
            assert_eq!(spec.left_out, []);
        }
        std::fs::write(&path, SPEC).unwrap();
        assert_eq!(Spec::load_for(&path, &|| None).unwrap().space.count().to_string(), "2");
    }
}
