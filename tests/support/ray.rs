//! A real Ray head on this machine, with two GPUs that it only counts, and a token.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// A Ray head, which ends when dropped.
pub(crate) struct Ray {
    folder: tempfile::TempDir,
    head: Child,
    pub(crate) url: String,
}

/// Returns the path of `ray`, in the environment of `GPUTUNE_TEST_RAY` or in `PATH`.
fn found() -> Option<PathBuf> {
    let own = std::env::var("GPUTUNE_TEST_RAY").map(|venv| format!("{venv}/bin")).unwrap_or_default();
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = own.split(':').chain(path.split(':')).filter(|folder| !folder.is_empty());
    folders.map(|folder| PathBuf::from(folder).join("ray")).find(|path| path.is_file())
}

impl Ray {
    pub(crate) const TOKEN: &'static str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// Starts a head; returns `None` and prints the reason if that is impossible.
    pub(crate) fn start() -> Option<Self> {
        let Some(ray) = found() else {
            eprintln!("NOT RUN: no Ray can be started here (missing: ray)");
            return None;
        };
        // Its sockets need a short path.
        let folder = tempfile::Builder::new().prefix("ray-").tempdir_in("/tmp").unwrap();
        let ports: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port: Vec<u16> = ports.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(ports);
        let mut command = Command::new(ray);
        command.args(["start", "--head", "--block", "--node-ip-address=127.0.0.1", "--num-cpus=4", "--num-gpus=2"]);
        command.args(["--dashboard-host=127.0.0.1", "--object-store-memory=100000000", "--disable-usage-stats"]);
        command.arg(format!("--port={}", port[0])).arg(format!("--dashboard-port={}", port[1]));
        command.arg(format!("--dashboard-agent-listen-port={}", port[2]));
        command.args(["--min-worker-port=0", "--max-worker-port=0"]).arg("--temp-dir").arg(folder.path());
        Self::with(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The head has its own process group, and the whole group is ended.
        let head = command.process_group(0).spawn().unwrap();
        let ray = Self { folder, head, url: format!("http://127.0.0.1:{}", port[1]) };
        let deadline = Instant::now() + Duration::from_secs(240);
        while ray.ask("GET", "") != "[]" {
            assert!(Instant::now() < deadline, "Ray does not come up");
            std::thread::sleep(Duration::from_millis(200));
        }
        Some(ray)
    }

    /// A command that knows the token.
    pub(crate) fn with(command: &mut Command) -> &mut Command {
        command.env("RAY_AUTH_MODE", "token").env("RAY_AUTH_TOKEN", Self::TOKEN)
    }

    /// Returns the answer of the jobs API.
    pub(crate) fn ask(&self, method: &str, path: &str) -> String {
        let url = format!("{}/api/jobs/{path}", self.url);
        let answer = if method == "GET" { minreq::get(url) } else { minreq::post(url) };
        let answer = answer.with_header("Authorization", format!("Bearer {}", Self::TOKEN)).with_timeout(30).send();
        answer.ok().and_then(|answer| Some(answer.as_str().ok()?.trim().to_owned())).unwrap_or_default()
    }

    /// Returns its jobs and their status.
    pub(crate) fn jobs(&self) -> Vec<(String, String)> {
        let jobs: serde_json::Value = serde_json::from_str(&self.ask("GET", "")).unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        jobs.as_array().into_iter().flatten().map(|job| (text(&job["submission_id"]), text(&job["status"]))).collect()
    }
}

impl Drop for Ray {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.head.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(group, Signal::TERM);
            let deadline = Instant::now() + Duration::from_secs(15);
            while matches!(self.head.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(100));
            }
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let _ = self.head.wait();
        // Processes that have left the group have this folder in their command line.
        let folder = self.folder.path().display().to_string();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let pid = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
            if let Some(pid) = pid.filter(|_| String::from_utf8_lossy(&line).contains(&folder)) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}
