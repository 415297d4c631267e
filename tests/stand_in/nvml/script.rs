//! The script of the stand-in: its answers, and their times.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

/// Codes of `nvmlReturn_t`.
pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_ARGUMENT: u32 = 2;
pub(crate) const NOT_SUPPORTED: u32 = 3;
pub(crate) const NOT_FOUND: u32 = 6;
pub(crate) const INSUFFICIENT_SIZE: u32 = 7;
pub(crate) const TIMEOUT: u32 = 10;

/// A value, or the code of the failure.
pub(crate) type Told<T> = Result<T, u32>;

/// The whole script.
pub(crate) struct Script {
    begin: SystemTime,
    pub(crate) driver: String,
    pub(crate) init: u32,
    pub(crate) gpus: Vec<Gpu>,
}

/// One GPU, or an instance.
pub(crate) struct Gpu {
    state: Map<String, Value>,
    changes: Vec<(Trigger, Map<String, Value>)>,
    pub(crate) uuid: String,
    pub(crate) name: String,
    /// The number of the GPU on the bus.
    pub(crate) bus: u32,
    pub(crate) parent: Option<usize>,
    /// The indices of its instances.
    pub(crate) instances: Vec<usize>,
}

enum Trigger {
    After(f64),
    When(String),
}

/// The script, read when the library is first called.
pub(crate) fn script() -> &'static Script {
    static SCRIPT: OnceLock<Script> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        let path = std::env::var("STAND_IN_NVML").unwrap_or_default();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Script::from(&serde_json::from_str(&text).unwrap_or_default())
    })
}

impl Script {
    fn from(json: &Value) -> Self {
        let mut script = Self {
            begin: SystemTime::now(),
            driver: json["driver"].as_str().unwrap_or("580.95.05").to_owned(),
            init: json["init"].as_u64().and_then(|code| u32::try_from(code).ok()).unwrap_or(SUCCESS),
            gpus: Vec::new(),
        };
        let whole = json["gpus"].as_array().map(Vec::as_slice).unwrap_or_default();
        script.gpus = (0..).zip(whole).map(|(bus, gpu)| Gpu::from(gpu, bus, None)).collect();
        for (place, gpu) in whole.iter().enumerate() {
            for instance in gpu["instances"].as_array().into_iter().flatten() {
                let number = script.gpus.len();
                script.gpus.push(Gpu::from(instance, script.gpus[place].bus, Some(place)));
                script.gpus[place].instances.push(number);
            }
        }
        script
    }

    /// Returns the GPUs, without instances.
    pub(crate) fn whole(&self) -> impl Iterator<Item = usize> {
        (0..self.gpus.len()).filter(|place| self.gpus[*place].parent.is_none())
    }

    pub(crate) fn now(&self) -> f64 {
        self.begin.elapsed().unwrap_or_default().as_secs_f64()
    }

    /// Returns a time of the script as microseconds since 1970.
    pub(crate) fn micros(&self, time: f64) -> u64 {
        let since = self.begin.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from((since + Duration::from_secs_f64(time.max(0.0))).as_micros()).unwrap_or(0)
    }
}

impl Gpu {
    fn from(json: &Value, bus: u32, parent: Option<usize>) -> Self {
        let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let change = |change: &Value| {
            let trigger = match change["when"].as_str() {
                Some(path) => Trigger::When(path.to_owned()),
                None => Trigger::After(change["after"].as_f64().unwrap_or(0.0)),
            };
            (trigger, map(&change["set"]))
        };
        Self {
            state: map(&json["state"]),
            changes: json["changes"].as_array().into_iter().flatten().map(change).collect(),
            uuid: json["uuid"].as_str().unwrap_or("GPU-none").to_owned(),
            name: json["name"].as_str().unwrap_or("NVIDIA Stand-In").to_owned(),
            bus: json["bus"].as_u64().and_then(|bus| u32::try_from(bus).ok()).unwrap_or(bus),
            parent,
            instances: Vec::new(),
        }
    }

    /// Returns the changes up to a time, with their times, the oldest first.
    fn changes_until(&self, time: f64) -> Vec<(f64, &Map<String, Value>)> {
        let at = |trigger: &Trigger| match trigger {
            Trigger::After(time) => Some(*time),
            Trigger::When(path) => {
                let made = Path::new(path).metadata().and_then(|data| data.modified()).ok()?;
                Some(made.duration_since(script().begin).unwrap_or_default().as_secs_f64())
            }
        };
        let mut come: Vec<(f64, &Map<String, Value>)> =
            self.changes.iter().filter_map(|(trigger, set)| Some((at(trigger)?, set))).collect();
        come.retain(|(at, _)| *at <= time);
        come.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        come
    }

    /// Returns the state's value for a name at some time.
    pub(crate) fn at(&self, name: &str, time: f64) -> Option<Value> {
        let changes = self.changes_until(time);
        changes.iter().rev().find_map(|(_, set)| set.get(name)).or_else(|| self.state.get(name)).cloned()
    }

    pub(crate) fn get(&self, name: &str) -> Told<Value> {
        self.at(name, script().now()).filter(|value| !value.is_null()).ok_or(NOT_SUPPORTED)
    }

    pub(crate) fn number(&self, name: &str) -> Told<f64> {
        self.get(name)?.as_f64().ok_or(NOT_SUPPORTED)
    }

    /// Returns the integral of a value up to some time.
    pub(crate) fn sum(&self, name: &str, time: f64) -> Told<f64> {
        let mut edges: Vec<f64> = self.changes_until(time).into_iter().map(|(at, _)| at).collect();
        edges.insert(0, 0.0);
        edges.push(time);
        let mut sum = 0.0;
        for pair in edges.windows(2) {
            let value = self.at(name, pair[0]).and_then(|value| value.as_f64()).ok_or(NOT_SUPPORTED)?;
            sum += value * (pair[1] - pair[0]);
        }
        Ok(sum)
    }

    /// Fails if a function must not answer now; a hanging function never returns.
    pub(crate) fn may(&self, function: &str) -> Told<()> {
        let now = script().now();
        let hangs = self.at("hang", now).and_then(|names| Some(names.as_array()?.iter().any(|name| name == function)));
        if hangs == Some(true) {
            std::thread::sleep(Duration::from_secs(3600));
        }
        let errors = self.at("errors", now).unwrap_or_default();
        let code = errors.get(function).or_else(|| errors.get("*")).and_then(Value::as_u64);
        code.map_or(Ok(()), |code| Err(u32::try_from(code).unwrap_or(999)))
    }

    pub(crate) fn processes(&self) -> Told<Vec<(u32, u64, f64)>> {
        self.listed("processes")
    }

    /// Returns a list of processes: number, bytes and share. A process with a file is listed while it runs.
    pub(crate) fn listed(&self, name: &str) -> Told<Vec<(u32, u64, f64)>> {
        let listed = self.get(name)?;
        let process = |process: &Value| {
            let file = process["pid_file"].as_str().map(|path| std::fs::read_to_string(path).unwrap_or_default());
            let pid: u32 = match &file {
                Some(text) => text.trim().parse().ok()?,
                None => u32::try_from(process["pid"].as_u64()?).ok()?,
            };
            let runs = file.is_none() || Path::new(&format!("/proc/{pid}")).exists();
            let told_as = process["told_as"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(pid);
            let bytes = process["bytes"].as_f64().map_or(u64::MAX, |bytes| bytes as u64);
            runs.then_some((told_as, bytes, process["share"].as_f64().unwrap_or(0.0)))
        };
        Ok(listed.as_array().into_iter().flatten().filter_map(process).collect())
    }
}
