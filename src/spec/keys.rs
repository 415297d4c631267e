//! The table of the keys of a spec and their values, for messages and hints.

/// The description of a key.
pub(super) struct Key {
    /// The path of the key: `*` is the name of a parameter or variable, `[]` an entry of a list.
    path: &'static str,
    /// The kind of its value, in words.
    pub(super) must_be: &'static str,
    /// An example of how it is written.
    pub(super) example: &'static str,
}

const fn key(path: &'static str, must_be: &'static str, example: &'static str) -> Key {
    Key { path, must_be, example }
}

const SETTING: &str = "a boolean, a finite number or a text";
const WEIGHT: &str = "throughput = 1.0 or loss = { weight = 0.5, direction = \"minimize\" }";
const AIM: &str = "\"throughput\" or { metric = \"f1\", direction = \"maximize\" }";
const RULES: &str = "[[rules]] with two brackets, and below it where = \"batch_size * workers <= 8192\"";

const KEYS: &[Key] = &[
    key("step", "a table", "[step], and below it command = [\"python\", \"train.py\"]"),
    key("step.command", "a list of texts", "command = [\"python\", \"train.py\", \"--batch-size\", \"{batch_size}\"]"),
    key("step.command.[]", "a text", "it in quotes"),
    key("step.env", "a table of texts", "env = { OMP_NUM_THREADS = \"4\" }"),
    key("step.env.*", "a text", "OMP_NUM_THREADS = \"4\""),
    key("step.cwd", "a text", "cwd = \"folder\""),
    key("step.files", "a list of tables", "files = [{ template = \"run.json.in\", path = \"run.json\" }]"),
    key("step.files.[]", "a table", "files = [{ template = \"run.json.in\", path = \"run.json\" }]"),
    key("step.files.[].template", "a text", "template = \"run.json.in\""),
    key("step.files.[].path", "a text", "path = \"run.json\""),
    key("step.files.[].replaces", "a text", "replaces = \"config.yaml\""),
    key("step.throughput", "a table", "throughput = { pattern = '([0-9.]+) samples/s', unit = \"samples/s\" }"),
    key("step.throughput.pattern", "a text", "pattern = '([0-9.]+) samples/s'"),
    key("step.throughput.unit", "a text", "unit = \"samples/s\""),
    key("step.samples_per_step", "a number or an expression", "samples_per_step = \"batch_size * 8\""),
    key("step.adapter", "the name of an adapter, as a text", "adapter = \"torch\""),
    key("step.device", "\"auto\", \"cpu\" or \"gpu\"", "device = \"cpu\""),
    key("step.writes", "\"scratch\", \"guard\" or \"allow\"", "writes = \"scratch\""),
    key("step.scratch_size", "a share of the free disk, or a size as a text", "scratch_size = \"20GiB\""),
    key("step.start", "\"auto\", \"live\", \"warm\" or \"fresh\"", "start = \"fresh\""),
    key("step.ranks", "a whole number or an expression", "ranks = 4"),
    key("space", "a table", "[space], and below it batch_size = { powers_of_two = [8, 1024] }"),
    key("space.import", "a list of texts", "import = [\"dataloader\", \"./space.toml\"]"),
    key("space.import.[]", "a text", "import = [\"dataloader\", \"./space.toml\"]"),
    key("space.*", "a table", "{ values = [8, 16] }, { range = [0, 16], step = 2 } or { powers_of_two = [8, 1024] }"),
    key("space.*.values", "a list of settings", "values = [2, 4, 8]"),
    key("space.*.values.[]", SETTING, "values = [2, 4, 8] or values = [\"fp32\", \"bf16\"]"),
    key("space.*.range", "a list of two numbers", "range = [0, 16]"),
    key("space.*.range.[]", "a finite number", "range = [0, 16]"),
    key("space.*.step", "a number", "step = 2"),
    key("space.*.powers_of_two", "a list of two whole numbers", "powers_of_two = [8, 1024]"),
    key("space.*.powers_of_two.[]", "a whole number", "powers_of_two = [8, 1024]"),
    key("space.*.when", "a condition, as a text", "when = \"workers > 0\""),
    key("space.*.derive", "an expression, as a text", "derive = \"1024 / batch_size\""),
    key("space.*.apply", "the name of a target, as a text", "apply = \"dataloader.batch_size\""),
    key("space.*.argument", "an option of the script, as a text", "argument = \"--batch-size\""),
    key("space.*.role", "the name of a role, as a text", "role = \"workers\""),
    key("space.*.full_precision", SETTING, "full_precision = \"fp32\""),
    key("space.*.monotone", "true or false", "monotone = true"),
    key("rules", "a list of tables", RULES),
    key("rules.[]", "a table", RULES),
    key("rules.[].where", "a condition, as a text", "where = \"batch_size * workers <= 8192\""),
    key("baseline", "a table of settings", "[baseline], and below it batch_size = 32"),
    key("baseline.*", SETTING, "batch_size = 32"),
    key("limits", "a table", "[limits], and below it probe_time = \"60s\""),
    key("machine", "a table", "[machine], and below it slots = 2"),
    key("machine.slots", "a whole number or \"auto\"", "slots = 2"),
    key("machine.gpus_per_slot", "a whole number", "gpus_per_slot = 1"),
    key("machine.cores_per_slot", "a whole number", "cores_per_slot = 4"),
    key("machine.launcher", "\"local\", \"slurm\", \"ssh\", \"ray\" or \"dial\"", "launcher = \"slurm\""),
    key("machine.compare_slots", "true or false", "compare_slots = false"),
    key("machine.spans_nodes", "true or false", "spans_nodes = true"),
    key("machine.hosts", "a list of texts", "hosts = [\"gpu1\", \"gpu2\"]"),
    key("machine.hosts.[]", "a text", "hosts = [\"gpu1\", \"gpu2\"]"),
    key("machine.listen", "a text", "listen = \"10.0.0.5:7331\""),
    key("machine.token_file", "a text", "token_file = \"token\""),
    key("machine.workers", "a whole number", "workers = 4"),
    key("machine.ray", "a text", "ray = \"http://head:8265\""),
    key("machine.only", "a text", "only = \"H100\""),
    key("limits.memory_headroom", "a share or a size", "memory_headroom = 0.1 or memory_headroom = \"2GiB\""),
    key("limits.host_memory_headroom", "a share or a size", "host_memory_headroom = 0.02"),
    key("limits.probe_time", "a duration, as a text", "probe_time = \"60s\""),
    key("limits.stall_time", "a duration, as a text", "stall_time = \"30s\""),
    key("limits.grace_time", "a duration, as a text", "grace_time = \"5s\""),
    key("limits.measure_time", "a duration, as a text", "measure_time = \"10s\""),
    key("limits.precision", "a share", "precision = 0.02"),
    key("limits.loss_tolerance", "a share", "loss_tolerance = 0.1"),
    key("limits.log_size", "a size, as a text", "log_size = \"100MiB\""),
    key("objective", "a table", "[objective], and below it maximize = \"throughput\""),
    key("objective.maximize", "the name of a metric, as a text", "maximize = \"throughput\""),
    key("objective.minimize", "the name of a metric, as a text", "minimize = \"step_time\""),
    key("objective.weights", "a table of weights", "weights = { throughput = 1.0, energy_per_sample = 0.5 }"),
    key("objective.weights.*", "a weight, or a table", WEIGHT),
    key("objective.weights.*.weight", "a number larger than 0", "weight = 0.5"),
    key("objective.weights.*.direction", "\"maximize\" or \"minimize\"", "direction = \"minimize\""),
    key("objective.pareto", "a list of metrics", "pareto = [\"throughput\", \"energy_per_sample\"]"),
    key("objective.pareto.[]", "the name of a metric, or a table", AIM),
    key("objective.pareto.[].metric", "the name of a metric, as a text", "metric = \"loss\""),
    key("objective.pareto.[].direction", "\"maximize\" or \"minimize\"", "direction = \"minimize\""),
    key("objective.price_per_hour", "a number larger than 0", "price_per_hour = 2.5"),
    key("objective.price_per_gpu_hour", "a number larger than 0", "price_per_gpu_hour = 2.5"),
    key("objective.constraints", "a list of texts", "constraints = [\"peak_memory < 70GiB\"]"),
    key("objective.constraints.[]", "a text", "constraints = [\"peak_memory < 70GiB\"]"),
    key("run", "a table", "[run], and below it length = \"90 epochs\""),
    key("run.length", "a number with a unit, as a text", "length = \"90 epochs\""),
    key("search", "a table", "[search], and below it probes = 24"),
    key("search.strategy", "the name of a strategy, as a text", "strategy = \"auto\""),
    key("search.probes", "a whole number from 1 to 1000000", "probes = 24"),
    key("search.time", "a duration, as a text", "time = \"20m\""),
    key("search.gpu_time", "a duration, as a text", "gpu_time = \"8h\""),
    key("search.seed", "a whole number from 0 on", "seed = 0"),
    key("search.rounds", "a whole number from 0 to 100000", "rounds = 1000"),
    key("search.least_gain", "a share from 0 to 1", "least_gain = 0.01"),
    key("search.as_it_is", "true or false", "as_it_is = false"),
    key("search.on_tie", "\"cheapest\" or \"fastest\"", "on_tie = \"cheapest\""),
    key("search.warm_start", "a list of texts", "warm_start = [\"gputune-out/a100\"]"),
    key("search.warm_start.[]", "a text", "warm_start = [\"gputune-out/a100\"]"),
];

