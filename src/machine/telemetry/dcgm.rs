//! Reads the activity of a GPU's parts from DCGM, if its host engine is already running.
//!
//! DCGM is used for GPUs without GPM (NVML's own activity counters): data-centre boards from Volta to Ada. The program
//! `dcgmi`, the engine's client, queries the engine. `dcgmi discovery -l` lists the GPUs' numbers and UUIDs. `dcgmi
//! dmon -e FIELDS -d MILLISECONDS -i NUMBERS` then prints one row for each GPU and period until it is stopped (NVIDIA
//! DCGM documentation, "dcgmi dmon" and "dcgmi discovery"). The formats are in `dcgmi/DeviceMonitor.cpp` and
//! `dcgmi/Query.cpp` of NVIDIA/DCGM.
//!
//! gputune starts and configures no engine. While a client listens, the engine reserves the profiling counters of these
//! GPUs: Nsight and CUPTI cannot read them (NVIDIA/DCGM issues 56 and 62).
//!
//! This has not run with a real DCGM yet; the tests use a stand-in for `dcgmi` that prints in these formats.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::tool;
use crate::model::{Metric, Reading, Readings, Source};

/// The watched fields (`dcgm_fields.h`): shares, and bytes per second that the GPU sends or receives.
const FIELDS: &[(u16, Metric)] = &[
    (1002, Metric::SmActive),
    (1003, Metric::SmOccupancy),
    (1004, Metric::TensorActive),
    (1005, Metric::DramActive),
    (1009, Metric::PcieSent),
    (1010, Metric::PcieReceived),
    (1011, Metric::NvlinkSent),
    (1012, Metric::NvlinkReceived),
];

/// The period of the rows. Each row has means over the time since the previous row.
const PERIOD: Duration = Duration::from_secs(1);
/// When a listener has this many rows, it drops half of them.
const KEPT: usize = 8192;

/// Listens to a host engine until it is dropped.
#[derive(Debug)]
pub struct Dcgm {
    heard: Arc<Mutex<Heard>>,
}

#[derive(Debug, Default)]
struct Heard {
    /// The engine's number of each GPU, by UUID.
    numbers: BTreeMap<String, u32>,
    rows: Vec<Row>,
    /// The reason why there are no rows.
    absent: Option<String>,
    dmon: Option<Child>,
    /// True once the listener was dropped.
    is_over: bool,
}

/// The values of one GPU at one moment, in the order of [`FIELDS`].
#[derive(Debug, Clone, PartialEq)]
struct Row {
    at: Instant,
    number: u32,
    values: Vec<Option<f64>>,
}

impl Dcgm {
    /// Starts to listen for the GPUs with these UUIDs (`GPU-...`), and returns at once. If nothing can be
    /// received, [`absent`](Self::absent) says why.
    pub fn listen(uuids: &[String]) -> Self {
        match tool::find("dcgmi") {
            Some(program) => Self::listen_with(program, uuids),
            None => Self::without("dcgmi is not installed"),
        }
    }

    /// Starts to listen with a given program.
    pub fn listen_with(program: impl Into<PathBuf>, uuids: &[String]) -> Self {
        let dcgm = Self { heard: Arc::default() };
        let (heard, program, uuids) = (Arc::clone(&dcgm.heard), program.into(), uuids.to_vec());
        let listen = move || {
            if let Err(reason) = follow(&program, &uuids, &heard) {
                locked(&heard).absent = Some(format!("DCGM: {reason}"));
            }
        };
        match std::thread::Builder::new().name("dcgm".to_owned()).spawn(listen) {
            Ok(_) => dcgm,
            Err(error) => Self::without(&error.to_string()),
        }
    }

    /// Returns the UUIDs (`GPU-...`) of the GPUs that a host engine knows, without listening. May take a few seconds.
    ///
    /// # Errors
    /// No engine answers, or `dcgmi` is not installed.
    pub fn known() -> Result<BTreeSet<String>, String> {
        let program = tool::find("dcgmi").ok_or("dcgmi is not installed")?;
        Ok(discover(&program)?.into_keys().collect())
    }

    fn without(reason: &str) -> Self {
        let heard = Heard { absent: Some(format!("DCGM: {reason}")), ..Heard::default() };
        Self { heard: Arc::new(Mutex::new(heard)) }
    }

    /// Returns why nothing is received, such as `DCGM: no host engine answers`, once that is known.
    pub fn absent(&self) -> Option<String> {
        locked(&self.heard).absent.clone()
    }

