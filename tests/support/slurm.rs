//! A real Slurm on this machine: two nodes of four fake GPUs each, on loopback, with its own key and folders.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The nodes, and the GPUs of each node: character devices that are `/dev/null`.
pub(crate) const NODES: usize = 2;
pub(crate) const GPUS: usize = 4;

/// A cluster, which ends when dropped.
pub(crate) struct Slurm {
    folder: tempfile::TempDir,
}

impl Slurm {
    /// Starts a cluster; returns `None` and prints the reason if that is impossible.
    pub(crate) fn start() -> Option<Self> {
        let has = |program: &str| Command::new("which").arg(program).output().is_ok_and(|found| found.status.success());
        let missing: Vec<&str> =
            ["munged", "slurmctld", "slurmd", "srun"].into_iter().filter(|program| !has(program)).collect();
        if !missing.is_empty() || !rustix::process::geteuid().is_root() {
            eprintln!("NOT RUN: no Slurm can be started here (missing: {}; or this is not root)", missing.join(", "));
            return None;
        }
        let folder = tempfile::Builder::new().prefix("slurm-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let slurm = Self { folder };
        slurm.configure();
        slurm.munge();
        slurm.ok(Command::new("slurmctld"));
        for node in 1..=NODES {
            let mut slurmd = Command::new("slurmd");
            slurmd.args(["-N", &format!("gt{node}")]);
            slurm.ok(slurmd);
        }
        let deadline = Instant::now() + Duration::from_secs(240);
        let idle = || {
            let told = slurm.with(Command::new("sinfo").args(["-h", "-N", "-o", "%T"])).output().unwrap();
            String::from_utf8_lossy(&told.stdout).lines().filter(|state| *state == "idle").count()
        };
        while idle() < NODES {
            assert!(Instant::now() < deadline, "the nodes do not come up: {}", slurm.path("log").display());
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(slurm)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command that talks to this cluster.
    pub(crate) fn with<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("SLURM_CONF", self.path("slurm.conf"))
    }

    fn ok(&self, mut command: Command) {
        let done = self.with(&mut command).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(done.success(), "{command:?}");
    }

    fn munge(&self) {
        let key = self.path("munge/key");
        let random: Vec<u8> = (0..1024_u32).map(|at| (at * 7 % 251) as u8).collect();
        fs::write(&key, random).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
        let mut munged = Command::new("munged");
        munged.arg("--force").arg(format!("--key-file={}", key.display()));
        for (option, file) in [("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed")] {
            munged.arg(format!("--{option}={}", self.path("munge").join(file).display()));
        }
        self.ok(munged);
    }

    fn configure(&self) {
        for folder in ["munge", "state", "spool", "dev", "log"] {
            fs::create_dir(self.path(folder)).unwrap();
        }
        for node in 1..=NODES {
            fs::create_dir(self.path(&format!("spool/gt{node}"))).unwrap();
        }
        for gpu in 0..GPUS {
            let device = self.path(&format!("dev/nvidia{gpu}"));
            let made = Command::new("mknod").arg(&device).args(["c", "1", "3"]).status().unwrap();
            assert!(made.success());
        }
        let ports: Vec<TcpListener> = (0..=NODES).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = ports.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = host.split('.').next().unwrap_or_default();
        let root = self.folder.path().display();
        let nodes: String = (1..=NODES)
            .map(|node| {
                let port = ports[node];
                format!(
                    "NodeName=gt{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=16000 \
                     Gres=gpu:h100:{GPUS} State=UNKNOWN\n"
                )
            })
            .collect();
        let text = format!(
            "ClusterName=gputune\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={port}\nSlurmUser=root\nAuthType=auth/munge\n\
             AuthInfo=socket={root}/munge/socket\nCredType=cred/munge\nStateSaveLocation={root}/state\n\
             SlurmdSpoolDir={root}/spool/%n\nSlurmctldPidFile={root}/slurmctld.pid\nSlurmdPidFile={root}/slurmd-%n.pid\n\
             SlurmctldLogFile={root}/log/slurmctld\nSlurmdLogFile={root}/log/%n\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nMpiDefault=none\nSwitchType=switch/none\nReturnToService=2\n\
             SlurmdParameters=config_overrides\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n\
             SchedulerParameters=sched_interval=1,bf_interval=1\nKillWait=2\nGresTypes=gpu\n\
             AccountingStorageType=accounting_storage/none\nPreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n{nodes}\
             PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP PreemptMode=CANCEL PriorityTier=1\n\
             PartitionName=patient Nodes=ALL MaxTime=INFINITE State=UP PreemptMode=REQUEUE PriorityTier=1\n\
             PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PreemptMode=OFF PriorityTier=9\n",
            port = ports[0],
        );
        fs::write(self.path("slurm.conf"), text).unwrap();
        let last = GPUS - 1;
        let gres = format!("NodeName=gt[1-{NODES}] Name=gpu Type=h100 File={root}/dev/nvidia[0-{last}]\n");
        fs::write(self.path("gres.conf"), gres).unwrap();
        // Slurm 23 and later does not start without this file.
        let version = Command::new("slurmctld").arg("-V").output().unwrap();
        if !String::from_utf8_lossy(&version.stdout).contains(" 22.") {
            fs::write(self.path("cgroup.conf"), "CgroupPlugin=disabled\n").unwrap();
        }
    }

    /// Runs a job that takes all nodes from other partitions: jobs of `gpu` are ended, jobs of `patient` are requeued.
    pub(crate) fn take_all_nodes(&self) {
        let mut job = Command::new("sbatch");
        job.args(["--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 2"])
            .arg(format!("-N{NODES}"));
        self.ok(job);
    }

    /// Runs `scontrol`, again if it fails: on a busy machine the controller may answer too late.
    pub(crate) fn control(&self, arguments: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let done = self.with(Command::new("scontrol").args(arguments)).output().unwrap();
            if done.status.success() {
                return;
            }
            assert!(Instant::now() < deadline, "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Brings back a node that was taken down.
    pub(crate) fn bring_back(&self, node: &str) {
        let deadline = Instant::now() + Duration::from_secs(120);
        let is_up = || {
            let told = self.with(Command::new("sinfo").args(["-h", "-n", node, "-o", "%T"])).output().unwrap();
            ["idle", "mixed", "allocated"].contains(&String::from_utf8_lossy(&told.stdout).trim())
        };
        while !is_up() {
            assert!(Instant::now() < deadline, "{node} does not come back");
            // The node may already be on its way back.
            let mut resume = Command::new("scontrol");
            resume.args(["update", &format!("NodeName={node}"), "State=RESUME"]).stderr(Stdio::null());
            let _ = self.with(&mut resume).status();
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ends all jobs.
    pub(crate) fn cancel(&self) {
        let _ = self.with(Command::new("scancel").args(["--state=RUNNING"])).status();
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        self.cancel();
        std::thread::sleep(Duration::from_secs(3));
        let nodes = (1..=NODES).map(|node| format!("slurmd-gt{node}.pid"));
        for file in ["slurmctld.pid".to_owned()].into_iter().chain(nodes).chain(["munge/pid".to_owned()]) {
            end(&self.path(&file));
        }
    }
}

fn end(pid_file: &Path) {
    let pid = fs::read_to_string(pid_file).ok().and_then(|text| text.trim().parse().ok());
    let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else { return };
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    let deadline = Instant::now() + Duration::from_secs(5);
    while rustix::process::test_kill_process(pid).is_ok() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
}