/// Returns the description of the key at a path.
pub(super) fn find(path: &[String]) -> Option<&'static Key> {
    let fits = |key: &&Key| {
        let parts: Vec<&str> = key.path.split('.').collect();
        parts.len() == path.len() && parts.iter().zip(path).all(|(part, name)| *part == "*" || part == name)
    };
    KEYS.iter().find(fits)
}

/// Returns the name of a table, for a message about one of its keys.
pub(super) fn owner(path: &[String]) -> String {
    match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => "the spec".to_owned(),
        ["rules", "[]"] => "a rule".to_owned(),
        [table] => format!("[{table}]"),
        ["space", _] => "a parameter".to_owned(),
        [.., list, "[]"] => format!("an entry of `{list}`"),
        [.., name] => format!("`{name}`"),
    }
}

/// Returns the name of a value, for a message about the value itself.
pub(super) fn subject(path: &[String]) -> String {
    match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => "a spec".to_owned(),
        ["rules", "[]"] => "a rule".to_owned(),
        [.., list, "[]"] => format!("each entry of `{list}`"),
        [.., name] => format!("`{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn names_of_parameters_are_free_and_those_of_keys_come_first() {
        assert_eq!(find(&path("space.workers.range")).unwrap().example, "range = [0, 16]");
        assert_eq!(find(&path("space.import")).unwrap().must_be, "a list of texts");
        assert!(find(&path("step.nothing")).is_none());
    }

    /// Every key that the reader takes has a line here.
    #[test]
    fn every_key_of_the_schema_is_known() {
        let schema = crate::spec::schema();
        for (table, definition) in schema["properties"].as_object().unwrap() {
            assert!(find(&path(table)).is_some(), "{table}");
            let definition = definition["$ref"].as_str().and_then(|at| schema.pointer(&at[1..])).unwrap_or(definition);
            let keys = definition["properties"].as_object().into_iter().flatten();
            for (key, _) in keys.filter(|_| table != "baseline") {
                assert!(find(&path(&format!("{table}.{key}"))).is_some(), "{table}.{key}");
            }
        }
    }
}