    /// Returns the means for a GPU between two moments; empty if no row falls between them.
    pub fn readings(&self, uuid: &str, from: Instant, to: Instant) -> Readings {
        let heard = locked(&self.heard);
        let Some(&number) = heard.numbers.get(uuid) else { return Readings::new() };
        // A row covers the period before it, and counts if the middle of that period lies between the two moments.
        let is_within = |row: &&Row| {
            let middle = row.at.checked_sub(PERIOD / 2).unwrap_or(row.at);
            row.number == number && (from..=to).contains(&middle)
        };
        let rows: Vec<&Row> = heard.rows.iter().filter(is_within).collect();
        let mean = |at: usize| {
            let values: Vec<f64> = rows.iter().filter_map(|row| row.values[at]).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let metrics = FIELDS.iter().enumerate();
        metrics
            .filter_map(|(at, (_, metric))| Some((*metric, Reading { value: mean(at)?, source: Source::Dcgm })))
            .collect()
    }
}

/// Ends the client; the engine drops the client's watches when the connection closes.
impl Drop for Dcgm {
    fn drop(&mut self) {
        let mut heard = locked(&self.heard);
        heard.is_over = true;
        if let Some(dmon) = &mut heard.dmon {
            // The client may already have ended.
            let _ = dmon.kill();
        }
    }
}

fn locked(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn discover(program: &Path) -> Result<BTreeMap<String, u32>, String> {
    const ANSWER: Duration = Duration::from_secs(5);
    let listed = tool::output_within(Command::new(program).args(["discovery", "-l"]), ANSWER);
    Ok(discovered(&String::from_utf8_lossy(&listed.ok_or("no host engine answers")?)))
}

/// Reads rows until the client ends; the error says why it gave no rows.
fn follow(program: &Path, uuids: &[String], heard: &Mutex<Heard>) -> Result<(), String> {
    let mut numbers = discover(program)?;
    numbers.retain(|uuid, _| uuids.contains(uuid));
    if numbers.is_empty() {
        return Err("the host engine does not know these GPUs".to_owned());
    }
    let (reader, writer) = std::io::pipe().map_err(|error| error.to_string())?;
    {
        let mut command = dmon(program, &numbers);
        let also = writer.try_clone().map_err(|error| error.to_string())?;
        command.stdin(Stdio::null()).stdout(writer).stderr(also);
        let mut heard = locked(heard);
        if heard.is_over {
            return Ok(());
        }
        heard.dmon = Some(command.spawn().map_err(|error| error.to_string())?);
        heard.numbers = numbers;
    }
    let mut complaint = None;
    for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        match row(&line, Instant::now()) {
            Some(row) => locked(heard).push(row),
            None => complaint = complaint.or_else(|| error_of(&line)),
        }
    }
    let mut heard = locked(heard);
    if let Some(mut dmon) = heard.dmon.take() {
        // The output of `dcgmi` is closed; if the program still runs, it is useless.
        let _ = dmon.kill();
        let _ = dmon.wait();
    }
    match complaint {
        _ if heard.is_over || !heard.rows.is_empty() => Ok(()),
        Some(complaint) => Err(complaint),
        None => Err("dcgmi dmon ended without a number".to_owned()),
    }
}

impl Heard {
    fn push(&mut self, row: Row) {
        self.rows.push(row);
        if self.rows.len() >= KEPT {
            let mut at = 0_usize;
            // Drops every second block of 32 neighbours: dropping every second row could drop all rows of one GPU.
            self.rows.retain(|_| {
                at += 1;
                at % 64 < 32
            });
        }
    }
}

fn dmon(program: &Path, numbers: &BTreeMap<String, u32>) -> Command {
    let fields: Vec<String> = FIELDS.iter().map(|(field, _)| field.to_string()).collect();
    let numbers: Vec<String> = numbers.values().map(u32::to_string).collect();
    let mut command = Command::new(program);
    command.args(["dmon", "-e", &fields.join(","), "-d", &PERIOD.as_millis().to_string(), "-i", &numbers.join(",")]);
    command
}

/// Returns the engine's numbers by UUID, from a table with rows like these:
///
/// ```text
/// | 0      | Name: NVIDIA A100-SXM4-80GB                                          |
/// |        | PCI Bus ID: 00000000:07:00.0                                         |
/// |        | Device UUID: GPU-9ca02968-f496-c0c4-01d9-509cb6c32f5f                |
/// ```
fn discovered(table: &str) -> BTreeMap<String, u32> {
    let mut numbers = BTreeMap::new();
    let mut number = None;
    for line in table.lines() {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let (Some(first), Some(second)) = (cells.next(), cells.next()) else { continue };
        number = first.parse().ok().or(number);
        if let (Some(number), Some(uuid)) = (number, second.strip_prefix("Device UUID:")) {
            numbers.insert(uuid.trim().to_owned(), number);
        }
    }
    numbers
}

/// Parses a row like `GPU 0     0.512  0.204  N/A  0.101  1024  2048  N/A  N/A`. Headers begin with `#Entity` and `ID`,
/// rows of MIG instances with `GPU-I`: both give `None`.
fn row(line: &str, at: Instant) -> Option<Row> {
    let mut words = line.split_whitespace();
    if words.next()? != "GPU" {
        return None;
    }
    let number = words.next()?.parse().ok()?;
    let values: Vec<Option<f64>> = words.zip(FIELDS).map(|(word, (_, metric))| value(word, *metric)).collect();
    (values.len() == FIELDS.len()).then_some(Row { at, number, values })
}

/// Returns the value if it is plausible: a share is at most 1. Values may be missing, as DCGM reads some in turns.
fn value(word: &str, metric: Metric) -> Option<f64> {
    // Allows for rounding, and for counters that are not read at exactly the same moment.
    const MOST: f64 = 1.05;
    let is_share = metric.unit() == crate::model::Unit::Share;
    let value: f64 = word.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)?;
    match is_share {
        true if value > MOST => None,
        true => Some(value.min(1.0)),
        false => Some(value),
    }
}

