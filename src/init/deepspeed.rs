//! Turns DeepSpeed's JSON config into a template that is rendered for each probe. Names and defaults are from
//! DeepSpeed's documentation, "DeepSpeed Configuration JSON".

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::command::Command;
use super::knobs::Settings;
use super::plan::Plan;
use super::setting_files::{Template, in_file};
use super::settings::{self, Means};
use crate::probe::escaped;

const MOST_BYTES: u64 = 1024 * 1024;
/// The elements of a bucket if the config states none: the default in DeepSpeed's documentation.
const BUCKET: i64 = 500_000_000;

/// Finds the word of a command that names a DeepSpeed config: its text before the path, the word, and the JSON.
fn config_word(command: &Command, cwd: &Path) -> Option<(String, String, Value)> {
    command.words.iter().find_map(|word| {
        let (front, file) = match word.split_once('=') {
            Some((option, file)) if option.starts_with("--") => (format!("{option}="), file),
            _ => (String::new(), word.as_str()),
        };
        let path = cwd.join(file);
        let is_config =
            file.ends_with(".json") && fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() <= MOST_BYTES);
        let value: Value = serde_json::from_str(&fs::read_to_string(path).ok().filter(|_| is_config)?).ok()?;
        value.is_object().then(|| (front, word.clone(), value))
    })
}

/// Puts the settings of the plan's preset into the config that the command names; `None` if it names no config.
pub fn render(plan: &mut Plan, command: &Command, means: &Means, cwd: &Path) -> Option<Template> {
    let (front, word, mut value) = config_word(command, cwd)?;
    let config = PathBuf::from(word.get(front.len()..)?);
    let object = value.as_object_mut()?;
    let number = |object: &Map<String, Value>, name: &str| object.get(name).and_then(Value::as_i64);
    let accumulation = number(object, "gradient_accumulation_steps").unwrap_or(1).max(1);
    let ranks = i64::try_from(command.ranks()).unwrap_or(1);
    let whole = number(object, "train_batch_size").map(|whole| whole / accumulation / ranks);
    let today = number(object, "train_micro_batch_size_per_gpu").or(whole).filter(|&today| today > 0);
    let mut settings = Vec::new();
    // Leave `auto` unchanged: another program fills it in.
    if today.is_some() {
        let batch = settings::numbers(Settings::BatchSize, today, &[], means, 1)?;
        settings.push(("batch_size", "train_micro_batch_size_per_gpu", batch, today.map(|today| today.to_string())));
        object.insert("train_micro_batch_size_per_gpu".to_owned(), json!("@batch_size@"));
        // DeepSpeed requires the three sizes to be consistent, and computes the missing size.
        object.remove("train_batch_size");
        object.insert("gradient_accumulation_steps".to_owned(), json!(accumulation));
    }
    if let Some(zero) = object.get_mut("zero_optimization").and_then(Value::as_object_mut) {
        add_zero(zero, &mut settings);
    }
    if settings.is_empty() {
        return None;
    }
    plan.parameters.retain(|planned| settings.iter().all(|(name, ..)| planned.name != *name));
    for (name, key, definition, today) in settings.iter().rev() {
        let about = format!("{key} of DeepSpeed's config");
        let planned = in_file(name, definition.clone(), about, &config.display().to_string(), today.clone());
        plan.parameters.insert(0, planned);
    }
    let mut text = escaped(&serde_json::to_string_pretty(&value).ok()?);
    for (name, ..) in &settings {
        text = text.replace(&format!("\"@{name}@\""), &format!("{{{name}}}"));
    }
    let name = config.file_name()?.to_str()?;
    plan.words.replace(&word, &format!("{}{{probe_dir}}/{}", escaped(&front), escaped(name)));
    Some(Template { text: text + "\n", config, is_opened: false })
}

type Setting = (&'static str, &'static str, String, Option<String>);

