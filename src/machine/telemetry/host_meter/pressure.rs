//! Reads the time in which work waited for a CPU, for storage or for memory.

use std::fs;
use std::path::Path;

/// The kernel's counts of lost time, in microseconds: `total` in the lines `some` of its pressure files. It is the time in
/// which at least one task waited (kernel documentation, accounting/psi.rst; since Linux 4.20).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pressure {
    pub(super) cpu: Option<u64>,
    pub(super) io: Option<u64>,
    pub(super) memory: Option<u64>,
}

impl Pressure {
    /// Reads the counts of the whole machine.
    pub(super) fn of_machine(proc: &Path) -> Self {
        let file = |name: &str| some_total(&proc.join("pressure").join(name));
        Self { cpu: file("cpu"), io: file("io"), memory: file("memory") }
    }

    /// Reads the counts of a control group of version 2; `None` while the group is empty, since it then reports
    /// nothing.
    pub(super) fn of_group(folder: &Path) -> Option<Self> {
        let events = fs::read_to_string(folder.join("cgroup.events")).ok()?;
        if !events.lines().any(|line| line == "populated 1") {
            return None;
        }
        let file = |name: &str| some_total(&folder.join(format!("{name}.pressure")));
        let pressure = Self { cpu: file("cpu"), io: file("io"), memory: file("memory") };
        (pressure != Self::default()).then_some(pressure)
    }
}

/// Returns the total in a line like `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`.
fn some_total(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}