/// Returns a line that has the client's error message, shortened for a report.
fn error_of(line: &str) -> Option<String> {
    const LONGEST: usize = 160;
    let line = line.trim();
    let text: String = line.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    line.to_lowercase().contains("error").then_some(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const UUID: &str = "GPU-9ca02968-f496-c0c4-01d9-509cb6c32f5f";
    const OTHER: &str = "GPU-00000000-f496-c0c4-01d9-509cb6c32f5f";
    const DISCOVERY: &str = "2 GPUs found.\n+--------+--------------------------------+\n| GPU ID | Device Information             |\n\
        +--------+--------------------------------+\n| 0      | Name: NVIDIA A100              |\n|        | PCI Bus ID: 00000000:00:1F.0   |\n\
        |        | Device UUID: GPU-00000000-f496-c0c4-01d9-509cb6c32f5f |\n+--------+-----+\n| 1      | Name: NVIDIA A100 |\n\
        |        | PCI Bus ID: 00000000:00:2F.0 |\n|        | Device UUID: GPU-9ca02968-f496-c0c4-01d9-509cb6c32f5f |\n+--------+-----+\n\
        0 NvSwitches found.\n+-----------+\n| Switch ID |\n+-----------+\n";
    const HEADER: &str = "#Entity   SMACT        SMOCC        TENSO        DRAMA        PCITX        PCIRX        NVLTX        NVLRX\nID\n";

    /// A stand-in for `dcgmi`: a script for each of its two uses.
    fn stand_in(folder: &Path, discovery: &str, dmon: &str) -> PathBuf {
        let program = folder.join("dcgmi");
        fs::write(folder.join("table"), DISCOVERY).unwrap();
        fs::write(folder.join("header"), HEADER).unwrap();
        let script = format!(
            "#!/bin/sh\ncd {}\necho \"$@\" >> arguments\ncase \"$1\" in\ndiscovery) {discovery};;\ndmon) {dmon};;\nesac\n",
            folder.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    fn until(dcgm: &Dcgm, is_so: impl Fn(&Heard) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !is_so(&locked(&dcgm.heard)) {
            assert!(Instant::now() < deadline, "{:?}", dcgm.heard);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn the_rows_of_the_gpu_are_averaged() {
        let folder = tempfile::tempdir().unwrap();
        let rows = "GPU 0     0.111 0.111 0.111 0.111 1 1 1 1\\nGPU 1     0.500 0.250 N/A 0.100 1000 3000 N/A N/A\\n\
                    GPU-I 1   0.9 0.9 0.9 0.9 9 9 9 9\\nGPU 1     0.700 nan -1 7.5 2000 1e400 garbage N/A\\nGPU 1\\nGPU x 1 2 3\\n\\377\\n";
        let program = stand_in(
            folder.path(),
            "cat table",
            &format!(
                "cat header; printf '{rows}'; cat header; printf 'GPU 1 0.9 0.1 N/A N/A 3000 N/A N/A N/A\\n'; exec sleep 600"
            ),
        );
        let begin = Instant::now();
        let dcgm = Dcgm::listen_with(&program, &[UUID.to_owned(), "MIG-x".to_owned()]);
        until(&dcgm, |heard| heard.rows.len() == 4);
        let now = Instant::now();
        let readings = dcgm.readings(UUID, begin - PERIOD, now);
        let of = |metric: Metric| readings.get(&metric).map(|reading| (reading.value * 1000.0).round() / 1000.0);
        assert_eq!((of(Metric::SmActive), of(Metric::SmOccupancy)), (Some(0.7), Some(0.175)));
        assert_eq!((of(Metric::TensorActive), of(Metric::DramActive)), (None, Some(0.1)));
        let bytes = [Metric::PcieSent, Metric::PcieReceived, Metric::NvlinkSent].map(of);
        assert_eq!(bytes, [Some(2000.0), Some(3000.0), None]);
        assert!(readings.values().all(|reading| reading.source == Source::Dcgm));
        assert_eq!(dcgm.readings(OTHER, begin - PERIOD, now), Readings::new(), "no reader asked for it");
        assert_eq!(dcgm.readings(UUID, now + PERIOD, now + PERIOD * 2), Readings::new());
        let arguments = fs::read_to_string(folder.path().join("arguments")).unwrap();
        assert!(arguments.contains("dmon -e 1002,1003,1004,1005,1009,1010,1011,1012 -d 1000 -i 1\n"), "{arguments}");
        let pid = locked(&dcgm.heard).dmon.as_ref().unwrap().id();
        drop(dcgm);
        let gone = || crate::machine::process_table::command(pid).is_none();
        while !gone() && now.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(gone(), "the client goes with the listener");
    }

    #[test]
    fn what_is_missing_is_told_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        for (discovery, dmon, reason) in [
            ("echo 'Error: unable to establish a connection'; exit 1", "exit 1", "DCGM: no host engine answers"),
            ("printf '\\377 garbage | | |\\n'", "exit 1", "DCGM: the host engine does not know these GPUs"),
            ("cat table", "cat header; exit 1", "DCGM: dcgmi dmon ended without a number"),
            (
                "cat table",
                "cat header; echo 'Error setting watches. Result: -36: requires root' >&2; exit 1",
                "DCGM: Error setting watches. Result: -36: requires root",
            ),
        ] {
            let program = stand_in(folder.path(), discovery, dmon);
            let dcgm = Dcgm::listen_with(&program, &[UUID.to_owned()]);
            until(&dcgm, |heard| heard.absent.is_some());
            assert_eq!(dcgm.absent().as_deref(), Some(reason));
            assert_eq!(dcgm.readings(UUID, Instant::now(), Instant::now()), Readings::new());
        }
        assert_eq!(Dcgm::without("x").absent().as_deref(), Some("DCGM: x"));
    }

    #[test]
    fn an_engine_that_hangs_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let program = stand_in(folder.path(), "exec sleep 600", "exit 1");
        let begin = Instant::now();
        let dcgm = Dcgm::listen_with(&program, &[UUID.to_owned()]);
        assert_eq!((dcgm.absent(), dcgm.readings(UUID, begin, Instant::now())), (None, Readings::new()));
        drop(dcgm);
        assert!(begin.elapsed() < Duration::from_secs(60));
        let program = stand_in(folder.path(), "cat table", "cat header; exec sleep 600");
        let dcgm = Dcgm::listen_with(&program, &[UUID.to_owned()]);
        until(&dcgm, |heard| heard.dmon.is_some());
        assert_eq!(dcgm.readings(UUID, begin, Instant::now()), Readings::new());
    }

    #[test]
    fn a_long_probe_keeps_rows_of_all_gpus() {
        let mut heard = Heard::default();
        let at = Instant::now();
        for _ in 0..10_000 {
            (0..4).for_each(|number| heard.push(Row { at, number, values: vec![None; FIELDS.len()] }));
        }
        assert!(heard.rows.len() < KEPT && (0..4).all(|number| heard.rows.iter().any(|row| row.number == number)));
    }
}