/// Adds ZeRO's stage, overlap and buckets. The stage stays fixed if anything is offloaded, since offloading depends on it.
fn add_zero(zero: &mut Map<String, Value>, settings: &mut Vec<Setting>) {
    let mut add = |name, key, definition: &str, today: String| {
        settings.push((name, key, definition.to_owned(), Some(today)));
    };
    let stage = zero.get("stage").and_then(Value::as_i64).unwrap_or(0);
    if !zero.contains_key("offload_optimizer") && !zero.contains_key("offload_param") && (0..=3).contains(&stage) {
        zero.insert("stage".to_owned(), json!("@zero_stage@"));
        add("zero_stage", "zero_optimization.stage", "values = [0, 1, 2, 3]", stage.to_string());
    }
    // Overlap is on by default from stage 3 on; a written value holds in all stages.
    let overlap = zero.get("overlap_comm").and_then(Value::as_bool).unwrap_or(stage == 3);
    zero.insert("overlap_comm".to_owned(), json!("@overlap_comm@"));
    add("overlap_comm", "zero_optimization.overlap_comm", "values = [false, true]", overlap.to_string());
    let bucket = zero.get("reduce_bucket_size").and_then(Value::as_f64).unwrap_or(0.0);
    #[expect(clippy::cast_possible_truncation, reason = "a count, which DeepSpeed also takes as 5e8")]
    let bucket = if (1.0..1e12).contains(&bucket) { bucket as i64 } else { BUCKET };
    let mut sizes = vec![bucket, (bucket / 10).max(1), (bucket / 100).max(1)];
    sizes.dedup();
    let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
    for key in ["reduce_bucket_size", "allgather_bucket_size"] {
        zero.insert(key.to_owned(), json!("@bucket_size@"));
    }
    let definition = format!("values = [{}], role = \"none\"", sizes.join(", "));
    let key = "zero_optimization.reduce_bucket_size and allgather_bucket_size";
    add("bucket_size", key, &definition, bucket.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::plan::{Found, plan};
    use crate::init::preset::preset;
    use crate::init::source::Source;

    fn rendered(config: &str, words: &[&str]) -> Option<(Plan, Template)> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ds {x}.json"), config).unwrap();
        let command = Command::new(words.iter().map(|&word| word.to_owned()).collect(), "python3");
        let means = Means { cores: 2, gpus: 0, hardware: None, cpu_has_bf16: false, threads: None };
        let (source, preset) = (Source::default(), preset("deepspeed").unwrap());
        let mut plan =
            plan(&Found { command: &command, arguments: &[], source: &source, seen: None, preset, means: &means })
                .unwrap();
        let template = render(&mut plan, &command, &means, folder.path())?;
        Some((plan, template))
    }

    #[test]
    fn a_config_becomes_a_template() {
        let config = r#"{"train_batch_size": 64, "gradient_accumulation_steps": 2, "name": "{x}",
            "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}"#;
        let words = ["deepspeed", "--num_gpus", "4", "t.py", "--deepspeed_config=ds {x}.json"];
        let (plan, template) = rendered(config, &words).unwrap();
        let text = template.text;
        for part in ["\"train_micro_batch_size_per_gpu\": {batch_size}", "\"stage\": {zero_stage}", "\"{{x}}\""] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("train_batch_size"));
        let today: Vec<&str> = plan.parameters.iter().filter_map(|planned| planned.today.as_deref()).collect();
        assert_eq!(today, ["8", "2", "false", "500000000", "1"]);
        let last = "--deepspeed_config={probe_dir}/ds {{x}}.json";
        assert_eq!(plan.words.written().unwrap().last().unwrap(), last);
    }

    #[test]
    fn what_is_no_config_is_left_alone() {
        let words = ["deepspeed", "t.py", "ds {x}.json"];
        for config in ["[]", "no json", ""] {
            assert!(rendered(config, &words).is_none(), "{config}");
        }
        let offloaded = r#"{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}"#;
        let (plan, _) = rendered(offloaded, &words).unwrap();
        assert!(plan.parameters.iter().all(|planned| planned.name != "zero_stage"));
    }
}
