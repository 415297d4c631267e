//! Workers on the nodes of a Slurm allocation.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{OnNode, Wanted, WorkerError, variable};

/// Returns true if this process runs in an allocation of several nodes.
pub(super) fn is_in_large_allocation(_: &Wanted<'_>) -> bool {
    variable("SLURM_JOB_NUM_NODES").and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count > 1)
}

/// Makes a command for each node that starts one job step for the whole search. The worker in the step sees all of the
/// node's GPUs and assigns them to probes itself, because per-task binding differs by version. A step per probe would
/// queue (`srun`(1)). `--overlap` and `--mem=0` let the step share the allocation with the batch script.
pub(super) fn commands(wanted: &Wanted<'_>) -> Result<Vec<OnNode>, WorkerError> {
    let outside =
        |reason: &str| WorkerError::new(reason, "run gputune in an allocation: by `sbatch`, or after `salloc`");
    let list = variable("SLURM_JOB_NODELIST").ok_or_else(|| outside("this is no Slurm allocation"))?;
    let listed = Command::new("scontrol").args(["show", "hostnames", &list]).output();
    let listed = listed.map_err(|error| outside(&format!("cannot run `scontrol`: {error}")))?;
    let hosts = String::from_utf8_lossy(&listed.stdout);
    let hosts: Vec<&str> = hosts.lines().map(str::trim).filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() {
        return Err(outside(&format!("`scontrol show hostnames {list}` names no node")));
    }
    let cpus = per_node(&variable("SLURM_JOB_CPUS_PER_NODE").unwrap_or_default());
    let gpus = variable("SLURM_GPUS_ON_NODE").filter(|count| count != "0");
    let command = |(at, host): (usize, &str)| {
        let mut command = Command::new("srun");
        command.args(["-N1", "-n1", "-w", host, "--overlap", "--mem=0", "--unbuffered", "--quiet"]);
        if let Some(gpus) = &gpus {
            command.arg(format!("--gpus-per-node={gpus}"));
        }
        if let Some(cpus) = cpus.get(at).or(cpus.last()) {
            command.arg(format!("--cpus-per-task={cpus}"));
        }
        // Ctrl-C at a terminal must reach only gputune, which then ends its probes.
        command.arg(wanted.gputune).arg(wanted.serves).process_group(0);
        (host.to_owned(), command)
    };
    Ok(hosts.into_iter().enumerate().map(command).collect())
}

/// Parses a list like `8(x2),4` into one number per node (`sbatch`(1), `SLURM_JOB_CPUS_PER_NODE`).
fn per_node(list: &str) -> Vec<u32> {
    let part = |part: &str| {
        let (count, times) = part.split_once("(x").unwrap_or((part, "1)"));
        let times: usize = times.trim_end_matches(')').parse().ok()?;
        Some(std::iter::repeat_n(count.parse().ok()?, times.min(1 << 16)))
    };
    list.split(',').filter_map(part).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_per_node_are_read() {
        assert_eq!(per_node("8(x2),4"), [8, 8, 4]);
        assert_eq!(per_node("16"), [16]);
        assert_eq!(per_node(""), [0_u32; 0]);
    }
}
